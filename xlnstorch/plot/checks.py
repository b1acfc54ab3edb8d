"""What the functions of this package accept, checked at their door."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ..catalog import named_format
from ..checks import as_integer
from ..formats import LNSFormat

__all__ = [
    "FormatLike",
    "Interval",
    "as_formats",
    "check_choice",
    "check_count",
    "check_interval",
    "check_seed",
    "covered_interval",
    "log_uniform",
    "magnitudes",
]

FormatLike = LNSFormat | str
Interval = tuple[float, float]


def as_formats(formats: FormatLike | Iterable[FormatLike]) -> tuple[LNSFormat, ...]:
    """Return formats given as such or by name, one or several, each once.

    Raises
    ------
    TypeError, ValueError
        Something that is neither, a name that is not known, or nothing at all.
    """
    chosen = []
    for format in [formats] if isinstance(formats, (str, LNSFormat)) else formats:
        if isinstance(format, str):
            format = named_format(format)
        if not isinstance(format, LNSFormat):
            raise TypeError(f"format must be an LNSFormat or the name of one, not {format!r}")
        chosen.append(format)
    if not chosen:
        raise ValueError("at least one format must be given")
    return tuple(dict.fromkeys(chosen))


def check_choice(name: str, value: str, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    return value


def check_count(name: str, value: int, low: int, high: int) -> int:
    """Return `value` if it is an integer from `low` to `high`."""
    value = as_integer(name, value)
    if not low <= value <= high:
        raise ValueError(f"{name} must be between {low:,} and {high:,}, not {value:,}")
    return value


def check_seed(seed: int) -> int:
    """Return `seed` if it is one."""
    seed = as_integer("seed", seed)
    if not 0 <= seed < 1 << 63:
        raise ValueError(f"seed must be at least 0 and below 2**63, not {seed}")
    return seed


def check_interval(interval: Interval, *, positive: bool = False) -> Interval:
    """Return the ends as floats if they are finite and in order; `positive` wants them above zero too."""
    try:
        low, high = map(float, interval)
    except (TypeError, ValueError):
        raise TypeError(f"interval must be two numbers, not {interval!r}") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"interval must be two finite numbers, the lower first, not {low:g} and {high:g}")
    if positive and low <= 0:
        raise ValueError(f"interval must be of magnitudes above zero, not from {low:g}")
    return low, high


def magnitudes(format: LNSFormat) -> Interval:
    """Return the smallest and the largest magnitude above zero, the nearest float64 (0 and inf beyond its range)."""
    return format.scale.exp_exact(1 - format.bias), format.scale.exp_exact(format.max_finite_field - format.bias)


def covered_interval(interval: Interval | None, formats: Iterable[LNSFormat], default: Interval) -> Interval:
    """Return an interval of magnitudes that every format covers: `interval`, or as much of `default` as they do.

    Raises
    ------
    ValueError
        A format does not reach the ends of `interval`.
    """
    if interval is None:
        ends = [magnitudes(format) for format in formats]
        low, high = max(default[0], *(low for low, _ in ends)), min(default[1], *(high for _, high in ends))
        return check_interval((low, high), positive=True)
    low, high = check_interval(interval, positive=True)
    for format in formats:
        smallest, largest = magnitudes(format)
        if low < smallest or high > largest:
            raise ValueError(
                f"interval must lie within the range of {format}, {smallest:.6g} to {largest:.6g}, "
                f"not from {low:g} to {high:g}"
            )
    return low, high


def log_uniform(rng: np.random.Generator, interval: Interval, *shape: int) -> np.ndarray:
    """Return float64 numbers whose logarithms are uniform over an interval of magnitudes."""
    low, high = interval
    return np.exp2(rng.uniform(math.log2(low), math.log2(high), shape)).clip(low, high)
