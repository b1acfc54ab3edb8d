"""Exact samples of the Gaussian logarithms, and of the two functions that t is made of near its singularity."""

from __future__ import annotations

import dataclasses

import flint
import torch

from ..exact import LogScale
from ..rounding import nearest_integer

__all__ = ["SAMPLE_BITS", "Curves", "Part"]

#: How many more fraction bits samples and their arguments have: rounding them moves them by 2**-13 units at most.
SAMPLE_BITS = 12


@dataclasses.dataclass(frozen=True)
class Part:
    """Distances from `start` on, ``2**size`` of them, of the curve that a method of :class:`Curves` names."""

    curve: str
    start: int
    size: int


class Curves:
    """Samples of functions of the distance x, in units of one; arguments and values are integers.

    All fall, ever more slowly, from 0 on. `near` is the exponent of the x below which t can be put together from
    the last two.
    """

    def __init__(self, frac_bits: int, near: int = 0):
        self.near = near
        self._top = frac_bits + near
        self._bits = frac_bits + SAMPLE_BITS
        self._scale = LogScale.of(self._bits, 2.0)
        self._limit = nearest_integer(lambda: -flint.arb.const_log2().log() / flint.arb.const_log2() * 2**self._bits)

    def sum(self, d: torch.Tensor) -> torch.Tensor:
        """Return s."""
        return self._scale.gaussian_sum(d)

    def difference(self, d: torch.Tensor) -> torch.Tensor:
        """Return t."""
        return self._scale.gaussian_difference(d)

    def logarithm(self, d: torch.Tensor) -> torch.Tensor:
        """Return ``near - log2(x) - log2(ln 2)``, to which ``near + t(x) - x / 2`` tends at 0."""
        return self._limit + (self._bits + self.near << self._bits) - self._scale.log(d.to(torch.float64))

    def fall(self, d: torch.Tensor) -> torch.Tensor:
        """Return by how much ``near + t - x / 2`` lies below the logarithm, as a function of the complement of x.

        It is ``ln 2 x**2 / 24`` and smaller terms, and an even function: ``t - x / 2 = -log2(2 sinh(x ln 2 / 2))``.
        """
        d = (((1 << self._top) - 1 << SAMPLE_BITS) - d).abs()
        some = d.clamp(min=1)
        fall = self.logarithm(some) + (some >> 1) - self.difference(some) - (self.near << self._bits)
        return torch.where(d == 0, 0, fall)
