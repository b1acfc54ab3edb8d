"""Sums, in the order that the format's accumulator sets, and what is made of them."""

from __future__ import annotations

from torch._prims_common import reduction_dims

from .. import arithmetic
from ..formats import LNSFormat
from ..tensor import LNSTensor
from ._registry import aten, only_float64, register, words_of


def _sum_words(self: LNSTensor, dims, keepdim: bool, dtype):
    """Return the words of the sum over `dims` (all where empty or None), and how many terms each sum has.

    Several dimensions are summed as one, in the order of memory of a contiguous tensor.
    """
    only_float64(self, dtype)
    rank = self.dim()
    over = sorted(reduction_dims(self.shape, tuple(dims) if dims else None)) if rank else []
    kept = [d for d in range(rank) if d not in over]
    words = self._words.permute([*kept, *over])
    words = words.reshape([self.shape[d] for d in kept] + [-1 if self.numel() else 0])
    if not self.numel() and all(self.shape[d] for d in over):
        words = words.new_zeros([self.shape[d] for d in kept] + [1])  # nothing to sum, and nowhere to put it
    total = self.format.accumulator.sum(self.format, words, -1)
    if keepdim:
        total = total.reshape([1 if d in over else self.shape[d] for d in range(rank)])
    return total, words.shape[-1]


@register(aten.sum.default)
def sum_all(func, self, dtype=None):
    return LNSTensor(_sum_words(self, None, False, dtype)[0], self.format)


@register(aten.sum.dim_IntList)
def sum_over(func, self, dim=None, keepdim=False, dtype=None):
    return LNSTensor(_sum_words(self, dim, keepdim, dtype)[0], self.format)


def _divide(format: LNSFormat, words, count: int):
    """Return ``words / count``, with the count encoded like any other number."""
    return LNSTensor(arithmetic.div(format, words, words_of(format, count, words.device)), format)


@register(aten.mean.default)
def mean_all(func, self, dtype=None):
    return _divide(self.format, *_sum_words(self, None, False, dtype))


@register(aten.mean.dim)
def mean_over(func, self, dim=None, keepdim=False, dtype=None):
    return _divide(self.format, *_sum_words(self, dim, keepdim, dtype))


@register(aten.linalg_vector_norm.default)
def vector_norm(func, self, ord=2, dim=None, keepdim=False, dtype=None):
    if ord != 2:
        raise NotImplementedError(f"{func} of {self.format} takes the Euclidean norm, ord=2, not {ord!r}")
    squares = LNSTensor(arithmetic.power(self.format, self._words, 2), self.format)
    total, _ = _sum_words(squares, dim, keepdim, dtype)
    return LNSTensor(arithmetic.sqrt(self.format, total), self.format)
