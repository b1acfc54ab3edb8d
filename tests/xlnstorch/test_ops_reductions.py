"""Variances, products and running results, word for word, as the LNS operations that they are made of."""

import functools

import pytest
import torch
from lnstesting import add, check, exactly, sample, summed, word

import xlnstorch
from xlnstorch import LNSTensor, arithmetic, lns16, lnstensor


def variance(format, terms, correction):
    """Return the words of the variance and of the mean of slices."""
    terms = list(terms)
    mean = arithmetic.div(format, summed(format, terms), word(format, float(len(terms))))
    squares = [arithmetic.power(format, arithmetic.sub(format, term, mean), 2) for term in terms]
    count = word(format, float(max(0, len(terms) - correction)))
    return arithmetic.div(format, summed(format, squares), count), mean


@pytest.mark.parametrize("correction", [1, 0, 0.5, 7])
def test_variance_and_deviation(correction, format):
    x = sample(format, 3, 5, 2, seed=31)
    for dim, terms in [
        (1, x._words.unbind(1)),
        (-3, x._words.unbind(0)),
        ((2, 0), x._words.transpose(1, 2).flatten(0, 1)),
    ]:
        expected, mean = variance(format, terms, correction)
        check(torch.var(x, dim, correction=correction), format, expected)
        check(torch.std(x, dim, correction=correction), format, arithmetic.sqrt(format, expected))
        for both, first in [(torch.var_mean, expected), (torch.std_mean, arithmetic.sqrt(format, expected))]:
            found, found_mean = both(x, dim, correction=correction)
            check(found, format, first)
            check(found_mean, format, mean)
    expected, mean = variance(format, x._words.flatten(), correction)
    check(torch.var(x, correction=correction), format, expected)
    kept, kept_mean = torch.var_mean(x, (0, 1, 2), correction=correction, keepdim=True)
    check(kept, format, expected.reshape(1, 1, 1))
    check(kept_mean, format, mean.reshape(1, 1, 1))


def test_variance_of_one_and_of_nothing():
    # 0 / 0 is zero.
    for x in (lnstensor(3.0, format=lns16), xlnstorch.zeros(0, format=lns16)):
        check(x.var(), lns16, word(lns16, 0.0))
    assert xlnstorch.zeros(0, 3, format=lns16).var(0).words.tolist() == [0, 0, 0]
    assert xlnstorch.zeros(0, 3, format=lns16).std(1).shape == (0,)


RUNNING = {"cumsum": arithmetic.add, "cumprod": arithmetic.mul}


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", RUNNING)
def test_running_results_go_left_to_right(name, dim, format):
    x = sample(format, 4, 5, seed=32)
    combine = functools.partial(RUNNING[name], format)
    terms = x._words.unbind(dim)
    expected = torch.stack(
        [
            functools.reduce(
                combine,
                terms[: n + 1],
            )
            for n in range(len(terms))
        ],
        dim,
    )
    check(getattr(x, name)(dim), format, expected)
    check(getattr(x.t(), name)(1 - dim % 2), format, expected.t())
    there = x.clone()
    assert getattr(there, f"{name}_")(dim) is there
    check(there, format, expected)


def test_running_logarithm_of_a_sum(format):
    x = lnstensor(torch.linspace(-2.0, 3.0, 12, dtype=torch.float64).reshape(3, 4).sin(), format=format)
    for dim in (0, -1):
        terms = x.unbind(dim)
        expected = [functools.reduce(torch.logaddexp, terms[: n + 1])._words for n in range(len(terms))]
        check(x.logcumsumexp(dim), format, torch.stack(expected, dim))


def test_products_go_left_to_right(format):
    x = sample(format, 3, 4, seed=33)
    x[x == 0] = 0.3
    multiply = functools.partial(arithmetic.mul, format)
    check(x.prod(), format, functools.reduce(multiply, x._words.flatten()))
    check(x.t().prod(), format, functools.reduce(multiply, x._words.t().flatten()))
    check(x.prod(-1), format, functools.reduce(multiply, x._words.unbind(1)))
    check(x.prod(0, keepdim=True), format, functools.reduce(multiply, x._words.unbind(0))[None])
    # The order is seen where a product saturates on its way.
    top, small = format.max_field, format.bias // 2
    words = format.from_unsigned(torch.tensor([top, top, small]))
    one_way, other = LNSTensor(words, format).prod(), LNSTensor(words.flip(0), format).prod()
    assert one_way.words.item() == top - (format.bias - small) != other.words.item()


def test_nothing_and_single_elements():
    none = xlnstorch.zeros(0, 3, format=lns16)
    check(none.prod(), lns16, word(lns16, 1.0))
    check(none.prod(0), lns16, word(lns16, 1.0).expand(3))
    for name in ("cumsum", "cumprod", "logcumsumexp"):
        assert getattr(none, name)(0).shape == getattr(none, name)(1).shape == (0, 3)
    for x in (xlnstorch.from_words(0x8000, lns16), xlnstorch.from_words([0x8000], lns16)):
        for result in (x.prod(), x.prod(0), x.cumsum(0), x.cumprod(-1), x.logcumsumexp(0)):
            assert result.words.flatten().tolist() == [0]


@pytest.mark.parametrize("name", ["prod", "cumsum", "cumprod", "logcumsumexp"])
def test_dimensions_are_checked(name):
    for x, low, high in [(lnstensor(2.0, format=lns16), -1, 0), (xlnstorch.ones(2, 3, format=lns16), -2, 1)]:
        text = f"Dimension out of range (expected to be in range of [{low}, {high}], but got 3)"
        with pytest.raises(IndexError, match=exactly(text)):
            getattr(x, name)(3)


@pytest.mark.parametrize("shape", [(), (1,), (1, 3)], ids=repr)
@pytest.mark.parametrize("name", ["prod", "cumsum", "cumprod", "logcumsumexp"])
def test_results_share_nothing_with_what_they_are_made_of(name, shape):
    x = xlnstorch.ones(*shape, format=lns16)
    getattr(x, name)(0).fill_(0.5)
    assert (x == 1).all()


def norm(format, terms, p):
    if p == 0:
        return add(format, *[torch.where(term & format.max_field != 0, word(format, 1.0), 0) for term in terms])
    powers = [arithmetic.power(format, arithmetic.absolute(format, term), p) for term in terms]
    return summed(format, powers)


def test_norms_and_distances(format):
    x, y = sample(format, 3, 4, seed=34), sample(format, 2, 4, seed=35)
    squares = norm(format, x._words.unbind(1), 2)
    check(torch.linalg.vector_norm(x, dim=1), format, arithmetic.sqrt(format, squares))
    check(torch.linalg.vector_norm(x, 1, dim=-1), format, norm(format, x._words.unbind(1), 1))
    check(
        torch.linalg.vector_norm(x, 4, dim=1),
        format,
        (LNSTensor(norm(format, x._words.unbind(1), 4), format) ** 0.25)._words,
    )
    difference = arithmetic.sub(format, x._words[:, None], y._words[None])
    distance = arithmetic.sqrt(format, norm(format, difference.unbind(-1), 2))
    check(torch.cdist(x, y), format, distance)
    check(torch.cdist(x, y, p=1), format, norm(format, difference.unbind(-1), 1))
    check(torch.cdist(x[:0], y), format, distance[:0])
    pairs = torch.stack([arithmetic.sub(format, x._words[i], x._words[j]) for i, j in [(0, 1), (0, 2), (1, 2)]])
    check(torch.pdist(x), format, arithmetic.sqrt(format, norm(format, pairs.unbind(1), 2)))
    check(torch.pdist(x[:1]), format, pairs[:0, 0])


def test_a_product_of_three(format):
    x, y, w = sample(format, 3, 2, seed=36), sample(format, 3, 4, seed=37), sample(format, 5, 2, 4, seed=38)
    # bilinear: for each output, (x times w) times y, summed over both.
    expected = []
    for o in range(5):
        products = [
            arithmetic.mul(format, arithmetic.mul(format, x._words[:, i], w._words[o, i, j]), y._words[:, j])
            for i in range(2)
            for j in range(4)
        ]
        expected.append(summed(format, products))
    check(torch.nn.functional.bilinear(x, y, w), format, torch.stack(expected, 1))
