"""Derivatives of operators that PyTorch computes in one piece: those of the LNS computation that is done here.

Autograd is switched on again, the operator is computed once more, and what comes out is differentiated. So each
addition of the derivative is an LNS addition, and nobody can forget one.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch._decomp import decomposition_table

from ..tensor import LNSTensor
from . import distances, pooling, sampling  # noqa: F401  their handlers are differentiated here
from ._registry import Operator, aten, handler_of, register


@contextlib.contextmanager
def _autograd() -> Iterator[None]:
    """Record operations although this runs below autograd."""
    key = torch._C.DispatchKey
    with (
        torch._C._SetExcludeDispatchKeyGuard(key.AutogradFunctionality, False),
        torch._C._SetExcludeDispatchKeyGuard(key.ADInplaceOrView, False),
        torch.enable_grad(),
    ):
        yield


def parts_of(operator: Operator) -> Callable:
    """Return the LNS computation of an operator as one that autograd sees into, not as the operator."""
    handler = handler_of(operator)
    return decomposition_table[operator] if handler is None else functools.partial(handler, operator)


def derivative(compute: Callable, inputs: Sequence[LNSTensor], grads: Sequence[LNSTensor]) -> tuple[LNSTensor, ...]:
    """Return the gradients of `inputs` for those of the outputs of ``compute(*inputs)``; zero where there is none."""
    with _autograd():
        leaves = [x.detach().requires_grad_(True) for x in inputs]
        outputs = compute(*leaves)
        outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        found = torch.autograd.grad(outputs, leaves, grads, allow_unused=True)
    return tuple(aten.zeros_like(x) if g is None else g.detach() for x, g in zip(inputs, found, strict=True))


# Of linear operators, given the size of the input instead of the input ------------------------------------------------


def _register_upsampling(name: str) -> None:
    forward = parts_of(getattr(aten, name).default)

    @register(getattr(aten, f"{name}_backward").default)
    def backward(func, grad_output, output_size, input_size, *args, **kwargs):
        zeros = aten.new_zeros(grad_output, input_size)
        (gradient,) = derivative(lambda x: forward(x, output_size, *args, **kwargs), [zeros], [grad_output])
        return gradient


for _name in [
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_bicubic2d",
    "upsample_trilinear3d",
]:
    _register_upsampling(_name)


# Of operators whose backward has the input and then the forward's arguments -------------------------------------------


def _register_with_input(name: str) -> None:
    forward = parts_of(getattr(aten, name).default)

    @register(getattr(aten, f"{name}_backward").default)
    def backward(func, grad_output, self, *args, **kwargs):
        (gradient,) = derivative(lambda x: forward(x, *args, **kwargs), [self], [grad_output])
        return gradient


for _name in [
    "avg_pool2d",
    "avg_pool3d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
    "reflection_pad1d",
    "reflection_pad2d",
    "reflection_pad3d",
    "multi_margin_loss",
]:
    _register_with_input(_name)


@register(aten._adaptive_avg_pool2d_backward.default, aten._adaptive_avg_pool3d_backward.default)
def adaptive_avg_pool_backward(func, grad_output, self):
    rank = 2 if func is aten._adaptive_avg_pool2d_backward.default else 3
    size = grad_output.shape[-rank:]
    forward = parts_of(getattr(aten, f"_adaptive_avg_pool{rank}d").default)
    return derivative(lambda x: forward(x, size), [self], [grad_output])[0]


@register(aten.multilabel_margin_loss_backward.default)
def multilabel_margin_loss_backward(func, grad_output, self, target, reduction, is_target):
    forward = parts_of(aten.multilabel_margin_loss_forward.default)
    return derivative(lambda x: forward(x, target, reduction)[0], [self], [grad_output])[0]


@register(aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default)
def grid_sampler_backward(func, grad_output, input, grid, interpolation, padding, align_corners, output_mask):
    forward = parts_of(aten.grid_sampler_2d.default if input.dim() == 4 else aten.grid_sampler_3d.default)
    input, grid = sampling.in_one_format(func, input, grid)
    return derivative(lambda x, y: forward(x, y, interpolation, padding, align_corners), [input, grid], [grad_output])


@register(aten._cdist_backward.default)
def cdist_backward(func, grad, x1, x2, p, cdist):
    return derivative(lambda x: parts_of(aten._cdist_forward.default)(x, x2, p, None), [x1], [grad])[0]


@register(aten._pdist_backward.default)
def pdist_backward(func, grad, self, p, pdist):
    return derivative(lambda x: parts_of(aten._pdist_forward.default)(x, p), [self], [grad])[0]
