"""Python's operators on LNSTensors.

torch.Tensor's own turn every TypeError into NotImplemented, so that two formats would give "unsupported operand" for
``+`` and, silently, False for ``==``; and they compute ``2 / x`` as ``x.reciprocal() * 2``, which rounds and saturates
twice. These hand operands to the torch function as they are.
"""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Callable

import numpy as np
import torch

__all__ = ["define_operators"]

_BINARY: dict[str, Callable] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "truediv": torch.div,
    "matmul": torch.matmul,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
}
_REFLECTED = ("add", "sub", "mul", "truediv", "matmul")
_IN_PLACE = {"iadd": "add_", "isub": "sub_", "imul": "mul_", "itruediv": "div_"}


def _supported(other) -> bool:
    return isinstance(other, (torch.Tensor, numbers.Real, np.bool_))


def _plain(other):
    """Return an operand that torch takes: integers of any size as the numbers that they are nearest to."""
    if isinstance(other, np.generic):
        return other.item()
    if isinstance(other, int) and not -(1 << 63) <= other < 1 << 63:
        return float(other) if abs(other) < 1 << 1023 else math.copysign(sys.float_info.max, other)
    return other


def _method(name: str, compute: Callable) -> Callable:
    def method(self, other):
        return compute(self, _plain(other)) if _supported(other) else NotImplemented

    method.__name__ = method.__qualname__ = f"__{name}__"
    return method


def _reflected(function: Callable) -> Callable:
    def compute(self, other):
        if not isinstance(other, torch.Tensor):
            other = torch.tensor(other, dtype=torch.float64, device=self.device)
        return function(other, self)

    return compute


def define_operators(cls: type[torch.Tensor]) -> type[torch.Tensor]:
    """Give a tensor class the operators of this module; returns the class, to be used as a decorator."""
    for name, function in _BINARY.items():
        setattr(cls, f"__{name}__", _method(name, function))
    for name in _REFLECTED:
        setattr(cls, f"__r{name}__", _method(f"r{name}", _reflected(_BINARY[name])))
    for name, in_place in _IN_PLACE.items():
        setattr(cls, f"__{name}__", _method(name, getattr(torch.Tensor, in_place)))
    cls.__hash__ = torch.Tensor.__hash__  # defining __eq__ would take it away
    return cls
