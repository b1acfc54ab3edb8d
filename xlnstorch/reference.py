"""The arithmetic written a third time, in Python integers and mpmath intervals: slow, and meant to be obviously right.

The tests hold the golden model and the gates against it, since two writings that share a wrong table would agree with
each other. So nothing here is shared with them: no module of this package, no torch, no numpy, no Arb. Every real
number is an interval of mpmath's, and the precision is doubled until both of its ends round to the same integer.

That loop always ends: no number that is rounded here to an integer logarithm lies halfway between two of them.

- A rational ``x`` whose logarithm is ``(2 n + 1) / 2**(f + 1)`` would make ``x**(2**(f + 1))`` an odd power of two.
- ``1 ± 2**(-d / 2**f) = 2**((2 n + 1) / 2**(f + 1))`` would make three powers of ``r = 2**(1 / 2**(f + 1))`` linearly
  dependent over the rationals. Powers of r whose exponents differ modulo ``2**(f + 1)`` are independent, because
  ``x**(2**(f + 1)) - 2`` is irreducible (Eisenstein), and the one on the right is the only one with an odd exponent.
"""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Callable, Iterable
from fractions import Fraction

from mpmath.ctx_iv import MPIntervalContext

__all__ = ["Reference"]

_iv = MPIntervalContext()  # a context of our own, so that nobody else's precision is changed

Result = tuple[int, frozenset[str]]
_NO_FLAGS: frozenset[str] = frozenset()


def _bounds(interval) -> tuple[Fraction, Fraction]:
    """Return both ends of an interval as exact rationals, twice its width further apart than mpmath has them.

    mpmath rounds the ends outwards, but from approximations that carry a few guard bits and no proof; the width, which
    is of the size of the last place, is far above their error.
    """

    def rational(end: tuple[int, int, int, int]) -> Fraction:
        sign, mantissa, exponent, _ = end
        return (-1) ** sign * int(mantissa) * Fraction(2) ** int(exponent)

    lower, upper = map(rational, interval._mpi_)
    return lower - (upper - lower), upper + (upper - lower)


def _decide(real: Callable[[], object], rounding: Callable[[Fraction], object]):
    """Return ``rounding(real)`` for a monotonic `rounding`, from an interval so narrow that both its ends agree."""
    _iv.prec = 64
    while True:
        lower, upper = map(rounding, _bounds(real()))
        if lower == upper:
            return lower
        _iv.prec *= 2


def _power_of_two(exponent: Fraction):
    return _iv.exp(_iv.mpf(exponent.numerator) / exponent.denominator * _iv.log(2))


def _log2(x):
    return _iv.log(x) / _iv.log(2)


@functools.lru_cache(maxsize=1 << 18)
def _log_of_combination(frac_bits: int, e_large: int, e_small: int, sign: int) -> int:
    """Return the integer nearest to ``2**f log2(2**(e_large / 2**f) + sign 2**(e_small / 2**f))``."""
    steps = 2**frac_bits

    def real():
        large, small = _power_of_two(Fraction(e_large, steps)), _power_of_two(Fraction(e_small, steps))
        difference = large + sign * small
        # While the bounds are still too wide to tell the operands apart, there is no logarithm; one unit of doubt is
        # enough to ask for more precision.
        return steps * _log2(difference) if difference.a > 0 else _iv.mpf([0, 1])

    return _decide(real, round)


def _float(x: Fraction) -> float:
    """Return the nearest float64, half to even, with infinities above the range: what Python's division gives."""
    try:
        return float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def _narrow(x: Fraction, digits: int, lowest: int, highest: int) -> float:
    """Return the number nearest to x > 0, half to even, among those that a narrower binary format has: n 2**unit."""
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    exponent -= x < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - digits + 1, lowest)
    nearest = round(x / unit) * unit
    return math.inf if nearest >= Fraction(2) ** (highest + 1) else float(nearest)


class Reference:
    """The arithmetic of base-2 formats with the exact adder, on words as hardware shows them.

    Words are non-negative integers: a sign bit above ``int_bits + frac_bits`` bits of field. Operations return the word
    and the set of flags among ``overflow``, ``underflow``, ``invalid`` and ``zero_divide``. The word with sign 1 and
    field 0 is read as zero; no operation returns it. With specials it is NaN, and the largest field is infinity.

    Parameters
    ----------
    int_bits, frac_bits : int
        Integer and fraction bits of the logarithm.
    specials : bool
        Whether there are words for infinities and NaN.

    Examples
    --------
    >>> from xlnstorch.reference import Reference
    >>> lns16 = Reference(8, 7)
    >>> word, flags = lns16.add(lns16.encode(1), lns16.encode(1))
    >>> hex(word), lns16.decode(word), sorted(flags)
    ('0x4080', 2.0, [])
    """

    def __init__(self, int_bits: int, frac_bits: int, specials: bool = False):
        self.int_bits = int_bits
        self.frac_bits = frac_bits
        self.steps = 2**frac_bits
        self.log_bits = int_bits + frac_bits
        self.bias = 2 ** (self.log_bits - 1)
        self.max_field = 2**self.log_bits - 1
        self.specials = specials
        self.nan = 2**self.log_bits if specials else None

    # Words ---------------------------------------------------------------------------------------------------------

    def _split(self, word: int) -> tuple[int, int | None]:
        """Return the sign, +1 or -1, and the logarithm e; zero has sign +1 and None, and infinities have math.inf."""
        if not 0 <= word < 2 ** (self.log_bits + 1):
            raise ValueError(f"a word must be between 0 and {2 ** (self.log_bits + 1) - 1}, not {word}")
        field = word % 2**self.log_bits
        if word == self.nan:
            raise ValueError("NaN has neither sign nor logarithm")
        if field == 0:
            return 1, None
        sign = -1 if word >= 2**self.log_bits else 1
        return sign, math.inf if self.specials and field == self.max_field else field - self.bias

    def _join(self, sign: int, e: int | float) -> Result:
        """Return the word of ``sign * 2**(e / 2**f)``: saturated, or infinite, above the range, and zero below it."""
        if e == math.inf:
            return self._saturated(sign), _NO_FLAGS  # infinite before, so nothing overflows
        if e == -math.inf:
            return 0, _NO_FLAGS
        field = e + self.bias
        if field < 1:
            return 0, frozenset({"underflow"})
        flags = _NO_FLAGS
        if field > (self.max_field - 1 if self.specials else self.max_field):
            field, flags = self.max_field, frozenset({"overflow"})
        return field + (2**self.log_bits if sign < 0 else 0), flags

    def _invalid(self) -> Result:
        return (self.nan if self.specials else 0), frozenset({"invalid"})

    def _saturated(self, sign: int) -> int:
        return self.max_field + (2**self.log_bits if sign < 0 else 0)

    def encode(self, x: int | float | Fraction) -> int:
        """Return the word nearest to a number; infinities saturate where they have no word.

        Raises
        ------
        TypeError
            `x` is neither an integer, a float nor a Fraction.
        ValueError
            `x` is NaN, and has no word.
        """
        if not isinstance(x, (float, numbers.Rational)):
            raise TypeError(f"x must be an integer, a float or a Fraction, not {x!r}")
        if x != x and self.specials:
            return self.nan
        if x != x:
            raise ValueError("NaN has no word.")
        if x == 0:
            return 0
        sign = 1 if x > 0 else -1
        if x in (math.inf, -math.inf):
            return self._saturated(sign)
        magnitude = abs(Fraction(x))
        e = _decide(lambda: self.steps * _log2(_iv.mpf(magnitude.numerator) / magnitude.denominator), round)
        return self._join(sign, e)[0]

    def decode(self, word: int) -> float:
        """Return the float64 nearest to the value of a word, infinite above the range of float64."""
        if word == self.nan:
            return math.nan
        sign, e = self._split(word)
        if e is None:
            return 0.0
        if abs(e) > 1100 * self.steps:  # far out of float64's range: spare the rationals of a billion bits
            return sign * (math.inf if e > 0 else 0.0)
        if e % self.steps == 0:
            return _float(sign * Fraction(2) ** (e // self.steps))  # exact, and the only values that can be ties
        return sign * _decide(lambda: _power_of_two(Fraction(e, self.steps)), _float)

    def decode_narrow(self, word: int, digits: int, lowest: int, highest: int) -> float:
        """Return the number nearest to the value of a word, half to even, in a binary format narrower than float64.

        Parameters
        ----------
        word : int
        digits : int
            Digits of the significand, the leading one included.
        lowest, highest : int
            Exponents of the smallest number, a subnormal one, and of the largest.
        """
        if word == self.nan:
            return math.nan
        sign, e = self._split(word)
        if e is None:
            return 0.0
        if abs(e) > 1100 * self.steps:
            return sign * (math.inf if e > 0 else 0.0)
        if e % self.steps == 0:
            return sign * _narrow(Fraction(2) ** (e // self.steps), digits, lowest, highest)
        rounding = functools.partial(_narrow, digits=digits, lowest=lowest, highest=highest)
        return sign * _decide(lambda: _power_of_two(Fraction(e, self.steps)), rounding)

    def decode_fixed(self, word: int, frac_bits: int, width: int, signed: bool = True) -> Result:
        """Return the integer nearest to ``2**frac_bits`` times the value of a word, half to even, within the range.

        The flags are ``overflow`` where the nearest integer is out of the range of `width` bits, and ``underflow``
        where a value that is not zero becomes zero by rounding. NaN is zero, and ``invalid``.
        """
        if word == self.nan:
            return 0, frozenset({"invalid"})
        sign, e = self._split(word)
        if e is None:
            return 0, _NO_FLAGS
        exponent = math.inf if e == math.inf else Fraction(e, self.steps) + frac_bits
        if abs(exponent) > 100:  # far out of the range of 64 bits
            nearest = 2**100 if exponent > 0 else 0
        elif exponent.denominator == 1:
            nearest = round(Fraction(2) ** int(exponent))
        else:
            nearest = _decide(lambda: _power_of_two(exponent), round)
        if nearest == 0:
            return 0, frozenset({"underflow"})
        least, most = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if signed else (0, 2**width - 1)
        result = max(least, min(sign * nearest, most))
        return result, _NO_FLAGS if result == sign * nearest else frozenset({"overflow"})

    # Gaussian logarithms -------------------------------------------------------------------------------------------

    def gaussian_sum(self, d: int) -> int:
        """Return ``s(d)``, the integer nearest to ``2**f log2(1 + 2**(-d / 2**f))``, for d ≥ 0."""
        if d < 0:
            raise ValueError(f"d must be at least 0, not {d}")
        return 0 if self._is_negligible(d) else _log_of_combination(self.frac_bits, 0, -d, +1)

    def gaussian_difference(self, d: int) -> int:
        """Return ``t(d)``, the integer nearest to ``-2**f log2(1 - 2**(-d / 2**f))``, for d ≥ 1."""
        if d < 1:
            raise ValueError(f"d must be at least 1, not {d}")
        return 0 if self._is_negligible(d) else -_log_of_combination(self.frac_bits, 0, -d, -1)

    def _is_negligible(self, d: int) -> bool:
        """Whether the smaller of two operands that lie d units apart is surely too small to change the larger.

        With ``y = 2**(-d / 2**f)`` below ``2**-(f + 3)``, both ``log2(1 + y)`` and ``-log2(1 - y)`` are below
        ``1.6 y``, so ``2**f`` times either is below 0.2 and rounds to zero.
        """
        return d > (self.frac_bits + 3) * self.steps

    # Operations ----------------------------------------------------------------------------------------------------

    def mul(self, a: int, b: int) -> Result:
        """Return ``a * b``; zero times an infinity is invalid."""
        if self.nan in (a, b):
            return self.nan, _NO_FLAGS
        (sign_a, ea), (sign_b, eb) = self._split(a), self._split(b)
        if ea is None or eb is None:
            return self._invalid() if math.inf in (ea, eb) else (0, _NO_FLAGS)
        return self._join(sign_a * sign_b, ea + eb)

    def div(self, a: int, b: int) -> Result:
        """Return ``a / b``.

        ``x / 0`` saturates, or is infinite, with the sign of x; ``0 / 0`` is invalid, and so are two infinities.
        """
        if self.nan in (a, b):
            return self.nan, _NO_FLAGS
        (sign_a, ea), (sign_b, eb) = self._split(a), self._split(b)
        if eb is None:
            if ea is None:
                return self._invalid()
            return self._saturated(sign_a), _NO_FLAGS if ea == math.inf else frozenset({"zero_divide"})
        if ea is None:
            return 0, _NO_FLAGS
        if ea == eb == math.inf:
            return self._invalid()
        return self._join(sign_a * sign_b, ea - eb)

    def add(self, a: int, b: int) -> Result:
        """Return ``a + b``: the word nearest to the sum of the two values; of opposite infinities it is invalid."""
        simple = self._simple_sum(a, b)
        if simple is not None:
            return simple
        (sign_a, ea), (sign_b, eb) = self._split(a), self._split(b)
        if ea < eb:
            sign_a, ea, sign_b, eb = sign_b, eb, sign_a, ea
        if self._is_negligible(ea - eb):
            return self._join(sign_a, ea)
        return self._join(sign_a, _log_of_combination(self.frac_bits, ea, eb, sign_a * sign_b))

    def _simple_sum(self, a: int, b: int) -> Result | None:
        """Return the sum where no logarithm has to be changed for it, else None."""
        if self.nan in (a, b):
            return self.nan, _NO_FLAGS
        (sign_a, ea), (sign_b, eb) = self._split(a), self._split(b)
        if ea is None or eb is None:
            sign, e = (sign_a, ea) if eb is None else (sign_b, eb)
            return (0, _NO_FLAGS) if e is None else self._join(sign, e)
        if sign_a != sign_b and ea == eb:
            return self._invalid() if ea == math.inf else (0, _NO_FLAGS)  # exactly zero, so nothing was flushed
        if math.inf in (ea, eb):
            return self._join(sign_a if ea == math.inf else sign_b, math.inf)
        return None

    def sub(self, a: int, b: int) -> Result:
        """Return ``a - b``."""
        return self.add(a, self.neg(b)[0])

    def pow(self, a: int, n: int) -> Result:
        """Return ``a ** n``; ``a ** 0`` is one, a negative power of zero saturates and divides by zero."""
        if n == 0:
            return self.bias, _NO_FLAGS
        if a == self.nan:
            return self.nan, _NO_FLAGS
        sign, e = self._split(a)
        if e is None:
            return (0, _NO_FLAGS) if n > 0 else (self._saturated(1), frozenset({"zero_divide"}))
        return self._join(sign if n % 2 else 1, e * n)

    def sqrt(self, a: int) -> Result:
        """Return the square root, e / 2 half to even; of a negative number zero, or NaN, and invalid."""
        if a == self.nan:
            return self.nan, _NO_FLAGS
        sign, e = self._split(a)
        if e is None:
            return 0, _NO_FLAGS
        if sign < 0:
            return self._invalid()
        return self._join(1, e if e == math.inf else round(Fraction(e, 2)))

    def neg(self, a: int) -> Result:
        """Return ``-a``."""
        if a == self.nan:
            return self.nan, _NO_FLAGS
        sign, e = self._split(a)
        return (0, _NO_FLAGS) if e is None else self._join(-sign, e)

    def abs(self, a: int) -> Result:
        """Return ``|a|``."""
        if a == self.nan:
            return self.nan, _NO_FLAGS
        _, e = self._split(a)
        return (0, _NO_FLAGS) if e is None else self._join(1, e)

    def copysign(self, a: int, b: int) -> Result:
        """Return a with the sign of b, which zero and NaN have not: they count as positive."""
        if a == self.nan:
            return self.nan, _NO_FLAGS
        _, e = self._split(a)
        sign = 1 if b == self.nan else self._split(b)[0]
        return (0, _NO_FLAGS) if e is None else self._join(sign, e)

    def relu(self, a: int) -> Result:
        """Return a where it is positive, else zero; NaN stays."""
        return self.maximum(a, 0)

    def compare(self, a: int, b: int) -> int | None:
        """Return -1, 0 or 1 as the value of a is below, equal to or above that of b, and None beside a NaN.

        Both zeros are equal, and an infinity is beyond every number.
        """
        if self.nan in (a, b):
            return None

        def key(word: int) -> tuple[int, int]:
            sign, e = self._split(word)
            return (0, 0) if e is None else (sign, sign * e)

        return (key(a) > key(b)) - (key(a) < key(b))

    def maximum(self, a: int, b: int) -> Result:
        """Return the larger of the two, and NaN if either is."""
        order = self.compare(a, b)
        return self.nan if order is None else self._canonical(a if order >= 0 else b), _NO_FLAGS

    def minimum(self, a: int, b: int) -> Result:
        """Return the smaller of the two, and NaN if either is."""
        order = self.compare(a, b)
        return self.nan if order is None else self._canonical(a if order <= 0 else b), _NO_FLAGS

    def _canonical(self, word: int) -> int:
        return word if word == self.nan or self._split(word)[1] is not None else 0

    # Sums ----------------------------------------------------------------------------------------------------------

    def sum(self, words: Iterable[int]) -> Result:
        """Return the sum, left to right from the first term, and all flags raised on the way; of nothing it is zero."""
        total, raised = None, _NO_FLAGS
        for word in words:
            if total is None:
                total = self._canonical(word)
            else:
                total, flags = self.add(total, word)
                raised |= flags
        return total or 0, raised

    def dot(self, a: Iterable[int], b: Iterable[int]) -> Result:
        """Return the sum of the products of two sequences of equal length, as :meth:`sum` adds them."""
        products = [self.mul(x, y) for x, y in zip(a, b, strict=True)]
        total, raised = self.sum(word for word, _ in products)
        return total, raised.union(*(flags for _, flags in products))
