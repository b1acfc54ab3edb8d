"""Making LNSTensors: from data, from packed values, from words, and filled."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from . import compat, conversions
from .catalog import format_from_base, software_format
from .formats import LNSFormat
from .tensor import LNSTensor, _Convert, _Encode

__all__ = [
    "empty",
    "empty_like",
    "from_words",
    "full",
    "full_like",
    "lnstensor",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randn",
    "randn_like",
    "zeros",
    "zeros_like",
]


def _choose_format(f: int | None, b: Any, format: LNSFormat | None, default: LNSFormat | None = None) -> LNSFormat:
    given = [name for name, value in (("f", f), ("b", b), ("format", format)) if value is not None]
    if len(given) > 1:
        raise ValueError(f"only one of f, b and format may be given, not {' and '.join(given)}")
    if format is not None:
        if not isinstance(format, LNSFormat):
            raise TypeError(f"format must be an LNSFormat such as xlnstorch.lns16, not {format!r}")
        return format
    if f is not None:
        return software_format(f)
    if b is not None:
        return format_from_base(float(b))
    return default if default is not None else software_format()


def lnstensor(
    data: Any,
    from_lns: bool = False,
    requires_grad: bool = False,
    detach: bool = True,
    f: int | None = None,
    b: float | None = None,
    *,
    format: LNSFormat | None = None,
    device: torch.device | str | None = None,
) -> LNSTensor:
    """Return an LNSTensor of `data`, each number rounded to the nearest logarithm.

    Parameters
    ----------
    data : LNSTensor, Tensor, ndarray, number or nested sequence
        Real numbers; an LNSTensor is converted to the wanted format, or copied when none is given. So are numbers and
        arrays of the xlns package; see :func:`~xlnstorch.from_xlns`.
    from_lns : bool
        `data` is in the packed form already: integers ``(e << 1) | sign``, float64 or int64. An LNSTensor is handed
        through unchanged.
    requires_grad : bool
        Whether autograd records operations on the result.
    detach : bool
        Start a new leaf (the default), or stay attached to the graph that computed `data`: gradients then flow through
        the conversion.
    f : int
        Fraction bits of the software format, with a 52-bit log field in int64.
    b : float
        Base of the software format, instead of ``2 ** (2 ** -f)``.
    format : LNSFormat
        Any format, instead of `f` or `b`. Without all three: the format of `data` if it has one, else ``f=23``.
    device : torch.device
        Where the words live; by default where `data` does.

    Raises
    ------
    TypeError
        `data` is not real and array-like, or `format` is not a format.
    ValueError
        More than one of `f`, `b` and `format`; a NaN; a packed value that is not an integer; `requires_grad` for a
        result that is attached to a graph.

    Examples
    --------
    >>> import xlnstorch
    >>> xlnstorch.lnstensor([1.0, -2.0, 0.0], format=xlnstorch.lns16).words.tolist() == [0x4000, 0xC080, 0]
    True
    """
    if compat.is_xlns(data):
        data = compat.from_xlns(data)
    if isinstance(data, LNSTensor):
        if from_lns:
            return data
        chosen = _choose_format(f, b, format, default=data.format)
        tensor = _Convert.apply(data.detach() if detach else data, chosen)
    elif from_lns:
        chosen = _choose_format(f, b, format)
        packed = _as_tensor(data)
        tensor = LNSTensor(conversions.unpack(chosen, packed), chosen)
    elif isinstance(data, int) and not isinstance(data, bool):
        chosen = _choose_format(f, b, format)  # of any size, unlike the integers of a tensor
        tensor = LNSTensor(torch.tensor(conversions.encode_scalar(chosen, data), dtype=chosen.dtype), chosen)
    else:
        chosen = _choose_format(f, b, format)
        values = _as_tensor(data)
        if not detach and values.requires_grad:
            tensor = _Encode.apply(values, chosen)
        else:
            tensor = LNSTensor(conversions.encode(chosen, values), chosen)
    if device is not None and torch.device(device) != tensor.device:
        tensor = tensor.to(device)
    if requires_grad:
        if tensor.grad_fn is not None:
            raise ValueError("requires_grad=True makes a leaf; with detach=False the result is not one")
        tensor.requires_grad_(True)
    return tensor


def _as_tensor(data: Any) -> torch.Tensor:
    if isinstance(data, torch.Tensor):
        return data
    if isinstance(data, np.ndarray):
        # torch takes neither negative strides nor foreign byte orders.
        data = np.ascontiguousarray(data).astype(data.dtype.newbyteorder("="), copy=False)
    try:
        tensor = torch.tensor(data)
        if isinstance(data, np.ndarray) or not tensor.dtype.is_floating_point:
            return tensor
        # A list of Python floats is float64 here, whatever torch's default dtype would make of it.
        return torch.tensor(data, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"data must be a tensor, array, number or nested sequence of numbers: {error}") from None


def from_words(words: Any, format: LNSFormat, requires_grad: bool = False) -> LNSTensor:
    """Return the LNSTensor of these words, given as the non-negative integers that hardware shows.

    Parameters
    ----------
    words : Tensor, ndarray, int or nested sequence of int
        Each from 0 to ``2**format.width - 1``.
    format : LNSFormat
    requires_grad : bool

    Raises
    ------
    TypeError, ValueError
        A word that is not an integer, or out of range; the message shows it.
    """
    if not isinstance(format, LNSFormat):
        raise TypeError(f"format must be an LNSFormat such as xlnstorch.lns16, not {format!r}")
    if not isinstance(words, torch.Tensor):
        array = np.asarray(words)
        if array.size == 0:
            array = array.astype(np.int64)
        if array.dtype.kind not in "iu":
            raise TypeError(f"words must be integers, not {array.dtype}")
        if array.dtype.kind == "u":
            array = array.clip(max=2**63 - 1).astype(np.int64)  # what is beyond is out of range all the same
        words = torch.as_tensor(array)
    return LNSTensor(format.from_unsigned(words), format, requires_grad)


def _filled(make, size, f, b, format, requires_grad, **kwargs) -> LNSTensor:
    if len(size) == 1 and isinstance(size[0], (tuple, list, torch.Size)):
        size = tuple(size[0])
    values = make(size, dtype=torch.float64, **kwargs)
    return lnstensor(values, f=f, b=b, format=format, requires_grad=requires_grad)


def zeros(*size, f=None, b=None, format=None, device=None, requires_grad=False) -> LNSTensor:
    """Return zeros of the given size; `f`, `b` and `format` as in :func:`lnstensor`."""
    return _filled(torch.zeros, size, f, b, format, requires_grad, device=device)


def empty(*size, f=None, b=None, format=None, device=None, requires_grad=False) -> LNSTensor:
    """Return a tensor to be overwritten; its words are zero, so that no result depends on old memory."""
    return zeros(*size, f=f, b=b, format=format, device=device, requires_grad=requires_grad)


def ones(*size, f=None, b=None, format=None, device=None, requires_grad=False) -> LNSTensor:
    """Return ones of the given size; `f`, `b` and `format` as in :func:`lnstensor`."""
    return _filled(torch.ones, size, f, b, format, requires_grad, device=device)


def full(size, fill_value, f=None, b=None, format=None, device=None, requires_grad=False) -> LNSTensor:
    """Return a tensor of `size` (int or sequence) filled with the word nearest to `fill_value`."""
    size = (size,) if isinstance(size, int) else tuple(size)
    chosen = _choose_format(f, b, format)
    word = conversions.encode_scalar(chosen, fill_value)
    return LNSTensor(torch.full(size, word, dtype=chosen.dtype, device=device), chosen, requires_grad)


def rand(*size, f=None, b=None, format=None, device=None, generator=None, requires_grad=False) -> LNSTensor:
    """Return uniform numbers from [0, 1], each the word nearest to what ``torch.rand`` draws in float64."""
    return _filled(torch.rand, size, f, b, format, requires_grad, device=device, generator=generator)


def randn(*size, f=None, b=None, format=None, device=None, generator=None, requires_grad=False) -> LNSTensor:
    """Return normal numbers, each the word nearest to what ``torch.randn`` draws in float64."""
    return _filled(torch.randn, size, f, b, format, requires_grad, device=device, generator=generator)


def _like(factory, input: torch.Tensor, f, b, format, **kwargs) -> LNSTensor:
    default = input.format if isinstance(input, LNSTensor) else None
    chosen = _choose_format(f, b, format, default)
    return factory(tuple(input.shape), format=chosen, device=input.device, **kwargs)


def zeros_like(input, f=None, b=None, format=None, requires_grad=False) -> LNSTensor:
    """Return zeros of the shape, device and (unless another is given) format of `input`."""
    return _like(zeros, input, f, b, format, requires_grad=requires_grad)


def empty_like(input, f=None, b=None, format=None, requires_grad=False) -> LNSTensor:
    """Return a tensor to be overwritten like `input`; see :func:`empty`."""
    return _like(empty, input, f, b, format, requires_grad=requires_grad)


def ones_like(input, f=None, b=None, format=None, requires_grad=False) -> LNSTensor:
    """Return ones like `input`; see :func:`zeros_like`."""
    return _like(ones, input, f, b, format, requires_grad=requires_grad)


def full_like(input, fill_value, f=None, b=None, format=None, requires_grad=False) -> LNSTensor:
    """Return a tensor like `input` filled with the word nearest to `fill_value`."""
    return _like(full, input, f, b, format, fill_value=fill_value, requires_grad=requires_grad)


def rand_like(input, f=None, b=None, format=None, generator=None, requires_grad=False) -> LNSTensor:
    """Return uniform numbers like `input`; see :func:`rand`."""
    return _like(rand, input, f, b, format, generator=generator, requires_grad=requires_grad)


def randn_like(input, f=None, b=None, format=None, generator=None, requires_grad=False) -> LNSTensor:
    """Return normal numbers like `input`; see :func:`randn`."""
    return _like(randn, input, f, b, format, generator=generator, requires_grad=requires_grad)
