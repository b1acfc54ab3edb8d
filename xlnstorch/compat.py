"""For code written for the xlnstorch and xlns packages: bases brought together, and arrays of xlns in and out."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from . import conversions
from .catalog import format_from_base, software_format
from .formats import LNSFormat
from .tensor import LNSTensor, _Convert, _Encode

__all__ = ["align_lnstensor_bases", "format_lnstensor_operands", "from_xlns", "implicit_conversion", "to_xlns"]

_XLNS_ZERO = -(2**63)

# Bases and formats ----------------------------------------------------------------------------------------------------


def align_lnstensor_bases(
    *tensors: LNSTensor | None, base: Any = None, format: LNSFormat | None = None
) -> tuple[LNSTensor | None, ...]:
    """Return LNSTensors in one format, still attached to their graphs; gradients return in the format they came from.

    Parameters
    ----------
    tensors : LNSTensor or None
        Those in the wanted format already, and None, are returned unchanged.
    base : float or scalar Tensor
        Base of a software format, as ``x.base`` gives it. By default that of ``f=23``.
    format : LNSFormat
        Any format, instead of `base`.

    Raises
    ------
    TypeError
        Something else than an LNSTensor.
    ValueError
        Both `base` and `format`, or a base that is not above 1.

    Examples
    --------
    >>> import xlnstorch
    >>> a, b = xlnstorch.lnstensor(3.0, f=23), xlnstorch.lnstensor(4.0, f=18)
    >>> a, b = xlnstorch.align_lnstensor_bases(a, b, base=a.base)
    >>> (a + b).format == a.format
    True
    """
    if base is not None and format is not None:
        raise ValueError("only one of base and format may be given")
    if format is None:
        format = software_format() if base is None else format_from_base(base)
    for tensor in tensors:
        if tensor is not None and not isinstance(tensor, LNSTensor):
            raise TypeError(f"tensors must be LNSTensors, not {type(tensor).__name__}")
    return tuple(None if tensor is None else _to_format(tensor, format) for tensor in tensors)


def format_lnstensor_operands(*operands: Any, base: Any = None) -> tuple[LNSTensor | None, ...]:
    """Return operands of any kind as LNSTensors in the format of the first that is one, or of `base`.

    Numbers and sequences are encoded, tensors that require grad stay attached; without any LNSTensor the format is that
    of ``f=23``. Otherwise as :func:`align_lnstensor_bases`.
    """
    from .factories import lnstensor

    first = next((x for x in operands if isinstance(x, LNSTensor)), None)
    if base is not None or first is None:
        format = software_format() if base is None else format_from_base(base)
    else:
        format = first.format
    return tuple(x if x is None else lnstensor(x, format=format, detach=False) for x in operands)


@contextlib.contextmanager
def implicit_conversion() -> Iterator[None]:
    """Convert operands inside the block as the xlnstorch package does, instead of refusing them.

    Where a function of torch gets LNSTensors of several formats, all are converted to that of the first; where it gets
    plain tensors that require grad, these are encoded into it. Both is differentiable, a gradient coming back in the
    format, or dtype, of its own tensor. What is written in place, or to ``out=``, is never converted. The block holds
    for its own thread; it hides roundings, so it is for code to be moved, not for new code.

    Examples
    --------
    >>> import xlnstorch
    >>> with xlnstorch.implicit_conversion():
    ...     xlnstorch.lnstensor(3.0, f=23) + xlnstorch.lnstensor(4.0, f=18)
    lnstensor(7.0000, format=LNSFormat(29, 23))
    """
    with _ImplicitConversion():
        yield


class _ImplicitConversion(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        first = next((x for x in tree_leaves((args, kwargs)) if isinstance(x, LNSTensor)), None)
        if first is None:
            return func(*args, **kwargs)

        def convert(x):
            differentiable = isinstance(x, torch.Tensor) and x.requires_grad and torch.is_grad_enabled()
            return _to_format(x, first.format) if isinstance(x, LNSTensor) or differentiable else x

        # A converted copy of what is written to would take the result with it.
        name = getattr(func, "__name__", "")
        kept = 1 if name.endswith("_") or name == "__set__" else 0
        out = {"out": kwargs.pop("out")} if "out" in kwargs else {}
        args = (*args[:kept], *tree_map(convert, tuple(args[kept:])))
        return func(*args, **tree_map(convert, kwargs), **out)


def _to_format(x: torch.Tensor, format: LNSFormat) -> LNSTensor:
    if not isinstance(x, LNSTensor):
        return _Encode.apply(x, format)
    return x if x.format == format else _Convert.apply(x, format)


# The xlns package -----------------------------------------------------------------------------------------------------


def is_xlns(data: Any) -> bool:
    """Return whether `data` is a number or array of the xlns package."""
    return type(data).__module__ == "xlns"


def from_xlns(data: Any) -> LNSTensor:
    """Return a number or array of the xlns package as an LNSTensor, unrounded.

    Parameters
    ----------
    data : xlns, xlnsud, xlnsv, xlnsb, xlnsnp, xlnsnpv or xlnsnpb
        The redundant kinds xlnsr and xlnsnpr hold two logarithms and are refused.

    Returns
    -------
    LNSTensor
        In the software format of the base that `data` has: for xlns, xlnsud, xlnsnp and xlnsnpv the one that
        ``xlns.xlnssetF`` has set. Logarithms of more than 52 bits saturate or flush.

    Raises
    ------
    TypeError
        `data` is of none of these kinds.
    """
    if not is_xlns(data) or isinstance(data, (_xlns().xlnsr, _xlns().xlnsnpr)):
        raise TypeError(f"data must be a non-redundant number or array of the xlns package, not {type(data).__name__}")
    base = data.B if hasattr(data, "B") else _xlns().xlnsB
    if hasattr(data, "nd"):
        packed = np.asarray(data.nd, dtype=np.int64)
    else:
        packed = np.int64(_XLNS_ZERO if data.x == -math.inf else (int(data.x) << 1) | int(data.s))
    format = format_from_base(float(base))
    return LNSTensor(conversions.unpack(format, torch.from_numpy(np.array(packed))), format)


def to_xlns(tensor: LNSTensor) -> Any:
    """Return an LNSTensor as an array of the xlns package, with the same logarithms.

    Returns
    -------
    xlnsnp or xlnsnpb
        The former if its global base is that of `tensor` (23 fraction bits, unless ``xlns.xlnssetF`` has changed it),
        else the latter, which carries a base of its own. ``xlns.xlnsnpv(array, f)`` rounds further.

    Raises
    ------
    ImportError
        The xlns package is not installed; the message says how to.
    TypeError
        `tensor` is not an LNSTensor.
    ValueError
        There are infinities or NaN in `tensor`, which the package has not.
    """
    if not isinstance(tensor, LNSTensor):
        raise TypeError(f"tensor must be an LNSTensor, not {type(tensor).__name__}")
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError("tensor must be of finite numbers: arrays of the xlns package have neither infinities nor NaN")
    xlns = _xlns()
    base = tensor.base.item()
    array = xlns.xlnsnp(0) if base == xlns.xlnsB else xlns.xlnsnpb(0, base)
    _, field = tensor.format.unpack(tensor._words)
    array.nd = torch.where(field == 0, _XLNS_ZERO, tensor.lns.to(torch.int64)).cpu().numpy()
    return array


def _xlns() -> ModuleType:
    try:
        import xlns
    except ImportError:
        raise ImportError(
            "arrays of the xlns package need that package, which is not installed: pip install xlns"
        ) from None
    return xlns
