"""Numbers of about 106 bits: pairs of float64 tensors, of which the number is the exact sum.

Only additions and products of float64 are used, each rounded by itself, so the results are the same on any machine with
IEEE arithmetic. With u = 2**-53, :func:`add` errs by less than 4 u² for operands of the same sign and :func:`multiply`
by less than 7 u², relatively (SloppyDWPlusDW and DWTimesDW1 of Joldes, Muller and Popescu, "Tight and rigorous error
bounds for basic building blocks of double-word arithmetic", ACM Transactions on Mathematical Software 44(2), 2017).
"""

from __future__ import annotations

import functools

import flint
import torch

__all__ = ["DoubleDouble", "PowersOfTwo", "add", "multiply", "two_sum"]

DoubleDouble = tuple[torch.Tensor, torch.Tensor]


def two_sum(a: torch.Tensor, b: torch.Tensor) -> DoubleDouble:
    """Return the exact sum of two float64 tensors: its nearest float64, and what that leaves."""
    total = a + b
    b_part = total - a
    return total, (a - (total - b_part)) + (b - b_part)


def _renormalise(a: torch.Tensor, b: torch.Tensor) -> DoubleDouble:
    """Return the exact sum of two float64 tensors, |a| ≥ |b|."""
    total = a + b
    return total, b - (total - a)


def _halves(a: torch.Tensor) -> DoubleDouble:
    """Return two float64 tensors of at most 26 bits whose sum is `a` (Veltkamp)."""
    shifted = a * 134217729.0  # 2**27 + 1
    high = shifted - (shifted - a)
    return high, a - high


def _two_product(a: torch.Tensor, b: torch.Tensor) -> DoubleDouble:
    """Return the exact product of two float64 tensors that is far from the ends of the range (Dekker)."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def add(x: DoubleDouble, y: DoubleDouble) -> DoubleDouble:
    """Return the sum of two numbers of the same sign."""
    high, rest = two_sum(x[0], y[0])
    return _renormalise(high, rest + (x[1] + y[1]))


def multiply(x: DoubleDouble, y: DoubleDouble) -> DoubleDouble:
    """Return the product of two numbers."""
    product, rest = _two_product(x[0], y[0])
    return _renormalise(product, rest + (x[0] * y[1] + x[1] * y[0]))


class PowersOfTwo:
    """Tables of powers of two, ``2**x`` and ``2**x - 1`` for x in units of ``1 / 2**bits``.

    The bits of x are cut into pieces of at most 13 (one of 16, if that is all), with tables for each; a power is the
    product of what they hold. Powers less one keep their digits near zero, since no sum cancels in
    ``(1 + a) (1 + b) - 1 = a + b + a b``.

    Obtain one with :meth:`PowersOfTwo.of`, which keeps the tables.

    Parameters
    ----------
    bits : int
        From 0 to 52.
    """

    #: Bound of the relative error of both functions. Entries err by less than 4 u²; there are at most three products,
    #: which add 7 u² to that of their operands, or 15 u² less one. In all that is less than 64 u².
    ERROR = 2.0**-100

    def __init__(self, bits: int):
        pieces = 1 if bits <= 16 else -(-bits // 13)
        self._pieces = []  # position of the lowest bit, mask and tables, from the low bits to the high ones
        for piece in range(pieces):
            low, high = bits * piece // pieces, bits * (piece + 1) // pieces
            less_one = _table(high - low, bits - low)
            ones = torch.ones_like(less_one[0])
            powers = add((ones, torch.zeros_like(ones)), less_one)
            self._pieces.append((low, (1 << (high - low)) - 1, powers, less_one))

    @staticmethod
    @functools.cache
    def of(bits: int) -> PowersOfTwo:
        """Return the tables for this many bits, the same object each time."""
        return PowersOfTwo(bits)

    def power(self, x: torch.Tensor) -> DoubleDouble:
        """Return ``2**(x / 2**bits)`` for the lowest `bits` of x, from 1 up to 2; exact where these are zero."""
        return functools.reduce(
            multiply, (_look_up(powers, (x >> low) & mask) for low, mask, powers, _ in self._pieces)
        )

    def less_one(self, x: torch.Tensor) -> DoubleDouble:
        """Return ``2**(x / 2**bits) - 1`` for the lowest `bits` of x."""
        parts = (_look_up(less_one, (x >> low) & mask) for low, mask, _, less_one in self._pieces)
        return functools.reduce(lambda a, b: add(add(a, b), multiply(a, b)), parts)


def _look_up(table: DoubleDouble, index: torch.Tensor) -> DoubleDouble:
    high, low = table
    return high.to(index.device)[index], low.to(index.device)[index]


def _table(count_bits: int, unit_bits: int) -> DoubleDouble:
    """Return ``2**(i / 2**unit_bits) - 1`` for i below ``2**count_bits``, each within 2 u²."""
    with flint.ctx.workprec(256):  # of which 65536 products lose 20 bits or so
        root = (flint.arb.const_log2() / 2**unit_bits).exp()
        highs, lows, power = [], [], flint.arb(1)
        for _ in range(1 << count_bits):
            highs.append(float(power - 1))
            lows.append(float(power - 1 - flint.arb(highs[-1])))
            power = power * root
    return torch.tensor(highs, dtype=torch.float64), torch.tensor(lows, dtype=torch.float64)
