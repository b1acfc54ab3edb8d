"""Convolutions, as matrix products of the weight with the windows of the input.

Each output is one sum, over the channels of its group and, within each, over the kernel in the order of the weight's
memory; a bias is added last. A transposed convolution, and the derivative by the input, sums over channels for each
element of the kernel, and then, where windows overlap, over the elements of the kernel in that order. The derivative by
the weight sums over the batch and, within each sample, over the output's positions.
"""

from __future__ import annotations

import itertools
import math

import torch

from .. import arithmetic
from ..formats import LNSFormat
from ..tensor import LNSTensor
from ._registry import aten, operands, register


class _Geometry:
    """A convolution's shapes, for any number of spatial dimensions; it works on words."""

    def __init__(self, format: LNSFormat, weight: torch.Tensor, stride, padding, dilation, groups: int):
        self.format = format
        self.kernel = tuple(weight.shape[2:])
        rank = len(self.kernel)
        self.stride, self.padding, self.dilation = (
            tuple(v) * rank if len(v) == 1 else tuple(v) for v in (stride, padding, dilation)
        )
        self.groups = groups
        if min(self.stride) < 1 or min(self.dilation) < 1 or min(self.padding) < 0:
            raise RuntimeError(
                "a convolution takes a positive stride and dilation and no negative padding, "
                f"not {self.stride}, {self.dilation} and {self.padding}"
            )

    def output_size(self, size) -> tuple[int, ...]:
        """Return the spatial size of the convolution of an input of spatial `size`."""
        out = tuple(
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, p, d, k, s in zip(size, self.padding, self.dilation, self.kernel, self.stride, strict=True)
        )
        if min(out) < 1:
            raise RuntimeError(f"a kernel of {self.kernel} does not fit into an input of {tuple(size)}")
        return out

    def _windows(self, x: torch.Tensor, out) -> torch.Tensor:
        """Return (N, groups, channels · kernel, positions) of an input (N, groups · channels, …)."""
        edges = [p for padding in reversed(self.padding) for p in (padding, padding)]
        x = torch.nn.functional.pad(x, edges)  # with the word of zero, which is zero
        steps = x.stride()[2:]
        strides = [step * d for step, d in zip(steps, self.dilation, strict=True)]
        strides += [step * s for step, s in zip(steps, self.stride, strict=True)]
        windows = x.as_strided((*x.shape[:2], *self.kernel, *out), (*x.stride()[:2], *strides))
        channels = x.shape[1] // self.groups
        return windows.reshape(x.shape[0], self.groups, channels * math.prod(self.kernel), math.prod(out))

    def _matrix(self, weight: torch.Tensor) -> torch.Tensor:
        """Return (groups, outputs, channels · kernel) of a weight (groups · outputs, channels, …)."""
        return weight.reshape(self.groups, weight.shape[0] // self.groups, math.prod(weight.shape[1:]))

    def correlate(self, x: torch.Tensor, weight: torch.Tensor, out) -> torch.Tensor:
        """Return the convolution without bias, (N, groups · outputs, *out)."""
        windows = self._windows(x, out)
        result = self.format.accumulator.matmul(self.format, self._matrix(weight).unsqueeze(0), windows)
        return result.reshape(x.shape[0], weight.shape[0], *out)

    def adjoint(self, y: torch.Tensor, weight: torch.Tensor, size) -> torch.Tensor:
        """Return the transposed convolution of y (N, groups · outputs, …), of the spatial `size`."""
        format, count = self.format, y.shape[0]
        y_matrix = y.reshape(count, self.groups, y.shape[1] // self.groups, math.prod(y.shape[2:]))
        terms = format.accumulator.matmul(format, self._matrix(weight).mT.unsqueeze(0), y_matrix)
        terms = terms.reshape(count, self.groups * weight.shape[1], *self.kernel, *y.shape[2:])
        total = torch.zeros(
            (*terms.shape[:2], *(n + 2 * p for n, p in zip(size, self.padding, strict=True))),
            dtype=y.dtype,
            device=y.device,
        )
        for place in itertools.product(*map(range, self.kernel)):
            spans = tuple(
                slice(k * d, k * d + (n - 1) * s + 1, s)
                for k, d, n, s in zip(place, self.dilation, y.shape[2:], self.stride, strict=True)
            )
            part = total[(..., *spans)]
            part.copy_(arithmetic.add(format, part, terms[(slice(None), slice(None), *place)]))
        crop = tuple(slice(p, p + n) for n, p in zip(size, self.padding, strict=True))
        return total[(..., *crop)].contiguous()

    def weight_gradient(self, x: torch.Tensor, y: torch.Tensor, shape) -> torch.Tensor:
        """Return the derivative by the weight for an input x and gradients y of the convolution's output."""
        windows = self._windows(x, y.shape[2:])
        windows = windows.permute(1, 0, 3, 2).flatten(1, 2)
        y = y.reshape(y.shape[0], self.groups, y.shape[1] // self.groups, math.prod(y.shape[2:]))
        y = y.permute(1, 2, 0, 3).flatten(2)
        return self.format.accumulator.matmul(self.format, y, windows).reshape(shape)


@register(aten.convolution.default)
def convolution(func, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    given = [input, weight] if bias is None else [input, weight, bias]
    format, (x, w, *b) = operands(func, *given)
    channels = w.shape[0] if transposed else w.shape[1] * groups
    if x.dim() != w.dim() or x.shape[1] != channels or w.shape[0] % groups:
        raise RuntimeError(
            f"{func}: a weight of shape {tuple(w.shape)} in {groups} groups does not fit an input of {tuple(x.shape)}"
        )
    outputs = w.shape[1] * groups if transposed else w.shape[0]
    if bias is not None and b[0].shape != (outputs,):
        raise RuntimeError(f"{func}: a bias of shape {tuple(b[0].shape)} does not fit {outputs} output channels")
    geometry = _Geometry(format, w, stride, padding, dilation, groups)
    if transposed:
        extra = tuple(output_padding) * (x.dim() - 2) if len(output_padding) == 1 else tuple(output_padding)
        if any(e >= max(s, d) for e, s, d in zip(extra, geometry.stride, geometry.dilation, strict=True)):
            raise RuntimeError(
                f"output_padding must be smaller than the stride {geometry.stride} or the dilation "
                f"{geometry.dilation}, not {extra}"
            )
        size = [
            (n - 1) * s - 2 * p + d * (k - 1) + e + 1
            for n, s, p, d, k, e in zip(
                x.shape[2:], geometry.stride, geometry.padding, geometry.dilation, geometry.kernel, extra, strict=True
            )
        ]
        result = geometry.adjoint(x, w, size)
    else:
        result = geometry.correlate(x, w, geometry.output_size(x.shape[2:]))
    if bias is not None:
        result = arithmetic.add(format, result, b[0].reshape(-1, *[1] * (x.dim() - 2)))
    return LNSTensor(result, format)


@register(aten.convolution_backward.default)
def convolution_backward(
    func,
    grad_output,
    input,
    weight,
    bias_sizes,
    stride,
    padding,
    dilation,
    transposed,
    output_padding,
    groups,
    output_mask,
):
    format, (g, x, w) = operands(func, grad_output, input, weight)
    geometry = _Geometry(format, w, stride, padding, dilation, groups)
    grads = [None, None, None]
    if output_mask[0]:
        words = geometry.correlate(g, w, x.shape[2:]) if transposed else geometry.adjoint(g, w, x.shape[2:])
        grads[0] = LNSTensor(words, format)
    if output_mask[1]:
        pair = (g, x) if transposed else (x, g)
        grads[1] = LNSTensor(geometry.weight_gradient(*pair, w.shape), format)
    if output_mask[2]:
        grads[2] = aten.sum.dim_IntList(LNSTensor(g, format), [0, *range(2, g.dim())])
    return tuple(grads)
