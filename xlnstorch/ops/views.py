"""Operators that move words without looking at them: the same operator on the words."""

from __future__ import annotations

import torch

from ..tensor import LNSTensor
from ._registry import aten, common_format, operands, register


@register(
    aten.alias.default,
    aten.as_strided.default,
    aten.clone.default,
    aten.detach.default,
    aten.diagonal.default,
    aten.expand.default,
    aten.flip.default,
    aten.gather.default,
    aten.index.Tensor,
    aten.index_select.default,
    aten.lift_fresh.default,
    aten.permute.default,
    aten.repeat.default,
    aten.select.int,
    aten.slice.Tensor,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.t.default,
    aten.transpose.int,
    aten.unfold.default,
    aten.unsqueeze.default,
    aten.view.default,
    aten._reshape_alias.default,
    aten._unsafe_view.default,
)
def same_on_words(func, self, *args, **kwargs):
    return LNSTensor(func(self._words, *args, **kwargs), self.format)


@register(aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int)
def several_views(func, self, *args, **kwargs):
    return [LNSTensor(words, self.format) for words in func(self._words, *args, **kwargs)]


@register(aten.cat.default, aten.stack.default)
def joined(func, tensors, *args, **kwargs):
    format, words = operands(func, *tensors)
    return LNSTensor(func(words, *args, **kwargs), format)


@register(aten.select_backward.default)
def select_backward(func, grad, input_sizes, dim, index):
    words = torch.zeros(input_sizes, dtype=grad.format.dtype, device=grad.device)
    words.select(dim, index).copy_(grad._words)
    return LNSTensor(words, grad.format)


@register(aten.slice_backward.default)
def slice_backward(func, grad, input_sizes, dim, start, end, step):
    words = torch.zeros(input_sizes, dtype=grad.format.dtype, device=grad.device)
    aten.slice.Tensor(words, dim, start, end, step).copy_(grad._words)
    return LNSTensor(words, grad.format)


@register(aten.scatter.src)
def scatter(func, self, dim, index, src):
    format, (words, source) = operands(func, self, src)
    return LNSTensor(func(words, dim, index, source), format)


@register(aten.scatter.value)
def scatter_value(func, self, dim, index, value):
    format, (words, source) = operands(func, self, value)
    return LNSTensor(func(words, dim, index, int(source)), format)


@register(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(func, self, mask, value):
    format, (words, filler) = operands(func, self, value)
    return LNSTensor(torch.where(mask, filler, words), format)


@register(aten.is_same_size.default)
def is_same_size(func, self, other):
    common_format(func, self, other)
    return self.shape == other.shape
