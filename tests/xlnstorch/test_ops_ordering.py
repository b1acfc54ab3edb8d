"""Sorting, selecting and searching, word for word: a selection hands words through, in the order of the numbers."""

import math

import pytest
import torch
from lnstesting import check, exactly, sample

import xlnstorch
from xlnstorch import LNSFormat, LNSTensor, arithmetic, from_words, lns8, lns16, lnstensor


@pytest.fixture
def x(format):
    return sample(format, 4, 6, seed=51)


def order(x):
    """Integers in the order of the numbers."""
    field = x.words & x.format.max_field
    return torch.where(x.words > x.format.max_field, -field, field)


ALONG = {
    "sort": lambda t, dim: t.sort(dim=dim, stable=True),
    "sort down": lambda t, dim: torch.sort(t, dim=dim, descending=True, stable=True),
    "topk": lambda t, dim: t.topk(3, dim),
    "least": lambda t, dim: t.topk(2, dim, largest=False),
    "kthvalue": lambda t, dim: t.kthvalue(2, dim, keepdim=True),
    "median": lambda t, dim: t.median(dim, keepdim=True),
    "nanmedian": lambda t, dim: t.nanmedian(dim, keepdim=True),
    "mode": lambda t, dim: t.mode(dim, keepdim=True),
    "cummax": lambda t, dim: t.cummax(dim),
    "cummin": lambda t, dim: t.cummin(dim),
    "max": lambda t, dim: t.max(dim, keepdim=True),
}


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", ALONG)
def test_selection_along_a_dimension(name, dim, format, x):
    for t in (x, x.t()):
        values, indices = ALONG[name](t, dim)
        expected_values, expected_indices = ALONG[name](order(t).to(torch.float64), dim)
        assert torch.equal(indices, expected_indices)
        assert torch.equal(order(values), expected_values.to(torch.int64))
        check(values, format, t._words.gather(dim, indices))


def test_selection_of_everything(format, x):
    flat, keys = x._words.flatten(), order(x).flatten()
    check(x.median(), format, flat[keys.sort().indices[11]])
    low, high = x.aminmax(dim=1)
    check(low, format, x.amin(1)._words)
    check(high, format, x.amax(1)._words)
    values, inverse, counts = x.unique(return_inverse=True, return_counts=True)
    check(values[inverse], format, x._words)
    assert (order(values).diff() > 0).all()
    assert torch.equal(counts, inverse.flatten().bincount())
    doubled = x.repeat_interleave(2, dim=0)
    check(doubled.unique_consecutive(dim=0), format, x._words)
    assert torch.equal(x.argsort(dim=0, stable=True), order(x).argsort(dim=0, stable=True))


def test_both_zeros_are_one_number():
    x = from_words([0x8000, 0, 0x8000], lns16)
    assert x.unique().words.tolist() == [0]
    assert x.sort(stable=True).indices.tolist() == [0, 1, 2]
    assert x.sort().values.words.tolist() == x.cummax(0).values.words.tolist() == [0, 0, 0]
    assert torch.isin(x, torch.tensor([0.0])).all()


@pytest.mark.parametrize("right", [False, True])
def test_searching(right, format, x):
    edges = x[0].sort().values
    expected = torch.searchsorted(order(edges), order(x), right=right)
    assert torch.equal(torch.searchsorted(edges, x, right=right), expected)
    assert torch.equal(torch.bucketize(x, edges, right=right), expected)
    assert torch.equal(torch.searchsorted(edges, x, side="right" if right else "left", out_int32=True), expected.int())
    assert torch.searchsorted(edges, 0.3, right=right) == (order(edges) <= order(lnstensor(0.3, format=format))).sum()
    sorter = order(x[0]).argsort()
    assert torch.equal(torch.searchsorted(x[0], x, right=right, sorter=sorter), expected)


def test_what_no_word_has_is_beyond_every_word():
    x = lnstensor([1e300, -1e300, 1.0], format=lns16)
    edges = torch.tensor([-math.inf, 0.0, math.inf])
    assert torch.bucketize(x, edges, right=True).tolist() == [2, 1, 2]
    assert torch.searchsorted(edges, x, right=True).tolist() == [2, 1, 2]
    assert torch.searchsorted(x.sort().values, edges).tolist() == [0, 1, 3]
    assert torch.searchsorted(x.sort().values, math.inf).item() == 3
    assert torch.isin(x, torch.tensor([math.inf, -math.inf, math.nan, 1.0])).tolist() == [False, False, True]


def test_membership(x):
    expected = torch.isin(order(x), order(x[0, :3]))
    assert torch.equal(torch.isin(x, x[0, :3]), expected)
    assert torch.equal(torch.isin(x, x[0, :3], invert=True), ~expected)
    assert torch.equal(torch.isin(x, x[0, 0]), order(x) == order(x)[0, 0])


def test_truth_values():
    x = from_words([[0x8000, 0x4000], [0, 1]], lns16)
    truth = torch.tensor([[False, True], [False, True]])
    for name in ("any", "all", "nonzero", "count_nonzero", "logical_not"):
        assert torch.equal(getattr(torch, name)(x), getattr(torch, name)(truth))
    for name in ("any", "all", "count_nonzero"):
        for dim in (0, -1):
            assert torch.equal(getattr(torch, name)(x, dim=dim), getattr(torch, name)(truth, dim=dim))
    other = torch.tensor([1, 0])
    for name in ("logical_and", "logical_or", "logical_xor"):
        expected = getattr(torch, name)(truth, other)
        assert torch.equal(getattr(torch, name)(x, other), expected)
        assert torch.equal(getattr(torch, name)(other, x), expected)


TWO_FORMATS = {
    "searchsorted": torch.searchsorted,
    "bucketize": torch.bucketize,
    "isin": torch.isin,
    "logical_and": torch.logical_and,
    "copysign": torch.copysign,
    "clamp": torch.clamp,
    "maximum": torch.maximum,
}


@pytest.mark.parametrize("name", TWO_FORMATS)
def test_two_formats_do_not_meet(name):
    x, y = lnstensor([1.0, 2.0], format=lns16), LNSTensor(torch.zeros(2, dtype=torch.int8), lns8)
    with pytest.raises(TypeError, match="got operands of two formats, lns16 and lns8"):
        TWO_FORMATS[name](x, y)


@pytest.mark.parametrize("name", [name for name in ALONG if name not in ("topk", "least", "kthvalue")])
@pytest.mark.parametrize("shape", [(), (1,), (1, 2)], ids=repr)
def test_results_share_nothing_with_what_was_selected_from(name, shape):
    x = xlnstorch.ones(*shape, format=lns16)
    ALONG[name](x, 0)[0].fill_(0.5)
    assert (x == 1).all()


def test_dimensions_are_checked():
    x = xlnstorch.ones(2, 3, format=lns16)
    text = "Dimension out of range (expected to be in range of [-2, 1], but got 2)"
    for select in (x.sort, x.median, x.cummax, x.argmax):
        with pytest.raises(IndexError, match=exactly(text)):
            select(2)


@pytest.mark.usefixtures("kernel")
class TestWhatIsNoWordsOrder:
    """NaN and infinities, which torch puts in where there is nothing to select."""

    def test_nothing_has_no_median(self):
        assert torch.median(lnstensor([1.0, 2.0], format=lns16)[:0])._words.item() == 0

    def test_a_window_of_padding_has_the_most_negative_word(self):
        x = lnstensor([[[1.0, 2.0]]], format=lns16)
        pooled = torch.nn.functional.max_pool1d(x, kernel_size=2, stride=1, padding=1, dilation=3)
        assert pooled.words.tolist() == [[[0xFFFF]]]

    @pytest.mark.parametrize("specials", [False, True])
    def test_words_of_any_number(self, specials):
        format = LNSFormat(8, 7, specials=specials)
        orders = torch.tensor([math.nan, math.inf, -math.inf, 3.0, -3.0, -0.0], dtype=torch.float64)
        words = format.to_unsigned(arithmetic.from_order(format, orders)).tolist()
        assert words == [0x8000 if specials else 0, 0x7FFF, 0xFFFF, 3, 0x8003, 0]


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("format", [lns16, LNSFormat(8, 15)], ids=repr)
def test_results_are_laid_out_as_operands(format):
    x = sample(format, 2, 3, 4, 5, seed=1).contiguous(memory_format=torch.channels_last)
    of_one = [torch.exp(x), torch.maximum(x, x), x.sort().values, -x, x.value, LNSTensor(x._words, format).value]
    assert {y.stride() for y in of_one} == {x.stride()}
    assert lnstensor(x.value, format=format).stride() == x.stride()
    assert torch.equal(lnstensor(x.value, format=format)._words, x._words)
