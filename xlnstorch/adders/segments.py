"""Both Gaussian logarithms as segmented polynomials with integer coefficients, and what they evaluate to."""

from __future__ import annotations

import dataclasses
import functools

import torch

__all__ = ["Region", "SegmentedGaussian"]


@dataclasses.dataclass(frozen=True)
class Region:
    """Distances from a multiple of a power of two on, as many as that power, cut into equal segments.

    Attributes
    ----------
    subtract : bool
        Whether it is part of ``t(d)``, rather than of ``s(d)``.
    start : int
        The first distance, a multiple of ``2**size``.
    size : int
        Its binary logarithm of distances.
    width : int
        Binary logarithm of the distances in a segment, at most `size`.
    row : int
        Of the first segment; a multiple of the number of segments, so that a row's address is ``row | segment``.
    """

    subtract: bool
    start: int
    size: int
    width: int
    row: int

    @property
    def segments(self) -> int:
        """How many segments the region has."""
        return 1 << (self.size - self.width)


@dataclasses.dataclass(frozen=True)
class SegmentedGaussian:
    """Tables and widths; with them every result is determined, in PyTorch as in gates.

    A distance d lies in a region, and there in the segment of row ``row + (d - start >> width)``, at the offset
    ``o = d mod 2**width``. The offset becomes a fraction ``v`` of `offset_bits` bits, ``v / 2**offset_bits`` being
    ``o / 2**width``, cut off if the segment is wider. With the row's coefficients, all of them non-negative, and
    products cut off to integers (``>>``)::

        degree 1:  y = c0 - (c1 * v >> offset_bits)
        degree 2:  y = c0 - ((c1 - (c2 * u >> inner_bits)) * v >> offset_bits),  u = v >> offset_bits - inner_bits

    The Gaussian logarithm is ``y >> guard_bits``; the half that makes this a rounding is part of c0. From `ends` on
    it is zero.

    Attributes
    ----------
    frac_bits, degree, guard_bits, offset_bits, inner_bits : int
        `inner_bits` is 0 for degree 1.
    regions : tuple of Region
        Without gaps from 0 (``s``) or 1 (``t``) to `ends`; for ``s`` one for each unit of the logarithm, for ``t``
        below one unit one for each power of two.
    rows : tuple of tuple of int
        The coefficients c0, c1 and, at degree 2, c2 of each segment.
    ends : tuple of (int, int)
        The distances from which s and t are zero: multiples of ``2**frac_bits``.
    """

    frac_bits: int
    degree: int
    guard_bits: int
    offset_bits: int
    inner_bits: int
    regions: tuple[Region, ...]
    rows: tuple[tuple[int, ...], ...]
    ends: tuple[int, int]

    @functools.cached_property
    def coefficient_bits(self) -> tuple[int, ...]:
        """The width of each coefficient's column."""
        return tuple(max(1, max(column).bit_length()) for column in zip(*self.rows, strict=True))

    @property
    def rom_bits(self) -> int:
        """Bits of all coefficients."""
        return len(self.rows) * sum(self.coefficient_bits)

    @property
    def multipliers(self) -> tuple[tuple[int, int], ...]:
        """Widths of the operands of each multiplier; none where all segments are single distances."""
        if not self.offset_bits:
            return ()
        outer = (self.coefficient_bits[1], self.offset_bits)
        return (outer,) if self.degree == 1 else (outer, (self.coefficient_bits[2], self.inner_bits))

    def evaluate(self, d: torch.Tensor, subtract: torch.Tensor) -> torch.Tensor:
        """Return ``s(d)``, or ``-t(d)`` where `subtract`, for int64 d ≥ 0 and bool `subtract` of the same shape.

        ``t(0)``, which is infinite, reads as 0.
        """
        regions, coefficients = _tensors(self, d.device)
        live = (d < torch.where(subtract, self.ends[1], self.ends[0])) & ~(subtract & (d == 0))
        d = torch.where(live, d, 1)
        # Regions are numbered: units of s, then octaves of t below one unit, then its other units. An integer's octave
        # is the exponent of its float64.
        unit = d >> self.frac_bits
        octave = (d.to(torch.float64).view(torch.int64) >> 52) - 1023
        of_difference = torch.where(unit == 0, octave, unit + (self.frac_bits - 1)) + (self.ends[0] >> self.frac_bits)
        region = torch.where(subtract, of_difference, unit)
        row, start, width, left, right = (torch.take(column, region) for column in regions)
        offset = d - start
        segment = offset >> width
        row += segment
        v = (offset - (segment << width)) << left >> right
        slope = torch.take(coefficients[1], row)
        if self.degree == 2:
            u = v >> (self.offset_bits - self.inner_bits)
            slope = slope - (torch.take(coefficients[2], row) * u >> self.inner_bits)
        y = torch.take(coefficients[0], row) - (slope * v >> self.offset_bits) >> self.guard_bits
        return torch.where(live, torch.where(subtract, -y, y), 0)


@functools.lru_cache(maxsize=64)
def _tensors(design: SegmentedGaussian, device: torch.device):
    """Return the regions by number, first rows, starts, widths and shifts of the offset, and the coefficients."""
    regions = sorted(design.regions, key=lambda region: (region.subtract, region.start))
    columns = [[getattr(region, name) for region in regions] for name in ("row", "start", "width")]
    columns += [[max(0, sign * (design.offset_bits - width)) for width in columns[2]] for sign in (1, -1)]
    return (
        [torch.tensor(column, device=device) for column in columns],
        [torch.tensor(column, device=device) for column in zip(*design.rows, strict=True)],
    )
