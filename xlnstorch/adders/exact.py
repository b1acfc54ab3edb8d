"""The exact adder: the nearest integers, from a table or on the fly."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import torch

from ..exact import LogScale
from .adder import MAX_TABLE_ENTRIES, Adder

if TYPE_CHECKING:
    from ..formats import LNSFormat

__all__ = ["Exact"]


@dataclasses.dataclass(frozen=True)
class Exact(Adder):
    """The nearest integer for every d, proved by ball arithmetic; no two implementations of it can differ.

    In PyTorch a table up to 16 fraction bits and computed on the fly above; in hardware a ROM, practical up to 12
    fraction bits, where the two tables together hold 2 · 55 thousand integers.
    """

    def gaussian(self, format: LNSFormat, d: torch.Tensor, subtract: torch.Tensor) -> torch.Tensor:
        if d.is_meta:  # only the shape is wanted
            return torch.zeros_like(d)
        scale = format.scale
        if scale.gaussian_reach < MAX_TABLE_ENTRIES:
            table = _flat_table(scale, d.device)
            entries = table.numel() // 2
            return torch.take(table, d.clamp(max=entries - 1) + entries * subtract)
        result = torch.zeros_like(d)
        live = d < scale.gaussian_reach
        plus, minus = live & ~subtract, live & subtract & (d > 0)
        result[plus] = scale.gaussian_sum(d[plus])
        result[minus] = -scale.gaussian_difference(d[minus])
        return result


@functools.lru_cache(maxsize=16)
def _flat_table(scale: LogScale, device: torch.device) -> torch.Tensor:
    """``s(d)`` then ``-t(d)`` for d below the reach, each closed by the zero that every larger d reads."""
    d = torch.arange(scale.gaussian_reach)
    zero = torch.zeros(1, dtype=torch.int64)
    return torch.cat([scale.gaussian_sum(d), zero, zero, -scale.gaussian_difference(d[1:]), zero]).to(device)
