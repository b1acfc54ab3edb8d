"""Average pooling, and padding: each mean is the sum over a window, in its order, divided by the count.

Padding counts as zeros among a window's terms.
"""

from __future__ import annotations

import torch

from .. import conversions
from ..tensor import LNSTensor
from ._registry import aten, register


@register(aten.constant_pad_nd.default)
def constant_pad(func, self, pad, value=0):
    return LNSTensor(func(self._words, pad, conversions.encode_scalar(self.format, value)), self.format)


def _full(value, rank: int) -> list[int]:
    value = [value] if isinstance(value, int) else list(value)
    return value * rank if len(value) == 1 else value


@register(aten.avg_pool2d.default, aten.avg_pool3d.default)
def avg_pool(
    func,
    self,
    kernel_size,
    stride=(),
    padding=0,
    ceil_mode=False,
    count_include_pad=True,
    divisor_override=None,
):
    rank = 2 if func is aten.avg_pool2d.default else 3
    arguments = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    out = func(torch.empty(self.shape, dtype=torch.float64, device="meta"), *arguments).shape[-rank:]
    kernel, padding = _full(kernel_size, rank), _full(padding, rank)
    stride = _full(stride, rank) or kernel
    first = self.dim() - rank
    edges, counts = [], torch.ones((), dtype=torch.int64, device=self.device)
    for d, (k, s, p, n) in enumerate(zip(kernel, stride, padding, out, strict=True)):
        size = self.shape[first + d]
        edges = [p, max(0, (n - 1) * s + k - size - p), *edges]
        start = torch.arange(n, device=self.device) * s - p
        stop = (start + k).clamp(max=size + p)
        if not count_include_pad:
            start, stop = start.clamp(min=0), stop.clamp(max=size)
        counts = counts.unsqueeze(-1) * (stop - start)
    windows = aten.constant_pad_nd(self, edges)
    for d, (k, s, n) in enumerate(zip(kernel, stride, out, strict=True)):
        windows = windows.unfold(first + d, k, s).narrow(first + d, 0, n)
    total = windows.sum(tuple(range(-rank, 0)))
    return total / (counts if divisor_override is None else divisor_override)


@register(aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default)
def adaptive_avg_pool(func, self, output_size):
    rank = len(output_size)
    first = self.dim() - rank
    windows, counts = self, torch.ones((), dtype=torch.int64, device=self.device)
    beyond = torch.zeros((), dtype=torch.bool, device=self.device)
    for d, n in enumerate(output_size):
        size = self.shape[first + d]
        cells = torch.arange(n, device=self.device)
        start, stop = cells * size // n, -(-(cells + 1) * size // n)
        length = stop - start
        counts = counts.unsqueeze(-1) * length
        longest = int(length.max()) if n else 1
        offsets = torch.arange(longest, device=self.device)
        index = (start.unsqueeze(-1) + offsets).clamp(max=size - 1)
        windows = windows.index_select(first + d, index.reshape(-1)).unflatten(first + d, (n, longest))
        windows = windows.movedim(first + d + 1, -1)
        shape = [1] * (2 * rank)
        shape[d], shape[rank + d] = n, longest
        beyond = beyond | (offsets >= length.unsqueeze(-1)).reshape(shape)
    # Windows differ in length: what is beyond the end of one counts as zero and comes last, where it changes no sum.
    windows, beyond = windows.masked_fill(beyond, 0).flatten(-rank), beyond.flatten(-rank)
    order = beyond.to(torch.int8).argsort(dim=-1, stable=True)
    return windows.gather(-1, order.expand(windows.shape)).sum(-1) / counts
