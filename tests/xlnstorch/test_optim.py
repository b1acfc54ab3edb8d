"""torch.optim and torch.nn over LNS parameters: updates in place, word for word by hand, and what modules keep."""

import copy
import functools

import pytest
import torch
from lnstesting import check, leaf, randn, word
from torch import nn

from xlnstorch import LNSTensor, arithmetic, lns16, lnstensor, software_format

FORMAT = lns16
FORMATS = [lns16, software_format(23)]


def mlp(weights):
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    for module, (weight, bias) in zip((model[0], model[2]), weights, strict=True):
        module.weight, module.bias = nn.Parameter(weight), nn.Parameter(bias)
    return model


@pytest.mark.parametrize("format", FORMATS, ids=repr)
def test_sgd_word_for_word(format):
    p = nn.Parameter(randn(6, seed=7, format=format))
    words, storage, buffer = p._words.clone(), p._words.data_ptr(), None
    optimizer = torch.optim.SGD([p], lr=0.1, momentum=0.9, weight_decay=0.01, dampening=0.25)
    for step in range(4):
        u = randn(6, seed=20 + step, format=format)
        optimizer.zero_grad()
        (p * u).sum().backward()
        optimizer.step()
        mul, sum_ = functools.partial(arithmetic.mul, format), functools.partial(arithmetic.add, format)
        grad = sum_(u._words, mul(words, word(format, 0.01)))
        momentum = word(format, 0.9)
        buffer = grad if buffer is None else sum_(mul(buffer, momentum), mul(grad, word(format, 1 - 0.25)))
        words = sum_(words, mul(buffer, word(format, -0.1)))
        check(p, format, words)
        check(optimizer.state[p]["momentum_buffer"], format, buffer)
    assert p._words.data_ptr() == storage and p.is_leaf


OPTIMIZERS = {
    "SGD": dict(lr=0.1, momentum=0.9, nesterov=True),
    "SGD maximize": dict(lr=0.1, maximize=True),
    "ASGD": {},
    "Adam": dict(lr=0.1),
    "AdamW": dict(lr=0.1, weight_decay=0.1),
    "Adamax": {},
    "NAdam": {},
    "RMSprop": dict(lr=0.1),
    "Adagrad": dict(lr=0.1),
    "Adadelta": {},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_follow_float64(name):
    ends = []
    for make in (lambda x: lnstensor(x, f=23), torch.clone):
        p = nn.Parameter(make(torch.tensor([1.0, -2.0, 0.3], dtype=torch.float64)))
        optimizer = getattr(torch.optim, name.split()[0])([p], **OPTIMIZERS[name])
        for _ in range(3):
            optimizer.zero_grad()
            (p * p + p).sum().backward()
            optimizer.step()
        ends.append(p)
    assert isinstance(ends[0], LNSTensor)
    assert (ends[0].value - ends[1]).abs().max() < 1e-5  # 2**-23 a rounding, and Adadelta divides by 1e-3


def test_learning_rate_schedulers():
    p = nn.Parameter(lnstensor([1.0], format=FORMAT))
    optimizer = torch.optim.SGD([p], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for expected in (0.0, -0.5):
        optimizer.zero_grad()
        p.sum().backward()
        optimizer.step()
        scheduler.step()
        assert p.item() == expected


def test_gradient_clipping():
    p = leaf([3.0, 4.0])
    (p * p).sum().backward()
    norm = nn.utils.clip_grad_norm_([p], 1.0)
    assert norm.item() == pytest.approx(10.0, rel=0.02)
    assert p.grad.value.tolist() == pytest.approx([0.6, 0.8], rel=0.02)


@pytest.mark.parametrize("assign", [False, True])
def test_state_dict_round_trip(assign):
    def build(seed):
        return mlp([(randn(8, 6, seed=seed), randn(8, seed=seed)), (randn(3, 8, seed=seed), randn(3, seed=seed))])

    model, other = build(1), build(2)
    state = copy.deepcopy(model.state_dict())
    assert other.load_state_dict(state, assign=assign).missing_keys == []
    for mine, theirs in zip(other.parameters(), model.parameters(), strict=True):
        check(mine, FORMAT, theirs._words)
        assert isinstance(mine, nn.Parameter) and mine.requires_grad
    # Plain values are encoded on the way in.
    other.load_state_dict({key: torch.full(value.shape, 0.3) for key, value in state.items()})
    assert set(other[0].weight.words.flatten().tolist()) == {word(FORMAT, torch.tensor(0.3).item()).item()}


def test_modules_move_and_keep_their_words():
    model = nn.Linear(2, 2).double()
    model.weight, model.bias = nn.Parameter(randn(2, 2, seed=1)), nn.Parameter(randn(2, seed=2))
    words = model.weight._words.clone()
    assert isinstance(model.double().to("cpu").weight, LNSTensor)
    check(model.requires_grad_(False).requires_grad_().weight, FORMAT, words)
    with pytest.raises(NotImplementedError, match=r"cannot give .* the dtype torch\.float32"):
        model.float()
