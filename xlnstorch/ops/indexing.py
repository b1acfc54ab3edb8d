"""Writing by index, and the derivatives of reading by index. An element that is met twice is added to in LNS."""

from __future__ import annotations

import torch

from .. import arithmetic, conversions
from ..formats import LNSFormat
from ..tensor import LNSTensor
from ._registry import aten, operands, register, register_inplace
from .pointwise import scaled


def _add_at(
    format: LNSFormat, words: torch.Tensor, where: torch.Tensor, source: torch.Tensor, combine=arithmetic.add
) -> torch.Tensor:
    """Return `words` with each element of `source` added to the element whose flat index `where` has, in order.

    Another operation of :mod:`xlnstorch.arithmetic` may `combine` them instead of the addition.
    """
    if where.shape != source.shape:
        raise RuntimeError(f"shape mismatch: {tuple(source.shape)} cannot be added at {tuple(where.shape)} elements")
    flat, where, source = words.reshape(-1).clone(), where.reshape(-1), source.reshape(-1)
    if where.numel() == 0:
        return flat.reshape(words.shape)
    # In round r, each element gets the r-th of the sources that wait for it.
    targets, by_target = where.sort(stable=True)
    places = torch.arange(where.numel(), device=where.device)
    starts = torch.ones_like(targets, dtype=torch.bool)
    starts[1:] = targets[1:] != targets[:-1]
    turn = places - torch.where(starts, places, 0).cummax(0).values
    by_turn = by_target[turn.argsort(stable=True)]
    for now in by_turn.split(turn.bincount().tolist()):
        flat[where[now]] = combine(format, flat[where[now]], source[now])
    return flat.reshape(words.shape)


def _positions(words: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the shape of `words` in which each element is its own flat index."""
    return torch.arange(words.numel(), device=words.device).reshape(words.shape)


@register(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(func, self, indices, values, accumulate=False):
    format, (words, source) = operands(func, self, values)
    if not accumulate:
        return LNSTensor(aten.index_put(words, indices, source), format)
    where = aten.index.Tensor(_positions(words), indices)
    return LNSTensor(_add_at(format, words, where, torch.broadcast_to(source, where.shape)), format)


@register(aten.index_add.default)
def index_add(func, self, dim, index, source, alpha=1):
    format, (words, added) = operands(func, self, source)
    where = _positions(words).index_select(dim, index)
    return LNSTensor(_add_at(format, words, where, scaled(format, added, alpha)), format)


@register(aten.scatter_add.default)
def scatter_add(func, self, dim, index, src):
    format, (words, added) = operands(func, self, src)
    used = added[tuple(slice(size) for size in index.shape)]  # torch allows a larger source
    return LNSTensor(_add_at(format, words, _positions(words).gather(dim, index), used), format)


@register(aten.put.default)
def put(func, self, index, source, accumulate=False):
    format, (words, values) = operands(func, self, source)
    if not accumulate:
        return LNSTensor(func(words, index, values), format)
    where = _positions(words).take(index)  # takes negative indices, and refuses those that are out of range
    return LNSTensor(_add_at(format, words, where, values.reshape(index.shape)), format)


@register(aten.masked_scatter.default)
def masked_scatter(func, self, mask, source):
    format, (words, values) = operands(func, self, source)
    return LNSTensor(func(words, mask, values), format)


@register(aten.masked_scatter_backward.default)
def masked_scatter_backward(func, grad_output, mask, sizes):
    taken = grad_output._words[mask.expand(grad_output.shape)]
    words = _zeros(grad_output, sizes)
    words.view(-1)[: taken.numel()] = taken
    return LNSTensor(words, grad_output.format)


@register(aten.as_strided_scatter.default)
def as_strided_scatter(func, self, src, size, stride, storage_offset=None):
    format, (words, source) = operands(func, self, src)
    return LNSTensor(func(words, source, size, stride, storage_offset), format)


def _reduce_at(format: LNSFormat, words, where, source, reduce: str, include_self: bool):
    """Return `words` with the elements of `source` combined into those whose flat indices `where` has."""
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce must be 'sum', 'prod', 'mean', 'amax' or 'amin', not {reduce!r}")
    if where.shape != source.shape:
        raise RuntimeError(f"shape mismatch: {tuple(source.shape)} cannot be combined at {tuple(where.shape)} elements")
    positions, values = where.reshape(-1), source.reshape(-1)
    flat = words.reshape(-1).clone()
    hits = torch.zeros(flat.shape, dtype=torch.int64, device=flat.device)
    hits = hits.index_add(0, positions, torch.ones_like(positions))
    if reduce in ("amax", "amin"):
        orders, new = (arithmetic.order(format, w) for w in (flat, values))
        orders = orders.scatter_reduce(0, positions, new, reduce, include_self=include_self)
        return arithmetic.from_order(format, orders).reshape(words.shape)
    if not include_self:
        flat[hits > 0] = format.bias if reduce == "prod" else 0
    combine = arithmetic.mul if reduce == "prod" else arithmetic.add
    flat = _add_at(format, flat, positions, values, combine)
    if reduce == "mean":
        counts = (hits + include_self).clamp(min=1)
        touched = arithmetic.div(format, flat, conversions.encode(format, counts))
        flat = torch.where(hits > 0, touched, flat)
    return flat.reshape(words.shape)


@register(aten.scatter_reduce.two)
def scatter_reduce(func, self, dim, index, src, reduce, *, include_self=True):
    format, (words, source) = operands(func, self, src)
    if self.dim() == 0:
        flat = scatter_reduce(
            func, self[None], 0, index.reshape(-1), src.reshape(-1), reduce, include_self=include_self
        )
        return flat.reshape(())
    used = source[tuple(slice(size) for size in index.shape)]
    where = _positions(words).gather(dim, index)
    return LNSTensor(_reduce_at(format, words, where, used, reduce, include_self), format)


@register(aten.index_reduce.default)
def index_reduce(func, self, dim, index, source, reduce, *, include_self=True):
    format, (words, values) = operands(func, self, source)
    if reduce == "sum":
        raise RuntimeError("reduce must be 'prod', 'mean', 'amax' or 'amin', not 'sum'; index_add sums")
    if self.dim() == 0:
        flat = index_reduce(
            func, self[None], 0, index.reshape(-1), source.reshape(-1), reduce, include_self=include_self
        )
        return flat.reshape(())
    where = _positions(words).index_select(dim, index.reshape(-1))
    return LNSTensor(_reduce_at(format, words, where, values, reduce, include_self), format)


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
register_inplace(aten.scatter_.src, aten.scatter.src)
register_inplace(aten.scatter_.value, aten.scatter.value)
register_inplace(aten.scatter_reduce_.two, aten.scatter_reduce.two)
register_inplace(aten.index_reduce_.default, aten.index_reduce.default)
register_inplace(aten.put_.default, aten.put.default)
register_inplace(aten.masked_scatter_.default, aten.masked_scatter.default)


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
