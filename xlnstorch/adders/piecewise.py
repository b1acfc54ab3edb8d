"""The piecewise adder: Gaussian logarithms by segmented polynomials whose error is chosen."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .. import cache, double_double, exact, rounding
from ..checks import as_integer
from . import curves, generator, segments
from .adder import AdderCost, TabledAdder
from .regions import RegionList
from .segments import Polynomials, Region, SegmentedGaussian

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..exact import LogScale
    from ..formats import LNSFormat

__all__ = ["Piecewise"]

_MAX_FRAC_BITS = 23
# A smaller error is closer to a table than to polynomials, and takes minutes to generate in wide formats.
_LARGE_ERROR, _MAX_FRAC_BITS_BELOW = 0.75, 12
_MIN_LOGARITHM_FRAC_BITS = 8


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
        as that of :class:`Exact`. With more than 12 fraction bits, or a logarithm, it is 0.75 at least.
    singularity : {"segments", "logarithm"}
        How ``t`` is computed near its singularity, below one, two or four units. By segments for each power of two; or
        by the logarithm of the distance, which takes one such set of segments and a correction: a quarter of the ROM at
        23 fraction bits, and twice as many multipliers. From 8 fraction bits on.

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
    singularity: str = "segments"

    def __post_init__(self) -> None:
        if isinstance(self.degree, bool):
            raise TypeError(f"degree must be an integer, not {self.degree!r}")
        object.__setattr__(self, "degree", as_integer("degree", self.degree))
        if self.degree not in (1, 2):
            raise ValueError(f"degree must be 1 or 2, not {self.degree}")
        if isinstance(self.error, bool) or not isinstance(self.error, (int, float)):
            raise TypeError(f"error must be a number, not {self.error!r}")
        if not 0.5 <= self.error <= 64:
            raise ValueError(f"error must be between 0.5 and 64 units of the last place, not {self.error}")
        if self.singularity not in ("segments", "logarithm"):
            raise ValueError(f"singularity must be 'segments' or 'logarithm', not {self.singularity!r}")
        if self.singularity == "logarithm" and self.error < _LARGE_ERROR:
            raise ValueError(
                f"with the singularity 'logarithm' error must be at least {_LARGE_ERROR}, not {self.error}"
            )
        object.__setattr__(self, "error", float(self.error))

    def check(self, format: LNSFormat) -> None:
        if format.base != 2.0:
            raise ValueError(f"the adder {self.name} needs base 2, not {format.base}")
        bits, least = format.frac_bits, _MIN_LOGARITHM_FRAC_BITS if self.singularity == "logarithm" else 0
        if not least <= bits <= _MAX_FRAC_BITS:
            raise ValueError(f"the adder {self.name} needs {least} to {_MAX_FRAC_BITS} fraction bits, not {bits}")
        if bits > _MAX_FRAC_BITS_BELOW and self.error < _LARGE_ERROR:
            raise ValueError(
                f"the error of the adder {self.name} must be at least {_LARGE_ERROR} with more than "
                f"{_MAX_FRAC_BITS_BELOW} fraction bits, not {self.error} with {bits}"
            )

    def design(self, format: LNSFormat) -> SegmentedGaussian:
        """Return the tables and widths; made once, in a minute or two at 23 fraction bits, and kept in the cache."""
        return self._design(format.frac_bits)

    def _design(self, frac_bits: int) -> SegmentedGaussian:
        return _design(frac_bits, self.degree, self.error, self.singularity == "logarithm")

    def compute(self, scale: LogScale, d: torch.Tensor, subtract: torch.Tensor) -> torch.Tensor:
        return self._design(scale.frac_bits).evaluate(d, subtract)

    def reach(self, format: LNSFormat) -> int:
        return max(self.design(format).ends)

    def corners(self, format: LNSFormat) -> Iterable[int]:
        """Return the first distance of every segment."""
        design = self.design(format)
        starts = set(_starts(design.polynomials))
        if design.fall:
            near = [start for start in starts if start < 1 << design.top]
            starts |= {start >> shift for start in near for shift in range(design.top)}
            starts |= {(1 << design.top) - start for start in _starts(design.fall)}
        return sorted(starts)

    def cost(self, format: LNSFormat) -> AdderCost:
        design = self.design(format)
        tables = [polynomials.rom_shape for polynomials in (design.polynomials, design.fall) if polynomials]
        rom_bits = sum(rows * bits for rows, bits in tables) + RegionList(design, format.log_bits).rom_bits
        return AdderCost(rom_bits, design.multipliers)


@functools.lru_cache(maxsize=64)
def _design(frac_bits: int, degree: int, error: float, logarithm: bool) -> SegmentedGaussian:
    if frac_bits <= 8 and not logarithm:  # quickly made
        return generator.generate(frac_bits, degree, error)
    key = cache.digest([frac_bits, degree, error, logarithm, _sources()])
    kept = cache.load("piecewise", key)
    if kept is None:
        design = generator.generate(frac_bits, degree, error, logarithm)
        with contextlib.suppress(OSError):  # a cache that cannot be written is no reason to stop
            cache.store("piecewise", key, dataclasses.asdict(design))
        return design
    kept["polynomials"], kept["ends"] = _polynomials(kept["polynomials"]), tuple(kept["ends"])
    kept["fall"] = kept["fall"] and _polynomials(kept["fall"])
    return SegmentedGaussian(**kept)


def _starts(polynomials: Polynomials) -> Iterator[int]:
    for region in polynomials.regions:
        yield from range(region.start, region.start + (1 << region.size), 1 << region.width)


def _polynomials(kept: dict) -> Polynomials:
    kept["regions"] = tuple(Region(**region) for region in kept["regions"])
    kept["rows"] = tuple(map(tuple, kept["rows"]))
    return Polynomials(**kept)


@functools.cache
def _sources() -> str:
    """What a design depends on besides its parameters: the code that makes it."""
    modules = (curves, generator, segments, exact, rounding, double_double)
    code = b"".join(Path(module.__file__).read_bytes() for module in modules)
    return hashlib.sha256(code).hexdigest()
