"""Sums, in the order that the format's accumulator sets, and what is made of them."""

from __future__ import annotations

import functools

import torch
from torch._prims_common import reduction_dims

from .. import arithmetic
from ..formats import LNSFormat
from ..tensor import LNSTensor
from ._registry import aten, only_float64, register, register_inplace, words_of


def _sum_words(func, self: LNSTensor, dims, keepdim: bool, dtype):
    """Return the words of the sum over `dims` (all where empty or None), and how many terms each sum has.

    Several dimensions are summed as one, in the order of memory of a contiguous tensor.
    """
    only_float64(func, self, dtype)
    rank = self.dim()
    over = sorted(reduction_dims(self.shape, tuple(dims) if dims else None)) if rank else []
    if len(over) == 1 and self.numel():
        total = self.format.accumulator.sum(self.format, self._words, over[0])
        return total.unsqueeze(over[0]) if keepdim else total, self.shape[over[0]]
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
    return LNSTensor(_sum_words(func, self, None, False, dtype)[0], self.format)


@register(aten.sum.dim_IntList)
def sum_over(func, self, dim=None, keepdim=False, dtype=None):
    return LNSTensor(_sum_words(func, self, dim, keepdim, dtype)[0], self.format)


def _divide(format: LNSFormat, words, count: int):
    """Return ``words / count``, with the count encoded like any other number."""
    return LNSTensor(arithmetic.div(format, words, words_of(format, count, words.device)), format)


@register(aten.mean.default)
def mean_all(func, self, dtype=None):
    return _divide(self.format, *_sum_words(func, self, None, False, dtype))


@register(aten.mean.dim)
def mean_over(func, self, dim=None, keepdim=False, dtype=None):
    return _divide(self.format, *_sum_words(func, self, dim, keepdim, dtype))


@register(aten.var.correction)
def var(func, self, dim=None, *, correction=1, keepdim=False):
    return _variance(func, self, dim, correction, keepdim)[0]


@register(aten.std.correction)
def std(func, self, dim=None, *, correction=1, keepdim=False):
    return aten.sqrt(_variance(func, self, dim, correction, keepdim)[0])


@register(aten.var_mean.correction)
def var_mean(func, self, dim=None, *, correction=1, keepdim=False):
    return _variance(func, self, dim, correction, keepdim)


@register(aten.std_mean.correction)
def std_mean(func, self, dim=None, *, correction=1, keepdim=False):
    variance, mean = _variance(func, self, dim, correction, keepdim)
    return aten.sqrt(variance), mean


def _variance(func, self, dim, correction, keepdim):
    """Return the sum of the squared differences from the mean over the count less the correction, and the mean."""
    total, count = _sum_words(func, self, dim, True, None)
    mean = _divide(self.format, total, count)
    squares = aten.pow.Tensor_Scalar(aten.sub.Tensor(self, mean), 2)
    total, _ = _sum_words(func, squares, dim, keepdim, None)
    variance = _divide(self.format, total, max(0, count - (1 if correction is None else correction)))
    return variance, mean if keepdim else mean.reshape(variance.shape)


# Products and running sums: left to right, whatever the accumulator ---------------------------------------------------


def _running(combine, words: torch.Tensor, dim: int) -> torch.Tensor:
    """Return all partial results of combining the slices along `dim`, left to right."""
    partial = []
    for term in words.unbind(dim):
        partial.append(combine(partial[-1], term) if partial else term.clone())
    return torch.stack(partial, dim) if partial else words.clone()


def _product_words(format: LNSFormat, words: torch.Tensor, dim: int) -> torch.Tensor:
    if words.shape[dim] == 0:
        return torch.full_like(words.sum(dim, dtype=words.dtype), format.bias)
    return functools.reduce(functools.partial(arithmetic.mul, format), words.unbind(dim)).clone()


@register(aten.prod.default)
def prod_all(func, self, *, dtype=None):
    only_float64(func, self, dtype)
    return LNSTensor(_product_words(self.format, self.format.canonical(self._words).reshape(-1), 0), self.format)


@register(aten.prod.dim_int)
def prod(func, self, dim, keepdim=False, *, dtype=None):
    only_float64(func, self, dtype)
    reduction_dims(self.shape, (dim,))  # refuses what is no dimension
    if self.dim() == 0:
        return LNSTensor(self.format.canonical(self._words), self.format)
    words = _product_words(self.format, self.format.canonical(self._words), dim)
    return LNSTensor(words.unsqueeze(dim) if keepdim else words, self.format)


def _register_running(operator, combine) -> None:
    @register(operator)
    def handler(func, self, dim, *, dtype=None):
        only_float64(func, self, dtype)
        reduction_dims(self.shape, (dim,))
        if self.dim() == 0:
            return LNSTensor(self.format.canonical(self._words), self.format)
        words = self.format.canonical(self._words)
        return LNSTensor(_running(functools.partial(combine, self.format), words, dim), self.format)


def _log_add_exp(format: LNSFormat, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return aten.logaddexp(LNSTensor(a, format), LNSTensor(b, format))._words


_register_running(aten.cumsum.default, arithmetic.add)
_register_running(aten.cumprod.default, arithmetic.mul)
_register_running(aten.logcumsumexp.default, _log_add_exp)
register_inplace(aten.cumsum_.default, aten.cumsum.default)
register_inplace(aten.cumprod_.default, aten.cumprod.default)
