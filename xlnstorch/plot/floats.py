"""The floating-point formats that LNS is drawn beside; their parameters are torch's."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch

from .checks import check_choice

__all__ = ["FLOATS", "as_floats", "round_to_float", "spacing_steps"]

FLOATS = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def as_floats(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return names of :data:`FLOATS`, each once."""
    names = [names] if isinstance(names, str) else names
    return tuple(dict.fromkeys(check_choice("beside", name, FLOATS) for name in names))


def _last_place(name: str, exponent: np.ndarray) -> np.ndarray:
    """Return the exponent of the last place of numbers from ``2**exponent`` to ``2**(exponent + 1)``."""
    finfo = torch.finfo(FLOATS[name])
    return np.maximum(exponent, round(math.log2(finfo.smallest_normal))) + round(math.log2(finfo.eps))


def round_to_float(name: str, values: np.ndarray) -> np.ndarray:
    """Return float64 `values` rounded to a format, once, half to even; infinite where that overflows.

    torch's own conversion may go by way of float32, and so round twice.
    """
    _, exponent = np.frexp(values)
    place = _last_place(name, exponent - 1)
    rounded = np.ldexp(np.rint(np.ldexp(values, -place)), place)
    return np.where(np.abs(rounded) > torch.finfo(FLOATS[name]).max, np.copysign(np.inf, values), rounded)


def spacing_steps(name: str, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Return magnitudes and, from each to the next, the constant distance between neighbouring numbers.

    The magnitudes are both ends of the interval, as far as the format covers it, and the powers of two between them.
    """
    finfo = torch.finfo(FLOATS[name])
    first, last = max(low, finfo.smallest_normal * finfo.eps), min(high, finfo.max)
    if first >= last:
        raise ValueError(f"interval must hold two numbers of {name}, not lie from {low:g} to {high:g}")
    powers = np.ldexp(1.0, np.arange(math.floor(math.log2(first)), math.ceil(math.log2(last)) + 1))
    starts = np.concatenate([[first], powers[(powers > first) & (powers < last)], [last]])
    _, exponent = np.frexp(starts)
    return starts, np.ldexp(1.0, _last_place(name, exponent - 1))
