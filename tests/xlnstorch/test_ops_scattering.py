"""Writing by index, word for word: what meets in one element is combined left to right."""

import pytest
import torch
from lnstesting import check, exactly, sample, word

import xlnstorch
from xlnstorch import LNSTensor, arithmetic, lns8, lns16, lnstensor

INDEX = torch.tensor([[0, 2, 0, 1], [0, 2, 2, 2], [0, 0, 0, 2]])


@pytest.fixture
def x(format):
    return sample(format, 3, 4, seed=41)


@pytest.fixture
def source(format):
    return sample(format, 3, 4, seed=42)


def combined(format, words, where, values, combine=arithmetic.add):
    """Combine values into the elements at flat indices, one at a time."""
    flat = words.flatten().clone()
    for i, value in zip(where.flatten().tolist(), values.flatten(), strict=True):
        flat[i] = combine(format, flat[i], value)
    return flat.reshape(words.shape)


def flat_index(x):
    return torch.arange(x.numel()).reshape(x.shape)


def check_both(x, name, arguments, expected, **how):
    """Check an operation and its in-place variant."""
    before = x._words.clone()
    check(getattr(x, name)(*arguments, **how), x.format, expected)
    assert torch.equal(x._words, before)
    there = x.clone()
    assert getattr(there, f"{name}_")(*arguments, **how) is there
    check(there, x.format, expected)


@pytest.mark.parametrize("dim", [0, -2])
def test_scatter_add(dim, format, x, source):
    where = flat_index(x).gather(0, INDEX)
    check_both(x, "scatter_add", (dim, INDEX, source), combined(format, x._words, where, source._words))
    part = INDEX[:2, :3]
    expected = combined(format, x._words, where[:2, :3], source._words[:2, :3])
    check_both(x, "scatter_add", (dim, part, source), expected)


@pytest.mark.parametrize("alpha", [1, -1, 0.3])
def test_index_add(alpha, format, x, source):
    index = torch.tensor([1, 3, 1, 1])
    for dtype in (torch.int64, torch.int32):
        added = source._words
        if alpha != 1:
            added = arithmetic.mul(format, added, word(format, alpha))
        expected = combined(format, x._words, flat_index(x).index_select(1, index), added)
        check_both(x, "index_add", (1, index.to(dtype), source), expected, alpha=alpha)
        check_both(x.t().clone().t(), "index_add", (-1, index.to(dtype), source), expected, alpha=alpha)
    # A plain source is encoded and then scaled.
    plain = torch.linspace(-2.0, 3.0, 12).reshape(3, 4)
    expected = x.index_add(1, index, lnstensor(plain, format=format), alpha=alpha)
    check(x.index_add(1, index, plain, alpha=alpha), format, expected._words)


def test_index_put(format, x, source):
    rows, columns = torch.tensor([2, 0, -1, 2]), torch.tensor([1, 1, 1, -3])
    values = source._words[0]
    where = flat_index(x)[rows, columns]
    assert len(set(where.tolist())) == 2
    check_both(x, "index_put", ((rows, columns), source[0], True), combined(format, x._words, where, values))
    again = torch.tensor([1, 1])
    expected = combined(format, x._words, flat_index(x)[again], source._words[:2])
    check_both(x, "index_put", ((again,), source[:2], True), expected)
    check_both(x, "index_put", ((again[:1],), source[:1]), torch.stack([x._words[0], source._words[0], x._words[2]]))
    mask = x > 0
    expected = combined(format, x._words, flat_index(x)[mask], word(format, 0.3).expand(int(mask.sum())))
    check_both(x, "index_put", ((mask,), torch.tensor(0.3), True), expected)


def test_put(format, x, source):
    index = torch.tensor([[-1, 3], [11, 3]])
    values = source._words[:2, :2]
    check_both(x, "put", (index, source[:2, :2], True), combined(format, x._words, index % 12, values))
    check_both(x, "put", (index[0], source[0, :2]), x._words.put(index[0], values[0]))
    for wrong in (-13, 12):
        text = f"out of range: tried to access index {wrong} on a tensor of 12 elements."
        with pytest.raises(IndexError, match=exactly(text)):
            x.put_(torch.tensor([wrong]), source[0, :1], accumulate=True)


def reduced(format, words, where, values, reduce, include_self):
    """One element at a time: which values meet it, and what they make together."""
    result = words.flatten().clone()
    for i in range(words.numel()):
        met = [v for j, v in zip(where.flatten().tolist(), values.flatten(), strict=True) if i == j]
        if not met:
            continue
        terms = [result[i], *met] if include_self else met
        total = terms[0]
        for term in terms[1:]:
            if reduce in ("amax", "amin"):
                keys = [arithmetic.compare_key(format, w) for w in (total, term)]
                total = term if (keys[1] > keys[0]) == (reduce == "amax") else total
            else:
                total = (arithmetic.mul if reduce == "prod" else arithmetic.add)(format, total, term)
        result[i] = arithmetic.div(format, total, word(format, float(len(terms)))) if reduce == "mean" else total
    return format.pack(*format.unpack(result)).reshape(words.shape)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce(reduce, include_self, format, x, source):
    where = flat_index(x).gather(0, INDEX)
    expected = reduced(format, x._words, where, source._words, reduce, include_self)
    check_both(x, "scatter_reduce", (0, INDEX, source, reduce), expected, include_self=include_self)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")
def test_index_reduce(reduce, include_self, format, x, source):
    index = torch.tensor([1, 3, 1, 1])
    where = flat_index(x).index_select(1, index)
    expected = reduced(format, x._words, where, source._words, reduce, include_self)
    check_both(x, "index_reduce", (-1, index, source, reduce), expected, include_self=include_self)


def test_masked_scatter(format, x, source):
    mask = torch.tensor([True, False, True, True])
    expected = x._words.clone()
    expected[:, mask] = source._words.flatten()[:9].reshape(3, 3)
    check_both(x, "masked_scatter", (mask, source), expected)
    plain = torch.linspace(-2.0, 2.0, 9)
    expected[:, mask] = lnstensor(plain, format=format)._words.reshape(3, 3)
    check_both(x, "masked_scatter", (mask, plain), expected)


def test_a_tensor_of_no_dimension(format):
    x, y = lnstensor(3.0, format=format), lnstensor(0.3, format=format)
    index = torch.tensor(0)
    total = arithmetic.add(format, x._words, y._words)
    check_both(x, "scatter_add", (0, index, y), total)
    check_both(x, "index_add", (0, index, y), total)
    check_both(x, "scatter_reduce", (-1, index, y, "prod"), arithmetic.mul(format, x._words, y._words))


def test_nothing_to_add(format, x, source):
    none = torch.zeros(0, 4, dtype=torch.int64)
    check_both(x, "scatter_add", (0, none, source), x._words)
    check_both(x, "index_add", (0, none[:, 0], source[:0]), x._words)
    check_both(x, "index_put", ((none[:, 0],), source[:0], True), x._words)
    check_both(x, "put", (none[:, 0], source[:0, 0], True), x._words)


def test_gradients_of_reading_meet_in_order(format, x):
    x = x.detach().requires_grad_()
    for read in (
        lambda t: t[torch.tensor([1, 1, 0, 1])],
        lambda t: t.index_select(1, torch.tensor([3, 3, 0])),
        lambda t: t.gather(0, INDEX),
        lambda t: t.take(INDEX),
        lambda t: t.unfold(1, 3, 1),
        lambda t: t.expand(2, 3, 4),
    ):
        result = read(x)
        incoming = sample(format, *result.shape, seed=43)
        (grad,) = torch.autograd.grad(result, x, incoming)
        check(grad, format, combined(format, torch.zeros_like(x._words), read(flat_index(x)), incoming._words))


REFUSED = {
    "reduce must be 'sum', 'prod', 'mean', 'amax' or 'amin', not 'median'": lambda x: x.scatter_reduce(
        0, INDEX, x, "median"
    ),
    "reduce must be 'prod', 'mean', 'amax' or 'amin', not 'sum'; index_add sums": lambda x: x.index_reduce(
        0, INDEX[0, :3], x, "sum"
    ),
    "shape mismatch: (4, 3) cannot be combined at (3, 4) elements": lambda x: x.index_reduce(
        0, INDEX[0, :3], x.reshape(4, 3), "amax"
    ),
    "shape mismatch: (1, 4) cannot be combined at (3, 4) elements": lambda x: x.scatter_reduce(0, INDEX, x[:1], "amin"),
    "aten.scatter_add_.default cannot write LNS words into a plain torch.float32 tensor": lambda x: torch.ones(
        3, 4
    ).scatter_add_(0, INDEX, x),
}


@pytest.mark.parametrize("text", REFUSED)
@pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")
def test_what_is_refused(text):
    with pytest.raises(RuntimeError, match=exactly(text)):
        REFUSED[text](xlnstorch.ones(3, 4, format=lns16))


@pytest.mark.parametrize("name", ["scatter_add", "scatter_reduce", "put", "masked_scatter", "index_put"])
def test_two_formats_do_not_meet(name):
    x, y = xlnstorch.ones(3, 4, format=lns16), LNSTensor(torch.zeros(3, 4, dtype=torch.int8), lns8)
    arguments = {
        "scatter_reduce": (0, INDEX, y, "amax"),
        "put": (INDEX, y, True),
        "masked_scatter": (INDEX > 0, y),
        "index_put": ((INDEX[0, :3],), y, True),
    }.get(name, (0, INDEX, y))
    for variant in (name, f"{name}_"):
        with pytest.raises(TypeError, match="got operands of two formats, lns16 and lns8"):
            getattr(x, variant)(*arguments)
