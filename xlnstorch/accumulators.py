"""Accumulators: how a format forms sums and dot products. The order of LNS additions is part of the result."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch

from . import arithmetic

if TYPE_CHECKING:
    from .formats import LNSFormat

__all__ = ["Accumulator", "LogAccumulator"]


class Accumulator(ABC):
    """What an accumulator must offer to be part of a format; subclasses are frozen dataclasses."""

    @abstractmethod
    def sum(self, format: LNSFormat, words: torch.Tensor, dim: int) -> torch.Tensor:
        """Return the words of the sum over `dim`, which disappears; the sum of nothing is zero."""

    @abstractmethod
    def matmul(self, format: LNSFormat, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Return the words of the matrix product, (…, M, K) by (…, K, N); the sums are over K."""


@dataclasses.dataclass(frozen=True)
class LogAccumulator(Accumulator):
    """Sums made of LNS additions.

    Parameters
    ----------
    order : {"sequential", "tree"}
        ``"sequential"`` adds left to right from the first term, which is what a multiply-accumulate unit does.
        ``"tree"`` adds neighbours in a balanced tree; an odd last term moves up a level unchanged.

    Notes
    -----
    A sequential sum stalls once its terms are so much smaller that ``s(d)`` rounds to zero: at 7 fraction bits a sum of
    ones stops at 369.97, after 323 terms.
    """

    order: str = "sequential"

    def __post_init__(self) -> None:
        if self.order not in ("sequential", "tree"):
            raise ValueError(f"order must be 'sequential' or 'tree', not {self.order!r}")

    def sum(self, format: LNSFormat, words: torch.Tensor, dim: int) -> torch.Tensor:
        if words.shape[dim] == 0:
            return torch.zeros_like(words.sum(dim, dtype=words.dtype))
        if self.order == "sequential":
            first, *rest = words.unbind(dim)
            total = format.pack(*format.unpack(first))  # a copy, and a single negative zero is zero
            for term in rest:
                total = arithmetic.add(format, total, term)
            return total
        terms = words.movedim(dim, 0)
        while len(terms) > 1:
            pairs = len(terms) // 2
            sums = arithmetic.add(format, terms[0 : 2 * pairs : 2], terms[1 : 2 * pairs : 2])
            terms = torch.cat([sums, terms[2 * pairs :]])
        return format.pack(*format.unpack(terms[0]))

    def matmul(self, format: LNSFormat, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if self.order == "tree" or a.shape[-1] == 0:
            return self.sum(format, arithmetic.mul(format, a.unsqueeze(-1), b.unsqueeze(-3)), dim=-2)
        # One rank-1 update a step: the memory of one result, not of all K products.
        total = None
        for column, row in zip(a.unbind(-1), b.unbind(-2), strict=True):
            product = arithmetic.mul(format, column.unsqueeze(-1), row.unsqueeze(-2))
            total = product if total is None else arithmetic.add(format, total, product)
        return total
