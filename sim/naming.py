# amaranth: UnusedElaboratable=no
"""Units by the text that a command line gives them: a name, and the values of parameters."""

from __future__ import annotations

import inspect

import torch

import hdl
from xlnstorch.formats import LNSFormat
from xlnstorch.parameters import split_names, split_parameters

__all__ = ["named_unit"]


def named_unit(text: str, format: LNSFormat) -> hdl.Unit:
    """Return the unit of a format that a command line names.

    Parameters
    ----------
    text : str
        A key of :data:`hdl.UNITS`, as in ``add``, or with parameters as in ``dot:lanes=2``,
        ``from_float:dtype=bfloat16``, ``from_fixed:width=24,signed=False`` or ``alu:converters=float16+fixed``.
    format : LNSFormat

    Raises
    ------
    TypeError, ValueError
        No such unit or parameter, or a value or a format that it cannot have; the message says what is accepted.
    """
    name, _, rest = text.partition(":")
    if name not in hdl.UNITS:
        raise ValueError(f"unit must be one of {', '.join(hdl.UNITS)}, not {name!r}")
    known = {key: each for key, each in inspect.signature(hdl.UNITS[name]).parameters.items() if key != "format"}
    given = {
        key: split_names(value) if known[key].annotation == "tuple[str, ...]" else _value(value)
        for key, value in split_parameters(f"unit {name}", rest, known).items()
    }
    hdl.UNITS[name].check_format(format)
    return hdl.UNITS[name](format=format, **given)


def _value(text: str) -> object:
    """Return an integer, a truth value, a dtype, or else the text."""
    if text in ("True", "False"):
        return text == "True"
    if isinstance(dtype := getattr(torch, text, None), torch.dtype):
        return dtype
    try:
        return int(text)
    except ValueError:
        return text
