"""The same words on a GPU as on the CPU, whatever its libm computes."""

import pytest
import torch

from xlnstorch import (
    LinearAccumulator,
    LNSFormat,
    LogAccumulator,
    Mitchell,
    Piecewise,
    conversions,
    from_words,
    lns8,
    lns16,
    lns16e5,
    lns24,
    lns32,
    lnstensor,
    software_format,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

FORMATS = [
    *(lns8, lns16, lns16e5, lns24, lns32, software_format(23)),
    LNSFormat(8, 7, accumulator=LogAccumulator("tree")),
    LNSFormat(8, 7, accumulator=LogAccumulator(guard_bits=4)),
    LNSFormat(8, 7, accumulator=LinearAccumulator()),
    LNSFormat(8, 7, adder=Mitchell()),
    LNSFormat(8, 15, adder=Piecewise(degree=2)),
    LNSFormat(8, 23, adder=Piecewise(degree=2)),
]
COUNT = 20_000


def random_words(format, seed):
    generator = torch.Generator().manual_seed(seed)
    low = torch.randint(0, 1 << 30, (COUNT,), generator=generator)
    words = (low << 30 | torch.randint(0, 1 << 30, (COUNT,), generator=generator)) & ((1 << format.width) - 1)
    return words


def near(format, words):
    distance = torch.randint(-9, 10, words.shape, generator=torch.Generator().manual_seed(9))
    field = ((words & format.max_field) + distance).clamp(0, format.max_field)
    return field | (~words & (1 << format.log_bits))


@pytest.mark.parametrize("format", FORMATS, ids=repr)
def test_every_operation_gives_the_words_of_the_cpu(format):
    a = random_words(format, 1)
    for b in (random_words(format, 2), near(format, a)):
        x, y = from_words(a, format), from_words(b, format)
        gx, gy = from_words(a.cuda(), format), from_words(b.cuda(), format)
        for compute in (
            lambda x, y: x + y,
            lambda x, y: x - y,
            lambda x, y: x * y,
            lambda x, y: x / y,
            lambda x, y: torch.maximum(x, y),
            lambda x, y: x.abs().sqrt(),
            lambda x, y: x**3,
            lambda x, y: x.exp(),
            lambda x, y: x.abs().log(),
            lambda x, y: (x.reshape(100, 200) @ y.reshape(200, 100)).sum(0),
        ):
            assert torch.equal(compute(gx, gy).words.cpu(), compute(x, y).words)


@pytest.mark.parametrize("format", FORMATS, ids=repr)
def test_conversions_give_the_bits_of_the_cpu(format):
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(COUNT, generator=generator, dtype=torch.float64)
    values = torch.ldexp(values, torch.randint(-140, 140, (COUNT,), generator=generator))
    assert torch.equal(conversions.encode(format, values.cuda()).cpu(), conversions.encode(format, values))
    words = format.from_unsigned(random_words(format, 4))
    assert torch.equal(conversions.decode(format, words.cuda()).cpu(), conversions.decode(format, words))


@pytest.mark.parametrize("format", FORMATS, ids=repr)
def test_a_training_step_gives_the_words_of_the_cpu(format):
    def step(device):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.ReLU(), torch.nn.Linear(8, 5))
        for layer in model:
            for name, parameter in layer.named_parameters():
                setattr(layer, name, torch.nn.Parameter(lnstensor(parameter, format=format, device=device)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        images = lnstensor(torch.randn(16, 12), format=format, device=device)
        labels = torch.randint(0, 5, (16,)).to(device)
        for _ in range(2):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        return [x.words.cpu() for p in model.parameters() for x in (p, p.grad)]

    assert all(torch.equal(gpu, cpu) for gpu, cpu in zip(step("cuda"), step("cpu"), strict=True))
