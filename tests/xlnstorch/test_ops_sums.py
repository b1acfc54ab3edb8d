"""Sums and matrix products: each in the order of the format's accumulator, word for word."""

import functools

import pytest
import torch
from lnstesting import FORMATS, check, sample, word

import xlnstorch
from xlnstorch import LNSTensor, arithmetic, conversions, lns16, lnstensor


def tree(format, terms):
    while len(terms) > 1:
        pairs = [arithmetic.add(format, x, y) for x, y in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[2 * len(pairs) :]
    return terms[0]


def total(format, terms):
    if format.accumulator.order == "tree":
        return tree(format, list(terms))
    return functools.reduce(functools.partial(arithmetic.add, format), terms)


def products(format, x, y):
    """The matrix product, an element at a time."""
    rows = []
    for row in x:
        terms = [[arithmetic.mul(format, p, q) for p, q in zip(row, column, strict=True)] for column in y.t()]
        rows.append(torch.stack([total(format, t) for t in terms]))
    return torch.stack(rows)


def test_sum_is_in_the_order_of_the_accumulator(format):
    x = sample(format, 2, 3, 5, seed=3)
    w = x._words
    check(x.sum(), format, total(format, w.flatten()))
    check(x.sum(1), format, total(format, w.unbind(1)))
    check(x.sum(-1, keepdim=True), format, total(format, w.unbind(2)).unsqueeze(2))
    check(x.sum((0, 2)), format, total(format, w.transpose(1, 2).flatten(0, 1)))
    check(x.sum((2, 0)), format, total(format, w.transpose(1, 2).flatten(0, 1)))
    check(x.transpose(0, 2).sum((0, 2)), format, total(format, w.permute(2, 0, 1).flatten(0, 1)))
    check(x.mean(1), format, arithmetic.div(format, total(format, w.unbind(1)), word(format, 3.0)))
    check(x.mean(), format, arithmetic.div(format, total(format, w.flatten()), word(format, 30.0)))


def test_orders_differ():
    # Otherwise the test above could not tell them apart.
    x = sample(FORMATS[1], 2, 40, seed=3)
    assert not torch.equal(x.sum(1)._words, LNSTensor(x._words, FORMATS[3]).sum(1)._words)


def test_sum_of_one_and_of_nothing(format):
    one, none = lnstensor(2.0, format=format), xlnstorch.zeros(0, 3, format=format)
    check(none.sum(), format, word(format, 0.0))
    check(none.sum(0), format, word(format, 0.0).expand(3))
    assert none.sum(1).shape == (0,) and none.mean(0).words.tolist() == [0, 0, 0]
    check(one.sum(), format, one._words)
    check(one.mean(), format, one._words)
    check(one.sum(0), format, one._words)


def test_sum_dimensions_are_checked(a):
    with pytest.raises(IndexError):
        a.sum(2)
    with pytest.raises(RuntimeError):
        a.sum((0, 0))


def test_matrix_products(format):
    x, y, v = sample(format, 3, 4, seed=4), sample(format, 4, 2, seed=5), sample(format, 4, seed=6)
    expected = products(format, x._words, y._words)
    check(x @ y, format, expected)
    check(torch.mm(x.t().contiguous().t(), y), format, expected)
    check(torch.bmm(x[None], y[None]), format, expected[None])
    check(x @ v, format, products(format, x._words, v._words[:, None])[:, 0])
    check(torch.dot(v, y[:, 0]), format, products(format, v._words[None], y._words[:, :1])[0, 0])
    check(torch.einsum("ij,jk->ik", x, y), format, expected)


def test_vector_times_matrix(format):
    y, v = sample(format, 4, 2, seed=5), sample(format, 4, seed=6)
    check(v @ y, format, products(format, v._words[None], y._words)[0])


def test_a_bias_is_added_last(format):
    x, y = sample(format, 3, 4, seed=4), sample(format, 4, 2, seed=5)
    bias = sample(format, 2, seed=8)
    product = products(format, x._words, y._words)
    check(torch.addmm(bias, x, y), format, arithmetic.add(format, product, bias._words))
    check(torch.nn.functional.linear(x, y.t(), bias), format, arithmetic.add(format, product, bias._words))
    check(torch.baddbmm(bias, x[None], y[None]), format, arithmetic.add(format, product, bias._words)[None])
    scaled = arithmetic.mul(format, product, word(format, 0.3)), arithmetic.mul(format, bias._words, word(format, -2.0))
    check(torch.addmm(bias, x, y, alpha=0.3, beta=-2), format, arithmetic.add(format, *scaled))
    check(torch.addmm(bias, x, y, beta=0), format, product)


def test_products_with_plain_tensors_and_empty_ones(format):
    x = sample(format, 3, 4, seed=4)
    plain = torch.randn(4, 2, generator=torch.Generator().manual_seed(1))
    check(x @ plain, format, products(format, x._words, conversions.encode(format, plain)))
    check(x[:, :0] @ plain[:0], format, word(format, 0.0).expand(3, 2))


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (torch.mm, [(2, 3), (2, 3)]),
        (torch.mv, [(2, 3), (2,)]),
        (torch.dot, [(3,), (1,)]),
        (torch.mv, [(3,), (3,)]),
        (torch.mm, [(1, 2, 3), (1, 3, 2)]),
        (torch.bmm, [(2, 2), (2, 2)]),
    ],
)
def test_shapes_of_products_are_checked(op, shapes):
    with pytest.raises(RuntimeError):
        op(*(xlnstorch.ones(*shape, format=lns16) for shape in shapes))


@pytest.mark.parametrize("format", [lns16, xlnstorch.LNSFormat(8, 7, specials=True)], ids=repr)
def test_where_there_is_nothing_to_put_a_sum_nothing_is_added(format):
    x = LNSTensor(torch.zeros(20_000, 0, dtype=torch.int16), format)
    seen = []
    with xlnstorch.observe.observing(seen.append):
        assert x.sum(0).shape == (0,)
        assert x.mean(0, keepdim=True).shape == (1, 0)
        assert x.sum(1).tolist() == [0.0] * 20_000
    assert {operation.name for operation in seen} <= {"div"}
