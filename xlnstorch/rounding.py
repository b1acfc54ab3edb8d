"""Rounding to integers: of real numbers that are given as balls, and of integers that lose their last bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import flint
import torch

__all__ = ["nearest_integer", "powers_equal", "replace_where", "round_shift"]

_MAX_PRECISION = 1 << 16


def nearest_integer(ball: Callable[[], flint.arb], tie: Callable[[int], bool] | None = None) -> int:
    """Return the integer nearest to a real number given as a ball of any wanted precision.

    Parameters
    ----------
    ball
        Computes the number at the working precision of ``flint.ctx``.
    tie
        Proves that the number is exactly ``n + 1/2``; called with n once the balls refuse to separate. Half goes to
        even. Without it a tie is taken to be impossible.

    Raises
    ------
    ArithmeticError
        The number cannot be told from a rounding boundary at 65536 bits and `tie` does not prove that it is one.
    """
    precision = 128
    while precision <= _MAX_PRECISION:
        with flint.ctx.workprec(precision):
            shifted = ball() + flint.arb(0.5)
            settled = shifted.floor().unique_fmpz()
            if settled is not None:
                return int(settled)
            if tie is not None and precision >= 512:
                below = int((shifted - flint.arb(0.5)).floor().unique_fmpz())
                if tie(below):
                    return below + (below & 1)
        precision *= 2
    raise ArithmeticError(
        f"a logarithm lies within 2**-{_MAX_PRECISION} of a rounding boundary; this should not happen"
    )


def powers_equal(x: Fraction, p: int, y: Fraction, q: int) -> bool:
    """Return whether ``x**p == y**q`` exactly; False too where that would take over a million bits, as no tie does."""
    common = math.gcd(p, q) or 1
    p, q = p // common, q // common
    bits = [abs(n) * max(v.numerator, v.denominator).bit_length() for v, n in ((x, p), (y, q))]
    return max(bits) < 1 << 20 and x**p == y**q


def replace_where(values: torch.Tensor, where: torch.Tensor, exact: Callable[[int], int | float]) -> torch.Tensor:
    """Return `values` with ``exact(flat index)`` in each place that `where` marks; few places, since one by one."""
    if not bool(where.any()):
        return values
    flat = values.reshape(-1).clone()
    for index in where.reshape(-1).nonzero().reshape(-1).tolist():
        flat[index] = exact(index)
    return flat.reshape(values.shape)


def round_shift(value: torch.Tensor, bits: int) -> torch.Tensor:
    """Return int64 ``value / 2**bits`` rounded to nearest, half to even."""
    if bits <= 0:
        return value
    if bits > 62:
        return torch.zeros_like(value)
    floor = value >> bits
    rest = value & ((1 << bits) - 1)
    half = 1 << (bits - 1)
    up = (rest > half) | ((rest == half) & ((floor & 1) == 1))
    return floor + up
