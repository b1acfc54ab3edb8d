"""Chooses segments, coefficients and widths of segmented Gaussian logarithms for a target error.

Everything that decides a coefficient is an integer: the samples of the two functions are exact
(:class:`~xlnstorch.exact.LogScale` with more fraction bits), and the rest is integer arithmetic on them. So the tables
are the same on every machine.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools

import numpy as np
import torch

from ..exact import LogScale
from .segments import Region, SegmentedGaussian

__all__ = ["generate"]

# More fraction bits of the samples: their own rounding is then 2**-13 units, which the bounds below take into account.
_SAMPLE_BITS = 12
# A segment of more distances is fitted to this many of them, evenly spaced, and the last; what cutting off may add
# between them is bounded instead of enumerated.
_ENUMERATED = 8
_SAMPLES = 1 << 6
# What rounding of samples and of their polynomial, and curvature between them, may add: a thousandth of a unit.
_SLACK = 4
# Samples of segments fitted at a time, for each of which there are some tens of candidates.
_BLOCK = 1 << 15
# A LUT4 holds 16 bits of ROM or about one bit of a multiplier's array: what the generator weighs against each other.
_ROM_BITS_PER_MULTIPLIER_BIT = 16


@functools.lru_cache(maxsize=64)
def generate(frac_bits: int, degree: int, error: float) -> SegmentedGaussian:
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
        In units of the last place. 0.5: the nearest integer for every d, at up to 16 fraction bits. Above, every result
        lies closer to the real value than this.
    """
    problem = _Problem(frac_bits, degree, error)
    best = _narrow(problem, 3, None)
    for more in ((4, 5, 6), (2, 1, 0)):
        for guard_bits in more:
            design = _narrow(problem, guard_bits, _cost(best))
            if design is not None and _cost(design) < _cost(best):
                best = design
            elif frac_bits > 12:
                break
    return best


def _cost(design: SegmentedGaussian) -> int:
    return design.rom_bits + _ROM_BITS_PER_MULTIPLIER_BIT * sum(a * b for a, b in design.multipliers)


def _narrow(problem: _Problem, guard_bits: int, limit: int | None) -> SegmentedGaussian | None:
    """Return the best design found with so many guard bits, or None if its ROM alone costs more than `limit`."""
    widths = _Widths(guard_bits, slope_bits=62, offset_bits=23, inner_bits=23)
    best = problem.fit(widths, limit)
    if best is None or not best.offset_bits:
        return best
    offset_bits = min(max(region.width for region in best.regions), best.coefficient_bits[1] + 1)
    widths = dataclasses.replace(widths, offset_bits=offset_bits)
    if best.degree == 2:
        widths = dataclasses.replace(widths, inner_bits=min(offset_bits, best.coefficient_bits[2] + 1))
    best = problem.fit(widths)
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


class _Problem:
    """The two functions at one precision, cut into regions, with their samples."""

    def __init__(self, frac_bits: int, degree: int, error: float):
        self.frac_bits, self.degree = frac_bits, degree
        self._nearest = error == 0.5
        # Twice the error in units of a sample, so that a sample's own rounding, of half a unit, is an integer.
        self._error = int(error * 2 ** (_SAMPLE_BITS + 1))
        self._scale = LogScale.of(frac_bits, 2.0)
        self._fine = LogScale.of(frac_bits + _SAMPLE_BITS, 2.0)
        self._samples: dict = {}
        self._fewest: dict[tuple, int] = {}
        self._fits: dict = {}
        steps = 1 << frac_bits
        self.ends = tuple(self._end(subtract) for subtract in (False, True))
        octaves = [(True, 1 << j, j) for j in range(frac_bits)]
        self._regions = octaves + [
            (subtract, start, frac_bits)
            for subtract in (False, True)
            for start in range(steps if subtract else 0, self.ends[subtract], steps)
        ]

    def _end(self, subtract: bool) -> int:
        """The first multiple of one unit from which zero is good enough; the functions only fall."""
        for unit in itertools.count(2 if subtract else 1):  # the first region of t may start at one unit
            d = torch.tensor([unit << self.frac_bits])
            if self._nearest:
                enough = int(self._integers(self._scale, subtract, d)[0]) == 0
            else:
                enough = 2 * int(self._integers(self._fine, subtract, d << _SAMPLE_BITS)[0]) + 1 <= self._error
            if enough:
                return unit << self.frac_bits

    @staticmethod
    def _integers(scale: LogScale, subtract: bool, d: torch.Tensor) -> np.ndarray:
        return (scale.gaussian_difference(d) if subtract else scale.gaussian_sum(d)).numpy()

    # Fitting -----------------------------------------------------------------------------------------------------

    def fit(self, widths: _Widths, limit: int | None = None) -> SegmentedGaussian | None:
        """Return the design with the fewest segments at these widths, or None once its ROM passes `limit` bits."""
        fitted: list[tuple[tuple, np.ndarray]] = []
        total = 0
        for region in self._regions:
            # The first widths with so many guard bits are the most generous ones: no others need fewer segments.
            key = region, widths.guard_bits
            for count in range(self._fewest.get(key, 0), region[2] + 1):
                if limit is not None and (total + (1 << count)) * (self.frac_bits + 1) > limit:
                    return None
                rows = self._fit_region(region, region[2] - count, dataclasses.replace(widths, slope_bits=0))
                if rows is not None and not int(rows[:, 1].max()) >> widths.slope_bits:
                    break
            self._fewest.setdefault(key, count)
            fitted.append((region, rows))
            total += len(rows)
        return self._design(fitted, widths)

    def _design(self, fitted: list[tuple[tuple, np.ndarray]], widths: _Widths) -> SegmentedGaussian:
        # Large regions first: each then starts at a multiple of its own size.
        fitted.sort(key=lambda item: -len(item[1]))
        regions, rows = [], []
        for (subtract, start, size), coefficients in fitted:
            width = size - (len(coefficients).bit_length() - 1)
            regions.append(Region(subtract, start, size, width, len(rows)))
            rows += map(tuple, coefficients.tolist())
        if all(region.width == 0 for region in regions):  # a plain table
            widths = dataclasses.replace(widths, offset_bits=0, inner_bits=0)
        return SegmentedGaussian(
            self.frac_bits,
            self.degree,
            widths.guard_bits,
            widths.offset_bits,
            widths.inner_bits if self.degree == 2 else 0,
            tuple(regions),
            tuple(rows),
            self.ends,
        )

    def _fit_region(self, region: tuple, width: int, widths: _Widths) -> np.ndarray | None:
        """Return the rows of a region cut into segments of ``2**width`` distances, or None if one cannot be fitted."""
        key = region, width, widths
        if key not in self._fits:
            samples = self._sample(region, width)
            limits = None
            if self._is_enumerated(width):
                limits = self._allowed(region, samples, widths.guard_bits)
            block = max(1, _BLOCK // samples.shape[1])
            parts = []
            for start in range(0, len(samples), block):
                chosen = slice(start, start + block)
                part = self._fit_segments(samples[chosen], limits and [x[chosen] for x in limits], width, widths)
                parts.append(part)
                if part is None:
                    break
            self._fits[key] = None if parts[-1] is None else np.concatenate(parts)
        return self._fits[key]

    def _is_enumerated(self, width: int) -> bool:
        return self._nearest or width <= _ENUMERATED

    def _fit_segments(self, samples, limits, width: int, widths: _Widths) -> np.ndarray | None:
        slope, bend = self._candidates(samples, width, widths.guard_bits)
        if limits is None:
            least, most = self._sampled_bounds(samples, width, slope, bend, widths)
        else:
            least, most = self._enumerated_bounds(*limits, width, slope, bend, widths)
        room = most - least
        best, each = room.argmax(axis=0), np.arange(len(samples))
        room, constant = room[best, each], least[best, each] + (room[best, each] >> 1)
        if room.min() < 0 or constant.min() < 0:
            return None
        columns = (constant, slope[best, each], bend[best, each])
        return np.stack(columns[: self.degree + 1], axis=1)

    def _sample(self, region: tuple, width: int) -> np.ndarray:
        """Return exact samples, (segments, points): all distances of each segment, or some and those of its end."""
        if (region, width) not in self._samples:
            subtract, start, size = region
            if self._is_enumerated(width):
                offsets = torch.arange(1 << width)
            else:
                offsets = torch.arange(_SAMPLES + 1) << width >> _SAMPLES.bit_length() - 1
            starts = start + (torch.arange(1 << (size - width)) << width)
            d = (starts[:, None] + offsets).reshape(-1) << _SAMPLE_BITS
            samples = self._integers(self._fine, subtract, d)
            self._samples[region, width] = samples.reshape(len(starts), len(offsets))
        return self._samples[region, width]

    def _candidates(self, samples: np.ndarray, width: int, guard_bits: int) -> tuple[np.ndarray, np.ndarray]:
        """Return slopes and bends, (candidates, segments), around those of the best polynomial in real numbers."""
        points = samples.shape[1]
        last = points - 1
        if last == 0:
            none = np.zeros((1, len(samples)), dtype=np.int64)
            return none, none
        spread = 3 if self._nearest else 2 if self._is_enumerated(width) else 1
        position = np.arange(points) / (1 << width if self._is_enumerated(width) else last)
        y = samples * 2.0 ** (guard_bits - _SAMPLE_BITS)
        slopes = np.arange(-spread, spread + 2)[:, None]
        if self.degree == 1 or last == 1:
            # Both functions are convex, and the secant is parallel to the best line.
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

    def _allowed(self, region, samples, guard_bits):
        """Return the least and the largest y, with guard bits, that is rounded to an integer close enough."""
        if self._nearest:
            subtract, start, size = region
            d = torch.arange(start, start + (1 << size))
            least = most = self._integers(self._scale, subtract, d).reshape(samples.shape)
        else:
            unit = 1 << (_SAMPLE_BITS + 1)
            least = -((self._error - 1 - 2 * samples) // unit)
            most = (2 * samples - 1 + self._error) // unit
        return least << guard_bits, (most + 1 << guard_bits) - 1

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

    def _sampled_bounds(self, samples, width, slope, bend, widths):
        """Return bounds of c0 that hold between the samples too, whatever is cut off there."""
        n, inner, shift = widths.offset_bits, widths.inner_bits, _SAMPLE_BITS - widths.guard_bits
        # What cutting off can add to y, and take from it, in units of a sample.
        above = (1 << shift) + (((slope << shift) >> n) + 1 if width > n else 0)
        below = 0
        if self.degree == 2:
            below = (1 << shift) + (((bend << shift) >> inner) + 1 if width > inner else 0)
        i, bits = np.arange(samples.shape[1]), samples.shape[1].bit_length() - 1
        fall = (slope[..., None] * i << shift >> bits) - (bend[..., None] * i**2 << shift >> 2 * bits)
        error = (self._error >> 1) - _SLACK
        least = (samples + fall).max(axis=-1) - error + (1 << _SAMPLE_BITS) - (1 << shift) + below
        most = (samples + fall).min(axis=-1) + error - above
        return -(-least >> shift), most >> shift
