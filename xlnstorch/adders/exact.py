"""The exact adder: the nearest integers, from a table or on the fly."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch

from .adder import TabledAdder

if TYPE_CHECKING:
    from ..exact import LogScale

__all__ = ["Exact"]


@dataclasses.dataclass(frozen=True)
class Exact(TabledAdder):
    """The nearest integer for every d, proved by ball arithmetic; no two implementations of it can differ.

    In PyTorch a table up to 16 fraction bits and computed on the fly above; in hardware a ROM, practical up to 12
    fraction bits, where the two tables together hold 2 · 55 thousand integers.
    """

    def compute(self, scale: LogScale, d: torch.Tensor, subtract: torch.Tensor) -> torch.Tensor:
        result = torch.zeros_like(d)
        live = d < scale.gaussian_reach
        plus, minus = live & ~subtract, live & subtract & (d > 0)
        result[plus] = scale.gaussian_sum(d[plus])
        result[minus] = -scale.gaussian_difference(d[minus])
        return result
