"""Where the numbers of a format lie: their spacing, how real numbers are rounded to them, how many lie where.

Values are the float64 nearest to those of the words; which words lie in an interval, and where rounding changes from
one to the next, is decided by the proved roundings of :mod:`xlnstorch.exact`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from fractions import Fraction

import flint
import numpy as np
import torch

from .. import arithmetic, conversions
from ..exact import LogScale
from ..formats import LNSFormat
from .checks import FormatLike, Interval, as_formats, check_choice, check_count, check_interval, magnitudes
from .floats import as_floats, spacing_steps

__all__ = [
    "NumberHistogram",
    "Spacing",
    "SpacingLine",
    "Staircase",
    "Stairs",
    "number_histogram",
    "spacing",
    "staircase",
]

# Over more octaves than these, lines whose precision differs by a few bits lie on each other.
_DEFAULT_INTERVAL = (2.0**-20, 2.0**20)
_MAX_STEPS = 10_000


@dataclasses.dataclass(frozen=True, eq=False)
class SpacingLine:
    """The spacing of one format.

    Attributes
    ----------
    label : str
        Of the LNS format, or of the floating-point format.
    magnitudes, spacing : float64 arrays
        Of an LNS format: numbers, and the distance from each to the next larger one. Of a floating-point format: where
        the distance changes, and what it is from there on (``steps``).
    steps : bool
    """

    label: str
    magnitudes: np.ndarray
    spacing: np.ndarray
    steps: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Spacing:
    """What :func:`spacing` returns: a line for each format, the LNS formats first."""

    interval: Interval
    lines: tuple[SpacingLine, ...]


def spacing(
    formats: FormatLike | Iterable[FormatLike] = "lns16",
    *,
    beside: str | Iterable[str] = (),
    interval: Interval | None = None,
    points: int = 500,
) -> Spacing:
    """Return the distance between neighbouring numbers at magnitudes of an interval.

    Parameters
    ----------
    formats : LNSFormat, str, or several
        Formats, or names as :func:`~xlnstorch.named_format` takes them.
    beside : str or several
        Of ``"bfloat16"``, ``"float16"`` and ``"float32"``.
    interval : (float, float)
        Magnitudes above zero; by default the ranges of all `formats`, at most from 2**-20 to 2**20.
    points : int
        Of each LNS format at most so many numbers, evenly over the interval in the logarithm; 2 to 100,000.

    Raises
    ------
    TypeError, ValueError
        A parameter is not as above, or a format has no two neighbours in the interval; the message names it.
    """
    formats, floats = as_formats(formats), as_floats(beside)
    points = check_count("points", points, 2, 100_000)
    if interval is None:
        ends = [magnitudes(format) for format in formats]
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        interval = max(_DEFAULT_INTERVAL[0], low), min(_DEFAULT_INTERVAL[1], high)
    low, high = check_interval(interval, positive=True)
    lines = []
    for format in formats:
        first, last = _count_below(format, low) + 1, _count_up_to(format, high)
        if first >= last:
            raise ValueError(f"interval must hold two numbers of {format}, not lie from {low:g} to {high:g}")
        # The last number of all has no next one.
        last = min(last, format.max_finite_field - 1)
        fields = np.unique(np.rint(np.linspace(first, last, min(points, last - first + 1))).astype(np.int64))
        values = conversions.decode(format, format.from_unsigned(torch.from_numpy(fields))).numpy()
        lines.append(SpacingLine(repr(format), values, _distances(format, fields), steps=False))
    for name in floats:
        lines.append(SpacingLine(name, *spacing_steps(name, low, high), steps=True))
    return Spacing((low, high), tuple(lines))


def _distances(format: LNSFormat, fields: np.ndarray) -> np.ndarray:
    """Return what ``base**((e + 1) / 2**f) - base**(e / 2**f)`` is for these fields, to the nearest float64."""
    with flint.ctx.workprec(192):  # far more than the at most 48 bits that cancel
        ln_unit = flint.arb(format.base).log() / 2**format.frac_bits
        step = ln_unit.expm1()
        return np.array([float((int(field - format.bias) * ln_unit).exp() * step) for field in fields])


def _count_below(format: LNSFormat, x: float) -> int:
    """Return how many positive numbers of the format are less than x > 0: the largest field of one."""
    e = format.scale.log_exact(Fraction(x))
    return min(max(e + format.bias - (format.scale.exp_exact(e) >= x), 0), format.max_finite_field)


def _count_up_to(format: LNSFormat, x: float) -> int:
    """Return how many positive numbers of the format are at most x > 0."""
    e = format.scale.log_exact(Fraction(x))
    return min(max(e + format.bias - (format.scale.exp_exact(e) > x), 0), format.max_finite_field)


@dataclasses.dataclass(frozen=True, eq=False)
class Stairs:
    """How the numbers of an interval are rounded to N words of a format.

    Attributes
    ----------
    format : LNSFormat
    words : int64 array (N,)
        As hardware shows them, in the order of their values.
    values : float64 array (N,)
    edges : float64 array (N + 1,)
        Numbers between ``edges[i]`` and ``edges[i + 1]`` become ``words[i]``. The first and the last are the ends of
        the interval; the others are irrational, here the nearest float64.
    """

    format: LNSFormat
    words: np.ndarray
    values: np.ndarray
    edges: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Staircase:
    """What :func:`staircase` returns: stairs for each format."""

    interval: Interval
    stairs: tuple[Stairs, ...]


def staircase(formats: FormatLike | Iterable[FormatLike] = "lns8", *, interval: Interval = (1.0, 4.0)) -> Staircase:
    """Return which word each real number of an interval becomes.

    Parameters
    ----------
    formats : LNSFormat, str, or several
    interval : (float, float)
        Of any sign; it may contain zero and go beyond the range, where numbers saturate or become infinite.

    Raises
    ------
    TypeError, ValueError
        A parameter is not as above, or a format has more than 10,000 words for the interval.
    """
    formats = as_formats(formats)
    low, high = check_interval(interval)
    return Staircase((low, high), tuple(_stairs(format, low, high) for format in formats))


def _stairs(format: LNSFormat, low: float, high: float) -> Stairs:
    ends = conversions.encode(format, torch.tensor([low, high], dtype=torch.float64))
    # A word as the signed field, which is ordered as the numbers are.
    first, last = arithmetic.compare_key(format, ends).tolist()
    if last - first >= _MAX_STEPS:
        raise ValueError(
            f"a staircase must have at most {_MAX_STEPS:,} steps, not the {last - first + 1:,} that {format} has from "
            f"{low:g} to {high:g}"
        )
    keys = torch.arange(first, last + 1)
    words = format.pack(keys < 0, keys.abs())
    # Rounding is to the nearest logarithm, so it changes half a unit of the logarithm from a number.
    halves = LogScale.of(format.frac_bits + 1, format.base)

    def edge(key: int) -> float:
        """Return where rounding changes from this key to the next."""
        return halves.exp_exact(2 * (key - format.bias) + 1) if key >= 0 else -edge(-key - 1)

    return Stairs(
        format,
        format.to_unsigned(words).numpy(),
        conversions.decode(format, words).numpy(),
        np.array([low, *map(edge, range(first, last)), high]),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class NumberHistogram:
    """How many numbers of each format lie in each of B bins.

    Attributes
    ----------
    formats : tuple of LNSFormat
    edges : float64 array (B + 1,)
        A bin holds its lower edge and, but for the last one, not its upper edge.
    counts : int64 array (formats, B)
    scale : {"linear", "log"}
        Of the bins.
    """

    formats: tuple[LNSFormat, ...]
    edges: np.ndarray
    counts: np.ndarray
    scale: str


def number_histogram(
    formats: FormatLike | Iterable[FormatLike] = "lns16",
    *,
    interval: Interval | None = None,
    bins: int = 64,
    scale: str = "linear",
) -> NumberHistogram:
    """Count the numbers of formats, zero included, in bins of an interval; exactly, without listing them.

    Parameters
    ----------
    formats : LNSFormat, str, or several
    interval : (float, float)
        By default from −4 to 4 on a linear scale, and from 2**-20 to 2**20 on a logarithmic one.
    bins : int
        1 to 10,000.
    scale : {"linear", "log"}
        Bins of equal width, or of equal ratio; these need an interval above zero.

    Raises
    ------
    TypeError, ValueError
        A parameter is not as above; the message names it.
    """
    formats = as_formats(formats)
    check_choice("scale", scale, ("linear", "log"))
    if interval is None:
        interval = (-4.0, 4.0) if scale == "linear" else _DEFAULT_INTERVAL
    low, high = check_interval(interval, positive=scale == "log")
    bins = check_count("bins", bins, 1, 10_000)
    edges = np.linspace(low, high, bins + 1) if scale == "linear" else np.geomspace(low, high, bins + 1)
    if not (np.diff(edges) > 0).all():
        raise ValueError(f"interval must be long enough for {bins:,} bins, not from {low!r} to {high!r}")
    counts = []
    for format in formats:
        ranks = [_rank(format, x, including=False) for x in edges[:-1].tolist()]
        counts.append(np.diff([*ranks, _rank(format, float(edges[-1]), including=True)]))
    return NumberHistogram(formats, edges, np.array(counts, dtype=np.int64), scale)


def _rank(format: LNSFormat, x: float, including: bool) -> int:
    """Return how many numbers of the format, of either sign, are less than x, or at most x if `including`."""
    negative = format.max_finite_field
    if x == 0:
        return negative + including
    if x < 0:
        # What is below x is the mirror image of what is above −x.
        return negative - (_count_below(format, -x) if including else _count_up_to(format, -x))
    return negative + 1 + (_count_up_to(format, x) if including else _count_below(format, x))
