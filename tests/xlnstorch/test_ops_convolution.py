"""Convolutions and their three derivatives, word for word: which products are added, and in which order."""

import itertools

import pytest
import torch
from lnstesting import check, exactly, sample, summed

import xlnstorch
from xlnstorch import LNSTensor, arithmetic, lns8, lns16, lnstensor

# Shapes of the input and the weight, then stride, padding, dilation and groups.
CASES = {
    "1d": [(2, 2, 6), (3, 2, 2), (2,), (1,), (3,), 1],
    "2d": [(2, 2, 4, 3), (3, 2, 2, 2), (1, 1), (0, 0), (1, 1), 1],
    "grouped": [(2, 4, 2, 4), (4, 2, 2, 2), (2, 1), (1, 0), (1, 2), 2],
    "depthwise": [(1, 3, 3, 4), (3, 1, 1, 3), (1, 2), (0, 1), (1, 1), 3],
    "3d": [(1, 2, 3, 2, 3), (2, 2, 2, 1, 2), (1, 1, 2), (1, 0, 1), (1, 1, 1), 1],
}
# The same for transposed ones, with an output_padding.
TRANSPOSED = {
    "1d": [(2, 2, 3), (2, 3, 3), (2,), (1,), (1,), 1, (1,)],
    "2d": [(1, 2, 2, 3), (2, 2, 2, 2), (1, 1), (0, 0), (1, 1), 1, (0, 0)],
    "grouped": [(1, 4, 2, 2), (4, 2, 2, 2), (2, 1), (0, 1), (1, 2), 2, (1, 1)],
    "3d": [(1, 2, 2, 1, 2), (2, 1, 1, 2, 2), (1, 2, 1), (0, 1, 0), (1, 1, 2), 1, (0, 1, 0)],
}


def places(shape):
    return list(itertools.product(*map(range, shape)))


def at(x, place, kernel_place, stride, padding, dilation):
    """Return the elements (N, C) of the input that meet an element of the kernel; zeros in the padding."""
    index = [p * s + k * d - e for p, s, k, d, e in zip(place, stride, kernel_place, dilation, padding, strict=True)]
    if all(0 <= i < n for i, n in zip(index, x.shape[2:], strict=True)):
        return x[(slice(None), slice(None), *index)]
    return torch.zeros_like(x[(slice(None), slice(None), *[0] * len(index))])


def correlated(format, x, w, out, stride, padding, dilation, groups):
    """Each output: one sum over the channels of its group and, within each, over the kernel."""
    result = torch.empty(x.shape[0], w.shape[0], *out, dtype=x.dtype)
    channels, outputs = w.shape[1], w.shape[0] // groups
    for place, o in itertools.product(places(out), range(w.shape[0])):
        first = o // outputs * channels
        terms = [
            arithmetic.mul(format, at(x, place, k, stride, padding, dilation)[:, first + c], w[(o, c, *k)])
            for c in range(channels)
            for k in places(w.shape[2:])
        ]
        result[(slice(None), o, *place)] = summed(format, terms)
    return result


def spread(format, y, w, size, stride, padding, dilation, groups):
    """The transposed one: for each element of the kernel a sum over channels; these are added left to right."""
    outputs, channels = w.shape[0] // groups, w.shape[1]
    result = torch.zeros(y.shape[0], groups * channels, *size, dtype=y.dtype)
    for group, c, k in itertools.product(range(groups), range(channels), places(w.shape[2:])):
        ours = range(group * outputs, (group + 1) * outputs)
        for place in places(y.shape[2:]):
            index = [p * s + q * d - e for p, s, q, d, e in zip(place, stride, k, dilation, padding, strict=True)]
            if not all(0 <= i < n for i, n in zip(index, size, strict=True)):
                continue
            term = summed(format, [arithmetic.mul(format, y[(slice(None), o, *place)], w[(o, c, *k)]) for o in ours])
            target = result[(slice(None), group * channels + c, *index)]
            target.copy_(arithmetic.add(format, target, term))
    return result


def weight_derivative(format, x, y, shape, stride, padding, dilation, groups):
    """For each weight a sum over the batch and, within each sample, over the output's positions."""
    result = torch.empty(shape, dtype=x.dtype)
    for o, c, k in itertools.product(range(shape[0]), range(shape[1]), places(shape[2:])):
        channel = o // (shape[0] // groups) * shape[1] + c
        met = [at(x, place, k, stride, padding, dilation)[:, channel] for place in places(y.shape[2:])]
        terms = [
            arithmetic.mul(format, y[(n, o, *place)], column[n])
            for n in range(x.shape[0])
            for place, column in zip(places(y.shape[2:]), met, strict=True)
        ]
        result[(o, c, *k)] = summed(format, terms)
    return result


def operands(format, *shapes):
    return [sample(format, *shape, seed=i).requires_grad_() for i, shape in enumerate(shapes, start=11)]


def convolve(rank, transposed=False):
    return getattr(torch.nn.functional, f"conv{'_transpose' * transposed}{rank}d")


def bias_derivative(format, g):
    return summed(format, g.transpose(0, 1).flatten(1).unbind(1))


@pytest.mark.parametrize("name", CASES)
def test_convolution_and_its_derivatives(name, format):
    shape, weight, stride, padding, dilation, groups = CASES[name]
    x, w, b = operands(format, shape, weight, weight[:1])
    rank, how = len(stride), (stride, padding, dilation, groups)
    result = convolve(rank)(x, w, b, *how)
    plain = correlated(format, x._words, w._words, result.shape[2:], *how)
    bias = b._words.reshape(-1, *[1] * rank)
    check(convolve(rank)(x, w, None, *how).detach(), format, plain)
    check(result.detach(), format, arithmetic.add(format, plain, bias))
    incoming = sample(format, *result.shape, seed=14)
    g = incoming._words
    by_x, by_w, by_b = torch.autograd.grad(result, [x, w, b], incoming)
    check(by_x, format, spread(format, g, w._words, shape[2:], *how))
    check(by_w, format, weight_derivative(format, x._words, g, weight, *how))
    check(by_b, format, bias_derivative(format, g))


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolution_and_its_derivatives(name, format):
    shape, weight, stride, padding, dilation, groups, extra = TRANSPOSED[name]
    x, w, b = operands(format, shape, weight, (weight[1] * groups,))
    rank, how = len(stride), (stride, padding, dilation, groups)
    given = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "output_padding": extra}
    result = convolve(rank, True)(x, w, b, **given)
    assert result.shape == convolve(rank, True)(x.value, w.value, **given).shape
    plain = spread(format, x._words, w._words, result.shape[2:], *how)
    check(convolve(rank, True)(x, w, **given).detach(), format, plain)
    check(result.detach(), format, arithmetic.add(format, plain, b._words.reshape(-1, *[1] * rank)))
    incoming = sample(format, *result.shape, seed=14)
    g = incoming._words
    by_x, by_w, by_b = torch.autograd.grad(result, [x, w, b], incoming)
    check(by_x, format, correlated(format, g, w._words, shape[2:], *how))
    check(by_w, format, weight_derivative(format, g, x._words, weight, *how))
    check(by_b, format, bias_derivative(format, g))


def test_the_layout_in_memory_changes_nothing(format):
    x, w = operands(format, (2, 2, 4, 3), (3, 2, 2, 2))
    there = x.detach().permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2), w.detach().mT.contiguous().mT
    check(convolve(2)(*there), format, convolve(2)(x, w)._words)
    check(convolve(2)(x[0], w).detach(), format, convolve(2)(x, w)._words[0])


def test_an_operand_may_be_plain(format):
    x, w = (t.detach() for t in operands(format, (1, 2, 3, 3), (2, 2, 2, 2)))
    plain = torch.randn(2, 2, 2, 2, generator=torch.Generator().manual_seed(1))
    check(convolve(2)(x, plain), format, convolve(2)(x, lnstensor(plain, format=format))._words)
    check(convolve(2)(plain, w), format, convolve(2)(lnstensor(plain, format=format), w)._words)


@pytest.mark.parametrize("transposed", [False, True])
def test_no_samples(transposed):
    x, w = operands(lns16, (0, 2, 4, 4), (2, 2, 2, 2))
    result = convolve(2, transposed)(x, w)
    assert result.shape == convolve(2, transposed)(x.value, w.value).shape
    for leaf, grad in zip((x, w), torch.autograd.grad(result.sum(), [x, w]), strict=True):
        check(grad, lns16, torch.zeros(leaf.shape, dtype=lns16.dtype))


def test_no_channels():
    x, w = operands(lns16, (1, 0, 4, 4), (3, 0, 2, 2))
    result = convolve(2)(x, w)
    check(result.detach(), lns16, torch.zeros(1, 3, 3, 3, dtype=lns16.dtype))
    assert [grad.shape for grad in torch.autograd.grad(result.sum(), [x, w])] == [x.shape, w.shape]


POSITIVE = "a convolution takes a positive stride and dilation and no negative padding"
WEIGHT = "aten.convolution.default: a weight of shape"


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"bias": (1,)}, "aten.convolution.default: a bias of shape (1,) does not fit 3 output channels"),
        ({"stride": 0}, f"{POSITIVE}, not (0, 0), (1, 1) and (0, 0)"),
        ({"padding": (-1, 0)}, f"{POSITIVE}, not (1, 1), (1, 1) and (-1, 0)"),
        ({"dilation": (1, 0)}, f"{POSITIVE}, not (1, 1), (1, 0) and (0, 0)"),
        ({"groups": 2}, f"{WEIGHT} (3, 2, 2, 2) in 2 groups does not fit an input of (1, 2, 4, 4)"),
        ({"dilation": 4}, "a kernel of (2, 2) does not fit into an input of (4, 4)"),
    ],
)
def test_what_does_not_fit_is_refused(how, text):
    x, w = xlnstorch.ones(1, 2, 4, 4, format=lns16), xlnstorch.ones(3, 2, 2, 2, format=lns16)
    how = {name: xlnstorch.ones(*value, format=lns16) if name == "bias" else value for name, value in how.items()}
    with pytest.raises(RuntimeError, match=exactly(text)):
        convolve(2)(x, w, **how)


def test_output_padding_and_formats_are_checked():
    x, w = xlnstorch.ones(1, 2, 4, 4, format=lns16), xlnstorch.ones(2, 3, 2, 2, format=lns16)
    text = "output_padding must be smaller than the stride (1, 2) or the dilation (1, 1), not (0, 2)"
    with pytest.raises(RuntimeError, match=exactly(text)):
        convolve(2, True)(x, w, stride=(1, 2), output_padding=(0, 2))
    with pytest.raises(TypeError, match=r"^aten\.convolution\.default got operands of two formats, lns16 and lns8"):
        convolve(2)(x, LNSTensor(torch.zeros(3, 2, 2, 2, dtype=torch.int8), lns8))


def test_the_order_of_the_products_is_seen(format):
    # Otherwise these tests could not tell one order from another.
    x, w = operands(format, (2, 4, 4, 5), (6, 4, 2, 2))
    other = convolve(2)(x.roll(1, 1), w.roll(1, 1))
    assert not torch.equal(convolve(2)(x, w)._words, other._words)
