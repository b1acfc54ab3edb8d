"""Chooses segments, coefficients and widths of segmented Gaussian logarithms for a target error.

What decides a coefficient is exact: the samples of the functions are integers proved to be the nearest
(:mod:`~xlnstorch.adders.curves`), and the rest is arithmetic on integers and single operations of IEEE 754, no libm. So
the tables are the same on every machine.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools

import numpy as np
import torch

from ..exact import LogScale
from .curves import SAMPLE_BITS, Curves, Part
from .segments import OPERAND_BITS, Polynomials, Region, SegmentedGaussian

__all__ = ["generate"]

# Segments of at most so many distances, as a power of two for each degree, are fitted to all of them. Longer ones are
# fitted to evenly spaced samples, and what cutting off may add between these is bounded instead.
_ENUMERATED = {1: 8, 2: 12}
# With up to 2**8 there is time for more candidates.
_SEARCHED = 8
_SAMPLES = 1 << 6
# What rounding of samples and of their polynomial may add, in units of a sample; curvature between them adds to it.
_ROUNDING = 3
# A part that needs more segments is given up.
_MOST_SEGMENTS = 1 << 16
# Samples of segments fitted at a time, for each of which there are some tens of candidates.
_BLOCK = 1 << 15
# A LUT4 holds 16 bits of ROM or about one bit of a multiplier's array: what the generator weighs against each other.
_ROM_BITS_PER_MULTIPLIER_BIT = 16


@functools.lru_cache(maxsize=64)
def generate(frac_bits: int, degree: int, error: float, logarithm: bool = False) -> SegmentedGaussian:
    """Return the cheapest segmented Gaussian logarithms found whose error stays below a target.

    For given widths each region is cut into as few segments as the error allows. More guard bits are tried while they
    lower the cost, and for each number of them the other widths are narrowed one after the other. A bit of ROM costs
    1, a bit of a multiplier (width times width) 16.

    Parameters
    ----------
    frac_bits : int
        0 to 23.
    degree : int
        1 or 2.
    error : float
        In units of the last place. 0.5: the nearest integer for every d. Above, every result lies closer to the real
        value than this. With more than 12 fraction bits, or a logarithm, 0.75 at least.
    logarithm : bool
        Whether t is made of a logarithm near its singularity; with 8 fraction bits or more.
    """
    if not logarithm:
        problem = _Problem(frac_bits, degree, error)
        return SegmentedGaussian(frac_bits, _cheapest(problem), problem.ends)
    best, memory = None, ({}, {})
    for near, sixteenths in itertools.product((0, 1, 2), (2, 3, 4)):
        # So many sixteenths of what the error leaves beside the rounding of the result are for the fall.
        margin = int((error - 0.5) * 2 * sixteenths * 2 ** (SAMPLE_BITS - 4))
        fall = _cheapest(_Fall(frac_bits, degree, near, margin))
        problem = _Problem(frac_bits, degree, error, near, margin, memory)
        main = fall and _cheapest(problem, fewest=max(1, fall.guard_bits))
        if main:
            design = SegmentedGaussian(frac_bits, main, problem.ends, near, fall)
            if best is None or _cost(design) < _cost(best):
                best = design
    return best


def _cost(design: Polynomials | SegmentedGaussian) -> int:
    return design.rom_bits + _ROM_BITS_PER_MULTIPLIER_BIT * sum(a * b for a, b in design.multipliers)


def _cheapest(problem: _Fitter, fewest: int = 0) -> Polynomials | None:
    """Return the best polynomials found with at least so many guard bits, or None."""
    start = max(3, fewest)
    best = _narrow(problem, start, None)
    for more in (range(start + 1, 7), range(start - 1, fewest - 1, -1)):
        for guard_bits in more:
            found = _narrow(problem, guard_bits, best and _cost(best))
            if found is not None and (best is None or _cost(found) < _cost(best)):
                best = found
            elif problem.frac_bits > 12 and best is not None:
                break
    return best


def _narrow(problem: _Fitter, guard_bits: int, limit: int | None) -> Polynomials | None:
    """Return the best design found with so many guard bits, or None if its ROM alone costs more than `limit`."""
    widths = _Widths(guard_bits, slope_bits=62, offset_bits=OPERAND_BITS, inner_bits=OPERAND_BITS)
    best = problem.fit(widths, limit)
    if best is None or not best.offset_bits:
        return best
    offset_bits = min(max(region.width for region in best.regions), best.coefficient_bits[1] + 1)
    inner_bits = min(offset_bits, best.coefficient_bits[2] + 1) if best.degree == 2 else 0
    closer = dataclasses.replace(widths, offset_bits=offset_bits, inner_bits=inner_bits)
    if (design := problem.fit(closer)) is not None:
        best, widths = design, closer
    improved = True
    while improved:
        improved = False
        for name in ("slope_bits", "offset_bits", "inner_bits")[: best.degree + 1]:
            widest = best.coefficient_bits[1] if name == "slope_bits" else getattr(widths, name)
            for narrower in range(widest - 1, 0, -1):
                other = dataclasses.replace(widths, **{name: narrower})
                other = dataclasses.replace(other, inner_bits=min(other.inner_bits, other.offset_bits))
                design = problem.fit(other, _cost(best) + _cost(best) // 8)
                if design is None:
                    break
                if _cost(design) < _cost(best):
                    best, widths, improved = design, other, True
    return best


@dataclasses.dataclass(frozen=True)
class _Widths:
    guard_bits: int
    slope_bits: int
    offset_bits: int
    inner_bits: int


class _Fitter:
    """Fits polynomials to parts of curves.

    Attributes
    ----------
    frac_bits, degree : int
    curves : Curves
    parts : list of Part
    """

    def __init__(self, curves: Curves, frac_bits: int, degree: int, memory: tuple[dict, dict] | None = None):
        self.curves, self.frac_bits, self.degree = curves, frac_bits, degree
        self.parts: list[Part] = []
        self._fewest: dict[tuple, int] = {}
        # Samples and fits, which other fitters may share.
        self._samples, self._fits = memory or ({}, {})

    def is_enumerated(self, part: Part, width: int) -> bool:
        """Whether a segment is fitted to all its distances, by :meth:`allowed`."""
        return False

    def spread(self, width: int) -> int:
        """Return how far around the best polynomial in real numbers others are tried for an enumerated segment."""
        raise NotImplementedError

    def allowed(self, part: Part, samples: np.ndarray, guard_bits: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and the largest y, with guard bits, at each distance."""
        raise NotImplementedError

    def margins(self, part: Part, guard_bits: int) -> tuple[int, int]:
        """Return by how much y has to lie above the curve, and by how much it may: in units of a sample, exclusive."""
        raise NotImplementedError

    def fit(self, widths: _Widths, limit: int | None = None) -> Polynomials | None:
        """Return the polynomials with the fewest segments at these widths, or None.

        There are none where what is cut off takes all the room, or where the ROM passes `limit` bits.
        """
        fitted: list[tuple[Part, np.ndarray]] = []
        total = 0
        for part in self.parts:
            # The first widths with so many guard bits are the most generous ones: no others need fewer segments.
            key = part, widths.guard_bits
            most = min(part.size, _MOST_SEGMENTS.bit_length() - 1)
            for count in range(self._fewest.get(key, 0), most + 1):
                if limit is not None and (total + (1 << count)) * (self.frac_bits + 1) > limit:
                    return None
                rows = self._fit_part(part, part.size - count, dataclasses.replace(widths, slope_bits=0))
                if rows is not None and not int(rows[:, 1].max()) >> widths.slope_bits:
                    break
            else:
                return None
            self._fewest.setdefault(key, count)
            fitted.append((part, rows))
            total += len(rows)
        # Large regions first: each then starts at a multiple of its own size.
        fitted.sort(key=lambda item: -len(item[1]))
        regions, rows = [], []
        for part, coefficients in fitted:
            width = part.size - (len(coefficients).bit_length() - 1)
            regions.append(Region(part.curve != "sum", part.start, part.size, width, len(rows)))
            rows += map(tuple, coefficients.tolist())
        if all(region.width == 0 for region in regions):  # a plain table
            widths = dataclasses.replace(widths, offset_bits=0, inner_bits=0)
        inner_bits = widths.inner_bits if self.degree == 2 else 0
        return Polynomials(self.degree, widths.guard_bits, widths.offset_bits, inner_bits, tuple(regions), tuple(rows))

    def _fit_part(self, part: Part, width: int, widths: _Widths) -> np.ndarray | None:
        """Return the rows of a part cut into segments of ``2**width`` distances, or None if one cannot be fitted."""
        if not self.is_enumerated(part, width) and self._room(part, widths.guard_bits) < 2 * self._slack(part, widths):
            return None  # what is cut off takes all the room
        key = part, width, widths, self.margins(part, widths.guard_bits)
        if key not in self._fits:
            samples = self._sample(part, width)
            limits = None
            if self.is_enumerated(part, width):
                limits = self.allowed(part, samples, widths.guard_bits)
            block = max(1, _BLOCK // samples.shape[1])
            fitted = []
            for start in range(0, len(samples), block):
                chosen = slice(start, start + block)
                rows = self._fit_segments(samples[chosen], limits and [x[chosen] for x in limits], part, width, widths)
                fitted.append(rows)
                if rows is None:
                    break
            self._fits[key] = None if fitted[-1] is None else np.concatenate(fitted)
        return self._fits[key]

    def _room(self, part: Part, guard_bits: int) -> int:
        """Return how much of the margins is left when everything has been cut off, in units of a sample."""
        low, high = self.margins(part, guard_bits)
        return high - low - (self.degree << SAMPLE_BITS - guard_bits)

    def _slack(self, part: Part, widths: _Widths) -> int:
        """Return by how much y may be off at a sample, and between samples more than at them, in units of a sample.

        A cubic that swings by 2a over a segment, the most that fits, curves by 48 a per segment squared where it is
        extreme inside: 6 a / 64**2 between two of 64 samples. A parabola curves by a third of that.
        """
        return _ROUNDING + max(3, 3 * self._room(part, widths.guard_bits) >> SAMPLE_BITS)

    def _fit_segments(self, samples, limits, part: Part, width: int, widths: _Widths) -> np.ndarray | None:
        slope, bend = self._candidates(samples, part, width, widths.guard_bits)
        if limits is None:
            least, most = self._sampled_bounds(samples, part, width, slope, bend, widths)
        else:
            least, most = self._enumerated_bounds(*limits, width, slope, bend, widths)
        room = most - least
        best, each = room.argmax(axis=0), np.arange(len(samples))
        room, constant = room[best, each], least[best, each] + (room[best, each] >> 1)
        if room.min() < 0 or constant.min() < 0:
            return None
        columns = (constant, slope[best, each], bend[best, each])
        return np.stack(columns[: self.degree + 1], axis=1)

    def _sample(self, part: Part, width: int) -> np.ndarray:
        """Return exact samples, (segments, points): all distances of each segment, or some and those of its end."""
        if (part, width) not in self._samples:
            if self.is_enumerated(part, width):
                offsets = torch.arange(1 << width) << SAMPLE_BITS
            else:
                offsets = torch.arange(_SAMPLES + 1) << width + SAMPLE_BITS - (_SAMPLES.bit_length() - 1)
            starts = part.start + (torch.arange(1 << (part.size - width)) << width) << SAMPLE_BITS
            samples = getattr(self.curves, part.curve)((starts[:, None] + offsets).reshape(-1))
            self._samples[part, width] = samples.reshape(len(starts), len(offsets)).numpy()
        return self._samples[part, width]

    def _candidates(self, samples, part: Part, width: int, guard_bits: int) -> tuple[np.ndarray, np.ndarray]:
        """Return slopes and bends, (candidates, segments), around those of the best polynomial in real numbers."""
        points = samples.shape[1]
        last = points - 1
        if last == 0:
            none = np.zeros((1, len(samples)), dtype=np.int64)
            return none, none
        enumerated = self.is_enumerated(part, width)
        spread = self.spread(width) if enumerated else 1
        position = np.arange(points) / (1 << width if enumerated else last)
        y = samples * 2.0 ** (guard_bits - SAMPLE_BITS)
        slopes = np.arange(-spread, spread + 2)[:, None]
        if self.degree == 1 or last == 1:
            # The curves are convex, and the secant is parallel to the best line.
            ideal = np.floor((y[:, 0] - y[:, last]) / position[last]).astype(np.int64)
            slope = np.maximum(ideal + slopes, 0)
            return slope, np.zeros_like(slope)
        # The parabola through three points near the Chebyshev nodes.
        a, b, c = round(0.067 * last), last >> 1, last - round(0.067 * last)
        first = (y[:, b] - y[:, a]) / (position[b] - position[a])
        second = (y[:, c] - y[:, b]) / (position[c] - position[b])
        ideal_bend = (second - first) / (position[c] - position[a])
        ideal_slope = ideal_bend * (position[a] + position[b]) - first
        bends = np.arange(1 - spread, spread + 1)[:, None]
        bend = np.maximum(np.floor(ideal_bend).astype(np.int64) + bends, 0)
        # On a whole segment v**2 is best replaced by v, up to a constant.
        slope = np.floor(ideal_slope + (bend - ideal_bend)).astype(np.int64)
        slope = np.maximum(slope[:, None] + slopes, bend[:, None])
        bend = np.broadcast_to(bend[:, None], slope.shape)
        return slope.reshape(-1, len(samples)), bend.reshape(-1, len(samples))

    def _enumerated_bounds(self, lower, upper, width, slope, bend, widths):
        """Return the least and the largest c0 of each segment: no distance may be off."""
        n, inner = widths.offset_bits, widths.inner_bits
        offsets = np.arange(lower.shape[1])
        v = offsets >> (width - n) if width > n else offsets << (n - width)
        slope = slope[..., None]
        if self.degree == 2:
            slope = slope - (bend[..., None] * (v >> (n - inner)) >> inner)
        fall = slope * v >> n
        return (lower + fall).max(axis=-1), (upper + fall).min(axis=-1)

    def _sampled_bounds(self, samples, part, width, slope, bend, widths):
        """Return bounds of c0 that hold between the samples too, whatever is cut off there."""
        n, inner, shift = widths.offset_bits, widths.inner_bits, SAMPLE_BITS - widths.guard_bits
        # What cutting off can add to y, and take from it, in units of a sample.
        above = (1 << shift) + (((slope << shift) >> n) + 1 if width > n else 0)
        below = 0
        if self.degree == 2:
            below = (1 << shift) + (((bend << shift) >> inner) + 1 if width > inner else 0)
        i, bits = np.arange(samples.shape[1]), samples.shape[1].bit_length() - 1
        fall = (slope[..., None] * i << shift >> bits) - (bend[..., None] * i**2 << shift >> 2 * bits)
        low, high = self.margins(part, widths.guard_bits)
        slack = self._slack(part, widths)
        # Not below zero either, so that gates need no sign.
        least = (np.maximum(samples + low, 0) + fall).max(axis=-1) + slack + below
        most = (samples + fall).min(axis=-1) + high - slack - above
        return -(-least >> shift), most >> shift


class _Problem(_Fitter):
    """Both Gaussian logarithms, cut into the parts that become regions.

    Parameters
    ----------
    frac_bits, degree, error
        As of :func:`generate`.
    near : int, optional
        Exponent of the x below which t is made of a logarithm, if it is.
    margin : int
        What is left there for the fall, in units of a sample.
    memory : tuple of (dict, dict), optional
        What problems of the same precision, degree and error share.
    """

    def __init__(
        self,
        frac_bits: int,
        degree: int,
        error: float,
        near: int | None = None,
        margin: int = 0,
        memory: tuple[dict, dict] | None = None,
    ):
        super().__init__(Curves(frac_bits, near or 0), frac_bits, degree, memory)
        # Twice the error in units of a sample, so that a sample's own rounding, of half a unit, is an integer.
        self._error = int(error * 2 ** (SAMPLE_BITS + 1))
        # What samples cannot tell from 0.5 is 0.5: the nearest integers are closer than that.
        self._nearest, self._margin = self._error == 1 << SAMPLE_BITS, margin
        self._integers = LogScale.of(frac_bits, 2.0)
        steps = 1 << frac_bits
        self.ends = (self._end("sum", 1), self._end("difference", 2))  # the first region of t may start at one unit
        if near is None:
            self.parts = [Part("difference", 1 << octave, octave) for octave in range(frac_bits)]
            first = steps
        else:
            first = steps << near
            self.ends = self.ends[0], max(first, self.ends[1])  # the logarithm's octave is a whole one
            self.parts = [Part("logarithm", first >> 1, frac_bits + near - 1)]
        self.parts += [Part("sum", start, frac_bits) for start in range(0, self.ends[0], steps)]
        self.parts += [Part("difference", start, frac_bits) for start in range(first, self.ends[1], steps)]

    def _end(self, curve: str, first: int) -> int:
        """Return the first multiple of one unit from which zero is good enough; the functions only fall."""
        for unit in itertools.count(first):
            d = torch.tensor([unit << self.frac_bits])
            if self._nearest:
                enough = int(self._nearest_integers(curve, d)[0]) == 0
            else:
                enough = 2 * int(getattr(self.curves, curve)(d << SAMPLE_BITS)[0]) + 1 <= self._error
            if enough:
                return unit << self.frac_bits

    def _nearest_integers(self, curve: str, d: torch.Tensor) -> torch.Tensor:
        return self._integers.gaussian_sum(d) if curve == "sum" else self._integers.gaussian_difference(d)

    def is_enumerated(self, part: Part, width: int) -> bool:
        return part.curve != "logarithm" and (self._nearest or width <= _ENUMERATED[self.degree])

    def spread(self, width: int) -> int:
        return 3 if self._nearest else 2 if width <= _SEARCHED else 1

    def allowed(self, part: Part, samples: np.ndarray, guard_bits: int) -> tuple[np.ndarray, np.ndarray]:
        if self._nearest:
            d = torch.arange(part.start, part.start + (1 << part.size))
            least = most = self._nearest_integers(part.curve, d).reshape(samples.shape).numpy()
        else:
            unit = 1 << (SAMPLE_BITS + 1)
            least = -((self._error - 1 - 2 * samples) // unit)
            most = (2 * samples - 1 + self._error) // unit
        return np.maximum(least, 0) << guard_bits, (most + 1 << guard_bits) - 1

    def margins(self, part: Part, guard_bits: int) -> tuple[int, int]:
        # y has a half more than the curve, and is cut off to an integer.
        # The fall is too large, so that it is nowhere negative, by its margin, and so is the logarithm.
        error, margin = self._error >> 1, self._margin if part.curve == "logarithm" else 0
        return (1 << SAMPLE_BITS) - (1 << SAMPLE_BITS - guard_bits) - error + 2 * margin, error


class _Fall(_Fitter):
    """What t lacks to the logarithm below ``2**near``, and up to twice the margin more, in units of a sample."""

    def __init__(self, frac_bits: int, degree: int, near: int, margin: int):
        super().__init__(Curves(frac_bits, near), frac_bits, degree)
        self._margin = margin
        self.parts = [Part("fall", 0, frac_bits + near)]

    def margins(self, part: Part, guard_bits: int) -> tuple[int, int]:
        return 0, 2 * self._margin
