"""Checks of arguments at the door, in the same words wherever they are made."""

from __future__ import annotations

import operator

__all__ = ["as_integer", "integer_between"]


def as_integer(name: str, value: int) -> int:
    """Return `value` as an int; raise TypeError, naming it, if it is no integer, or a truth value."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise TypeError(f"{name} must be an integer, not {value!r}")


def integer_between(name: str, value: int, low: int, high: int) -> int:
    """Return `value` if it is an integer from `low` to `high`; else raise TypeError or ValueError, naming it."""
    value = as_integer(name, value)
    if not low <= value <= high:
        raise ValueError(f"{name} must be between {low} and {high}, not {value}")
    return value
