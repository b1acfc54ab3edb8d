"""Zeros of either sign, what leaves the range, and what no word stands for."""

import math

import pytest
import torch
from lnstesting import Number, check_numbers, exactly, leaf, numbers
from torch import nn

import xlnstorch
from xlnstorch import LNSFormat, from_words, lns8, lns16, lns16e5, lns32, lnstensor

LARGEST, TINIEST, NEGATIVE = lns16.max_field, 1, 1 << lns16.log_bits
NEGATIVE_ZERO = NEGATIVE  # the sign alone


def words(*values):
    return from_words(list(values), lns16)


def flags_of(compute):
    """Return the result of a computation and the numbers of its flags: overflow, underflow, invalid, zero_divide."""
    with xlnstorch.flags() as counts:
        result = compute()
    return result, (counts.overflow, counts.underflow, counts.invalid, counts.zero_divide)


# Zero -----------------------------------------------------------------------------------------------------------------


def test_a_number_less_itself_is_the_word_zero_without_flags():
    x = words(0, NEGATIVE_ZERO, TINIEST, NEGATIVE | TINIEST, LARGEST, NEGATIVE | LARGEST, 0x4000)
    for difference in (x - x, x + (-x), torch.sub(x, x), x.clone().sub_(x), torch.rsub(x, x), x.diff() * 0):
        assert difference.words.tolist() == [0] * len(difference)
    assert flags_of(lambda: x - x)[1] == (0, 0, 0, 0)


# All that computes, even where there is nothing to do, gives the word zero.
COMPUTED = [
    torch.add,
    torch.sub,
    torch.mul,
    torch.div,
    torch.maximum,
    torch.minimum,
    *(
        lambda x, y, f=f: f(x)
        for f in (torch.neg, torch.abs, torch.sqrt, torch.square, torch.relu, torch.sign, torch.floor, torch.tanh)
    ),
    lambda x, y: x**3,
    lambda x, y: x.clamp(min=0.0),
    lambda x, y: x.sum(),
    lambda x, y: x.cumsum(0),
    lambda x, y: x.prod(),
    lambda x, y: x.max(),
    lambda x, y: x @ y,
]


@pytest.mark.parametrize("a", [0, NEGATIVE_ZERO])
@pytest.mark.parametrize("b", [0, NEGATIVE_ZERO])
def test_signed_zeros(a, b):
    x, y = words(a), words(b)
    for compute in COMPUTED:
        assert compute(x, y).words.sum() == 0
    relations = {"eq": True, "ne": False, "lt": False, "le": True, "gt": False, "ge": True}
    for name, holds in relations.items():
        assert getattr(torch, name)(x, y).tolist() == [holds]
        assert getattr(torch, name)(x, 0.0).tolist() == getattr(torch, name)(x, -0.0).tolist() == [holds]
    assert torch.equal(x, y) and torch.allclose(x, y)
    assert x.tolist() == [0.0] and math.copysign(1.0, x.item()) == 1.0
    assert not x.any() and not x.signbit() and x.sign().words.tolist() == [0]


def test_negative_zero_counts_as_zero_in_products_and_sums():
    x = words(NEGATIVE_ZERO, NEGATIVE_ZERO, 0x4000)
    one = Number(1).word
    assert (x * 3.0).words.tolist() == [0, 0, Number(3).word]
    assert (x + words(0x4000, NEGATIVE | 0x4000, 0)).words.tolist() == [one, NEGATIVE | one, one]
    assert (x @ x).words == one
    assert x.max().words == one and words(NEGATIVE_ZERO, NEGATIVE | 1).max().words == 0
    assert x.sort().values.words.tolist()[2] == one
    assert x.count_nonzero() == 1 and x.nonzero().tolist() == [[2]]


@pytest.mark.parametrize("target", [lns8, lns16e5, lns32, LNSFormat(29, 23)], ids=repr)
def test_zeros_across_formats(target):
    x = words(0, NEGATIVE_ZERO, 0x4000)
    assert lnstensor(x, format=target).words.tolist() == [0, 0, target.bias]
    back = lnstensor(lnstensor(x, format=target), format=lns16)
    assert back.words.tolist() == [0, 0, 0x4000]
    assert lnstensor([0.0, -0.0], format=target).words.tolist() == [0, 0]
    assert lnstensor(x.lns, from_lns=True, format=target).tolist()[:2] == [0.0, 0.0]


def test_the_gradient_of_a_conversion_keeps_zeros():
    x = leaf([1.0, 2.0], lns32)
    (lnstensor(x, format=lns16, detach=False) * lnstensor([0.0, 1.0], format=lns16)).sum().backward()
    assert x.grad.format == lns32 and x.grad.words.tolist() == [0, lns32.bias]


# Roots, quotients -----------------------------------------------------------------------------------------------------


def test_the_root_of_a_negative_number_is_zero_and_invalid():
    x = lnstensor([-4.0, 4.0, 0.0, -1e-30], format=lns16)
    for compute in (x.sqrt, lambda: x**0.5, lambda: x.clone().sqrt_()):
        root, flags = flags_of(compute)
        check_numbers(root, [Number(0), Number(2), Number(0), Number(0)])
        assert flags == (0, 0, 2, 0)
    # Its derivative divides by the root.
    x = leaf([-4.0, 4.0])
    x.sqrt().sum().backward()
    assert x.grad.words.tolist() == [LARGEST, Number(0.25).word]


def test_division_by_zero():
    x = lnstensor([3.0, -3.0, 0.0], format=lns16)
    for zero in (0.0, torch.zeros(3), words(0, NEGATIVE_ZERO, NEGATIVE_ZERO)):
        quotient, flags = flags_of(lambda z=zero: x / z)
        assert quotient.words.tolist() == [LARGEST, NEGATIVE | LARGEST, 0]
        assert flags == (0, 0, 1, 2)
    result, flags = flags_of(words(0, NEGATIVE_ZERO).reciprocal)
    assert result.words.tolist() == [LARGEST, LARGEST] and flags == (0, 0, 0, 2)
    result, flags = flags_of(lambda: words(0) ** -1)
    assert result.words.tolist() == [LARGEST] and flags == (0, 0, 0, 1)
    result, flags = flags_of(words(0, NEGATIVE_ZERO).log)
    assert result.words.tolist() == [NEGATIVE | LARGEST] * 2 and flags == (0, 0, 0, 2)


def test_a_mean_of_nothing_is_zero_and_invalid():
    mean, flags = flags_of(xlnstorch.zeros(0, format=lns16).mean)
    assert mean.words == 0 and flags == (0, 0, 1, 0)


# The ends of the range ------------------------------------------------------------------------------------------------


def test_overflow_saturates():
    x = lnstensor([3e38, -3e38], format=lns16)
    for compute, count in [
        (lambda: x * 2, 2),
        (lambda: x + x, 2),
        (lambda: x - (-x), 2),
        (lambda: x / 0.5, 2),
        (lambda: x**3, 2),
        (lambda: x.clone().mul_(4), 2),
    ]:
        result, flags = flags_of(compute)
        assert result.words.tolist() == [LARGEST, NEGATIVE | LARGEST]
        assert flags == (count, 0, 0, 0)
    result, flags = flags_of(lambda: x.exp())
    assert result.words.tolist() == [LARGEST, 0] and flags == (1, 1, 0, 0)
    result, flags = flags_of(lambda: x.square())
    assert result.words.tolist() == [LARGEST] * 2 and flags == (2, 0, 0, 0)
    assert (x * 2).isinf().tolist() == [False, False] and (x * 2).isfinite().all()


def test_underflow_flushes():
    x = lnstensor([4e-39, -4e-39], format=lns16)
    assert x.count_nonzero() == 2
    for compute in (lambda: x * 0.5, lambda: x / 2, lambda: x**2, lambda: x * x, lambda: x.clone().div_(2)):
        result, flags = flags_of(compute)
        assert result.words.tolist() == [0, 0]
        assert flags == (0, 2, 0, 0)
    # A difference can be too small as well.
    result, flags = flags_of(lambda: words(2) - words(1))
    assert result.words.tolist() == [0] and flags == (0, 1, 0, 0)
    # What is zero to begin with does not underflow.
    assert flags_of(lambda: words(0, NEGATIVE_ZERO) * 1e-38)[1] == (0, 0, 0, 0)


def test_the_very_ends_are_still_numbers():
    largest, tiniest = words(LARGEST), words(TINIEST)
    for compute in (
        lambda: largest * 1,
        lambda: tiniest * 1,
        lambda: largest + 1,
        lambda: tiniest + 0,
        lambda: -largest,
    ):
        assert flags_of(compute)[1] == (0, 0, 0, 0)
    step = words(0x4001)
    assert flags_of(lambda: largest * step)[1] == (1, 0, 0, 0)
    assert flags_of(lambda: tiniest / step)[1] == (0, 1, 0, 0)
    assert (largest / step).words.tolist() == [LARGEST - 1] and (tiniest * step).words.tolist() == [TINIEST + 1]


def test_flags_of_a_backward_pass():
    x = leaf([1e20])
    loss = (x * 1e10) * 1e5
    with xlnstorch.flags() as counts:
        loss.backward(lnstensor([1e30], format=lns16))
    assert counts.overflow == 1 and x.grad.words.tolist() == [LARGEST]


# Infinities and NaN ---------------------------------------------------------------------------------------------------

INFINITE = [math.inf, -math.inf]


@pytest.mark.parametrize("target", [lns8, lns16, lns32, LNSFormat(29, 23)], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_infinities_saturate(target, dtype):
    top = 1 << target.log_bits
    ends = [target.max_field, top | target.max_field]
    assert lnstensor(INFINITE, format=target).words.tolist() == ends
    assert lnstensor(torch.tensor(INFINITE, dtype=dtype), format=target).words.tolist() == ends


def test_infinities_beside_a_tensor_saturate():
    x = lnstensor([1.0, 1.0], format=lns16)
    ends = [LARGEST, NEGATIVE | LARGEST]
    for result in (x * torch.tensor(INFINITE), x + torch.tensor(INFINITE), x.clone().copy_(torch.tensor(INFINITE))):
        assert result.words.tolist() == ends
    assert xlnstorch.full((1,), math.inf, format=lns16).words.tolist() == [LARGEST]
    assert x.masked_fill(torch.tensor([True, False]), -math.inf).words.tolist() == [NEGATIVE | LARGEST, 0x4000]


NAN_TEXT = "lns16 has no word for NaN; found one in the values to encode"


@pytest.mark.parametrize(
    "door",
    [
        lambda nan: lnstensor([1.0, math.nan], format=lns16),
        lambda nan: lnstensor(nan, format=lns16),
        lambda nan: lnstensor(nan.half(), format=lns16),
        lambda nan: lnstensor(nan, format=lns16, detach=False),
        lambda nan: lnstensor(nan.numpy(), format=lns16),
        lambda nan: lnstensor([1.0, 2.0], format=lns16) * nan,
        lambda nan: nan - lnstensor([1.0, 2.0], format=lns16),
        lambda nan: lnstensor([1.0, 2.0], format=lns16).clone().copy_(nan),
        lambda nan: lnstensor([1.0, 2.0], format=lns16).lerp(nan, 0.5),
        lambda nan: leaf([1.0, 2.0]).exp().backward(nan),
        lambda nan: nn.functional.linear(lnstensor([1.0, 2.0], format=lns16), nan.unsqueeze(0)),
    ],
)
def test_nan_is_stopped_at_the_door(door):
    with pytest.raises(ValueError, match=exactly(NAN_TEXT)):
        door(torch.tensor([1.0, math.nan]))


@pytest.mark.parametrize(
    "door",
    [
        lambda: lnstensor([1.0], format=lns16) * math.nan,
        lambda: math.nan + lnstensor([1.0], format=lns16),
        lambda: xlnstorch.full((2,), math.nan, format=lns16),
        lambda: lnstensor([1.0], format=lns16).fill_(math.nan),
        lambda: lnstensor([1.0], format=lns16).clamp(min=math.nan),
        lambda: lnstensor(math.nan, format=lns16),
    ],
)
def test_a_nan_that_is_a_number_is_stopped_too(door):
    with pytest.raises(ValueError, match="NaN"):
        door()


def test_nan_in_a_state_dict_is_stopped_and_names_the_parameter():
    model = xlnstorch.convert(nn.Linear(2, 1), lns16)
    before = numbers(model.weight)
    state = {"weight": torch.tensor([[1.0, math.nan]]), "bias": torch.zeros(1)}
    with pytest.raises(RuntimeError, match=r'"weight".*lns16 has no word for NaN'):
        model.load_state_dict(state)
    check_numbers(model.weight.detach(), before)


def test_nan_in_a_branch_that_is_not_taken():
    x = leaf([4.0, 1.0])
    y = torch.where(torch.tensor([True, False]), x, torch.tensor([math.nan, 3.0]))
    y.sum().backward()
    assert y.tolist()[0] == 4.0 and x.grad.tolist() == [1.0, 0.0]
    z = torch.where(torch.tensor([False, True]), torch.tensor([math.nan, 3.0]), x.detach())
    check_numbers(z, [Number(4), Number(3)])
