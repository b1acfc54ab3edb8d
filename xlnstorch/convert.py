"""Models from floating point to LNS and back, in place."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch import nn

from .factories import lnstensor
from .formats import LNSFormat
from .tensor import LNSTensor

__all__ = ["convert", "to_float"]

# The dtype that a converted tensor came from; like any attribute of a tensor it is copied and pickled with it.
_FORMER = "_former_dtype"
# Attributes that belong to the old tensor alone; all others are the user's.
_OWN = {"_words", "_format", "_is_param", _FORMER}


def convert(model: nn.Module, format: LNSFormat) -> nn.Module:
    """Make every floating-point parameter and buffer of `model` an LNSTensor, in place, and return the model.

    Each number becomes the word nearest to it, gradients included. Modules, hooks, names and ``requires_grad`` stay as
    they are, and so does the identity of every parameter: what is tied stays tied, and an optimizer made before goes on
    with the converted parameters. State that such an optimizer already has (momentum) is not converted; its next step
    is a RuntimeError, so make a new one. Integer and boolean tensors are left alone, and so are tensors that are plain
    attributes, which are encoded where they meet an LNSTensor.

    Parameters
    ----------
    model : Module
        Any module. What is in LNS already is kept in the same format, and converted from any other to the nearest
        logarithm. ``copy.deepcopy(model)`` first to keep the original.
    format : LNSFormat
        The format of all parameters and buffers.

    Returns
    -------
    Module
        `model` itself. Its ``load_state_dict`` takes both LNSTensors of this format and plain values, which it encodes.

    Raises
    ------
    TypeError
        `model` is not a module, `format` not a format, or a parameter or buffer is complex, not yet initialised or of
        an unknown tensor class.
    ValueError
        A NaN, or a tensor on the meta device.
    RuntimeError
        A tensor is held by an autograd graph whose backward pass is still to come, by a weak reference or by
        TorchScript. (Where a graph does not hold the tensor itself, its backward pass is the RuntimeError.)

    All of these name the parameter or buffer, and leave the model as it was.

    See Also
    --------
    to_float : the way back.

    Examples
    --------
    >>> import torch, xlnstorch
    >>> model = xlnstorch.convert(torch.nn.Linear(3, 2), xlnstorch.lns16)
    >>> type(model.weight).__name__, model(torch.ones(1, 3)).format
    ('LNSTensor', lns16)
    """
    _check_module(model)
    if not isinstance(format, LNSFormat):
        raise TypeError(f"format must be an LNSFormat such as xlnstorch.lns16, not {format!r}")

    def change(values: torch.Tensor, owner: torch.Tensor) -> LNSTensor:
        if values.is_meta:
            raise ValueError("a tensor on the meta device has no values to encode")
        return lnstensor(values, format=format)

    def wanted(tensor: torch.Tensor) -> bool:
        if isinstance(tensor, LNSTensor):
            return tensor.format != format
        return tensor.is_floating_point() or tensor.is_complex()

    return _replace(model, wanted, change)


def to_float(model: nn.Module, dtype: torch.dtype | None = None) -> nn.Module:
    """Make every LNSTensor among the parameters and buffers of `model` a plain tensor, in place: undo :func:`convert`.

    The values are the decoded ones, rounded to the dtype. What is said of :func:`convert` about identity, ties,
    gradients, hooks and optimizers holds here too.

    Parameters
    ----------
    model : Module
        Plain parameters and buffers in it are left alone.
    dtype : torch.dtype, optional
        Of all the new tensors. By default each gets the dtype that it had before :func:`convert`, or torch's default
        dtype if it was made in LNS.

    Returns
    -------
    Module
        `model` itself.

    Raises
    ------
    TypeError
        `model` is not a module, or `dtype` not a floating-point dtype.
    RuntimeError
        As for :func:`convert`.
    """
    _check_module(model)
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(f"dtype must be a floating-point torch.dtype, not {dtype!r}")

    def change(values: torch.Tensor, owner: LNSTensor) -> torch.Tensor:
        values = values.value if isinstance(values, LNSTensor) else values.detach()
        return values.to(dtype or vars(owner).get(_FORMER) or torch.get_default_dtype())

    return _replace(model, lambda tensor: isinstance(tensor, LNSTensor), change)


def _check_module(model: nn.Module) -> None:
    if isinstance(model, nn.Module):
        return
    hint = ""
    if isinstance(model, torch.Tensor):
        hint = "; xlnstorch.lnstensor converts a single tensor"
    elif isinstance(model, dict):
        hint = "; load_state_dict of a converted model encodes the values of a state_dict"
    raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}{hint}")


def _replace(
    model: nn.Module,
    wanted: Callable[[torch.Tensor], bool],
    change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> nn.Module:
    """Exchange each wanted parameter and buffer for what ``change(values, owner)`` makes of it: all, or none.

    The Python objects stay and their contents are swapped, so that whoever refers to one (another module that shares
    it, an optimizer, a list of weights) refers to the converted one.
    """
    kinds = [("parameter", model.named_parameters()), ("buffer", model.named_buffers())]
    tensors = [(f"{kind} {name!r}", x) for kind, named in kinds for name, x in named if wanted(x)]
    twins = [(x, _twin(what, x, change)) for what, x in tensors]

    # These keep weak references to their weights beside the weights themselves; Module.to() renews them likewise.
    recurrent = [module for module in model.modules() if isinstance(module, nn.RNNBase)]
    for module in recurrent:
        module._flat_weight_refs = []
    try:
        for what, x in tensors:
            if _is_held(x):
                raise RuntimeError(
                    f"{what} cannot be converted while it is held elsewhere: by results whose backward pass is still "
                    "to come, by a weak reference or by TorchScript"
                )
        for x, twin in twins:
            torch.utils.swap_tensors(x, twin)
    finally:
        for module in recurrent:
            module._init_flat_weights()
    return model


def _twin(what: str, tensor: torch.Tensor, change: Callable) -> torch.Tensor:
    """Return the tensor to put in the place of `tensor`, with its gradient, hooks and attributes."""
    if nn.parameter.is_lazy(tensor):
        raise TypeError(f"{what} is not initialised yet; run the module on one (plain) batch first")
    if type(tensor) not in (torch.Tensor, nn.Parameter, LNSTensor):
        raise TypeError(f"{what} must be of class Tensor, Parameter or LNSTensor, not {type(tensor).__name__}")
    grad = tensor.grad if tensor.is_leaf else None
    try:
        twin = change(tensor.detach(), tensor)
        twin_grad = None if grad is None else change(grad, tensor)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what} cannot be converted: {error}") from error
    if isinstance(tensor, nn.Parameter):
        twin = nn.Parameter(twin)
    twin.requires_grad_(tensor.requires_grad)
    twin.grad = twin_grad
    twin._backward_hooks = tensor._backward_hooks
    twin._post_accumulate_grad_hooks = tensor._post_accumulate_grad_hooks
    twin.__dict__.update({name: value for name, value in vars(tensor).items() if name not in _OWN})
    if isinstance(twin, LNSTensor):
        setattr(twin, _FORMER, vars(tensor).get(_FORMER) if isinstance(tensor, LNSTensor) else tensor.dtype)
    return twin


def _is_held(tensor: torch.Tensor) -> bool:
    """Whether :func:`torch.utils.swap_tensors` would refuse it: something in C++, or weakly in Python, refers to it."""
    if weakref.getweakrefs(tensor):
        return True
    count = tensor._use_count()
    if count == 2 and tensor.is_leaf and tensor.requires_grad:
        # The node that accumulates its gradient may; making one here would raise the count.
        _node = torch.autograd.graph.get_gradient_edge(tensor).node
        return tensor._use_count() != 2
    return count > 1
