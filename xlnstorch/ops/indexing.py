"""Writing by index, and the derivatives of reading by index. An element that is met twice is added to in LNS."""

from __future__ import annotations

import torch

from .. import arithmetic
from ..formats import LNSFormat
from ..tensor import LNSTensor
from ._registry import aten, operands, register, register_inplace


def _add_at(format: LNSFormat, words: torch.Tensor, where: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Return `words` with each element of `source` added to the element whose flat index `where` has, in order."""
    if where.shape != source.shape:
        raise RuntimeError(f"shape mismatch: {tuple(source.shape)} cannot be added at {tuple(where.shape)} elements")
    flat, where, source = words.reshape(-1).clone(), where.reshape(-1), source.reshape(-1)
    waiting = torch.arange(where.numel(), device=where.device)
    while waiting.numel():
        # In each round the first of the sources that wait for an element is added to it.
        target = where[waiting]
        first = torch.full_like(flat, where.numel(), dtype=torch.int64).scatter_reduce(0, target, waiting, "amin")
        turn = first[target] == waiting
        now = waiting[turn]
        flat[where[now]] = arithmetic.add(format, flat[where[now]], source[now])
        waiting = waiting[~turn]
    return flat.reshape(words.shape)


def _positions(words: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the shape of `words` in which each element is its own flat index."""
    return torch.arange(words.numel(), device=words.device).reshape(words.shape)


@register(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(func, self, indices, values, accumulate=False):
    format, (words, source) = operands(func, self, values)
    if not accumulate:
        return LNSTensor(words.index_put(indices, source), format)
    where = aten.index.Tensor(_positions(words), indices)
    return LNSTensor(_add_at(format, words, where, torch.broadcast_to(source, where.shape)), format)


@register(aten.index_add.default)
def index_add(func, self, dim, index, source, alpha=1):
    format, (words, added) = operands(func, self, source * alpha if alpha != 1 else source)
    return LNSTensor(_add_at(format, words, _positions(words).index_select(dim, index), added), format)


@register(aten.scatter_add.default)
def scatter_add(func, self, dim, index, src):
    format, (words, added) = operands(func, self, src)
    used = added[tuple(slice(size) for size in index.shape)]  # torch allows a larger source
    return LNSTensor(_add_at(format, words, _positions(words).gather(dim, index), used), format)


@register(aten.scatter.src)
def scatter(func, self, dim, index, src):
    format, (words, source) = operands(func, self, src)
    return LNSTensor(func(words, dim, index, source), format)


@register(aten.scatter.value)
def scatter_value(func, self, dim, index, value):
    format, (words, source) = operands(func, self, value)
    return LNSTensor(func(words, dim, index, int(source)), format)


register_inplace(aten.index_put_.default, aten.index_put.default)
register_inplace(aten.index_add_.default, aten.index_add.default)
register_inplace(aten.scatter_add_.default, aten.scatter_add.default)


# Derivatives of views: the gradient of what was not read is zero ------------------------------------------------------


def _zeros(grad: LNSTensor, sizes) -> torch.Tensor:
    return torch.zeros(sizes, dtype=grad.format.dtype, device=grad.device)


@register(aten.select_backward.default, aten.slice_backward.default, aten.diagonal_backward.default)
def view_backward(func, grad, sizes, *args):
    words = _zeros(grad, sizes)
    _FORWARD[func](words, *args).copy_(grad._words)
    return LNSTensor(words, grad.format)


_FORWARD = {
    aten.select_backward.default: aten.select.int,
    aten.slice_backward.default: aten.slice.Tensor,
    aten.diagonal_backward.default: aten.diagonal.default,
}


@register(aten.unfold_backward.default)
def unfold_backward(func, grad, sizes, dim, size, step):
    words = _zeros(grad, sizes)
    return LNSTensor(_add_at(grad.format, words, _positions(words).unfold(dim, size, step), grad._words), grad.format)
