"""Adders other than the exact one, written a third time, in Python integers and fractions: slow, and easy to check.

As in :mod:`xlnstorch.reference`, nothing is shared with the rest of the package.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from .reference import Reference, Result

__all__ = ["AdderReference", "mitchell", "piecewise"]

Gaussian = Callable[[int, int, bool], int]


class AdderReference(Reference):
    """The arithmetic of base-2 formats whose adder takes other integers for the Gaussian logarithms.

    Parameters
    ----------
    int_bits, frac_bits : int
        Integer and fraction bits of the logarithm.
    gaussian : callable
        Given `frac_bits`, d, and whether to subtract, it returns ``s(d)`` or ``t(d)``; it is not asked for ``t(0)``.
    specials : bool
        Whether there are words for infinities and NaN.
    """

    def __init__(self, int_bits: int, frac_bits: int, gaussian: Gaussian, specials: bool = False):
        super().__init__(int_bits, frac_bits, specials)
        self._gaussian = gaussian

    def gaussian_sum(self, d: int) -> int:
        """Return ``s(d)`` for d ≥ 0."""
        return self._gaussian(self.frac_bits, d, False)

    def gaussian_difference(self, d: int) -> int:
        """Return ``t(d)`` for d ≥ 1."""
        return self._gaussian(self.frac_bits, d, True)

    def add(self, a: int, b: int) -> Result:
        """Return ``a + b``: the larger magnitude's logarithm plus ``s(d)``, or minus ``t(d)`` for different signs."""
        simple = self._simple_sum(a, b)
        if simple is not None:
            return simple
        (sign_a, ea), (sign_b, eb) = self._split(a), self._split(b)
        sign = sign_a if ea > eb else sign_b
        d = abs(ea - eb)
        change = self.gaussian_sum(d) if sign_a == sign_b else -self.gaussian_difference(d)
        return self._join(sign, max(ea, eb) + change)


def mitchell(frac_bits: int, d: int, subtract: bool, corrections: int = 2) -> int:
    """Return ``s(d)`` or ``t(d)`` by shifts and adds, as the Mitchell adder has them.

    Everything is a multiple of one unit of the working grid of at least 12 fraction bits, and rounded down to it.
    """
    unit = Fraction(1, 2 ** max(frac_bits, 12))
    x = Fraction(d, 2**frac_bits)

    def down(y: Fraction) -> Fraction:
        return math.floor(y / unit) * unit

    def peak(y: Fraction, width: Fraction) -> Fraction:
        """Return y, or how far it lies below the largest multiple of the unit that is below `width`."""
        return y if y < width / 2 else width - unit - y

    def step(r: Fraction) -> Fraction:
        """Return what log2(1 + r), or 2 - 2**(1 - r), is taken to be."""
        wave = peak(r, Fraction(1)) / 8
        if corrections == 2:
            wave += peak(r % Fraction(1, 2), Fraction(1, 2)) / 16
        return r + down(wave * 3 / 2) if corrections else r

    if subtract and x < 1:
        k = 1
        while x * 2**k < 1:
            k += 1
        c = Fraction({0: 256, 1: 260 if k == 1 else 266, 2: 262 if k == 1 else 271}[corrections], 512)
        y = k + c + down(x / 2) - step(x * 2**k - 1)
    else:
        if corrections:
            whole = min(math.floor(x), 4)
            r = min(x, Fraction(4)) - whole
            power = down((2 - r - unit) / 2 ** (whole + 1))
            p = x - Fraction(31, 64) - power if subtract else x - (Fraction(1, 2) - unit - down(power / 2))
        else:
            p = x - 1 if subtract else x
        if p > frac_bits + 2:  # less than half a unit: spare the power of two
            return 0
        y = down((2 - step(p % 1)) / 2 ** (math.floor(p) + 1))
    return math.floor(y * 2**frac_bits + (Fraction(1, 2) if frac_bits < 12 else 0))


def piecewise(design: dict, d: int, subtract: bool) -> int:
    """Return ``s(d)`` or ``t(d)`` by segmented polynomials, from the tables and widths of a design by their names."""
    if d >= design["ends"][subtract]:
        return 0
    main, fall = design["polynomials"], design["fall"]
    top = 2 ** (design["frac_bits"] + design["near"])
    if fall is None or not subtract or d >= top:
        y = Fraction(_polynomial(main, d, subtract), 2 ** main["guard_bits"])
    else:
        shift = 0
        while d * 2 ** (shift + 1) < top:
            shift += 1
        y = (shift - design["near"]) * 2 ** design["frac_bits"] + Fraction(d, 2)
        y += Fraction(_polynomial(main, d * 2**shift, True), 2 ** main["guard_bits"])
        y -= Fraction(_polynomial(fall, top - 1 - d, True), 2 ** fall["guard_bits"])
    return math.floor(y)


def _polynomial(polynomials: dict, d: int, subtract: bool) -> int:
    for region in polynomials["regions"]:
        if region["subtract"] == subtract and region["start"] <= d < region["start"] + 2 ** region["size"]:
            break
    else:
        raise ValueError(f"no region has d = {d}")
    segment, offset = divmod(d - region["start"], 2 ** region["width"])
    c0, c1, *bend = polynomials["rows"][region["row"] + segment]
    position = Fraction(offset, 2 ** region["width"])

    def cut(fraction: Fraction, bits: int) -> Fraction:
        return Fraction(math.floor(fraction * 2**bits), 2**bits)

    for c2 in bend:
        c1 -= math.floor(c2 * cut(position, polynomials["inner_bits"]))
    return c0 - math.floor(c1 * cut(position, polynomials["offset_bits"]))
