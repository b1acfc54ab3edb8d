"""Both Gaussian logarithms as segmented polynomials with integer coefficients, and what they evaluate to."""

from __future__ import annotations

import dataclasses
import functools

import torch

__all__ = ["OPERAND_BITS", "Polynomials", "Region", "SegmentedGaussian"]

#: What a multiplier takes on each side, in the FPGAs that have some: an offset has at most so many bits.
OPERAND_BITS = 18

# Above every distance that lies in a region: tells the regions of t from those of s.
_FAR = 1 << 40


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
        Binary logarithm of how many distances there are.
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
class Polynomials:
    """Tables of coefficients, and widths, of functions that fall ever more slowly.

    A distance d lies in a region, and there in the segment of row ``row + (d - start >> width)``, at the offset
    ``o = d mod 2**width``. The offset becomes a fraction ``v`` of `offset_bits` bits, ``v / 2**offset_bits`` being
    ``o / 2**width``, cut off if the segment is wider. With the row's coefficients, all of them non-negative, and
    products cut off to integers (``>>``)::

        degree 1:  y = c0 - (c1 * v >> offset_bits)
        degree 2:  y = c0 - ((c1 - (c2 * u >> inner_bits)) * v >> offset_bits),  u = v >> offset_bits - inner_bits

    Attributes
    ----------
    degree, guard_bits, offset_bits, inner_bits : int
        Of y, `guard_bits` lie behind the point. `inner_bits` is 0 for degree 1.
    regions : tuple of Region
        Those with many segments first.
    rows : tuple of tuple of int
        The coefficients c0, c1 and, at degree 2, c2 of each segment.
    """

    degree: int
    guard_bits: int
    offset_bits: int
    inner_bits: int
    regions: tuple[Region, ...]
    rows: tuple[tuple[int, ...], ...]

    @functools.cached_property
    def coefficient_bits(self) -> tuple[int, ...]:
        """The width of each coefficient's column."""
        return tuple(max(1, max(column).bit_length()) for column in zip(*self.rows, strict=True))

    @property
    def rom_bits(self) -> int:
        """Bits of all coefficients; of a plain table only of its values."""
        return len(self.rows) * sum(self.coefficient_bits if self.offset_bits else self.coefficient_bits[:1])

    @property
    def rom_shape(self) -> tuple[int, int]:
        """Rows of the ROM that holds the coefficients, and bits of a row, zeros beside plain values included."""
        return max(2, len(self.rows)), sum(self.coefficient_bits)

    @property
    def splits_slope(self) -> bool:
        """Whether the slope has more bits than a multiplier takes, so that it is multiplied in two parts."""
        return bool(self.offset_bits) and self.coefficient_bits[1] > OPERAND_BITS

    @property
    def multipliers(self) -> tuple[tuple[int, int], ...]:
        """Widths of the operands of each multiplier; none where all segments are single distances."""
        if not self.offset_bits:
            return ()
        slope = self.coefficient_bits[1]
        parts = (OPERAND_BITS, slope - OPERAND_BITS) if self.splits_slope else (slope,)
        outer = tuple((part, self.offset_bits) for part in parts)
        return outer if self.degree == 1 else (*outer, (self.coefficient_bits[2], self.inner_bits))

    def evaluate(self, d: torch.Tensor, subtract: torch.Tensor) -> torch.Tensor:
        """Return y for int64 d that all lie in regions of s, or of t where bool `subtract`."""
        keys, regions, coefficients = _tensors(self, d.device)
        region = torch.bucketize((d + _FAR * subtract).contiguous(), keys, right=True) - 1  # it warns of anything else
        row, start, width, left, right = (torch.take(column, region) for column in regions)
        offset = d - start
        segment = offset >> width
        row += segment
        v = (offset - (segment << width)) << left >> right
        slope = torch.take(coefficients[1], row)
        if self.degree == 2:
            u = v >> (self.offset_bits - self.inner_bits)
            slope = slope - (torch.take(coefficients[2], row) * u >> self.inner_bits)
        return torch.take(coefficients[0], row) - (slope * v >> self.offset_bits)


@functools.lru_cache(maxsize=64)
def _tensors(polynomials: Polynomials, device: torch.device):
    """Return the starts of regions; their first rows, starts, widths and shifts of the offset; the coefficients."""
    regions = sorted(polynomials.regions, key=lambda region: (region.subtract, region.start))
    keys = [region.start + _FAR * region.subtract for region in regions]
    columns = [[getattr(region, name) for region in regions] for name in ("row", "start", "width")]
    columns += [[max(0, sign * (polynomials.offset_bits - width)) for width in columns[2]] for sign in (1, -1)]
    return (
        torch.tensor(keys, device=device),
        [torch.tensor(column, device=device) for column in columns],
        [torch.tensor(column, device=device) for column in zip(*polynomials.rows, strict=True)],
    )


@dataclasses.dataclass(frozen=True)
class SegmentedGaussian:
    """Tables and widths; with them every result is determined, in PyTorch as in gates.

    The Gaussian logarithm is ``y >> guard_bits``, with y from the polynomials; the half that makes this a rounding is
    part of c0. From `ends` on it is zero.

    Where there is a `fall`, ``t`` of the distances below ``2**top``, ``top = frac_bits + near``, is made of a logarithm
    of the distance, since ``t = -log2(x) - log2(ln 2) + x/2 - ...``. The polynomials have that logarithm for the last
    of these octaves, into which a shift brings the others, and `fall` has what the dots stand for, an even function::

        y = (shift - near << frac_bits + guard_bits) + (d << guard_bits - 1) + L(d << shift) - (F(~d) << more)

    where ``2**(top - 1) <= d << shift < 2**top``, ``~d = 2**top - 1 - d`` and `more` is by how many bits the guard bits
    of L exceed those of F.

    Attributes
    ----------
    frac_bits : int
    polynomials : Polynomials
        With regions without gaps from 0 (``s``) or 1 (``t``) to `ends`, for ``s`` and for ``t`` from one unit of the
        logarithm on one for each unit, and below for each power of two; or, where there is a `fall`, for ``t`` from
        ``2**(top - 1)`` on, where they start with L.
    ends : tuple of (int, int)
        The distances from which s and t are zero: multiples of ``2**frac_bits``.
    near : int
    fall : Polynomials or None
        One region from 0 to ``2**top``.
    """

    frac_bits: int
    polynomials: Polynomials
    ends: tuple[int, int]
    near: int = 0
    fall: Polynomials | None = None

    @property
    def top(self) -> int:
        """Binary logarithm of the distance below which ``t`` is made of a logarithm."""
        return self.frac_bits + self.near

    @property
    def rom_bits(self) -> int:
        """Bits of all coefficients."""
        return self.polynomials.rom_bits + (self.fall.rom_bits if self.fall else 0)

    @property
    def multipliers(self) -> tuple[tuple[int, int], ...]:
        """Widths of the operands of each multiplier."""
        return self.polynomials.multipliers + (self.fall.multipliers if self.fall else ())

    def evaluate(self, d: torch.Tensor, subtract: torch.Tensor) -> torch.Tensor:
        """Return ``s(d)``, or ``-t(d)`` where `subtract`, for int64 d ≥ 0 and bool `subtract` of the same shape.

        ``t(0)``, which is infinite, reads as 0.
        """
        live = (d < torch.where(subtract, self.ends[1], self.ends[0])) & ~(subtract & (d == 0))
        d = torch.where(live, d, subtract.to(torch.int64) << self.frac_bits)  # anything that lies in a region
        y = self._with_logarithm(d, subtract) if self.fall else self.polynomials.evaluate(d, subtract)
        y = y >> self.polynomials.guard_bits
        return torch.where(live, torch.where(subtract, -y, y), 0)

    def _with_logarithm(self, d: torch.Tensor, subtract: torch.Tensor) -> torch.Tensor:
        guard_bits = self.polynomials.guard_bits
        near = subtract & (d < 1 << self.top)
        # An integer's octave is the exponent of its float64.
        octave = (d.to(torch.float64).view(torch.int64) >> 52) - 1023
        shift = torch.where(near, self.top - 1 - octave, 0)
        y = self.polynomials.evaluate(d << shift, subtract)
        complement = torch.where(near, (1 << self.top) - 1 - d, 0)
        fall = self.fall.evaluate(complement, torch.ones_like(near)) << guard_bits - self.fall.guard_bits
        rest = (shift - self.near << self.frac_bits + guard_bits) + (d << guard_bits - 1) - fall
        return torch.where(near, y + rest, y)
