"""Elementwise operators, in-place ones, comparisons and moves: the arithmetic of the format, word for word."""

import math
import operator

import numpy as np
import pytest
import torch
from lnstesting import check, exactly, sample, word

import xlnstorch
from xlnstorch import (
    LNSFormat,
    arithmetic,
    conversions,
    from_words,
    lns16,
    lnstensor,
)


@pytest.fixture
def b(format):
    return sample(format, 4, 5, seed=2)


# Elementwise ----------------------------------------------------------------------------------------------------------

BINARY = {
    "add": arithmetic.add,
    "sub": arithmetic.sub,
    "mul": arithmetic.mul,
    "div": arithmetic.div,
}


@pytest.mark.parametrize("name", BINARY)
def test_binary(name, format, a, b):
    expected = BINARY[name](format, a._words, b._words)
    check(getattr(torch, name)(a, b), format, expected)
    check(getattr(operator, "truediv" if name == "div" else name)(a, b), format, expected)
    row, column = a[0], b[:, :1]
    check(getattr(torch, name)(row, column), format, BINARY[name](format, row._words, column._words))


@pytest.mark.parametrize("name", BINARY)
def test_binary_with_numbers_and_plain_tensors(name, format, a):
    compute, op = BINARY[name], getattr(operator, "truediv" if name == "div" else name)
    plain = torch.linspace(-2.0, 3.0, 5, dtype=torch.float32)
    for other in (3, -0.3, True, plain, plain[0], torch.tensor(3), torch.tensor([1, 0, 1, 0, 1], dtype=torch.bool)):
        encoded = conversions.encode(format, other) if isinstance(other, torch.Tensor) else word(format, other)
        check(op(a, other), format, compute(format, a._words, encoded))
        check(op(other, a), format, compute(format, encoded.expand(4, 5), a._words))


@pytest.mark.parametrize("name", ["add", "sub"])
@pytest.mark.parametrize("alpha", [1, -1, 2, 0.3, 0])
def test_alpha_scales_the_second_operand(name, alpha, format, a, b):
    scaled = arithmetic.mul(format, b._words, word(format, alpha))
    check(getattr(torch, name)(a, b, alpha=alpha), format, BINARY[name](format, a._words, scaled))


def test_alpha_of_one_costs_nothing(a, b):
    with xlnstorch.flags() as counts:
        torch.add(a, b)
        torch.add(a, b, alpha=-1)
    assert counts.operations == 2 * a.numel()


UNARY = {
    "neg": arithmetic.neg,
    "abs": arithmetic.absolute,
    "relu": arithmetic.relu,
    "sqrt": arithmetic.sqrt,
    "reciprocal": lambda format, x: arithmetic.div(format, word(format, 1.0).expand_as(x), x),
    "square": lambda format, x: arithmetic.power(format, x, 2),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name, format, a):
    check(getattr(torch, name)(a), format, UNARY[name](format, a._words))


@pytest.mark.parametrize("n", [-3, -1, 0, 1, 2, 5])
def test_integer_powers(n, format, a):
    check(a**n, format, arithmetic.power(format, a._words, n))
    check(a ** float(n), format, arithmetic.power(format, a._words, n))


def test_power_of_a_half_is_the_root(format, a):
    check(a**0.5, format, arithmetic.sqrt(format, a._words))


@pytest.mark.parametrize("n", [-3, -1, 3, 5])
def test_half_powers_are_powers_of_the_root(format, a, n):
    root = arithmetic.sqrt(format, a._words)
    check(a ** (n / 2), format, arithmetic.power(format, root, n))


def test_exponents_are_finite(a):
    text = f"aten.pow.Tensor_Scalar of {a.format} takes a finite exponent, not inf"
    with pytest.raises(ValueError, match=exactly(text)):
        a ** float("inf")


def test_sign(format):
    top = 1 << format.log_bits
    x = from_words([0, top, 1, top | 1, format.max_field, top | format.max_field], format)
    assert x.sign().value.tolist() == x.sgn().value.tolist() == [0.0, 0.0, 1.0, -1.0, 1.0, -1.0]
    assert x.sign().words.tolist()[1] == 0


# In place -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BINARY)
def test_in_place_binary(name, format, a, b):
    for other, words in ((b, b._words), (0.3, word(format, 0.3)), (torch.ones(5), word(format, 1.0))):
        x = a.clone()
        storage = x._words.data_ptr()
        assert getattr(x, f"{name}_")(other) is x and x._words.data_ptr() == storage
        check(x, format, BINARY[name](format, a._words, words))


def test_augmented_assignment_and_alpha(format, a, b):
    x = y = a.clone()
    x += b
    x *= 0.5
    assert x is y
    expected = arithmetic.mul(format, arithmetic.add(format, a._words, b._words), word(format, 0.5))
    check(y, format, expected)
    scaled = arithmetic.mul(format, b._words, word(format, -0.3))
    check(a.clone().add_(b, alpha=-0.3), format, arithmetic.add(format, a._words, scaled))


@pytest.mark.parametrize("name", UNARY)
def test_in_place_unary(name, format, a):
    x = a.clone()
    assert getattr(x, f"{name}_")() is x
    check(x, format, UNARY[name](format, a._words))


def test_in_place_shape_must_stay(format):
    with pytest.raises(RuntimeError, match=exactly("output with shape (2,) does not match the shape (3, 2)")):
        xlnstorch.zeros(2, format=format).add_(xlnstorch.zeros(3, 2, format=format))


VIEWS = {
    "select": lambda x: x[1],
    "slice": lambda x: x[1:, ::2],
    "transpose": lambda x: x.t(),
    "view": lambda x: x.view(-1)[3:9],
    "diagonal": lambda x: x.diagonal(),
    "split": lambda x: x.split(2, 1)[1],
    "unbind": lambda x: x.unbind(0)[2],
    "chunk": lambda x: x.chunk(2, 0)[0],
    "detach": lambda x: x.detach(),
    "squeeze": lambda x: x[None].squeeze(0),
    "as_strided": lambda x: x.as_strided((2, 2), (5, 2), 1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_in_place_through_a_view_changes_the_base(name, format, a, b):
    expected = a._words.clone()
    part = VIEWS[name](expected)
    part.copy_(arithmetic.add(format, part, VIEWS[name](b._words)))
    view = VIEWS[name](a)
    view += VIEWS[name](b)
    check(a, format, expected)
    VIEWS[name](a).zero_()
    assert VIEWS[name](a).words.count_nonzero() == 0


def test_assignment(format, a, b):
    expected = a._words.clone()
    expected[0], expected[1, 2], expected[2:, 1] = b._words[3], word(format, 0.3), word(format, 1.0)
    expected[:, 4] = conversions.encode(format, torch.linspace(-1, 1, 4))
    a[0], a[1, 2], a[2:, 1], a[:, 4] = b[3], 0.3, 1, torch.linspace(-1, 1, 4)
    check(a, format, expected)


def test_assignment_through_masks_and_indices(format, a, b):
    mask, rows = a > 0, torch.tensor([3, 1])
    expected = a._words.clone()
    expected[rows] = b._words[:2]
    expected[mask] = word(format, 2.0)
    a[rows] = b[:2]
    a[mask] = 2.0
    check(a, format, expected)


def test_fill_and_copy(format, a, b):
    check(a.clone().fill_(0.3), format, word(format, 0.3).expand(4, 5))
    check(a.clone().fill_(b[0, 0]), format, b._words[0, 0].expand(4, 5))
    check(a.clone().copy_(b), format, b._words)
    check(a.clone().copy_(torch.full((5,), 0.3)), format, conversions.encode(format, torch.full((4, 5), 0.3)))


def test_copying_and_assigning_do_not_convert_silently():
    x = sample(LNSFormat(8, 23), 4, 5)
    target = xlnstorch.zeros(4, 5, format=lns16)
    with pytest.raises(TypeError, match=r"aten\.copy_\.default got operands of two formats, lns16 and lns32"):
        target.copy_(x)
    with pytest.raises(TypeError, match="two formats"):
        target[0] = x[0]
    assert not target.words.any()


# Comparisons ----------------------------------------------------------------------------------------------------------

RELATIONS = ["eq", "ne", "lt", "le", "gt", "ge"]


def order(x):
    """Integers in the order of the numbers; float64 values would not do, since they overflow."""
    field = x.words & x.format.max_field
    return torch.where(x.words > x.format.max_field, -field, field)


@pytest.mark.parametrize("name", RELATIONS)
def test_relations_order_by_value(name, format, a, b):
    relation = getattr(torch, name)
    b[0] = a[0]
    assert torch.equal(relation(a, b), relation(order(a), order(b))) and relation(a, b).dtype == torch.bool
    one, half = format.bias, order(lnstensor(0.5, format=format))
    assert torch.equal(relation(a, 1.0), relation(order(a), one))
    assert torch.equal(getattr(operator, name)(a, torch.zeros(5)), relation(order(a), torch.tensor(0)))
    assert torch.equal(getattr(operator, name)(0.5, a), relation(half, order(a)))


def test_both_zeros_are_equal(format):
    zeros = from_words([0, 1 << format.log_bits], format)
    assert (zeros == 0.0).all() and torch.equal(zeros[:1], zeros[1:]) and not (zeros[0] < zeros[1]).item()
    assert zeros[0] <= zeros[1] and zeros[1] <= zeros[0] and not (zeros != 0).any()
    # Read as zero, never produced.
    for result in (zeros + 0, zeros * 1, -zeros, zeros.abs(), zeros.relu(), zeros - zeros, zeros.sqrt(), zeros / 1):
        assert result.words.tolist() == [0, 0]


def test_extremes(format, a, b):
    value, other = order(a), order(b)
    check(torch.maximum(a, b), format, torch.where(value >= other, a._words, b._words))
    check(torch.minimum(a, b), format, torch.where(value <= other, a._words, b._words))
    check(a.max(), format, a._words.reshape(-1)[value.argmax()])
    check(a.min(), format, a._words.reshape(-1)[value.argmin()])
    assert a.argmax() == value.argmax() and torch.equal(a.argmin(1), value.argmin(1))


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_along_a_dimension(name, dim, keepdim, format, a):
    result, expected = getattr(a, name)(dim, keepdim), getattr(order(a), name)(dim, keepdim)
    assert torch.equal(order(result.values), expected.values)
    picked = result.indices if keepdim else result.indices.unsqueeze(dim)
    check(result.values if keepdim else result.values.unsqueeze(dim), format, a._words.gather(dim, picked))
    assert torch.equal(order(getattr(a, f"a{name}")(dim, keepdim)), expected.values)


def test_equal_looks_at_shapes(a):
    assert torch.equal(a, a.clone()) and not torch.equal(a, a + 1) and not torch.equal(a, a[:2])


def test_selection_hands_words_through(format, a, b):
    condition = order(a) > 0
    check(torch.where(condition, a, b), format, torch.where(condition, a._words, b._words))
    check(torch.where(condition, a, 0.3), format, torch.where(condition, a._words, word(format, 0.3)))
    check(a.masked_fill(condition, 0.3), format, torch.where(condition, word(format, 0.3), a._words))
    check(a.masked_fill(condition, b[0, 0]), format, torch.where(condition, b._words[0, 0], a._words))


# Moving words ---------------------------------------------------------------------------------------------------------

INDEX = torch.tensor([[0, 3, 1], [2, 2, 4]])
MOVES = {
    "permute": lambda x: x.permute(1, 0),
    "reshape": lambda x: x.t().reshape(2, 10),
    "flatten": lambda x: x.flatten(),
    "expand": lambda x: x[0].expand(3, 5),
    "repeat": lambda x: x.repeat(2, 3),
    "tile": lambda x: x.tile(2),
    "flip": lambda x: x.flip(1),
    "gather": lambda x: x.gather(1, INDEX),
    "index": lambda x: x[torch.tensor([0, 3]), torch.tensor([1, 1])],
    "mask": lambda x: x[torch.arange(4) % 2 == 0],
    "none": lambda x: x[None, ..., 1:],
    "index_select": lambda x: x.index_select(1, torch.tensor([4, 0, 4])),
    "unfold": lambda x: x.unfold(1, 2, 2),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[:1].squeeze(),
    "contiguous": lambda x: x.t().contiguous(),
    "clone": lambda x: x.clone(),
    "cat": lambda x: torch.cat([x, x[:1]]),
    "stack": lambda x: torch.stack([x, x], 1),
    "hstack": lambda x: torch.hstack([x, x]),
    "scatter": lambda x: x.scatter(1, INDEX, x[:2, 2:]),
}


@pytest.mark.parametrize("name", [*MOVES, *VIEWS])
def test_moving(name, format, a):
    move = (MOVES | VIEWS)[name]
    check(move(a), format, move(a._words))


def test_splitting(format, a):
    for split in (lambda x: x.split([1, 4], 1), lambda x: x.split(3), lambda x: x.unbind(1), lambda x: x.chunk(2)):
        for part, words in zip(split(a), split(a._words), strict=True):
            check(part, format, words)


def test_scatter_of_a_number(format, a):
    check(a.scatter(1, INDEX, 0.3), format, a._words.scatter(1, INDEX, word(format, 0.3).item()))


def test_joining_encodes_plain_tensors(format, a):
    plain = torch.linspace(-1, 1, 5)
    joined = torch.cat([torch.ones(1, 5), a, plain[None]])
    encoded = conversions.encode(format, plain)
    check(joined, format, torch.cat([word(format, 1.0).expand(1, 5), a._words, encoded[None]]))


def test_comparisons_with_what_no_word_has():
    x = lnstensor([1e30, -1e300, 0.0, 1e300], format=lns16)
    for other in (math.inf, torch.tensor(math.inf)):
        assert (x == other).tolist() == [False] * 4
        assert (x < other).tolist() == [True] * 4
        assert (x > -other).tolist() == [True] * 4
    assert (x != math.nan).tolist() == [True] * 4
    for relation in (torch.eq, torch.lt, torch.le, torch.gt, torch.ge):
        assert relation(x, math.nan).tolist() == [False] * 4
    assert torch.isfinite(x).tolist() == [True] * 4
    assert torch.isinf(x).tolist() == torch.isnan(x).tolist() == [False] * 4
    mixed = torch.tensor([math.nan, -math.inf, 0.0, 1.0])
    assert (x >= mixed).tolist() == [False, True, True, True]
    assert (mixed <= x).tolist() == [False, True, True, True]


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_a_number_compares_as_the_word_it_is_encoded_to(format, default):
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        values = torch.randn(200, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).tolist()
        for value in [*values, 0.1, 1e39, 1e-50, 1e300, 2**70, 3, True, np.float32(0.3), np.True_]:
            x = lnstensor([float(value)], format=format)
            assert bool(x == value)
            assert bool(x >= value)
            assert not bool(x < value)
            assert bool((x - value == 0.0).all())
    finally:
        torch.set_default_dtype(before)


def test_adding_at_an_index_checks_shapes():
    x = xlnstorch.zeros(3, 2, format=lns16)
    index = torch.tensor([0, 1])
    for source in (torch.ones(2, 3), torch.ones(2, 1), torch.ones(2, 3, 2)):
        with pytest.raises(RuntimeError, match="shape mismatch"):
            x.index_add(0, index, lnstensor(source, format=lns16))
    with pytest.raises(RuntimeError, match="shape mismatch"):
        x.scatter_add(0, torch.zeros(2, 2, dtype=torch.int64), lnstensor([[1.0, 1.0]], format=lns16))
    added = x.index_add(0, torch.tensor([1, 1]), lnstensor([[1.0, 2.0], [1.0, 2.0]], format=lns16))
    assert added.value.tolist() == [[0.0, 0.0], [2.0, 4.0], [0.0, 0.0]]


RESULTS_OF_THEIR_OWN = {
    "power of one": lambda x: x**1,
    "power of a half": lambda x: x**0.5,
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "max along": lambda x: x.max(0).values,
    "amax": lambda x: x.amax(),
    "sum": lambda x: x.sum(),
    "sum along": lambda x: x.sum(0),
    "mean": lambda x: x.mean(),
    "maximum": lambda x: torch.maximum(x, x),
    "add zero": lambda x: x + 0,
    "times one": lambda x: x * 1,
    "by one": lambda x: x / 1,
    "abs": lambda x: x.abs(),
    "relu": lambda x: x.relu(),
    "clamp": lambda x: x.clamp(min=-100),
    "clone": lambda x: x.clone(),
    "where": lambda x: torch.where(torch.tensor(True), x, x),
    "the same format": lambda x: lnstensor(x, format=x.format),
}


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)], ids=repr)
@pytest.mark.parametrize("name", RESULTS_OF_THEIR_OWN)
def test_a_change_of_a_result_does_not_reach_back(name, shape):
    x = lnstensor(torch.full(shape, 4.0), format=lns16)
    before = x.words.clone()
    RESULTS_OF_THEIR_OWN[name](x).fill_(0.5)
    assert torch.equal(x.words, before)
