"""Log-multiply, linear-add: terms become fixed point, their sum is exact, and it becomes a logarithm once."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from .. import arithmetic, kernels
from ..checks import integer_between
from ..exact import LogScale
from ..observe import report
from .accumulator import Accumulator
from .register import MAX_TERMS, Registers

if TYPE_CHECKING:
    from ..formats import LNSFormat

__all__ = ["LinearAccumulator"]

_EXTRA_TABLE_BITS = 4  # by default, above those of the format; see docs/accumulators.md
_MAX_TABLE_BITS = 60  # significands are int64
_MAX_REGISTER_BITS = 8192  # a kilobyte for each result

# Up to here significands are read from a table of 2**frac_bits entries, 8 bytes each, and computed on the fly above.
_MAX_TABLED_FRAC_BITS = 16

# Terms at a time, so that the intermediate tensors stay in the cache.
_BLOCK = 1 << 15


@dataclasses.dataclass(frozen=True, repr=False)
class LinearAccumulator(Accumulator):
    """Sums in fixed point: exact whatever the order, and rounded to a word once.

    A term with the logarithm ``whole + fraction`` becomes the fixed-point number
    ``antilog * 2**(whole - table_bits)``, where antilog is the integer nearest to ``2**(fraction + table_bits)``, read
    from a table. A register adds these without loss. The result is the word nearest to the register, saturated or
    flushed as any other.

    Parameters
    ----------
    table_bits : int, optional
        Fraction bits of the antilogarithm, 0 to 60. By default `frac_bits` of the format + 4.
    frac_bits : int, optional
        Fraction bits of the register. Bits of a term below are cut off, of its magnitude, so towards zero. By default
        as many as cut nothing off: ``table_bits + 2**(int_bits - 1)``.

    Raises
    ------
    TypeError, ValueError
        A parameter is not as above; a format of another base than 2, or whose register would be wider than 8192 bits,
        is refused when the format is made.

    Notes
    -----
    J. Johnson, "Rethinking floating point for deep learning", arXiv:1811.01721 (2018).

    The adder of the format is not used by sums. Sums have at most 2**30 terms; more are a ValueError. The return to a
    word is reported to the observers as an operation ``"sum"`` of the format, without operands, since a register is no
    word. Its flags are overflow where the sum lies above the range, and underflow where it is not zero but flushes; a
    term that is cut off to nothing raises none. Infinities and NaN pass the register by: with a NaN among the terms the
    sum is NaN; with infinities of one sign it is that infinity, and of both NaN, which raises invalid.

    Examples
    --------
    >>> from xlnstorch import lns16
    >>> from xlnstorch.accumulators import LinearAccumulator
    >>> LinearAccumulator().register_bits(lns16, terms=1024)
    278
    """

    table_bits: int | None = None
    frac_bits: int | None = None

    def __post_init__(self) -> None:
        for name, most in (("table_bits", _MAX_TABLE_BITS), ("frac_bits", _MAX_REGISTER_BITS)):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, integer_between(name, value, 0, most))

    def __repr__(self) -> str:
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return f"LinearAccumulator({', '.join(f'{name}={n}' for name, n in given.items() if n is not None)})"

    def check(self, format: LNSFormat) -> None:
        if format.base != 2.0:
            raise ValueError(f"LinearAccumulator needs base 2, not {format.base!r}")
        excess = self.register_bits(format) - _MAX_REGISTER_BITS
        if excess <= 0:
            return
        possible = self.register_frac_bits(format) - excess
        raise ValueError(
            f"a register of LinearAccumulator has at most {_MAX_REGISTER_BITS} bits, "
            f"not the {_MAX_REGISTER_BITS + excess} that {format.int_bits} integer bits need; "
            + (f"frac_bits must be at most {possible}" if possible >= 0 else "no frac_bits is few enough for so many")
        )

    def register_bits(self, format: LNSFormat, terms: int = 1) -> int:
        """Return the width in bits, sign included, of a register that holds any sum of `terms` words of `format`."""
        significand = _largest_significand(format.scale, self.antilogarithm_bits(format))
        shift = self._shift(format, format.max_field)
        largest = terms * (significand >> max(0, -shift))
        return 1 + largest.bit_length() + max(0, shift)

    def sum(self, format: LNSFormat, words: torch.Tensor, dim: int) -> torch.Tensor:
        terms = words.movedim(dim, 0)
        shape = terms.shape[1:]
        return self._total(format, shape, terms.split(_block(shape)), None, terms)

    def matmul(self, format: LNSFormat, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        shape = torch.Size((*batch, a.shape[-2], b.shape[-1]))
        # Blocks of rank-1 updates, (K, …, M, 1) by (K, …, 1, N): not the memory of all products.
        columns = a.expand(*batch, *a.shape[-2:]).movedim(-1, 0).unsqueeze(-1).split(_block(shape))
        rows = b.expand(*batch, *b.shape[-2:]).movedim(-2, 0).unsqueeze(-2).split(_block(shape))
        products = (arithmetic.mul(format, x, y) for x, y in zip(columns, rows, strict=True))
        return self._total(format, shape, products, a, b)

    def _total(
        self,
        format: LNSFormat,
        shape: torch.Size,
        blocks: Iterable[torch.Tensor],
        a: torch.Tensor | None,
        b: torch.Tensor,
    ) -> torch.Tensor:
        """Return the sum of blocks of words (…, *shape) over their first dimension.

        They are the products of `a` and `b`, or parts of `b`, from which a kernel takes them if there is one.
        """
        terms = len(b) if a is None else a.shape[-1]
        if terms > MAX_TERMS:
            raise ValueError(f"a sum in LinearAccumulator must have at most {MAX_TERMS} terms, not {terms}")
        if b.is_meta:  # only the shape is wanted
            return b.new_empty(shape)
        registers, found = Registers(shape.numel(), self.register_bits(format) - 1, b.device), []
        if not self._add_by_kernel(format, registers, a, b):
            for words in blocks:
                if format.specials:
                    words, found = _set_aside(format, words, found)
                self._add(format, registers, words.reshape(words.shape[0], shape.numel()))
        negative, log, zero = registers.nearest_logs(format.scale, self.register_frac_bits(format))
        special = {}
        if format.specials:
            nan, up, down = (where.reshape(-1) for where in found)
            negative = torch.where(up | down, down, negative)
            special = {"infinite": up | down, "invalid": up & down, "nan": nan}
        flat, flags = arithmetic.fit(format, negative, log + format.bias, zero, **special)
        result = flat.reshape(shape)
        report("sum", format, (), result, **{flag: raised.reshape(shape) for flag, raised in flags.items()})
        return result

    def _add_by_kernel(self, format: LNSFormat, registers: Registers, a: torch.Tensor | None, b: torch.Tensor) -> bool:
        if format.frac_bits > _MAX_TABLED_FRAC_BITS:
            return False
        bits = self.antilogarithm_bits(format)
        significand = _largest_significand(format.scale, bits).bit_length()
        antilog, shift = _table(format.scale, bits, b.device), self._shift(format, 0)
        return kernels.accumulate(format, antilog, shift, significand, registers.limbs, a, b)

    def _add(self, format: LNSFormat, registers: Registers, words: torch.Tensor) -> None:
        sign, field = format.unpack(words)
        significand = self._antilog(format, field & ((1 << format.frac_bits) - 1))
        significand = torch.where(field == 0, 0, significand)
        shift = self._shift(format, field)
        if self._shift(format, 0) < 0:
            significand = significand >> (-shift).clamp(0, 62)
            shift = shift.clamp(min=0)
        integers = torch.where(sign, -significand, significand)
        registers.add(integers, shift, _largest_significand(format.scale, self.antilogarithm_bits(format)).bit_length())

    def _antilog(self, format: LNSFormat, fraction: torch.Tensor) -> torch.Tensor:
        """Return the integers nearest to ``2**(fraction + table_bits)``, for fractions in units of the last place."""
        bits = self.antilogarithm_bits(format)
        if format.frac_bits > _MAX_TABLED_FRAC_BITS:
            return format.scale.integer(fraction, bits)
        return torch.take(_table(format.scale, bits, fraction.device), fraction)

    def _shift(self, format: LNSFormat, field: torch.Tensor | int) -> torch.Tensor | int:
        """Return how far up a significand lies in the register; where it is negative, bits of it are cut off."""
        whole = (field >> format.frac_bits) - (1 << (format.int_bits - 1))
        return whole - self.antilogarithm_bits(format) + self.register_frac_bits(format)

    def antilogarithm_bits(self, format: LNSFormat) -> int:
        """Return the fraction bits of the antilogarithm for a format: `table_bits`, or the default."""
        return format.frac_bits + _EXTRA_TABLE_BITS if self.table_bits is None else self.table_bits

    def register_frac_bits(self, format: LNSFormat) -> int:
        """Return the fraction bits of the register for a format: `frac_bits`, or the default."""
        if self.frac_bits is not None:
            return self.frac_bits
        return self.antilogarithm_bits(format) + (1 << (format.int_bits - 1))


def _set_aside(
    format: LNSFormat, words: torch.Tensor, found: list[torch.Tensor]
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return terms with zeros instead of NaN and infinities, and in which sums there were NaN, +Inf and -Inf so far."""
    nan, infinite, negative = format.is_nan(words), format.is_inf(words), format.unpack(words)[0]
    now = [where.any(0) for where in (nan, infinite & ~negative, infinite & negative)]
    now = [x | y for x, y in zip(now, found, strict=True)] if found else now
    return torch.where(nan | infinite, 0, words), now


def _block(shape: torch.Size) -> int:
    """Return how many terms of sums of this shape to work on at a time."""
    return max(1, _BLOCK // max(1, shape.numel()))


@functools.lru_cache(maxsize=64)
def _largest_significand(scale: LogScale, bits: int) -> int:
    return scale.integer_exact((1 << scale.frac_bits) - 1, bits)


@functools.lru_cache(maxsize=16)
def _table(scale: LogScale, bits: int, device: torch.device) -> torch.Tensor:
    return scale.integer(torch.arange(1 << scale.frac_bits), bits).to(device)
