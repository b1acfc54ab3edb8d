"""Correct rounding of logarithms: the only place where a real number becomes an integer logarithm.

Every function works in two steps. float64 gives an estimate and, with it, a margin far above the worst error that the
operations inside can have; an element whose estimate is further than the margin from a rounding boundary is settled.
The few that are not (about one in a million at 23 fraction bits) are computed again in ball arithmetic (Arb, through
python-flint), with the precision doubled until the ball lies on one side of the boundary. So no result depends on the
last bits of a libm, and the same integers come out on any machine.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction

import flint
import torch

__all__ = ["LogScale"]

# The estimates below take at most four float64 functions (each within 4 ulp for any libm in use: glibc, SLEEF, CUDA)
# and a few products, and no step magnifies a relative error by more than 32. 2**-45 is 128 ulp.
_MARGIN = 2.0**-45
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


def replace_where(values: torch.Tensor, where: torch.Tensor, exact: Callable[[int], int | float]) -> torch.Tensor:
    """Return `values` with ``exact(flat index)`` in each place that `where` marks; few places, since one by one."""
    if not bool(where.any()):
        return values
    flat = values.reshape(-1).clone()
    for index in where.reshape(-1).nonzero().reshape(-1).tolist():
        flat[index] = exact(index)
    return flat.reshape(values.shape)


def _settle(estimate: torch.Tensor, exact: Callable[[int], int], error: float = 0.0) -> torch.Tensor:
    """Round `estimate` to int64; ask `exact(flat index)` wherever the margin reaches a rounding boundary.

    The margin is relative, plus the absolute `error` of estimates that cancel.
    """
    rounded = torch.round(estimate)
    doubtful = 0.5 - (estimate - rounded).abs() <= estimate.abs() * _MARGIN + error
    return replace_where(rounded.to(torch.int64), doubtful, exact)


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

    def log(self, magnitude: torch.Tensor) -> torch.Tensor:
        """Return the nearest integer logarithm of each positive, finite float64."""
        mantissa, exponent = torch.frexp(magnitude)
        if self.base == 2.0:
            # The integer part is exact, so only the fraction's error counts.
            whole = exponent.to(torch.int64) << self.frac_bits
            fraction = _settle(
                torch.log2(mantissa) * self._steps,
                lambda i: self.log_exact(Fraction(mantissa.reshape(-1)[i].item())),
            )
            return whole + fraction
        estimate = (torch.log(mantissa) + exponent.to(torch.float64) * math.log(2.0)) / self._ln_unit
        # The sum above can cancel where the magnitude is near 1: there log itself is accurate.
        near_one = (magnitude > 0.5) & (magnitude < 2.0)
        estimate = torch.where(near_one, torch.log(magnitude) / self._ln_unit, estimate)
        return _settle(estimate, lambda i: self.log_exact(Fraction(magnitude.reshape(-1)[i].item())))

    def log_exact(self, magnitude: Fraction) -> int:
        """Return the nearest integer logarithm of one positive rational."""

        def ball() -> flint.arb:
            return self._arb_log(flint.arb(flint.fmpq(magnitude.numerator, magnitude.denominator)))

        return nearest_integer(
            ball, lambda n: _powers_equal(magnitude, 2 * self._steps, Fraction(self.base), 2 * n + 1)
        )

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
                lambda n: _powers_equal(
                    Fraction(self.base), 2 * other._steps * value, Fraction(other.base), (2 * n + 1) * self._steps
                ),
            )

        return _settle(estimate, exact)

    # Gaussian logarithms -----------------------------------------------------------------------------------------

    def gaussian_sum(self, d: torch.Tensor) -> torch.Tensor:
        """Return the nearest integer to ``s(d) = log(1 + base**-d)`` for each d ≥ 0, all in units of this scale."""
        x = d.to(torch.float64) * self._ln_unit
        estimate = torch.log1p(torch.exp(-x)) / self._ln_unit
        return _settle(estimate, lambda i: self._gaussian_exact(int(d.reshape(-1)[i]), +1))

    def gaussian_difference(self, d: torch.Tensor) -> torch.Tensor:
        """Return the nearest integer to ``t(d) = -log(1 - base**-d)`` for each d ≥ 1, all in units of this scale."""
        x = d.to(torch.float64) * self._ln_unit
        # Each form is used where it is well conditioned: near the singularity, and far from it.
        logarithm = torch.where(x < math.log(2.0), torch.log(-torch.expm1(-x)), torch.log1p(-torch.exp(-x)))
        return _settle(-logarithm / self._ln_unit, lambda i: self._gaussian_exact(int(d.reshape(-1)[i]), -1))

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
        """Return ``base**(log / 2**frac_bits)`` as float64.

        Correctly rounded for base 2 up to 16 fraction bits, subnormal results included; elsewhere within 1 ulp.
        """
        if self.base != 2.0:
            return replace_where(
                log.to(torch.float64), torch.ones_like(log, dtype=torch.bool), lambda i: self._exp_at(log, i)
            )
        whole = log >> self.frac_bits
        fraction = log & (self._steps - 1)
        if self.frac_bits <= 16:
            significand = self._powers[0].to(log.device)[fraction]
        else:
            # 2**fraction = high * 2**low: high from a table in double-double, low by its series. Products and sums of
            # float64 only, in this order, so the result does not depend on the machine; error under 0.51 ulp.
            rest_bits = self.frac_bits - 12
            high, high_tail = (table.to(log.device)[fraction >> rest_bits] for table in self._powers)
            x = (fraction & ((1 << rest_bits) - 1)).to(torch.float64) * (math.log(2.0) / self._steps)
            series = x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5))))
            significand = high + (high_tail + high * series)
        # The power of two from its bits: a device's pow need not be exact. Subnormal results are left to the slow path.
        power = ((whole.clamp(-1022, 1023) + 1023) << 52).view(torch.float64)
        value = torch.where(whole > 1023, math.inf, torch.where(whole < -1022, 0.0, significand * power))
        subnormal = (whole < -1022) & (whole >= -1076)
        return replace_where(value, subnormal, lambda i: self._exp_at(log, i))

    @functools.cached_property
    def _powers(self) -> tuple[torch.Tensor, torch.Tensor]:
        """``2**(i / n)`` for i < n: the nearest float64 and what it leaves, n = 2**min(frac_bits, 16) or 4096."""
        count = self._steps if self.frac_bits <= 16 else 1 << 12
        with flint.ctx.workprec(160):
            root = (flint.arb.const_log2() / count).exp()
            values, power = [], flint.arb(1)
            for _ in range(count):
                values.append(power)
                power = power * root
            nearest = [float(value) for value in values]
            tails = [float(value - flint.arb(n)) for value, n in zip(values, nearest, strict=True)]
            # float() of a ball rounds its midpoint to nearest; the tail proves it: it is at most half an ulp.
        return torch.tensor(nearest, dtype=torch.float64), torch.tensor(tails, dtype=torch.float64)

    def _exp_at(self, log: torch.Tensor, index: int) -> float:
        return self.exp_exact(int(log.reshape(-1)[index]))

    def exp_exact(self, log: int) -> float:
        """Return the float64 nearest to ``base**(log / 2**frac_bits)``; infinite above its range, 0 below it."""
        binary_log = log * self._ln_unit / math.log(2.0)
        if abs(binary_log) > 2200:
            return math.inf if log > 0 else 0.0
        # Round to the grid that a float64 of this size has, with the ball's integer rounding.
        exponent = max(math.floor(binary_log) - 52, -1074)
        for e in (exponent, exponent + 1):  # binary_log may lie just above or below an integer

            def ball(e: int = e) -> flint.arb:
                return (flint.arb(log) * self._arb_unit()).exp() * flint.arb(2) ** -e

            def tie(n: int, e: int = e) -> bool:
                return _powers_equal(
                    Fraction(2 * n + 1) * Fraction(2) ** (e - 1), self._steps, Fraction(self.base), log
                )

            scaled = nearest_integer(ball, tie)
            if scaled <= 1 << 53:
                break
        try:
            return math.ldexp(scaled, e)
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
        return _powers_equal(value, 2 * self._steps, Fraction(self.base), 2 * n + 1)


@functools.cache
def _scale(frac_bits: int, base: float) -> LogScale:
    return LogScale(frac_bits, base)


def _powers_equal(x: Fraction, p: int, y: Fraction, q: int) -> bool:
    """Whether ``x**p == y**q`` exactly; False too where that would take over a million bits, as no tie does."""
    common = math.gcd(p, q) or 1
    p, q = p // common, q // common
    bits = [abs(n) * max(v.numerator, v.denominator).bit_length() for v, n in ((x, p), (y, q))]
    return max(bits) < 1 << 20 and x**p == y**q


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
