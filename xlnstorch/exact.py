"""Correct rounding of logarithms: the only place where a real number becomes an integer logarithm.

Every function works in steps. float64 gives an estimate and, with it, a margin far above the worst error that the
operations inside can have; an element whose estimate is further than the margin from a rounding boundary is settled.
Those that are not (about one in a million at 23 fraction bits, nearly all at 48) are, where they are many and the base
is 2, compared with the boundary in double-double arithmetic, whose error is known from theorems, not from a libm. What
is still in doubt is computed in ball arithmetic (Arb, through python-flint), with the precision doubled until the ball
lies on one side of the boundary. So no result depends on the last bits of a libm, and the same integers come out on any
machine.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction

import flint
import torch

from . import double_double
from .double_double import DoubleDouble, PowersOfTwo
from .rounding import nearest_integer, powers_equal, replace_where, round_shift

__all__ = ["LogScale"]

# The estimates below take at most four float64 functions (each within 4 ulp for any libm in use: glibc, SLEEF, CUDA)
# and a few products, and no step magnifies a relative error by more than 32. 2**-45 is 128 ulp.
_MARGIN = 2.0**-45

# Fewer doubtful elements than this are quicker one by one, in balls, than in double-double.
_MANY = 32

# So many elements at a time, as their some hundred intermediate tensors then stay in the cache.
_CHUNK = 1 << 14


def _settle(
    estimate: torch.Tensor,
    exact: Callable[[int], int],
    error: float = 0.0,
    refine: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]] | None = None,
) -> torch.Tensor:
    """Round `estimate` to int64; ask `exact(flat index)` wherever the margin reaches a rounding boundary.

    The margin is relative, plus the absolute `error` of estimates that cancel. Many doubtful elements are first given
    to ``refine(flat indices, floors of their estimates)``, which returns what they round to and where that is proved.
    """
    rounded = torch.round(estimate)
    doubtful = 0.5 - (estimate - rounded).abs() <= estimate.abs() * _MARGIN + error
    settled = rounded.to(torch.int64)
    if refine is not None:
        indices = doubtful.reshape(-1).nonzero().reshape(-1)
        if len(indices) >= _MANY:
            floor = torch.floor(estimate.reshape(-1)[indices]).to(torch.int64)
            refined = map(refine, indices.split(_CHUNK), floor.split(_CHUNK))
            result, proved = (torch.cat(parts) for parts in zip(*refined, strict=True))
            settled = settled.reshape(-1).index_put((indices,), result).reshape(estimate.shape)
            doubtful = doubtful.reshape(-1).index_put((indices,), ~proved).reshape(estimate.shape)
    return replace_where(settled, doubtful, exact)


class LogScale:
    """Integer logarithms in units of ``1 / 2**frac_bits``, to a base.

    Obtain one with :meth:`LogScale.of`, which keeps the tables of each scale.

    Parameters
    ----------
    frac_bits : int
        Fraction bits of the logarithm, from 0 to 48.
    base : float
        Base of the logarithm, above 1.
    """

    def __init__(self, frac_bits: int, base: float = 2.0):
        self.frac_bits = frac_bits
        self.base = base
        self._steps = 2**frac_bits
        self._ln_unit = math.log(base) / self._steps  # natural logarithm of one unit, rounded once

    @staticmethod
    def of(frac_bits: int, base: float = 2.0) -> LogScale:
        """Return the scale with these parameters, the same object each time."""
        return _scale(frac_bits, float(base))

    # From real numbers to logarithms -----------------------------------------------------------------------------

    def log(self, magnitude: torch.Tensor, rest: torch.Tensor | None = None) -> torch.Tensor:
        """Return the nearest integer logarithm of each positive, finite float64.

        A number that no float64 holds comes in two parts: its nearest float64, and the `rest`.
        """

        def exact(i: int) -> int:
            value = Fraction(magnitude.reshape(-1)[i].item())
            return self.log_exact(value if rest is None else value + Fraction(rest.reshape(-1)[i].item()))

        # The rest changes a logarithm by less than two units in the last place of 1.
        error = 0.0 if rest is None else 2.0**-51 / self._ln_unit
        mantissa, exponent = torch.frexp(magnitude)
        if self.base == 2.0:
            # The integer part is exact, so only the fraction's error counts.
            whole = exponent.to(torch.int64) << self.frac_bits

            def refine(indices: torch.Tensor, floor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                high = mantissa.reshape(-1)[indices]
                low = torch.zeros_like(high)
                if rest is not None:  # scaled as the mantissa is: a power of two, and far from the ends of the range
                    low = rest.reshape(-1)[indices] * (high / magnitude.reshape(-1)[indices])
                return self._compare((high, low), floor, torch.zeros_like(floor))

            fraction = _settle(
                torch.log2(mantissa) * self._steps,
                lambda i: exact(i) - int(whole.reshape(-1)[i]),
                error,
                refine,
            )
            return whole + fraction
        estimate = (torch.log(mantissa) + exponent.to(torch.float64) * math.log(2.0)) / self._ln_unit
        # The sum above can cancel where the magnitude is near 1: there log itself is accurate.
        near_one = (magnitude > 0.5) & (magnitude < 2.0)
        estimate = torch.where(near_one, torch.log(magnitude) / self._ln_unit, estimate)
        return _settle(estimate, exact, error)

    def log_exact(self, magnitude: Fraction) -> int:
        """Return the nearest integer logarithm of one positive rational."""

        def ball() -> flint.arb:
            return self._arb_log(flint.arb(flint.fmpq(magnitude.numerator, magnitude.denominator)))

        return nearest_integer(ball, lambda n: powers_equal(magnitude, 2 * self._steps, Fraction(self.base), 2 * n + 1))

    def _compare(self, x: DoubleDouble, floor: torch.Tensor, offset: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return n, with n + offset the nearest integer logarithm of x, and where that is proved; for base 2.

        Whether n is `floor` or the integer above is decided by x against ``2**(floor + 1/2 + offset)``: with r the
        quotient of the two less one, by the sign of r. That is a proof where |r| is above its error and is less than a
        whole unit of the logarithm, which 0.7 ``ln_unit`` is for any ``frac_bits``; where it is more, `floor` was
        wrong, and r corrects it. x errs by less than 2**-99, relatively, and is less than 2**53.
        """
        powers = PowersOfTwo.of(self.frac_bits + 1)
        for _ in range(2):
            boundary = -2 * (floor + offset) - 1
            whole = (boundary >> (self.frac_bits + 1)).clamp(-100, 100)
            scale = _power_of_two(whole)
            quotient, rest = double_double.multiply((x[0] * scale, x[1] * scale), powers.power(boundary))
            r = (quotient - 1.0) + rest
            # Errors: 2**-99 of x, 2**-100 of the power, 2**-103 of the product; less than 2**-98, and 2**-95 is ample.
            proved = (r.abs() > 2.0**-95) & (r.abs() < 0.7 * self._ln_unit)
            result = floor + (r > 0)
            # A floor of a poor estimate is corrected to the nearest boundary; the others stay.
            step = torch.floor(torch.log1p(r.clamp(-0.5, 1.0)) / self._ln_unit + 0.5).to(torch.int64)
            floor = torch.where(proved, floor, floor + step)
        return result, proved

    def rescale(self, log: torch.Tensor, other: LogScale) -> torch.Tensor:
        """Return logarithms of this scale in units of `other`, nearest, half to even."""
        if self.base == other.base:
            shift = other.frac_bits - self.frac_bits
            if shift < 0:
                return round_shift(log, -shift)
            # What would leave int64 is out of every format's range already.
            reach = 1 << (61 - shift)
            return log.clamp(-reach, reach) << shift
        estimate = log.to(torch.float64) * (self._ln_unit / other._ln_unit)

        def exact(i: int) -> int:
            value = int(log.reshape(-1)[i])
            return nearest_integer(
                lambda: flint.arb(value) * self._arb_unit() / other._arb_unit(),
                lambda n: powers_equal(
                    Fraction(self.base), 2 * other._steps * value, Fraction(other.base), (2 * n + 1) * self._steps
                ),
            )

        return _settle(estimate, exact)

    # Gaussian logarithms -----------------------------------------------------------------------------------------

    def gaussian_sum(self, d: torch.Tensor) -> torch.Tensor:
        """Return the nearest integer to ``s(d) = log(1 + base**-d)`` for each d ≥ 0, all in units of this scale."""
        return self._gaussian(d, +1)

    def gaussian_difference(self, d: torch.Tensor) -> torch.Tensor:
        """Return the nearest integer to ``t(d) = -log(1 - base**-d)`` for each d ≥ 1, all in units of this scale."""
        return self._gaussian(d, -1)

    def gaussian_real(self, d: torch.Tensor, sign: int) -> torch.Tensor:
        """Return ``s(d)``, or where `sign` is -1 ``t(d)``, in float64, as its functions have it: not to be rounded."""
        x = d.to(torch.float64) * self._ln_unit
        if sign > 0:
            return torch.log1p(torch.exp(-x)) / self._ln_unit
        # Each form is used where it is well conditioned: near the singularity, and far from it.
        logarithm = torch.where(x < math.log(2.0), torch.log(-torch.expm1(-x)), torch.log1p(-torch.exp(-x)))
        return -logarithm / self._ln_unit

    def _gaussian(self, d: torch.Tensor, sign: int) -> torch.Tensor:
        def refine(indices: torch.Tensor, floor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            # log2(1 ± 2**-d) = log2(2**d ± 1) - d, and 2**d ± 1 = (2**whole ± 1) + 2**whole (2**fraction - 1), where
            # all terms are positive or zero. Beyond 2**52 the first one is not exact, and the logarithms far below 1/2.
            distance = d.reshape(-1)[indices]
            exponent = distance >> self.frac_bits
            whole = _power_of_two(exponent.clamp(max=52))
            high, low = PowersOfTwo.of(self.frac_bits).less_one(distance)
            x = double_double.add((whole + sign, torch.zeros_like(whole)), (high * whole, low * whole))
            # t is the logarithm's negative, and so are its integers.
            result, proved = self._compare(x, floor if sign > 0 else -floor - 1, distance)
            return sign * result, proved & (exponent <= 52)

        exact = functools.partial(self._gaussian_exact, sign=sign)
        estimate, base_2 = self.gaussian_real(d, sign), self.base == 2.0
        return _settle(estimate, lambda i: exact(int(d.reshape(-1)[i])), 0.0, refine if base_2 else None)

    def _gaussian_exact(self, d: int, sign: int) -> int:
        def ball() -> flint.arb:
            return sign * self._arb_log(flint.arb(1) + sign * (-flint.arb(d) * self._arb_unit()).exp())

        return nearest_integer(ball, lambda n: self._gaussian_is_half(d, sign, n))

    @functools.cached_property
    def gaussian_reach(self) -> int:
        """The smallest d from which both Gaussian logarithms round to zero."""
        # ln(1 + y) < y and -ln(1 - y) < y (1 + y): below half a unit once y = base**-d is just under ln_unit / 2.
        start = max(1, math.floor(-math.log(self._ln_unit / 2) / self._ln_unit) - 8)
        d = start
        while self._gaussian_exact(d, -1) != 0 or self._gaussian_exact(d, +1) != 0:
            d += 1
        return d

    # Back to real numbers ----------------------------------------------------------------------------------------

    def exp(self, log: torch.Tensor) -> torch.Tensor:
        """Return the float64 nearest to ``base**(log / 2**frac_bits)``, subnormal ones, infinity and zero included."""
        if self.base != 2.0:
            return replace_where(
                log.to(torch.float64), torch.ones_like(log, dtype=torch.bool), lambda i: self._exp_at(log, i)
            )
        whole = log >> self.frac_bits
        significand, rest = self._significand(log)
        value = torch.where(whole > 1023, math.inf, significand * _power_of_two(whole.clamp(-1022, 1023)))
        tiny = whole < -1022
        if bool(tiny.any()):  # below the normal numbers: so many of the smallest one
            value = torch.where(tiny, self.integer(log, 1074).view(torch.float64), value)
        # The nearest float64 is what the significand says unless the rest reaches half a unit in its last place.
        doubtful = (2.0**-53 - rest.abs() <= 2.0**-97) & ~tiny & (whole <= 1023)
        return replace_where(value, doubtful, lambda i: self._exp_at(log, i))

    def exponent(self, log: torch.Tensor) -> torch.Tensor:
        """Return the exponent of the float64 nearest to ``base**(log / 2**frac_bits)``, or one beyond all of them."""
        if self.base == 2.0:
            return log >> self.frac_bits
        value = self.exp(log)
        _, exponent = torch.frexp(value)
        return torch.where(value == 0, -1100, torch.where(torch.isinf(value), 1100, exponent - 1)).to(torch.int64)

    def integer(self, log: torch.Tensor, shift: torch.Tensor | int) -> torch.Tensor:
        """Return the integer nearest to ``base**(log / 2**frac_bits) * 2**shift``, half to even.

        The integers have 64 bits, all of them for the magnitude: int64 whose top bit weighs 2**63. What lies above is
        ``2**64 - 1``.
        """
        shift = torch.as_tensor(shift, device=log.device).broadcast_to(log.shape)

        def exact(i: int) -> int:
            integer = self.integer_exact(int(log.reshape(-1)[i]), int(shift.reshape(-1)[i]))
            return integer - (integer >> 63 << 64)

        if self.base != 2.0:
            return replace_where(log, torch.ones_like(log, dtype=torch.bool), exact)
        exponent = (log >> self.frac_bits) + shift
        scale = _power_of_two(exponent.clamp(-2, 63))  # below 1/2 everything is zero
        high, low = (part * scale for part in self._significand(log))
        whole = torch.round(high)
        rest = (high - whole) + low
        carry = torch.round(rest)
        # The significand errs by less than 2**-100, the rest by its own rounding.
        doubtful = 0.5 - (rest - carry).abs() <= high * 2.0**-97 + rest.abs() * 2.0**-52
        doubtful &= (log & (self._steps - 1)) != 0  # powers of two are exact, and so are their ties
        integer = (whole - torch.where(whole >= 2.0**63, 2.0**64, 0.0)).to(torch.int64) + carry.to(torch.int64)
        return replace_where(torch.where(exponent > 63, -1, integer), doubtful & (exponent <= 63), exact)

    def integer_exact(self, log: int, shift: int) -> int:
        """Return the integer nearest to ``base**(log / 2**frac_bits) * 2**shift``, half to even, at most 2**64 - 1."""
        binary_log = log * self._ln_unit / math.log(2.0) + shift
        if abs(binary_log) > 66:
            return (1 << 64) - 1 if binary_log > 0 else 0

        def ball() -> flint.arb:
            return (flint.arb(log) * self._arb_unit()).exp() * flint.arb(2) ** shift

        def tie(n: int) -> bool:
            return powers_equal(Fraction(2 * n + 1) / 2 / Fraction(2) ** shift, self._steps, Fraction(self.base), log)

        return min(nearest_integer(ball, tie), (1 << 64) - 1)

    def _significand(self, log: torch.Tensor) -> DoubleDouble:
        """Return ``2**(fraction / 2**frac_bits)`` for the fraction bits of each logarithm, within 2**-100; base 2."""
        if self.frac_bits > 16:
            return PowersOfTwo.of(self.frac_bits).power(log)
        high, low = (table.to(log.device) for table in self._significands)
        fraction = log & (self._steps - 1)
        return high[fraction], low[fraction]

    @functools.cached_property
    def _significands(self) -> DoubleDouble:
        return PowersOfTwo.of(self.frac_bits).power(torch.arange(self._steps))

    def _exp_at(self, log: torch.Tensor, index: int) -> float:
        return self.exp_exact(int(log.reshape(-1)[index]))

    def exp_exact(self, log: int) -> float:
        """Return the float64 nearest to ``base**(log / 2**frac_bits)``; infinite above its range, 0 below it."""
        binary_log = log * self._ln_unit / math.log(2.0)
        if abs(binary_log) > 2200:
            return math.inf if log > 0 else 0.0
        # Round to the grid that a float64 of this size has: the finer one first, if that is not certain.
        exponent = max(math.floor(binary_log - 2.0**-30) - 52, -1074)
        scaled = self.integer_exact(log, -exponent)
        if scaled > 1 << 53:
            exponent += 1
            scaled = self.integer_exact(log, -exponent)
        try:
            return math.ldexp(scaled, exponent)
        except OverflowError:
            return math.inf

    # Elementwise functions that hardware has no primitive for ----------------------------------------------------

    def log_of_exp(self, sign: torch.Tensor, log: torch.Tensor) -> torch.Tensor:
        """Return the nearest logarithm of ``exp(x)`` for ``x = ±base**log``; clamped to ±2**62."""
        x = torch.where(sign, -1.0, 1.0) * self.exp(log)
        estimate = x / self._ln_unit

        def ball(i: int) -> flint.arb:
            magnitude = (flint.arb(int(log.reshape(-1)[i])) * self._arb_unit()).exp()
            return (-magnitude if bool(sign.reshape(-1)[i]) else magnitude) / self._arb_unit()

        small = estimate.abs() < 2.0**62
        settled = _settle(torch.where(small, estimate, 0.0), lambda i: nearest_integer(lambda: ball(i)))
        return torch.where(small, settled, torch.where(estimate > 0, 1 << 62, -(1 << 62)))

    def log_of_log(self, log: torch.Tensor) -> torch.Tensor:
        """Return the nearest logarithm of ``|ln(x)|`` for ``x = base**log``, log ≠ 0."""
        magnitude = log.abs()
        value = magnitude.to(torch.float64) * self._ln_unit
        estimate = torch.log(value) / self._ln_unit
        # value carries a relative error, which is an absolute one of its logarithm: the margin may not shrink with an
        # estimate near zero.
        error = 2.0**-50 / self._ln_unit

        def exact(i: int) -> int:
            return nearest_integer(lambda: self._arb_log(flint.arb(int(magnitude.reshape(-1)[i])) * self._arb_unit()))

        return _settle(estimate, exact, error)

    # ---------------------------------------------------------------------------------------------------------------

    def _arb_unit(self) -> flint.arb:
        """The natural logarithm of one unit, at the working precision."""
        ln_base = flint.arb.const_log2() if self.base == 2.0 else flint.arb(self.base).log()
        return ln_base / self._steps

    def _arb_log(self, x: flint.arb) -> flint.arb:
        return x.log() / self._arb_unit()

    def _gaussian_is_half(self, d: int, sign: int, n: int) -> bool:
        if d % self._steps or d // self._steps > 64:
            return False  # base**-d is irrational or far below half a unit
        value = (1 + sign * Fraction(self.base) ** -(d // self._steps)) ** sign
        return powers_equal(value, 2 * self._steps, Fraction(self.base), 2 * n + 1)


@functools.cache
def _scale(frac_bits: int, base: float) -> LogScale:
    return LogScale(frac_bits, base)


def _power_of_two(exponent: torch.Tensor) -> torch.Tensor:
    """Return ``2**exponent`` as float64, -1022 ≤ exponent ≤ 1023, from its bits: a device's pow need not be exact."""
    return ((exponent + 1023) << 52).view(torch.float64)
