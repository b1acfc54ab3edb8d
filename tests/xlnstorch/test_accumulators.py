"""What holds for every accumulator, and the sums made of LNS additions, whose order is part of the result."""

import dataclasses
import random
import re
from pathlib import Path

import pytest
import torch
from lnstesting import check, exactly, leaf, randn

from sim import capture
from xlnstorch import (
    Accumulator,
    AnomalyError,
    Exact,
    GaussianFunction,
    LNSFormat,
    LogAccumulator,
    detect_anomaly,
    from_words,
    lns8,
    lns12,
    lns16,
    lns32,
    lnstensor,
    software_format,
)
from xlnstorch.accumulators import LinearAccumulator
from xlnstorch.observe import flags, observing
from xlnstorch.reference import Reference

SEQUENTIAL, TREE = LogAccumulator(), LogAccumulator("tree")
ACCUMULATORS = [SEQUENTIAL, TREE, LogAccumulator(guard_bits=4), LogAccumulator("tree", guard_bits=3)]
ACCUMULATORS += [LinearAccumulator(), LinearAccumulator(table_bits=5, frac_bits=9)]
FORMATS = [lns8, lns16, lns32, software_format(23)]


def reference_of(format):
    return Reference(format.int_bits, format.frac_bits)


def tree_sum(reference, words):
    """Neighbours first, an odd last one moves up: written with slices of lists, to be compared with the tensors."""
    words = list(words)
    while len(words) > 1:
        words = [
            reference.add(*words[i : i + 2])[0] if i + 1 < len(words) else words[i] for i in range(0, len(words), 2)
        ]
    return words[0] if words else 0


def random_words(format, rng, *shape):
    """Words of numbers around one, so that no term is lost beside the others, with an occasional zero."""
    spread = 3 << format.frac_bits

    def word():
        if rng.random() < 0.1:
            return 0
        return format.bias + rng.randrange(-spread, spread + 1) + (rng.randrange(2) << format.log_bits)

    count = torch.Size(shape).numel()
    return torch.tensor([word() for _ in range(count)], dtype=torch.int64).reshape(shape)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 8, 13, 64])
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_sums(format, length):
    words = random_words(format, random.Random(length), 5, length)
    reference, tensor = reference_of(format), format.from_unsigned(words)
    sequential, tree = SEQUENTIAL.sum(format, tensor, 1), TREE.sum(format, tensor, 1)
    assert sequential.dtype == tree.dtype == format.dtype
    assert format.to_unsigned(sequential).tolist() == [reference.sum(row)[0] for row in words.tolist()]
    assert format.to_unsigned(tree).tolist() == [tree_sum(reference, row) for row in words.tolist()]


def test_the_orders_differ():
    words = random_words(lns16, random.Random(0), 20, 16)
    tensor = lns16.from_unsigned(words)
    assert not torch.equal(SEQUENTIAL.sum(lns16, tensor, 1), TREE.sum(lns16, tensor, 1))
    assert not torch.equal(SEQUENTIAL.sum(lns16, tensor, 1), SEQUENTIAL.sum(lns16, tensor.flip(1), 1))


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=repr)
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2])
def test_sum_over_any_dimension(accumulator, dim):
    tensor = lns16.from_unsigned(random_words(lns16, random.Random(1), 3, 4, 5))
    expected = accumulator.sum(lns16, tensor.movedim(dim, -1).reshape(-1, tensor.shape[dim]), 1)
    result = accumulator.sum(lns16, tensor, dim)
    assert result.shape == tensor.sum(dim).shape
    assert torch.equal(result.reshape(-1), expected)


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=repr)
def test_sum_of_nothing_is_zero(accumulator):
    for shape, dim, result_shape in (((0,), 0, ()), ((3, 0), 1, (3,)), ((3, 0), 0, (0,)), ((0, 2), 0, (2,))):
        result = accumulator.sum(lns16, torch.empty(shape, dtype=torch.int16), dim)
        assert (result.shape, result.dtype) == (result_shape, torch.int16)
        assert not result.any()


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=repr)
def test_sum_does_not_share_memory(accumulator):
    words = lns16.from_unsigned(torch.tensor([[0x4000]]))
    accumulator.sum(lns16, words, 1).zero_()
    assert int(words) == 0x4000


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=repr)
def test_sum_does_not_produce_negative_zero(accumulator):
    words = lns16.from_unsigned(torch.tensor([0x8000, 0x8000, 0x8000]))
    for length in (3, 2, 1):
        assert accumulator.sum(lns16, words[:length], 0) == 0


@pytest.mark.parametrize(
    ("format", "stalled", "ones"),
    [
        (lns8, 0x64, 20),  # 22.6
        (lns12, 0x5E2, 162),  # 184.98
        (lns16, 0x4444, 323),  # 369.97
    ],
    ids=str,
)
def test_sum_of_ones_stalls(format, stalled, ones):
    terms = torch.full((2 * ones,), format.bias, dtype=format.dtype)
    assert SEQUENTIAL.sum(format, terms, 0) == stalled
    assert SEQUENTIAL.sum(format, terms[:ones], 0) == stalled
    assert SEQUENTIAL.sum(format, terms[: ones - 1], 0) < stalled
    reference = reference_of(format)
    assert reference.sum([format.bias] * 2 * ones)[0] == stalled
    # The next one lies at the reach of the sum: s(d) is zero there, and not just before.
    d = stalled - format.bias
    assert (reference.gaussian_sum(d), reference.gaussian_sum(d - 1)) == (0, 1)


def test_tree_of_ones_does_not_stall():
    terms = torch.full((1024,), lns16.bias, dtype=torch.int16)
    assert TREE.sum(lns16, terms, 0) == 0x4000 + 10 * 128
    assert TREE.sum(lns16, terms[:1000], 0) > 0x4444  # and with odd terms that move up


@pytest.mark.parametrize("format", [lns8, lns16, lns32], ids=str)
def test_matmul(format):
    rng, reference = random.Random(2), reference_of(format)
    a, b = random_words(format, rng, 4, 9), random_words(format, rng, 9, 3)
    columns = list(zip(*b.tolist(), strict=True))
    sequential = SEQUENTIAL.matmul(format, format.from_unsigned(a), format.from_unsigned(b))
    assert sequential.dtype == format.dtype
    expected = [[reference.dot(row, column)[0] for column in columns] for row in a.tolist()]
    assert format.to_unsigned(sequential).tolist() == expected
    expected = [
        [tree_sum(reference, [reference.mul(x, y)[0] for x, y in zip(row, column, strict=True)]) for column in columns]
        for row in a.tolist()
    ]
    tree = TREE.matmul(format, format.from_unsigned(a), format.from_unsigned(b))
    assert format.to_unsigned(tree).tolist() == expected


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=repr)
def test_matmul_of_batches_and_of_nothing(accumulator):
    rng = random.Random(3)
    a = lns16.from_unsigned(random_words(lns16, rng, 2, 1, 4, 5))
    b = lns16.from_unsigned(random_words(lns16, rng, 3, 5, 2))
    result = accumulator.matmul(lns16, a, b)
    assert result.shape == (2, 3, 4, 2)
    for i in range(2):
        for j in range(3):
            assert torch.equal(result[i, j], accumulator.matmul(lns16, a[i, 0], b[j]))
    nothing = accumulator.matmul(lns16, a[..., :0], b[:, :0])
    assert (nothing.shape, nothing.dtype) == ((2, 3, 4, 2), torch.int16)
    assert not nothing.any()


def test_every_step_is_observed():
    words = lns16.from_unsigned(random_words(lns16, random.Random(4), 6))
    for accumulator in (SEQUENTIAL, TREE):
        names = []
        with observing(lambda operation: names.extend([operation.name] * operation.result.numel())):  # noqa: B023
            accumulator.sum(lns16, words, 0)
            accumulator.matmul(lns16, words.reshape(2, 3), words.reshape(3, 2))
        assert (names.count("add"), names.count("mul")) == (5 + 8, 12)
    with flags() as counts:
        SEQUENTIAL.sum(lns16, lns16.from_unsigned(torch.tensor([0x7FFF, 0x7FFF, 0xFFFF])), 0)
    assert (counts.operations, counts.overflow, counts.underflow) == (2, 1, 0)


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=repr)
def test_a_matrix_product_is_the_sum_of_the_products(accumulator):
    # Some products saturate and some flush.
    format = dataclasses.replace(lns16, accumulator=accumulator)
    a, b = randn(5, 7, seed=1, format=format), randn(7, 4, seed=2, format=format)
    a[0, 1], b[1, 0] = 1e30, 1e30
    a[2, 3], b[3, 2] = 1e-30, 1e-30
    products = a.unsqueeze(2) * b.unsqueeze(0)
    check(a @ b, format, accumulator.sum(format, products._words, 1))
    check(torch.stack([a, a]) @ torch.stack([b, b]), format, torch.stack([(a @ b)._words] * 2))
    check(torch.dot(a[0], b[:, 0]), format, (a @ b)._words[0, 0])
    check(torch.nn.functional.linear(a, b.T, b[0]), format, (a @ b + b[0])._words)


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=repr)
def test_layers_and_their_backward_pass(accumulator):
    format = dataclasses.replace(lns16, accumulator=accumulator)
    x, w, g = (randn(*shape, seed=i, format=format) for i, shape in enumerate([(5, 7), (3, 7), (5, 3)]))
    x.requires_grad_(), w.requires_grad_()
    torch.nn.functional.linear(x, w).backward(g)
    check(x.grad, format, accumulator.matmul(format, g._words, w._words))
    check(w.grad, format, accumulator.matmul(format, g._words.T, x._words))

    images, kernel = randn(2, 2, 4, 4, seed=5, format=format), randn(3, 2, 3, 3, seed=6, format=format)
    kernel.requires_grad_()
    result = torch.nn.functional.conv2d(images, kernel)
    windows = [images[:, :, i : i + 3, j : j + 3].reshape(2, 18) for i in range(2) for j in range(2)]
    expected = [(window @ kernel.reshape(3, 18).T)._words for window in windows]
    check(result.detach(), format, torch.stack(expected, 2).reshape(2, 3, 2, 2))
    incoming = randn(2, 3, 2, 2, seed=7, format=format)
    result.backward(incoming)
    columns = torch.stack(windows, 1).reshape(8, 18)  # batch and position
    expected = (incoming.reshape(2, 3, 4).transpose(0, 1).reshape(3, 8) @ columns)._words
    check(kernel.grad, format, expected.reshape(3, 2, 3, 3))


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=repr)
def test_means_variances_and_several_dimensions(accumulator):
    format = dataclasses.replace(lns16, accumulator=accumulator)
    x = randn(3, 4, 5, seed=1, format=format).requires_grad_()
    total = accumulator.sum(format, x.detach()._words.transpose(0, 1).reshape(4, 15), 1)
    check(x.sum((0, 2)).detach(), format, total)
    mean = x.mean((0, 2))
    check(mean.detach(), format, (x.sum((0, 2)) / 15)._words)
    squares = (x - mean.reshape(1, 4, 1)).detach() ** 2
    check(x.var((0, 2)).detach(), format, (squares.sum((0, 2)) / 14)._words)
    mean.sum().backward()
    check(x.grad, format, (lnstensor(torch.ones(3, 4, 5), format=format) / 15)._words)


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=repr)
def test_tensors_without_values_have_shapes(accumulator):
    format = dataclasses.replace(lns16, accumulator=accumulator)
    x = randn(3, 4, seed=1, format=format).to("meta")
    assert (x.sum(1).shape, x.sum(1).device.type, x.sum(1)._words.dtype) == ((3,), "meta", torch.int16)
    product = torch.stack([x, x]) @ x.T
    assert (product.shape, product.device.type, product._words.dtype) == ((2, 3, 3), "meta", torch.int16)


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=repr)
def test_accumulators_are_values(accumulator, tmp_path):
    twin = eval(repr(accumulator), {"LogAccumulator": LogAccumulator, "LinearAccumulator": LinearAccumulator})
    assert twin == accumulator and hash(twin) == hash(accumulator)
    format = LNSFormat(8, 7, accumulator=twin)
    assert sum(format == dataclasses.replace(lns16, accumulator=other) for other in ACCUMULATORS) == 1
    if accumulator != SEQUENTIAL:
        with pytest.raises(TypeError, match="two formats, lns16 and LNSFormat"):
            randn(3, seed=1) + randn(3, seed=1, format=format)
    x = leaf([1.5, -2.0], format)
    torch.save(x, tmp_path / "x.pt")
    loaded = torch.load(tmp_path / "x.pt")
    assert loaded.format == format and loaded.tolist() == x.tolist()


@pytest.mark.parametrize(
    ("guard_bits", "stalled", "ones"),
    [
        (0, 0x4444, 323),  # 369.97
        (2, 0x4544, 1293),  # 1479.9
        (4, 0x4644, 5172),  # 5919.5
    ],
)
def test_guard_bits_move_the_stall(guard_bits, stalled, ones):
    running = []
    terms = torch.full((ones + 50,), lns16.bias, dtype=torch.int16)
    with observing(lambda operation: running.append(int(operation.result)) if operation.name == "add" else None):
        assert LogAccumulator(guard_bits=guard_bits).sum(lns16, terms, 0) == stalled
    # Every one up to the last of them still changes the running sum, a word of the wide format.
    assert len(running) == ones + 49 and len(set(running[: ones - 1])) == ones - 1
    assert set(running[ones - 2 :]) == {running[-1]}


def test_what_is_observed_of_guard_bits():
    format = LNSFormat(8, 7, accumulator=LogAccumulator(guard_bits=4))
    wide = LNSFormat(8, 11)
    seen = []
    words = lns16.from_unsigned(torch.tensor([[0x7FFF, 0x4000], [0x4001, 0x4000], [0x0000, 0x4000]]))
    with observing(seen.append):
        result = format.accumulator.sum(format, words, 0)
    assert [(o.name, o.format, o.result.shape, len(o.operands)) for o in seen] == [
        ("add", wide, (2,), 2),
        ("add", wide, (2,), 2),
        ("sum", format, (2,), 0),
    ]
    # What saturated before is the largest number of the narrow format, and more than that is in range of the wide one.
    assert seen[0].operands[0].tolist() == [0x7FFF << 4, 0x4000 << 4]
    assert torch.equal(seen[-1].result, result)
    with flags() as counts:
        lnstensor([1.0, 2.0, 3.0], format=format).sum()
    assert {name: kind.operations for name, kind in counts.by_operation.items()} == {"add": 2, "sum": 1}


@pytest.mark.parametrize("accumulator", [LogAccumulator(guard_bits=4), LinearAccumulator()], ids=repr)
def test_an_anomaly_of_the_last_rounding_is_found(accumulator):
    format = LNSFormat(8, 7, accumulator=accumulator)
    # The largest number and 0.72 of a unit: in range of the wide format.
    x = from_words(torch.tensor([[0x4000, 0x4000], [0x7FFF, 0x7FFF - 8 * 128]]), format)
    with pytest.raises(AnomalyError) as caught, detect_anomaly():
        x.sum(1)
    assert str(caught.value) == (
        f"overflow in sum of {format!r}, in aten.sum.dim_IntList, at element (1,) of (2,):\n"
        "  result  0x7fff  3.3844464596121152e+38"
    )


@pytest.mark.parametrize("accumulator", ACCUMULATORS[2:], ids=repr)
def test_capture_keeps_to_the_operations_of_its_format(accumulator):
    format = dataclasses.replace(lns16, accumulator=accumulator)
    x = randn(3, 4, seed=1, format=format)
    with capture(format) as trace:
        x @ x.T
    assert trace.names == ["mul"] and trace.counts == {"mul": 36, "sum": 9}


@pytest.mark.parametrize(
    ("format", "guard_bits", "most"),
    [(lns16, 42, 37), (lns32, 30, 21), (LNSFormat(12, 40), 1, 0), (LNSFormat(1, 30), 19, 18)],
    ids=str,
)
def test_guard_bits_have_to_fit(format, guard_bits, most):
    message = (
        f"guard_bits must be at most {most} with {format.int_bits} integer and {format.frac_bits} fraction bits, "
        f"not {guard_bits}: a format has at most 48 fraction bits, and 52 bits of logarithm"
    )
    with pytest.raises(ValueError, match=exactly(message)):
        dataclasses.replace(format, accumulator=LogAccumulator(guard_bits=guard_bits))
    assert dataclasses.replace(format, accumulator=LogAccumulator(guard_bits=most)).accumulator.guard_bits == most


@dataclasses.dataclass(frozen=True)
class _UpToTwelveBits(Exact):
    def check(self, format):
        if format.frac_bits > 12:
            raise ValueError(f"twelve bits are enough, {format.frac_bits} are not")


def test_an_adder_may_refuse_guard_bits():
    message = (
        "guard_bits must be fewer than 6, since _UpToTwelveBits() does not serve the 13 fraction bits of the running "
        "sum: twelve bits are enough, 13 are not"
    )
    with pytest.raises(ValueError, match=exactly(message)):
        LNSFormat(8, 7, adder=_UpToTwelveBits(), accumulator=LogAccumulator(guard_bits=6))
    assert LNSFormat(8, 7, adder=_UpToTwelveBits(), accumulator=LogAccumulator(guard_bits=5)).frac_bits == 7


def test_guard_bits_use_the_adder_and_the_base_of_the_format():
    larger = GaussianFunction(lambda z, s, base: torch.zeros_like(z))
    accumulator = LogAccumulator(guard_bits=4)
    x = lnstensor([3.0, 1.0, 2.0, 3.0], format=LNSFormat(8, 7, adder=larger, accumulator=accumulator))
    check(x.sum(), x.format, lnstensor(3.0, format=x.format)._words)
    x = lnstensor([3.0, 1.0, 2.0], format=LNSFormat(20, 7, base=3.0, accumulator=accumulator))
    assert abs(x.sum().item() / 6 - 1) < 0.01


def test_the_example_of_the_documentation(capsys):
    text = (Path(__file__).parents[2] / "docs" / "accumulators.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, flags=re.DOTALL)[1]
    exec(code, {})
    *_, shown = code.splitlines()
    assert capsys.readouterr().out.split() == shown.removeprefix("# ").split(", ")


def test_errors():
    with pytest.raises(ValueError) as caught:
        LogAccumulator("random")
    assert str(caught.value) == "order must be 'sequential' or 'tree', not 'random'"
    with pytest.raises(TypeError, match=exactly("guard_bits must be an integer, not 1.5")):
        LogAccumulator(guard_bits=1.5)
    with pytest.raises(ValueError, match=exactly("guard_bits must be between 0 and 48, not -1")):
        LogAccumulator(guard_bits=-1)
    with pytest.raises(TypeError):
        Accumulator()
    assert repr(TREE) == "LogAccumulator(order='tree')"
    assert LNSFormat(8, 7, accumulator=TREE).accumulator is TREE
