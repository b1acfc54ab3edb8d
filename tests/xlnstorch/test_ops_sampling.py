"""Sampling at points, drawing, attention and alignment, word for word, as the operations that they are made of."""

import itertools
import math

import pytest
import torch
from lnstesting import add, check, sample, summed, word

import xlnstorch
from xlnstorch import LNSTensor, arithmetic, conversions, lns8, lns16, lnstensor

functional = torch.nn.functional


# Grids ----------------------------------------------------------------------------------------------------------------


def points(format, *shape, seed):
    values = torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 2.6 - 1.3
    return lnstensor(values, format=format)


def element(x, index):
    """Return the elements (N, C) of points of one sample; zero outside."""
    if all(0 <= i < n for i, n in zip(index, x.shape[1:], strict=True)):
        return x[(slice(None), *index)]
    return torch.zeros_like(x[(slice(None), *[0] * len(index))])


def interpolated(format, x, point, align_corners):
    """Return the words (C,) at a point: each corner's element times its weight, added corner by corner."""
    mul, sub, one = arithmetic.mul, arithmetic.sub, word(format, 1.0)
    first, parts = [], []
    for coordinate, size in zip(reversed(point.unbind(0)), x.shape[1:], strict=True):
        scale, offset = ((size - 1) / 2 if align_corners else size / 2), (size - 1) / 2
        place = arithmetic.add(format, mul(format, coordinate._words, word(format, scale)), word(format, offset))
        floor = torch.floor(LNSTensor(place, format))
        first.append(round(floor.item()))
        parts.append(sub(format, place, floor._words))
    terms = []
    for corner in itertools.product((0, 1), repeat=len(first)):
        factors = [part if step else sub(format, one, part) for part, step in zip(parts, corner, strict=True)]
        weight = factors[0]
        for factor in factors[1:]:
            weight = mul(format, weight, factor)
        terms.append(mul(format, element(x, [i + step for i, step in zip(first, corner, strict=True)]), weight))
    return add(format, *terms)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 3)])
def test_grid_sampling(shape, align_corners, format):
    x = sample(format, 2, 2, *shape, seed=71)
    out = (2, 3, 1)[: len(shape)]
    grid = points(format, 2, *out, len(shape), seed=72)
    expected = [[interpolated(format, x._words[n], p, align_corners) for p in grid[n].flatten(0, -2)] for n in range(2)]
    expected = torch.stack([torch.stack(row, -1) for row in expected]).reshape(2, 2, *out)
    check(functional.grid_sample(x, grid, align_corners=align_corners), format, expected)


def test_grid_sampling_takes_a_plain_operand(format):
    x, grid = sample(format, 1, 2, 3, 3, seed=73), points(format, 1, 2, 2, 2, seed=74)
    plain_x, plain_grid = x.value.clamp(-2, 2) + 1e-3, grid.value + 1e-3
    for mode in ("bilinear", "nearest"):
        how = {"mode": mode, "align_corners": False}
        encoded = functional.grid_sample(x, lnstensor(plain_grid, format=format), **how)
        check(functional.grid_sample(x, plain_grid, **how), format, encoded._words)
        encoded = functional.grid_sample(lnstensor(plain_x, format=format), grid, **how)
        check(functional.grid_sample(plain_x, grid, **how), format, encoded._words)
    for mine, other in [((plain_x, grid), 1), ((x, plain_grid), 0)]:
        gradients = []
        for operands in (mine, [lnstensor(t, format=format) for t in mine]):
            leaf = operands[other].detach().requires_grad_()
            result = functional.grid_sample(
                *(leaf if t is operands[other] else t for t in operands), align_corners=False
            )
            gradients += torch.autograd.grad(result, leaf, sample(format, *result.shape, seed=75))
        check(gradients[0], format, gradients[1]._words)
    assert functional.grid_sample(x[:0], grid[:0], align_corners=False).shape == (0, 2, 2, 2)


# Drawing --------------------------------------------------------------------------------------------------------------

DRAWN = {
    "bernoulli": lambda p: torch.bernoulli(p),
    "bernoulli p": lambda p: torch.bernoulli(p, 0.3),
    "poisson": lambda p: torch.poisson(p),
    "normal": lambda p: torch.normal(p, 0.5),
    "normal deviation": lambda p: torch.normal(2.0, p),
    "normal both": lambda p: torch.normal(p, p),
    "rand_like": lambda p: torch.rand_like(p),
    "randn_like": lambda p: torch.randn_like(p),
    "randint_like": lambda p: torch.randint_like(p, 2, 9),
    "uniform": lambda p: p.clone().uniform_(-1, 3),
    "normal_": lambda p: p.clone().normal_(1, 2),
    "exponential": lambda p: p.clone().exponential_(2.0),
    "bernoulli_": lambda p: p.clone().bernoulli_(0.4),
    "bernoulli_ by a tensor": lambda p: p.clone().bernoulli_(p),
    "random": lambda p: p.clone().random_(2, 7),
    "geometric": lambda p: p.clone().geometric_(0.4),
    "log_normal": lambda p: p.clone().log_normal_(0, 1),
    "cauchy": lambda p: p.clone().cauchy_(0, 1),
    "multinomial": lambda p: torch.multinomial(p, 2),
    "binomial": lambda p: torch.binomial(p * 0 + 4, p),
}


@pytest.mark.parametrize("name", DRAWN)
def test_what_is_drawn_is_the_nearest_word_to_torchs(name, format):
    p = lnstensor([[0.2, 0.5, 0.9], [0.7, 0.1, 0.4]], format=format)
    results = []
    for operand in (p, p.value):
        torch.manual_seed(5)
        results.append(DRAWN[name](operand))
    mine, theirs = results
    if theirs.dtype == torch.int64:
        assert torch.equal(mine, theirs)
    else:
        check(mine, format, conversions.encode(format, theirs))


def test_randomised_slopes(format):
    x = sample(format, 4, 5, seed=76)
    torch.manual_seed(5)
    result = functional.rrelu(x, 0.1, 0.4, training=True)
    torch.manual_seed(5)
    slopes = torch.ones(4, 5, dtype=torch.float64)
    slopes[x <= 0] = slopes[x <= 0].uniform_(0.1, 0.4)
    check(result, format, arithmetic.mul(format, x._words, conversions.encode(format, slopes)))
    slope = word(format, 0.25)
    expected = torch.where(x > 0, x._words, arithmetic.mul(format, x._words, slope))
    check(functional.rrelu(x, 0.1, 0.4), format, expected)


def test_a_parameter_of_another_format_is_refused():
    x, p = xlnstorch.ones(2, format=lns16), lnstensor([0.5, 0.5], format=lns8)
    for draw in (lambda: torch.normal(x, p), lambda: x.bernoulli_(p)):
        with pytest.raises(TypeError, match="got operands of two formats, lns16 and lns8"):
            draw()
    assert (x == 1).all()
    with pytest.raises(RuntimeError, match="cannot write LNS words into a plain"):
        torch.ones(2).bernoulli_(x)


# Attention ------------------------------------------------------------------------------------------------------------


def softmax(format, x):
    """Return the softmax over the last dimension: the exponentials of what is left of the maximum, over their sum."""
    rest = LNSTensor(arithmetic.sub(format, x, LNSTensor(x, format).amax(-1, keepdim=True)._words), format)
    powers = rest.exp()._words
    return arithmetic.div(format, powers, summed(format, powers.unbind(-1)).unsqueeze(-1))


@pytest.mark.parametrize("masked", [False, True])
def test_attention(masked, format):
    q, k, v = (sample(format, 1, 2, 3, 4, seed=n).clamp(-2, 2) for n in (77, 78, 79))
    root = word(format, math.sqrt(1 / math.sqrt(4)))
    product = format.accumulator.matmul
    scores = product(
        format, arithmetic.mul(format, q._words, root), arithmetic.mul(format, k._words, root).transpose(-1, -2)
    )
    mask = torch.ones(3, 3, dtype=torch.bool).tril(-1)
    if masked:
        lowest = word(format, -math.inf)
        scores = torch.where(mask, scores, arithmetic.add(format, scores, lowest))
    weights = softmax(format, scores)
    if masked:
        weights[..., 0, :] = 0  # a row with nothing to attend to
    expected = product(format, weights, v._words)
    check(functional.scaled_dot_product_attention(q, k, v, attn_mask=mask if masked else None), format, expected)


# Alignment ------------------------------------------------------------------------------------------------------------


def alignment_loss(format, x, labels):
    """Return the loss of one sample (T, C): over the paths, what leads to a state, and then what it emits."""
    states = [0, labels[0], 0, labels[1], 0]  # between the labels there may be blanks
    lowest = word(format, -math.inf)
    alpha = [x[0, s]._words if i < 2 else lowest for i, s in enumerate(states)]
    for emitted in x[1:]:
        moved = []
        for i, s in enumerate(states):
            skip = i == 3 and labels[0] != labels[1]
            before = [alpha[i], alpha[i - 1] if i > 0 else lowest, alpha[i - 2] if skip else lowest]
            total = torch.logsumexp(LNSTensor(torch.stack(before), format), 0)._words
            moved.append(arithmetic.add(format, total, emitted[s]._words))
        alpha = moved
    ends = LNSTensor(torch.stack([alpha[4], alpha[3]]), format)
    return arithmetic.neg(format, torch.logsumexp(ends, 0)._words)


def test_connectionist_temporal_classification(format):
    values = torch.randn(5, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(80))
    x = lnstensor(values.log_softmax(-1), format=format)
    labels, lengths = [[1, 2], [2, 1], [1, 1], [2, 1]], [5, 4, 5, 3]
    expected = torch.stack([alignment_loss(format, x[: lengths[n], n], labels[n]) for n in range(4)])
    rows = torch.tensor(labels)
    for targets in (rows, rows.flatten()):
        result = functional.ctc_loss(x, targets, torch.tensor(lengths), torch.tensor([2] * 4), reduction="none")
        check(result, format, expected)
    check(functional.ctc_loss(x[:, 0], rows[0], [5], [2], reduction="none"), format, expected[0])
