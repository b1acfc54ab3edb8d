"""Constants of the exact Gaussian logarithms in float64, and how far what is computed with them may be off.

A distance of x is split into ``x = i + j / 16 + q`` with ``0 <= q < 1/16``. With ``T = 2**-(j / 16)`` and
``E = 2**-q - 1``, a polynomial times q, ``2**-x = 2**-i (T + T E)``. Then ``z = 1 ± 2**-x``; of a difference with
i = 0, where z may be small, ``z = (1 - T) - T E``. With ``z = 2**k m`` and ``u = m c - 1``, where c is near the
reciprocal of m and one of 16, ``log2(z) = k - log2(c) + log2(1 + u)``, the last one a polynomial times u.

The error, in units of ``e = 2**-53``, is that of each rounding, whether or not products and sums are fused:

- E: coefficients and Horner's rule, in which the first coefficient dominates by far, 2.2 e; q times it, e; the rest of
  the series below 0.4 e. Together 3.6 e, relatively.
- z: of a difference with i = 0, both parts are positive; T and its product with E make that 5.6 e, the sum one more:
  6.6 e, relatively. Else ``2**-x`` errs by at most 2.3 e, relatively, and z, at least 1/2, by 3.3 e.
- log2(z): 1.45 times that, 9.6 e; u by the rounding of its product, which is below 1.04, so 1.04 e, and 1.55 e in its
  logarithm; the polynomial, at most 0.05, by 0.3 e, and its series by 0.1 e; the table by 0.5 e; the last sum by e.

That is 13.1 e. The margin is ``2**-47``, nearly five times as much. The integer part k is added to the rounded integer.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import flint
import numpy as np

from ._module import compiled

if TYPE_CHECKING:
    from ..formats import LNSFormat

__all__ = ["MIN_FRAC_BITS", "constants", "serves"]

#: What the split of a distance needs.
MIN_FRAC_BITS = 4

_MAX_FRAC_BITS = 26  # above, too much would be undecided
_MARGIN = 2.0**-47


def serves(format: LNSFormat) -> bool:
    """Whether there are constants for the logarithms of a format."""
    return format.base == 2.0 and format.frac_bits <= _MAX_FRAC_BITS


@functools.cache
def constants(frac_bits: int) -> np.ndarray:
    """Return the members of the compiled module's ``Curve``, in their order, as float64."""
    terms, series_terms = compiled().EXPONENTIAL_TERMS, compiled().SERIES_TERMS
    with flint.ctx.workprec(256):
        ln2, units = flint.arb.const_log2(), flint.arb(2) ** frac_bits
        powers = [(-ln2 * j / 16).exp() for j in range(16)]
        exponential, factorial = [], flint.arb(1)
        for n in range(1, terms + 1):
            factorial *= n
            exponential.append((-ln2) ** n / factorial)
        # Of nine bits, so that u is nearly exact.
        reciprocals = [round(512 / (1 + (j + 0.5) / 16)) / 512 for j in range(16)]
        logarithms = [-flint.arb(c).log() / ln2 * units for c in reciprocals]
        widest = max(abs((1 + (j + end) / 16) * c - 1) for j, c in enumerate(reciprocals) for end in (0, 1))
        series = _economized([flint.arb((-1) ** n) / (n + 1) / ln2 * units for n in range(20)], widest, series_terms)
        parts = [[1 / units], powers, [1 - power for power in powers], exponential, reciprocals, logarithms, series]
        rounded = [float(flint.arb(value).mid()) for part in parts for value in part]
    return np.array([*rounded, _MARGIN * 2.0**frac_bits])


def _economized(coefficients: list[flint.arb], widest: float, terms: int) -> list[flint.arb]:
    """Return a polynomial of fewer terms, near one in u for ``|u| <= widest``.

    From the highest power down, a multiple of a Chebyshev polynomial takes away the term; what each changes is its
    coefficient over ``2**(power - 1)``.
    """
    scaled = [coefficient * flint.arb(widest) ** n for n, coefficient in enumerate(coefficients)]
    while len(scaled) > terms:
        order = len(scaled) - 1
        chebyshev = flint.fmpz_poly.chebyshev_t(order)
        leading = scaled.pop() / int(chebyshev[order])
        scaled = [term - leading * int(chebyshev[n]) for n, term in enumerate(scaled)]
    return [term / flint.arb(widest) ** n for n, term in enumerate(scaled)]
