"""Norms and distances, and products of three tensors, from powers, sums and roots."""

from __future__ import annotations

import math

import torch

from ..tensor import LNSTensor
from ._registry import aten, only_float64, register


@register(aten.linalg_vector_norm.default)
def vector_norm(func, self, ord=2, dim=None, keepdim=False, *, dtype=None):
    only_float64(func, self, dtype)
    dims = tuple(range(self.dim())) if dim is None or len(dim) == 0 else tuple(dim)
    if ord == math.inf:
        return aten.amax(aten.abs(self), dims, keepdim)
    if ord == -math.inf:
        return aten.amin(aten.abs(self), dims, keepdim)
    if ord == 0:
        return aten.sum.dim_IntList(aten.masked_fill(aten.ones_like(self), aten.eq(self, 0), 0), dims, keepdim)
    if ord == 1:
        return aten.sum.dim_IntList(aten.abs(self), dims, keepdim)
    powers = aten.pow.Tensor_Scalar(self if ord == 2 else aten.abs(self), ord)
    total = aten.sum.dim_IntList(powers, dims, keepdim)
    if ord == 2:
        return aten.sqrt(total)
    norm = aten.pow.Tensor_Scalar(total, 1 / ord)
    if ord > 0 or self.format.specials:
        return norm
    # A zero makes the sum of negative powers infinite and its root zero; saturation would stop short of that.
    return aten.masked_fill(norm, aten.any.dims(aten.eq(self, 0), dims, keepdim), 0)


def _norm(difference: LNSTensor, p: float) -> LNSTensor:
    """Return the p-norm over the last dimension, with the derivative at zero that PyTorch's distances have: none."""
    return torch.linalg.vector_norm(difference, p, dim=-1)


@register(aten._cdist_forward.default)
def cdist(func, x1, x2, p, compute_mode):
    return _norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


@register(aten._pdist_forward.default)
def pdist(func, self, p=2.0):
    first, second = torch.triu_indices(len(self), len(self), 1, device=self.device)
    return _norm(self[first] - self[second], p)


@register(aten._trilinear.default)
def trilinear(func, i1, i2, i3, expand1, expand2, expand3, sumdim, unroll_dim=1):
    for dim in range(i1.dim() + len(expand1)):
        i1 = i1.unsqueeze(dim) if dim in expand1 else i1
        i2 = i2.unsqueeze(dim) if dim in expand2 else i2
        i3 = i3.unsqueeze(dim) if dim in expand3 else i3
    product = i1 * i2 * i3
    return product.sum(sumdim) if sumdim else product
