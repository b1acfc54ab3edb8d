"""Sorting and selecting: done on the words' order, which is that of the numbers, and exact."""

from __future__ import annotations

import torch
from torch.utils._pytree import tree_map

from .. import arithmetic
from ..tensor import LNSTensor
from ._registry import aten, common_format, register
from .comparison import comparable
from .random import value_of


@register(
    aten.max.default,
    aten.min.default,
    aten.max.dim,
    aten.min.dim,
    aten.amax.default,
    aten.amin.default,
    aten.aminmax.default,
    aten.argmax.default,
    aten.argmin.default,
    aten.sort.default,
    aten.sort.stable,
    aten.topk.default,
    aten.kthvalue.default,
    aten.median.default,
    aten.median.dim,
    aten.nanmedian.default,
    aten.nanmedian.dim,
    aten.mode.default,
    aten.cummax.default,
    aten.cummin.default,
    aten._unique2.default,
    aten.unique_dim.default,
    aten.unique_consecutive.default,
    aten.max_pool2d_with_indices.default,
    aten.max_pool3d_with_indices.default,
    aten.adaptive_max_pool2d.default,
    aten.adaptive_max_pool3d.default,
)
def by_order(func, self, *args, **kwargs):
    """Run the operator on the order of the words, and hand out the words of what it selected."""
    format = self.format
    selected = func(arithmetic.order(format, self._words), *args, **kwargs)

    def words(x):
        return LNSTensor(arithmetic.from_order(format, x), format) if x.dtype == torch.float64 else x

    return tree_map(words, selected)


@register(aten.fractional_max_pool2d.default, aten.fractional_max_pool3d.default)
def fractional_max_pool(func, self, kernel_size, output_size, random_samples):
    return by_order(func, self, kernel_size, output_size, value_of(random_samples))


@register(
    aten.max_pool2d_with_indices_backward.default,
    aten.max_pool3d_with_indices_backward.default,
    aten.adaptive_max_pool2d_backward.default,
    aten.adaptive_max_pool3d_backward.default,
    aten.fractional_max_pool2d_backward.default,
    aten.fractional_max_pool3d_backward.default,
)
def max_pool_backward(func, grad_output, self, *args, **kwargs):
    # Every one of them has the indices last, within one plane; where windows overlap, gradients add up.
    indices = kwargs.get("indices", args[-1] if args else None)
    spatial = 3 if "3d" in str(func) else 2
    planes = self.shape[: self.dim() - spatial]
    gradient = aten.new_zeros(grad_output, (*planes, self.shape[-spatial:].numel()))
    gradient = aten.scatter_add(gradient, -1, indices.flatten(-spatial), grad_output.flatten(-spatial))
    return gradient.reshape(self.shape)


@register(aten.searchsorted.Tensor)
def searchsorted(func, sorted_sequence, self, *, sorter=None, **kwargs):
    boundaries, values = comparable(func, sorted_sequence, self)
    return func(boundaries, values, sorter=sorter, **kwargs)


@register(aten.searchsorted.Scalar)
def searchsorted_scalar(func, sorted_sequence, self, *, sorter=None, **kwargs):
    boundaries, value = comparable(func, sorted_sequence, self)
    return aten.searchsorted.Tensor(boundaries, value, sorter=sorter, **kwargs)


@register(aten.bucketize.Tensor)
def bucketize(func, self, boundaries, **kwargs):
    values, edges = comparable(func, self, boundaries)
    return func(values, edges, **kwargs)


@register(aten.isin.Tensor_Tensor)
def isin(func, elements, test_elements, **kwargs):
    return func(*comparable(func, elements, test_elements), **kwargs)


# Truth values: zero is false, everything else true --------------------------------------------------------------------


def truth(x):
    """Return where a tensor is not zero."""
    return ~x.format.is_zero(x._words) if isinstance(x, LNSTensor) else x


@register(
    aten.any.default,
    aten.any.dim,
    aten.any.dims,
    aten.all.default,
    aten.all.dim,
    aten.all.dims,
    aten.logical_not.default,
    aten.logical_and.default,
    aten.logical_or.default,
    aten.logical_xor.default,
    aten.nonzero.default,
    aten.nonzero_static.default,
    aten.count_nonzero.default,
    aten.count_nonzero.dim_IntList,
)
def by_truth(func, self, *args, **kwargs):
    common_format(func, self, *args)
    return func(truth(self), *(truth(x) if isinstance(x, torch.Tensor) else x for x in args), **kwargs)


@register(aten.allclose.default)
def allclose(func, self, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    common_format(func, self, other)
    return bool(aten.isclose(self, other, rtol, atol, equal_nan).all())
