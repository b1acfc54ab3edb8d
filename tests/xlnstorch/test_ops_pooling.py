"""Pooling and padding, word for word: what is in a window, the order of its sum, and the count that divides it."""

import itertools

import pytest
import torch
from lnstesting import add, check, sample, summed, word

import xlnstorch
from xlnstorch import arithmetic, lns16

functional = torch.nn.functional


def means(format, x, windows, rank):
    """Return the mean of each window, given per cell as the indices of its elements, and its divisor."""
    plane = x.flatten(-rank)
    cells = [
        arithmetic.div(
            format,
            summed(format, [torch.zeros_like(plane[..., 0]) if i is None else plane[..., i] for i in indices]),
            word(format, float(count)),
        )
        for indices, count in windows
    ]
    return torch.stack(cells, -1)


def windows_of(size, kernel, stride, padding, out, include):
    """Return the windows of avg_pool: flat indices, None outside, and how many elements count."""
    flat = torch.arange(torch.Size(size).numel()).reshape(size)
    for place in itertools.product(*map(range, out)):
        starts = [i * s - p for i, s, p in zip(place, stride, padding, strict=True)]
        indices, count = [], 0
        for element in itertools.product(*(range(a, a + k) for a, k in zip(starts, kernel, strict=True))):
            inside = all(0 <= i < n for i, n in zip(element, size, strict=True))
            indices.append(int(flat[element]) if inside else None)
            # Where the last window exceeds the padding, what lies beyond that does not count.
            count += inside or (include and all(i < n + p for i, n, p in zip(element, size, padding, strict=True)))
        yield indices, count


POOLS = {
    "1d": [(2, 7), (3,), (2,), (1,)],
    "2d": [(2, 4, 5), (2, 3), (2, 1), (1, 1)],
    "2d ceil": [(1, 5, 4), (3, 2), (2, 3), (1, 0)],
    "3d": [(1, 3, 2, 4), (2, 1, 2), (1, 2, 2), (1, 0, 1)],
}


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("name", POOLS)
def test_average_pooling(name, include, format):
    shape, kernel, stride, padding = POOLS[name]
    rank = len(kernel)
    pool = getattr(functional, f"avg_pool{rank}d")
    x = sample(format, 2, *shape, seed=21).requires_grad_()
    result = pool(x, kernel, stride, padding, "ceil" in name, include)
    out = pool(x.value, kernel, stride, padding, "ceil" in name, include).shape[-rank:]
    windows = list(windows_of(shape[1:], kernel, stride, padding, out, include))
    check(result.detach().flatten(-rank), format, means(format, x._words, windows, rank))
    # Backwards: each element gets the shares of its windows, in their order.
    incoming = sample(format, *result.shape, seed=22)
    grad = torch.zeros_like(x._words).flatten(-rank)
    for (indices, count), g in zip(windows, incoming._words.flatten(-rank).unbind(-1), strict=True):
        share = arithmetic.div(format, g, word(format, float(count)))
        for i in indices:
            if i is not None:
                grad[..., i] = arithmetic.add(format, grad[..., i], share)
    (found,) = torch.autograd.grad(result, x, incoming)
    check(found.flatten(-rank), format, grad)


def test_a_divisor_may_be_given(format):
    x = sample(format, 1, 1, 4, 4, seed=23)
    windows = list(windows_of((4, 4), (2, 2), (2, 2), (0, 0), (2, 2), True))
    expected = means(format, x._words, [(indices, 3) for indices, _ in windows], 2)
    check(functional.avg_pool2d(x, 2, divisor_override=3).flatten(2), format, expected)


@pytest.mark.parametrize(("shape", "out"), [((2, 8), (3,)), ((1, 5, 7), (3, 4)), ((1, 3, 4, 5), (2, 3, 3))])
def test_adaptive_average_pooling(shape, out, format):
    rank = len(out)
    x = sample(format, 2, *shape, seed=24)
    windows = []
    for place in itertools.product(*map(range, out)):
        spans = [range(i * n // m, -(-(i + 1) * n // m)) for i, n, m in zip(place, shape[1:], out, strict=True)]
        flat = torch.arange(x[0, 0].numel()).reshape(shape[1:])
        indices = [int(flat[element]) for element in itertools.product(*spans)]
        windows.append((indices, len(indices)))
    assert len({len(indices) for indices, _ in windows}) > 1  # windows of several lengths
    result = getattr(functional, f"adaptive_avg_pool{rank}d")(x, out)
    check(result.flatten(-rank), format, means(format, x._words, windows, rank))


def test_max_pooling_selects_and_gradients_meet_in_order(format):
    x = sample(format, 2, 3, 5, 6, seed=25).requires_grad_()
    result, indices = functional.max_pool2d(x, 3, 1, 1, return_indices=True)
    check(result.detach(), format, x._words.flatten(2).gather(2, indices.flatten(2)).reshape(result.shape))
    incoming = sample(format, *result.shape, seed=26)
    grad = torch.zeros_like(x._words).flatten(0, 1).flatten(1)
    planes = zip(indices.flatten(0, 1).flatten(1), incoming._words.flatten(0, 1).flatten(1), strict=True)
    for plane, (places, gs) in enumerate(planes):
        for i, g in zip(places.tolist(), gs, strict=True):
            grad[plane, i] = arithmetic.add(format, grad[plane, i], g)
    (found,) = torch.autograd.grad(result, x, incoming)
    check(found, format, grad.reshape(x.shape))


def test_padding(format):
    x = sample(format, 2, 3, 4, seed=27).requires_grad_()
    filled = functional.pad(x, (1, 2, 0, 1), value=0.3)
    check(filled.detach(), format, functional.pad(x._words, (1, 2, 0, 1), value=word(format, 0.3).item()))
    (grad,) = torch.autograd.grad(filled, x, incoming := sample(format, *filled.shape, seed=28))
    check(grad, format, incoming._words[:, :3, 1:5])
    # What is repeated gets the sum, in the order of the result.
    copied = functional.pad(x, (2, 1), mode="replicate")
    check(copied.detach(), format, x._words[..., [0, 0, 0, 1, 2, 3, 3]])
    (grad,) = torch.autograd.grad(copied, x, incoming := sample(format, *copied.shape, seed=29))
    g = incoming._words.unbind(-1)
    check(grad, format, torch.stack([add(format, *g[:3]), g[3], g[4], add(format, *g[5:])], -1))


def test_windows_of_one_and_of_no_sample():
    negative_zero = xlnstorch.from_words([[[0x8000, 0x4000]]], lns16)
    for pool in (functional.avg_pool1d, functional.max_pool1d):
        assert pool(negative_zero, 1).words.tolist() == [[[0, 0x4000]]]
    none = xlnstorch.zeros(0, 2, 4, 4, format=lns16)
    assert functional.avg_pool2d(none, 2).shape == functional.adaptive_avg_pool2d(none, 2).shape == (0, 2, 2, 2)
    assert functional.adaptive_avg_pool2d(xlnstorch.ones(1, 2, 4, 4, format=lns16), 0).shape == (1, 2, 0, 0)
