"""What every accumulator offers: sums and matrix products of words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch

from ..parameters import name_of

if TYPE_CHECKING:
    from ..formats import LNSFormat

__all__ = ["Accumulator"]


class Accumulator(ABC):
    """What an accumulator must offer to be part of an :class:`~xlnstorch.LNSFormat`; subclasses are frozen dataclasses.

    Products are those of :func:`xlnstorch.arithmetic.mul`, exact but for saturation and flush, whatever the
    accumulator: a matrix product is the sum of the products of its operands, to the bit.
    """

    @property
    def name(self) -> str:
        """What the command line calls it, parameters that are not the default included: ``log:order=tree``."""
        return name_of(type(self).__name__.removesuffix("Accumulator").lower(), self)

    def check(self, format: LNSFormat) -> None:
        """Raise ValueError if the accumulator cannot be that of `format`; called when the format is made."""

    @abstractmethod
    def sum(self, format: LNSFormat, words: torch.Tensor, dim: int) -> torch.Tensor:
        """Return the words of the sum over `dim`, which disappears; the sum of nothing is zero."""

    @abstractmethod
    def matmul(self, format: LNSFormat, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Return the words of the matrix product, (…, M, K) by (…, K, N); the sums are over K."""
