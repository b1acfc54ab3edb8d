"""Gaussian logarithms by shifts and adds: Mitchell's approximation of 2**x and of log2, and corrections to it."""

from __future__ import annotations

import dataclasses
import operator
from typing import TYPE_CHECKING

import torch

from .adder import AdderCost, TabledAdder

if TYPE_CHECKING:
    from ..exact import LogScale
    from ..formats import LNSFormat

__all__ = ["Mitchell"]

_MIN_WORKING_BITS = 12
# C of the singularity in 1/512, for 1/2 <= x < 1 and for smaller x: -log2(ln 2), moved so that the error that the
# triangles leave in log2(1 + m), and for the larger x the next term, -0.029 x**2, lies as far above 0 as below.
_SINGULARITY = {0: (256, 256), 1: (260, 266), 2: (262, 271)}


@dataclasses.dataclass(frozen=True)
class Mitchell(TabledAdder):
    """Shifts and adds: no ROM and no multiplier, and an error that more fraction bits do not make smaller.

    Mitchell reads the fraction of a logarithm as that of its number, and back: ``log2(1 + m)`` becomes m and, with
    x = d / 2**frac_bits = i + r, ``2**-x`` becomes ``(1 - r/2) / 2**i``. Both Gaussian logarithms are made of this,
    all in units of one:

    - ``s(x) = 2**-p`` with ``p = x - (1 - M) / 2`` and, for x ≥ 1, ``t(x) = 2**-p`` with ``p = x - 31/64 - M``, where M
      is Mitchell's ``2**-min(x, 4)``. The true p of either tends to ``x + log2(ln 2) = x - 0.53`` as fast as 2**-x
      tends to zero, and that of s is 0 at x = 0.
    - For x = 2**-k (1 + m) < 1, ``t(x) = k + C - log2(1 + m) + x/2``, from ``t(x) = -log2(x ln 2) + x/2 - ...``, so the
      singularity needs no table either; C is 0.53 or, for x ≥ 1/2, a little less.
    - The step itself is bent towards the curve by triangle waves, the first of those that make up the parabola
      ``3/8 m (1 - m)``: ``3/16 min(m, 1 - m)``, and 3/32 of the same of each half.

    The step is of Mitchell (1962), its use for both s and t of Arnold (LPVIP, 2004). Arnold, Chester and Johnson (2020)
    shift the arguments too, s by a multiple of x and units added afterwards, t by two lines and, for x < 1, with a
    table.

    All is computed in ``max(frac_bits, 12)`` fraction bits, each step rounded down, and of more bits than frac_bits the
    result is rounded to the nearest. ``s(0)`` is exactly one, so x + x = 2 x; neither s nor t rises with d anywhere.

    The largest errors, those of the logarithms in units of one, and the relative ones of the results that they make. In
    units of the last place the first are ``2**frac_bits`` times as many, and at less than 12 fraction bits up to half a
    unit more:

    ===========  ======  ======  =====  ==========
    corrections  s       t       sum    difference
    ===========  ======  ======  =====  ==========
    0            0.0850  0.1226  6.1 %  8.9 %
    1            0.0166  0.0191  1.2 %  1.4 %
    2            0.0061  0.0126  0.5 %  0.9 %
    ===========  ======  ======  =====  ==========

    Parameters
    ----------
    corrections : {2, 1, 0}
        How many triangle waves. 0 is the approximation as it was published, without any shift of the argument either:
        ``2**-x`` for s, ``2**(1 - x)`` for t, and C = 1/2.

    Raises
    ------
    ValueError
        `corrections` is none of these.

    Examples
    --------
    >>> import dataclasses
    >>> from xlnstorch import lns16, lnstensor
    >>> from xlnstorch.adders import Mitchell
    >>> format = dataclasses.replace(lns16, adder=Mitchell())
    >>> (lnstensor([1.0, 8.0], format=format) + lnstensor([1.0, 5.0], format=format)).value
    tensor([ 2.0000, 12.9539], dtype=torch.float64)
    """

    corrections: int = 2

    def __post_init__(self) -> None:
        try:
            corrections = None if isinstance(self.corrections, bool) else operator.index(self.corrections)
        except TypeError:
            corrections = None
        if corrections not in _SINGULARITY:
            raise ValueError(f"corrections must be 0, 1 or 2, not {self.corrections!r}")
        object.__setattr__(self, "corrections", corrections)

    def check(self, format: LNSFormat) -> None:
        if format.base != 2.0:
            raise ValueError(f"the adder {self.name} needs base 2, not {format.base}")

    def reach(self, format: LNSFormat) -> int:
        return _reach(format.frac_bits)

    def cost(self, format: LNSFormat) -> AdderCost:
        return AdderCost(rom_bits=0)

    def working_bits(self, frac_bits: int) -> int:
        """Return how many fraction bits it computes in, for logarithms with `frac_bits`."""
        return max(frac_bits, _MIN_WORKING_BITS)

    def constants(self, bits: int) -> tuple[int, int]:
        """Return the C of 1/2 ≤ x < 1 and that of smaller x, in units of ``2**-bits``."""
        upper, lower = _SINGULARITY[self.corrections]
        return upper << (bits - 9), lower << (bits - 9)

    def compute(self, scale: LogScale, d: torch.Tensor, subtract: torch.Tensor) -> torch.Tensor:
        frac_bits = scale.frac_bits
        d = d.clamp(max=_reach(frac_bits))
        bits = self.working_bits(frac_bits)
        guard, one, half = bits - frac_bits, 1 << bits, 1 << (bits - 1)
        x = d << guard
        near = subtract & (x < one)

        # Far from the singularity: p, of which the fraction is r and the whole is a shift.
        if self.corrections:
            capped = x.clamp(max=4 * one)
            m = (2 * one - 1 - (capped & (one - 1))) >> ((capped >> bits) + 1)
            p = torch.where(subtract, x - 31 * (one >> 6) - m, x - (half - 1 - (m >> 1)))
        else:
            p = torch.where(subtract, x - one, x)
        p = p.clamp(min=0)  # only where it is not used

        # Near: the leading one, k places below the point, and what follows it. frexp is exact for these x.
        k = (bits + 1 - torch.frexp(x.to(torch.float64)).exponent.to(torch.int64)).clamp(min=0)
        constant = torch.where(x >= half, *self.constants(bits))

        r = torch.where(near, (x << k) - one, p & (one - 1))
        top = torch.where(near, constant + (k << bits) + (x >> 1), 2 * one)
        value = top - r - self._bend(bits, r)
        value = torch.where(near, value, value >> ((p >> bits) + 1))
        if guard:
            value = (value + (1 << (guard - 1))) >> guard
        return torch.where(subtract, -value, value)

    def _bend(self, bits: int, r: torch.Tensor) -> torch.Tensor | int:
        """Return how far log2(1 + r), or 2 - 2**(1 - r), is taken to lie above r."""
        if not self.corrections:
            return 0
        waves = 2 * _triangle(bits, r)
        if self.corrections == 2:
            waves = waves + _triangle(bits - 1, r & ((1 << (bits - 1)) - 1))
        return (3 * waves) >> 5


def _triangle(bits: int, r: torch.Tensor) -> torch.Tensor:
    """Return r, or in its upper half what r lacks to the largest number of so many bits."""
    return torch.where(r >> (bits - 1) == 0, r, (1 << bits) - 1 - r)


def _reach(frac_bits: int) -> int:
    # From x = frac_bits + 2 on, 2**-p is below half a unit or, without corrections and just there, half a unit.
    return ((frac_bits + 2) << frac_bits) + 1
