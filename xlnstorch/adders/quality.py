"""How far an adder's integers lie from the real Gaussian logarithms, over every d that there is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from ..checks import as_integer

if TYPE_CHECKING:
    from ..formats import LNSFormat

__all__ = ["AdderQuality", "measure"]

# Distances at a time: what fits into a core's cache is done several times as fast.
_BLOCK = 1 << 16


@dataclasses.dataclass(frozen=True)
class AdderQuality:
    """Errors of an adder in units of the last place of the logarithm, over all d below its reach.

    The real values are float64, whose own error is below 2**-20 units. Beyond the reach both logarithms are below half
    a unit, and zero is the nearest integer.

    Attributes
    ----------
    max_sum, max_difference : float
        Largest error of ``s(d)`` and ``t(d)``; 0.5 at most means that every integer is the nearest.
    mean_sum, mean_difference : float
        Mean of the absolute errors, every d alike.
    rounded_sum, rounded_difference : float
        Share of the d whose integer is the nearest one, decided exactly.
    points : int
        How many d were measured for each of the two.
    """

    max_sum: float
    max_difference: float
    mean_sum: float
    mean_difference: float
    rounded_sum: float
    rounded_difference: float
    points: int

    @property
    def max(self) -> float:
        """The larger of both largest errors."""
        return max(self.max_sum, self.max_difference)

    @property
    def mean(self) -> float:
        """The mean over both."""
        return (self.mean_sum + self.mean_difference) / 2

    @property
    def rounded(self) -> float:
        """The share of nearest integers over both."""
        return (self.rounded_sum + self.rounded_difference) / 2


def measure(format: LNSFormat, *, every: int = 1, progress: Callable[[int, int], None] | None = None) -> AdderQuality:
    """Measure the adder of a format over all distances.

    Parameters
    ----------
    format : LNSFormat
        Its adder is measured; the integer bits do not matter.
    every : int
        Measure one of so many blocks of 65536 distances, the first and the last always. 1 is all of them: at 23
        fraction bits 4·10^8 values, which take a minute or two.
    progress : callable
        Called with the distances done and those to do.

    Raises
    ------
    ValueError
        `every` is below 1.
    """
    every = as_integer("every", every)
    if every < 1:
        raise ValueError(f"every must be at least 1, not {every!r}")
    reach = max(format.adder.reach(format), format.scale.gaussian_reach)
    starts = sorted({*range(0, reach, _BLOCK * every), (reach - 1) // _BLOCK * _BLOCK})
    tallies = [_Tally(), _Tally()]
    for start in starts:
        if progress is not None:
            progress(start, reach)
        d = torch.arange(start, min(start + _BLOCK, reach))
        tallies[0].add(format, d, subtract=False)
        tallies[1].add(format, d[1:] if start == 0 else d, subtract=True)
    if progress is not None:
        progress(reach, reach)
    sums, differences = tallies
    return AdderQuality(
        max_sum=sums.worst,
        max_difference=differences.worst,
        mean_sum=sums.total / max(1, sums.points),
        mean_difference=differences.total / max(1, differences.points),
        rounded_sum=sums.rounded / max(1, sums.points),
        rounded_difference=differences.rounded / max(1, differences.points),
        points=sums.points,
    )


class _Tally:
    """The errors of one of the two functions so far."""

    def __init__(self) -> None:
        self.worst = self.total = 0.0
        self.points = self.rounded = 0

    def add(self, format: LNSFormat, d: torch.Tensor, *, subtract: bool) -> None:
        if not d.numel():
            return
        got = format.adder.gaussian(format, d, torch.full(d.shape, subtract)).abs()
        scale = format.scale
        nearest = scale.gaussian_difference(d) if subtract else scale.gaussian_sum(d)
        error = (got - scale.gaussian_real(d, -1 if subtract else +1)).abs()
        self.worst = max(self.worst, float(error.max()))
        self.total += float(error.sum())
        self.points += d.numel()
        self.rounded += int((got == nearest).sum())
