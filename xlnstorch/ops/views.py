"""Operators that move words without looking at them: the same operator on the words."""

from __future__ import annotations

import torch
from torch.utils._mode_utils import no_dispatch

from ..tensor import LNSTensor
from ._registry import aten, common_format, operands, prims, register, register_inplace


def _of_its_kind(self: LNSTensor, words: torch.Tensor) -> LNSTensor:
    """Return the tensor of these words; in inference mode too, a view of an ordinary tensor is an ordinary one."""
    if not torch.is_inference_mode_enabled() or self.is_inference():
        return LNSTensor(words, self.format)
    with torch.inference_mode(False):
        return LNSTensor(words, self.format)


@register(
    aten.alias.default,
    prims.broadcast_in_dim.default,
    prims.view_of.default,
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
    aten.masked_select.default,
    aten.permute.default,
    aten.repeat.default,
    aten.roll.default,
    aten.select.int,
    aten.slice.Tensor,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.t.default,
    aten.transpose.int,
    aten.unfold.default,
    aten.take.default,
    aten.tril.default,
    aten.triu.default,
    aten.unsqueeze.default,
    aten.view.default,
    aten._reshape_alias.default,
    aten._unsafe_view.default,
)
def same_on_words(func, self, *args, **kwargs):
    return _of_its_kind(self, func(self._words, *args, **kwargs))


@register(aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int)
def several_views(func, self, *args, **kwargs):
    return [_of_its_kind(self, words) for words in func(self._words, *args, **kwargs)]


@register(aten.cat.default, aten.stack.default)
def joined(func, tensors, *args, **kwargs):
    format, words = operands(func, *tensors)
    return LNSTensor(func(words, *args, **kwargs), format)


@register(aten.squeeze_.dim, aten.squeeze_.default, aten.unsqueeze_.default, aten.t_.default, aten.transpose_.default)
def reshaped_in_place(func, self, *args):
    func(self._words, *args)
    with no_dispatch():  # the wrapper's own shape
        func(self, *args)
    return self


@register(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(func, self, mask, value):
    format, (words, filler) = operands(func, self, value)
    return LNSTensor(torch.where(mask, filler, words), format)


register_inplace(aten.masked_fill_.Scalar, aten.masked_fill.Scalar)
register_inplace(aten.masked_fill_.Tensor, aten.masked_fill.Tensor)


@register(
    aten.complex.default,
    aten.polar.default,
    aten.view_as_complex.default,
    aten._to_sparse.default,
    aten.resize_.default,
)
def refused(func, self, *args, **kwargs):
    raise NotImplementedError(f"{func} has no LNS implementation: there is no such tensor of {self.format}")


@register(aten.is_same_size.default)
def is_same_size(func, self, other):
    common_format(func, self, other)
    return self.shape == other.shape


@register(aten._has_same_storage_numel.default)
def has_same_storage_numel(func, self, other):
    """For forward-mode derivatives: whether a tangent is laid out as its tensor."""
    common_format(func, self, other)
    return func(*(x._words if isinstance(x, LNSTensor) else x for x in (self, other)))
