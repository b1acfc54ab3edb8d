"""Elementwise operators made of several LNS operations, and casts, word for word."""

import math

import pytest
import torch
from lnstesting import check, exactly, sample, word

import xlnstorch
from xlnstorch import LNSTensor, arithmetic, from_words, lns16, lnstensor


@pytest.fixture
def b(format):
    return sample(format, 5, seed=61)


def test_frexp(format, a):
    mantissa, exponent = torch.frexp(a)
    check(mantissa, format, mantissa._words)
    assert exponent.dtype == torch.int32
    sign, field = format.unpack(mantissa._words)
    sign_of_a, field_of_a = format.unpack(a._words)
    one, zero = 1 << format.frac_bits, field_of_a == 0
    assert torch.equal(sign, sign_of_a)
    assert ((field - format.bias >= -one) & (field - format.bias < 0) | zero).all()  # from a half to one
    assert torch.equal(torch.where(zero, 0, field + exponent.long() * one), field_of_a)
    assert not (exponent[zero].any() or field[zero].any())


def test_copysign(format, a, b):
    size = arithmetic.absolute(format, a._words)
    negative = arithmetic.neg(format, size)
    check(torch.copysign(a, b), format, torch.where(b < 0, negative, size))
    check(torch.copysign(a, -0.0), format, negative)
    check(torch.copysign(a, 3), format, size)
    plain = torch.tensor([1.0, -0.0, 0.0, -5.0, 2.0])
    check(torch.copysign(a, plain), format, torch.where(torch.signbit(plain), negative, size))
    ones = word(format, 1.0).expand(4, 5)
    check(torch.copysign(torch.ones(5), a), format, torch.where(a < 0, arithmetic.neg(format, ones), ones))
    x = a.clone()
    assert x.copysign_(b) is x
    check(x, format, torch.copysign(a, b)._words)


def test_roots(format, a, b):
    squares = [arithmetic.power(format, t._words, 2) for t in (a, b)]
    check(torch.hypot(a, b), format, arithmetic.sqrt(format, arithmetic.add(format, *squares)))
    check(torch.hypot(torch.zeros(5), b), format, arithmetic.sqrt(format, squares[1]))
    root = arithmetic.sqrt(format, a._words)
    check(torch.rsqrt(a), format, arithmetic.div(format, word(format, 1.0).expand(4, 5), root))


def test_sigmoid_and_logit(format, a):
    one = word(format, 1.0)
    power = torch.exp(-a)._words
    check(torch.sigmoid(a), format, arithmetic.div(format, one.expand(4, 5), arithmetic.add(format, power, one)))
    x = a.abs().clamp(max=0.75)
    odds = arithmetic.div(format, x._words, arithmetic.sub(format, one, x._words))
    check(torch.logit(x), format, LNSTensor(odds, format).log()._words)
    check(torch.logit(x, eps=0.1), format, torch.logit(x.clamp(lnstensor(0.1, format=format), 1 - 0.1))._words)
    # Backwards: g / (x (1 - x)), and nothing outside.
    x[0, 0], x[0, 1] = 0.1, 0.9  # the bounds are inside
    x = x.detach().requires_grad_()
    incoming = xlnstorch.full((4, 5), 0.3, format=format)
    (grad,) = torch.autograd.grad(torch.logit(x, eps=0.1), x, incoming)
    product = arithmetic.mul(format, x._words, arithmetic.sub(format, one, x._words))
    expected = arithmetic.div(format, incoming._words, product)
    check(grad, format, torch.where((x < 0.1) | (x > 0.9), 0, expected))


@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_division_with_rounding(mode, format, a, b):
    a, b = a.clamp(-50, 50), b.sign() * 0.7 + 0.1
    quotient = LNSTensor(arithmetic.div(format, a._words, b._words), format)
    expected = getattr(torch, mode)(quotient)._words
    check(torch.div(a, b, rounding_mode=mode), format, expected)
    x = a.clone()
    assert x.div_(b, rounding_mode=mode) is x
    check(x, format, expected)
    over = LNSTensor(arithmetic.div(format, word(format, 2.0).expand(5), b._words), format)
    check(torch.div(2, b, rounding_mode=mode), format, getattr(torch, mode)(over)._words)
    check(torch.div(torch.full((5,), 2.0), b, rounding_mode=mode), format, getattr(torch, mode)(over)._words)
    if mode == "floor":
        check(a // b, format, expected)
        check(a.clone().floor_divide_(b), format, expected)
    check(torch.div(a, b, rounding_mode=None), format, quotient._words)


def test_rounding_modes_are_checked(a):
    text = "rounding_mode must be None, 'trunc' or 'floor', not 'nearest'"
    with pytest.raises(RuntimeError, match=exactly(text)):
        torch.div(a, 2, rounding_mode="nearest")


@pytest.mark.parametrize("decimals", [1, -1, 0])
def test_rounding_to_decimals(decimals, format, a):
    a = a.clamp(-20, 20)
    scale = word(format, 10.0 ** abs(decimals))
    there, back = (arithmetic.mul, arithmetic.div) if decimals >= 0 else (arithmetic.div, arithmetic.mul)
    rounded = LNSTensor(there(format, a._words, scale), format).round()
    expected = back(format, rounded._words, scale)
    check(torch.round(a, decimals=decimals), format, expected)
    check(a.clone().round_(decimals=decimals), format, expected)


def order(x):
    field = x.words & x.format.max_field
    return torch.where(x.words > x.format.max_field, -field, field)


def test_clamping(format, a, b):
    low, high = lnstensor(-0.3, format=format), lnstensor(0.7, format=format)
    expected = torch.where(order(a) < order(low), low._words, a._words)
    check(a.clamp(min=-0.3), format, expected)
    check(a.clamp_min(low), format, expected)
    expected = torch.where(order(a) > order(high), high._words, expected)
    for how in [(-0.3, 0.7), (low, high)]:
        check(a.clamp(*how), format, expected)
        check(a.clone().clamp_(*how), format, expected)
    check(a.clamp(1.0, high.item()), format, high._words.expand(4, 5))  # max wins
    check(torch.clamp(torch.zeros(5), min=b), format, torch.where(order(b) > 0, b._words, 0))
    check(a.clamp(-math.inf, math.inf), format, a._words)
    with pytest.raises(RuntimeError, match=exactly("clamp takes a min, a max or both, not neither")):
        torch.clamp(a)


def test_selection_refuses_what_would_get_an_lns_gradient(a):
    plain = torch.ones(4, 5, requires_grad=True)
    for choose in (lambda: torch.where(a > 0, a, plain), lambda: torch.where(a > 0, plain, a)):
        with pytest.raises(TypeError, match="a plain tensor that requires grad cannot be an operand"):
            choose()
    with torch.no_grad():
        assert torch.where(a > 0, plain, a).shape == (4, 5)
    # What is not taken may be what no word is.
    check(torch.where(a == a, a, math.nan), a.format, a._words)


def test_casts_to_integers_and_truth_values(format):
    numbers = torch.tensor([0.0, 1.0, -3.0, 7.0, 2.5, -0.3, 5.0])
    x = lnstensor(numbers, format=format)
    whole = [0, 1, -3, 7, 2, 0, 5]
    for dtype in (torch.int64, torch.int32, torch.int8):
        assert x.to(dtype).dtype == dtype
        assert x.to(dtype).tolist() == whole
    assert x.bool().tolist() == [False, True, True, True, True, True, True]
    smallest = from_words([0, 1, (1 << format.log_bits) | 1, 1 << format.log_bits], format)
    assert smallest.bool().tolist() == [False, True, True, False]
    assert smallest.long().tolist() == [0, 0, 0, 0]


RESULTS = {
    "copysign": lambda x: x.copysign(1.0),
    "hypot": lambda x: x.hypot(torch.zeros(())),
    "clamp": lambda x: x.clamp(min=-5),
    "round": lambda x: x.round(decimals=1),
    "floor division": lambda x: x // 1,
    "nan_to_num": lambda x: x.nan_to_num(),
    "frexp": lambda x: torch.frexp(x)[0],
    "to": lambda x: x.to(torch.float64, copy=True),
    "angle": lambda x: x.angle(),
    "threshold": lambda x: torch.nn.functional.threshold(x, -1.0, 0.0),
}


@pytest.mark.parametrize("shape", [(), (2, 3)], ids=repr)
@pytest.mark.parametrize("name", RESULTS)
def test_a_change_of_a_result_does_not_reach_back(name, shape):
    x = xlnstorch.ones(*shape, format=lns16)
    RESULTS[name](x).fill_(0.5)
    assert (x == 1).all()


def test_a_format_of_another_base_has_no_frexp():
    x = lnstensor(2.0, b=1.001)
    with pytest.raises(NotImplementedError, match="needs a format of base 2"):
        torch.frexp(x)
