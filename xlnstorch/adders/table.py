"""Both Gaussian logarithms of an adder as a table, and how it lies in a ROM."""

from __future__ import annotations

import dataclasses
import functools

__all__ = ["GaussianTable"]


@dataclasses.dataclass(frozen=True)
class GaussianTable:
    """The two Gaussian logarithms of an adder, for every d at which either is not zero.

    A ROM of them has a row for each d: ``s(d)`` in its lower bits, ``t(d)`` above it. A table that goes on beyond a
    power of two with nothing but ones, as that of lns16 does for 68 distances, ends there in the ROM; gates compare d
    with :attr:`ends` instead.

    Attributes
    ----------
    sums, differences : tuple of int
        ``s(d)`` and ``t(d)`` for d = 0, 1, …, in units of the last place. ``t(0)`` is infinite; the entry holds 0, and
        whoever reads the table handles ``x - x`` before.
    """

    sums: tuple[int, ...]
    differences: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.sums)

    @functools.cached_property
    def ends(self) -> tuple[int, int] | None:
        """The distances before which s and t are one, beyond the ROM; None if all of the table lies in the ROM."""
        half = (1 << _address_bits(len(self))) >> 1
        tails = [column[half:] for column in (self.sums, self.differences)]
        ones = [sum(tail) for tail in tails]
        if half == 1 or any(tail != (1,) * n + (0,) * (len(tail) - n) for tail, n in zip(tails, ones, strict=True)):
            return None
        return half + ones[0], half + ones[1]

    @property
    def address_bits(self) -> int:
        """Bits of d that address the ROM."""
        return _address_bits(len(self)) - (self.ends is not None)

    @property
    def widths(self) -> tuple[int, int]:
        """Bits of s and of t in a row, at least 1."""
        sums, differences = self._stored
        return max(1, max(sums).bit_length()), max(1, max(differences).bit_length())

    @property
    def rows(self) -> list[int]:
        """What the ROM holds; zeros fill it up to its end."""
        sum_bits, _ = self.widths
        return [s | t << sum_bits for s, t in zip(*self._stored, strict=True)]

    @property
    def rom_bits(self) -> int:
        """Bits of the ROM, which ends at a power of two of rows."""
        return sum(self.widths) << self.address_bits

    @property
    def _stored(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        rows = 1 << self.address_bits
        return self.sums[:rows], self.differences[:rows]


def _address_bits(entries: int) -> int:
    return max(1, (entries - 1).bit_length())
