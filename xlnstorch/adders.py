"""Gaussian logarithms: which integers an LNS adder uses for ``log(1 ± base**-d)``.

An adder is part of a format, so everything that adds words of that format, a backward pass included, uses the same one.
"""

from __future__ import annotations

import dataclasses
import functools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch

from .exact import LogScale

if TYPE_CHECKING:
    from .formats import LNSFormat

__all__ = ["Adder", "Exact", "GaussianTable"]

# Above this many entries a table would cost more memory than it saves time: two of 2**21 int64 are 32 MiB.
_MAX_TABLE_ENTRIES = 1 << 21


@dataclasses.dataclass(frozen=True)
class GaussianTable:
    """The two Gaussian logarithms of a format, for every d at which either is not zero.

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


class Adder(ABC):
    """What an adder must offer to be part of an :class:`~xlnstorch.LNSFormat`; subclasses are frozen dataclasses."""

    @property
    def name(self) -> str:
        """Short name for tables and reports."""
        return type(self).__name__.lower()

    @abstractmethod
    def gaussian(self, format: LNSFormat, d: torch.Tensor, subtract: torch.Tensor) -> torch.Tensor:
        """Return ``s(d)``, or ``-t(d)`` where `subtract`, for int64 d ≥ 0; anything at d = 0 where `subtract`."""

    @abstractmethod
    def table(self, format: LNSFormat) -> GaussianTable:
        """Return every integer that this adder can use, for hardware that keeps them in a ROM."""


@dataclasses.dataclass(frozen=True)
class Exact(Adder):
    """The nearest integer for every d, proved by ball arithmetic; no two implementations of it can differ.

    In PyTorch a table up to 16 fraction bits and computed on the fly above; in hardware a ROM, practical up to about
    10 fraction bits, where the two tables together hold 2 · 11.8 thousand integers.
    """

    def gaussian(self, format: LNSFormat, d: torch.Tensor, subtract: torch.Tensor) -> torch.Tensor:
        if d.is_meta:  # only the shape is wanted
            return torch.zeros_like(d)
        scale = format.scale
        if scale.gaussian_reach < _MAX_TABLE_ENTRIES:
            table = _flat_table(scale, d.device)
            entries = table.numel() // 2
            return torch.take(table, d.clamp(max=entries - 1) + entries * subtract)
        result = torch.zeros_like(d)
        live = d < scale.gaussian_reach
        plus, minus = live & ~subtract, live & subtract & (d > 0)
        result[plus] = scale.gaussian_sum(d[plus])
        result[minus] = -scale.gaussian_difference(d[minus])
        return result

    def table(self, format: LNSFormat) -> GaussianTable:
        scale = format.scale
        if scale.gaussian_reach >= _MAX_TABLE_ENTRIES:
            raise ValueError(
                f"the table of an exact adder must have fewer than {_MAX_TABLE_ENTRIES} entries, "
                f"not the {scale.gaussian_reach} of {format}"
            )
        sums, differences = _flat_table(scale, torch.device("cpu")).chunk(2)
        return GaussianTable(tuple(sums[:-1].tolist()), tuple((-differences[:-1]).tolist()))


@functools.lru_cache(maxsize=16)
def _flat_table(scale: LogScale, device: torch.device) -> torch.Tensor:
    """``s(d)`` then ``-t(d)`` for d below the reach, each closed by the zero that every larger d reads."""
    d = torch.arange(scale.gaussian_reach)
    zero = torch.zeros(1, dtype=torch.int64)
    return torch.cat([scale.gaussian_sum(d), zero, zero, -scale.gaussian_difference(d[1:]), zero]).to(device)
