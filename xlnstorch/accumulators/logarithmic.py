"""Sums made of LNS additions, with or without guard bits."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from .. import arithmetic, kernels
from ..checks import integer_between
from ..observe import report
from ..rounding import round_shift
from .accumulator import Accumulator

if TYPE_CHECKING:
    from ..formats import LNSFormat

__all__ = ["LogAccumulator"]

_MAX_FRAC_BITS, _MAX_LOG_BITS = 48, 52  # what LNSFormat accepts


@dataclasses.dataclass(frozen=True, repr=False)
class LogAccumulator(Accumulator):
    """Sums made of LNS additions.

    Parameters
    ----------
    order : {"sequential", "tree"}
        ``"sequential"`` adds left to right from the first term, which is what a multiply-accumulate unit does.
        ``"tree"`` adds neighbours in a balanced tree; an odd last term moves up a level unchanged.
    guard_bits : int
        How many more fraction bits the running sum has than the format, 0 to 48. Each term is widened exactly, the
        additions are those of the format with that many more fraction bits and the same adder, and the sum is rounded
        once at the end: the logarithm to nearest, half to even, then saturated or flushed.

    Raises
    ------
    TypeError, ValueError
        A parameter is not as above; a format with more fraction bits than an LNSFormat can have, or than its adder can
        serve, is refused when the format is made.

    Notes
    -----
    A sequential sum stalls once its terms are so much smaller that ``s(d)`` rounds to zero: at 7 fraction bits a sum of
    ones stops at 369.97, after 323 terms. Each guard bit moves that twice as far.

    A word that saturated before the sum, as a product may, is the largest number of the narrow format; an infinity is
    that of the wide format, where it is added, and of the narrow one again. With guard bits
    the last rounding is reported to the observers as an operation ``"sum"`` of the format, with its overflow and
    underflow; it has no operands there, since the running sum is a word of another format. The additions are reported
    as what they are, operations ``"add"`` of the wide format.
    """

    order: str = "sequential"
    guard_bits: int = 0

    def __post_init__(self) -> None:
        if self.order not in ("sequential", "tree"):
            raise ValueError(f"order must be 'sequential' or 'tree', not {self.order!r}")
        object.__setattr__(self, "guard_bits", integer_between("guard_bits", self.guard_bits, 0, _MAX_FRAC_BITS))

    def __repr__(self) -> str:
        guard = f", guard_bits={self.guard_bits}" if self.guard_bits else ""
        return f"LogAccumulator(order={self.order!r}{guard})"

    def check(self, format: LNSFormat) -> None:
        if not self.guard_bits:
            return
        most = min(_MAX_FRAC_BITS - format.frac_bits, _MAX_LOG_BITS - format.log_bits)
        if self.guard_bits > most:
            raise ValueError(
                f"guard_bits must be at most {most} with {format.int_bits} integer and {format.frac_bits} fraction "
                f"bits, not {self.guard_bits}: a format has at most {_MAX_FRAC_BITS} fraction bits, and "
                f"{_MAX_LOG_BITS} bits of logarithm"
            )
        try:
            self.running_format(format)
        except ValueError as error:
            raise ValueError(
                f"guard_bits must be fewer than {self.guard_bits}, since {format.adder!r} does not serve the "
                f"{format.frac_bits + self.guard_bits} fraction bits of the running sum: {error}"
            ) from error

    def sum(self, format: LNSFormat, words: torch.Tensor, dim: int) -> torch.Tensor:
        if words.shape[dim] == 0:
            return torch.zeros_like(words.sum(dim, dtype=words.dtype))
        if (total := kernels.total(*self._kernel(format), words, dim)) is not None:
            return total
        terms = self._widen(format, words)
        if self.order == "sequential":
            return self._in_order(format, terms.unbind(dim))
        wide, terms = self.running_format(format), terms.movedim(dim, 0)
        while len(terms) > 1:
            pairs = len(terms) // 2
            sums = arithmetic.add(wide, terms[0 : 2 * pairs : 2], terms[1 : 2 * pairs : 2])
            terms = torch.cat([sums, terms[2 * pairs :]])
        return self._round(format, terms[0])

    def matmul(self, format: LNSFormat, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if (product := kernels.product(*self._kernel(format), a, b)) is not None:
            return product
        if self.order == "tree" or a.shape[-1] == 0:
            return self.sum(format, arithmetic.mul(format, a.unsqueeze(-1), b.unsqueeze(-3)), dim=-2)
        # One rank-1 update a step: the memory of one result, not of all K products.
        columns, rows = a.unsqueeze(-2).unbind(-1), b.unsqueeze(-3).unbind(-2)
        products = (arithmetic.mul(format, x, y) for x, y in zip(columns, rows, strict=True))
        return self._in_order(format, (self._widen(format, product) for product in products))

    def _in_order(self, format: LNSFormat, terms: Iterable[torch.Tensor]) -> torch.Tensor:
        """Return the sum of at least one term, left to right, all in the format of the running sum."""
        add = functools.partial(arithmetic.add, self.running_format(format))
        return self._round(format, functools.reduce(add, terms))

    def running_format(self, format: LNSFormat) -> LNSFormat:
        """Return the format of the running sum: that with the guard bits."""
        return _wider(format, self.guard_bits) if self.guard_bits else format

    def _kernel(self, format: LNSFormat) -> tuple[LNSFormat, LNSFormat, int, bool]:
        return format, self.running_format(format), self.guard_bits, self.order == "tree"

    def _widen(self, format: LNSFormat, words: torch.Tensor) -> torch.Tensor:
        """Return words of `format` as the same numbers in that of the running sum."""
        if not self.guard_bits:
            return words
        sign, field = format.unpack(words)
        wide, field = self.running_format(format), field << self.guard_bits
        if format.specials:
            field = torch.where(format.is_inf(words), wide.max_field, field)
            sign = sign | format.is_nan(words)
        return wide.pack(sign, field)

    def _round(self, format: LNSFormat, total: torch.Tensor) -> torch.Tensor:
        """Return a running sum as new words of `format`."""
        if not self.guard_bits:
            return format.canonical(total)
        wide = self.running_format(format)
        sign, field = wide.unpack(total)
        special = {"infinite": wide.is_inf(total), "nan": wide.is_nan(total)} if format.specials else {}
        result, flags = arithmetic.fit(format, sign, round_shift(field, self.guard_bits), field == 0, **special)
        report("sum", format, (), result, **flags)
        return result


@functools.lru_cache(maxsize=64)
def _wider(format: LNSFormat, bits: int) -> LNSFormat:
    return dataclasses.replace(format, frac_bits=format.frac_bits + bits, accumulator=LogAccumulator())
