"""The piecewise adder: Gaussian logarithms by segmented polynomials whose error is chosen."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .. import cache, exact
from . import generator, segments
from .adder import AdderCost, TabledAdder
from .segments import Region, SegmentedGaussian

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..exact import LogScale
    from ..formats import LNSFormat

__all__ = ["Piecewise"]

_MAX_FRAC_BITS = 23
_MAX_NEAREST_FRAC_BITS = 16


@dataclasses.dataclass(frozen=True)
class Piecewise(TabledAdder):
    """Segmented polynomials with integer coefficients, generated for a target error.

    The distances are cut at powers of two, for ``t`` down to single units near its singularity, and each part into as
    few equal segments as the target allows. :class:`~xlnstorch.adders.segments.SegmentedGaussian` says to the bit what
    is computed; the gates compute the same. Base 2, 0 to 23 fraction bits.

    Parameters
    ----------
    degree : int
        Of the polynomials, 1 or 2: one multiplier and a longer table, or two multipliers and a shorter one.
    error : float
        Target in units of the last place of the logarithm, 0.5 to 64. Above 0.5 every result is closer than this to
        the real logarithm: 1.0, the default, is called faithful. At 0.5 every result is the nearest integer, the same
        as that of :class:`Exact`; at up to 16 fraction bits.

    Raises
    ------
    TypeError, ValueError
        A parameter is of the wrong type or out of its range; the message names it.

    Examples
    --------
    >>> from xlnstorch import LNSFormat
    >>> format = LNSFormat(8, 7, adder=Piecewise(degree=1))
    >>> format.adder.cost(format)
    AdderCost(rom_bits=1008, multipliers=((7, 4),))
    """

    degree: int = 1
    error: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.degree, bool) or not isinstance(self.degree, int):
            raise TypeError(f"degree must be an integer, not {self.degree!r}")
        if self.degree not in (1, 2):
            raise ValueError(f"degree must be 1 or 2, not {self.degree}")
        if isinstance(self.error, bool) or not isinstance(self.error, (int, float)):
            raise TypeError(f"error must be a number, not {self.error!r}")
        if not 0.5 <= self.error <= 64:
            raise ValueError(f"error must be between 0.5 and 64 units of the last place, not {self.error}")
        object.__setattr__(self, "error", float(self.error))

    def check(self, format: LNSFormat) -> None:
        if format.base != 2.0:
            raise ValueError(f"the adder {self.name} needs base 2, not {format.base}")
        most = _MAX_NEAREST_FRAC_BITS if self.error == 0.5 else _MAX_FRAC_BITS
        if format.frac_bits > most:
            raise ValueError(f"the adder {self.name} needs at most {most} fraction bits, not {format.frac_bits}")

    def design(self, format: LNSFormat) -> SegmentedGaussian:
        """Return the tables and widths; made once (some seconds at 23 fraction bits), then kept in the cache folder."""
        return _design(format.frac_bits, self.degree, self.error)

    def compute(self, scale: LogScale, d: torch.Tensor, subtract: torch.Tensor) -> torch.Tensor:
        return _design(scale.frac_bits, self.degree, self.error).evaluate(d, subtract)

    def reach(self, format: LNSFormat) -> int:
        return max(self.design(format).ends)

    def corners(self, format: LNSFormat) -> Iterable[int]:
        """Return the first distance of every segment."""
        return sorted(
            region.start + (segment << region.width)
            for region in self.design(format).regions
            for segment in range(region.segments)
        )

    def cost(self, format: LNSFormat) -> AdderCost:
        design = self.design(format)
        return AdderCost(design.rom_bits, design.multipliers)


@functools.lru_cache(maxsize=64)
def _design(frac_bits: int, degree: int, error: float) -> SegmentedGaussian:
    if frac_bits <= 12:  # quickly made
        return generator.generate(frac_bits, degree, error)
    key = cache.digest([frac_bits, degree, error, _sources()])
    kept = cache.load("piecewise", key)
    if kept is None:
        design = generator.generate(frac_bits, degree, error)
        try:
            cache.store("piecewise", key, dataclasses.asdict(design))
        except OSError:  # a cache that cannot be written is no reason to stop
            pass
        return design
    kept["regions"] = tuple(Region(**region) for region in kept["regions"])
    kept["rows"], kept["ends"] = tuple(map(tuple, kept["rows"])), tuple(kept["ends"])
    return SegmentedGaussian(**kept)


@functools.cache
def _sources() -> str:
    """What a design depends on besides its parameters: the code that makes it."""
    code = b"".join(Path(module.__file__).read_bytes() for module in (generator, segments, exact))
    return hashlib.sha256(code).hexdigest()
