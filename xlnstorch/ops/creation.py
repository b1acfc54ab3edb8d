"""New tensors like an LNSTensor, and the ways of filling and copying one."""

from __future__ import annotations

import torch

from .. import conversions
from ..tensor import LNSTensor
from ._registry import aten, common_format, only_float64, only_lns, operands, prims, register, words_of


def _words_kwargs(func, self, kwargs):
    """Return keyword arguments for the words, or None where a plain tensor of another dtype is asked for."""
    dtype = kwargs.get("dtype")
    if dtype not in (None, torch.float64):
        return None
    return {**kwargs, "dtype": self.format.dtype}


@register(
    aten.empty_like.default,
    aten.zeros_like.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
    aten.new_zeros.default,
)
def zero_words(func, self, *args, **kwargs):
    # The word of zero is zero. "Empty" tensors are zero as well, so that nothing depends on what memory held.
    words_kwargs = _words_kwargs(func, self, kwargs)
    if words_kwargs is None:
        return func(self._words, *args, **kwargs)
    return LNSTensor(func(self._words, *args, **words_kwargs).zero_(), self.format)


@register(aten.ones_like.default, aten.new_ones.default)
def ones(func, self, *args, **kwargs):
    words_kwargs = _words_kwargs(func, self, kwargs)
    if words_kwargs is None:
        return func(self._words, *args, **kwargs)
    return LNSTensor(func(self._words, *args, **words_kwargs).fill_(self.format.bias), self.format)


@register(aten.full_like.default, aten.new_full.default)
def full(func, self, *args, **kwargs):
    *shape, value = args
    words_kwargs = _words_kwargs(func, self, kwargs)
    if words_kwargs is None:
        return func(self._words, *args, **kwargs)
    word = conversions.encode_scalar(self.format, value)
    return LNSTensor(func(self._words, *shape, word, **words_kwargs), self.format)


@register(aten.fill_.Scalar)
def fill(func, self, value):
    self._words.fill_(conversions.encode_scalar(self.format, value))
    return self


@register(aten.fill_.Tensor)
def fill_tensor(func, self, value):
    only_lns(func, self)._words.copy_(operands(func, self, value)[1][1])
    return self


@register(aten.zero_.default)
def zero(func, self):
    self._words.zero_()
    return self


@register(aten.copy_.default, prims.copy_to.default)
def copy(func, self, src, non_blocking=False):
    only_lns(func, self)
    common_format(func, self, src)
    self._words.copy_(words_of(self.format, src), non_blocking)
    return self


@register(prims.convert_element_type.default)
def convert_element_type(func, self, dtype):
    return to_copy(func, self, dtype=dtype)


@register(aten._to_copy.default)
def to_copy(func, self, **kwargs):
    dtype = kwargs.pop("dtype", None)
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        # Whole numbers and truth values are no LNS numbers any more, but indices, labels and masks.
        if dtype == torch.bool:  # a word too small for float64 is not zero
            return aten._to_copy(~self.format.is_zero(self._words), dtype=dtype, **kwargs)
        return aten._to_copy(_whole(self), dtype=dtype, **kwargs)
    only_float64(func, self, dtype)
    return LNSTensor(aten._to_copy(self._words, **kwargs), self.format)


def _whole(self):
    """Return float64 whose integer part is the whole number that each word is the nearest word of, if there is one.

    The word of 3 is a little less than 3 in most formats, and still 3 as an index.
    """
    values = conversions.decode(self.format, self._words)
    nearest = values.round()
    return torch.where(conversions.encode(self.format, nearest) == self._words, nearest, values)


@register(aten._local_scalar_dense.default)
def item(func, self):
    return conversions.decode(self.format, self._words).item()
