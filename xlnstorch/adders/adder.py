"""What every adder offers: its Gaussian logarithms, how far they reach, and what they cost in hardware."""

from __future__ import annotations

import dataclasses
import functools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch

from ..parameters import name_of
from .table import GaussianTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..exact import LogScale
    from ..formats import LNSFormat

__all__ = ["MAX_TABLE_ENTRIES", "Adder", "AdderCost", "TabledAdder"]

# Above this many entries a table would cost more memory than it saves time: two of 2**21 int64 are 32 MiB.
MAX_TABLE_ENTRIES = 1 << 21


@dataclasses.dataclass(frozen=True)
class AdderCost:
    """What the gates of an adder have, before synthesis.

    Attributes
    ----------
    rom_bits : int
        Of all its memories together, where tables are kept in block RAM.
    multipliers : tuple of (int, int)
        Widths of the operands of each multiplier.
    """

    rom_bits: int
    multipliers: tuple[tuple[int, int], ...] = ()


class Adder(ABC):
    """What an adder must offer to be part of an :class:`~xlnstorch.LNSFormat`; subclasses are frozen dataclasses."""

    @property
    def name(self) -> str:
        """What the command line calls it, parameters that are not the default included: ``piecewise:degree=2``."""
        return name_of(type(self).__name__.lower(), self)

    def check(self, format: LNSFormat) -> None:
        """Raise ValueError if the adder cannot be that of `format`; called when the format is made."""

    @abstractmethod
    def gaussian(self, format: LNSFormat, d: torch.Tensor, subtract: torch.Tensor) -> torch.Tensor:
        """Return ``s(d)``, or ``-t(d)`` where `subtract`, for int64 d ≥ 0; anything at d = 0 where `subtract`."""

    def reach(self, format: LNSFormat) -> int:
        """Return a d from which both Gaussian logarithms are zero."""
        return format.scale.gaussian_reach

    def corners(self, format: LNSFormat) -> Iterable[int]:
        """Return the d at which the way to compute a Gaussian logarithm changes: the first ones of segments.

        Verification tries them and their neighbours; any that are no distances of the format are ignored.
        """
        return ()

    def table(self, format: LNSFormat) -> GaussianTable:
        """Return every integer that the format can use, for hardware that keeps them in a ROM.

        Raises
        ------
        ValueError
            There are 2**21 or more.
        """
        reach = min(self.reach(format), 1 << format.log_bits)
        if reach >= MAX_TABLE_ENTRIES:
            raise ValueError(f"a table must have fewer than {MAX_TABLE_ENTRIES} entries, not the {reach} of {format}")
        d = torch.arange(reach)
        sums = self.gaussian(format, d, torch.zeros(reach, dtype=torch.bool))
        differences = self.gaussian(format, d, torch.ones(reach, dtype=torch.bool))
        return GaussianTable(tuple(sums.tolist()), (0, *(-differences[1:]).tolist()))

    def cost(self, format: LNSFormat) -> AdderCost:
        """Return what the gates of the adder have: by default the ROM of its table."""
        return AdderCost(rom_bits=self.table(format).rom_bits)


class TabledAdder(Adder):
    """An adder whose results depend on the precision only, so that short tables of them can be kept."""

    @abstractmethod
    def compute(self, scale: LogScale, d: torch.Tensor, subtract: torch.Tensor) -> torch.Tensor:
        """Return what :meth:`gaussian` is to return, computed; operands of equal shape."""

    def gaussian(self, format: LNSFormat, d: torch.Tensor, subtract: torch.Tensor) -> torch.Tensor:
        d, subtract = torch.broadcast_tensors(d, subtract)
        if d.is_meta:  # only the shape is wanted
            return torch.zeros_like(d)
        reach = self.reach(format)
        if reach >= MAX_TABLE_ENTRIES:
            return self.compute(format.scale, d, subtract)
        table = _flat_table(self, format.scale, reach, d.device)
        return torch.take(table, d.clamp(max=reach) + (reach + 1) * subtract)


@functools.lru_cache(maxsize=64)
def _flat_table(adder: TabledAdder, scale: LogScale, reach: int, device: torch.device) -> torch.Tensor:
    """``s(d)`` then ``-t(d)`` for d up to the reach, where both are the zero that every larger d reads."""
    d = torch.arange(reach + 1)
    minus = torch.ones(len(d), dtype=torch.bool)
    return torch.cat([adder.compute(scale, d, ~minus), adder.compute(scale, d, minus)]).to(device)
