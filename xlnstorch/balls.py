"""Special functions as balls (Arb, through python-flint), in forms that neither overflow nor cancel.

Arb's own functions enclose the exact value whatever the argument, but of a large one the enclosure may be the whole
line. Arguments are balls that are exact or irrational and do not contain zero unless they are zero; outside a
function's domain anything may come out.
"""

from __future__ import annotations

from collections.abc import Callable

import flint
from flint import arb

__all__ = [
    "bessel_i_scaled",
    "erfcx",
    "igamma",
    "igammac",
    "lgamma",
    "log_ndtr",
    "ndtri",
    "polygamma",
    "zeta",
]

_MAX_ORDER = 1000  # of polygamma functions of negative numbers, for which a series of so many terms is computed


def _sqrt_half() -> arb:
    return arb(0.5).sqrt()


def erfcx(x: arb) -> arb:
    """Return ``exp(x**2) erfc(x)``; to the right it is ``U(1/2, 1/2, x**2) / sqrt(pi)``, DLMF 7.11.5."""
    if x > 0:
        return (x * x).hypgeom_u(arb(0.5), arb(0.5)) / arb.pi().sqrt()
    return (x * x).exp() * x.erfc()


def log_ndtr(x: arb) -> arb:
    """Return the logarithm of the normal distribution function."""
    y = x * _sqrt_half()
    return (erfcx(-y) / 2).log() - y * y if x < 0 else (-y.erfc() / 2).log1p()


def ndtri(p: arb) -> arb:
    """Return the inverse of the normal distribution function."""
    return (2 * p - 1).erfinv() / _sqrt_half()


def bessel_i_scaled(order: int) -> Callable[[arb], arb]:
    """Return ``x -> exp(-|x|) I(order, x)``."""

    def ball(x: arb) -> arb:
        value = abs(x).bessel_i(order, scaled=True)
        return -value if x < 0 and order % 2 else value

    return ball


def lgamma(x: arb) -> arb:
    """Return the logarithm of the gamma function's magnitude."""
    if x > 0:
        return x.lgamma()  # exactly zero at 1 and 2
    return (arb.pi() / abs(x.sin_pi())).log() - (1 - x).lgamma()


def polygamma(order: int) -> Callable[[arb], arb]:
    """Return the derivative of this order of the digamma function; of negative numbers up to order 1000."""
    if order == 0:
        return arb.digamma

    def ball(x: arb) -> arb:
        factorial = arb(order + 1).gamma()
        if x > 0:
            return (-1) ** (order + 1) * factorial * zeta(arb(order + 1), x)
        if order > _MAX_ORDER:
            return arb.nan()
        # The derivative of psi(1 - x) - psi(x) = pi cot(pi x).
        cap, flint.ctx.cap = flint.ctx.cap, order + 1
        try:
            series = flint.arb_series([x, 1], order + 1).cot_pi()
        finally:
            flint.ctx.cap = cap
        return (-1) ** order * ball(1 - x) - arb.pi() * factorial * series[order]

    return ball


def zeta(s: arb, a: arb) -> arb:
    """Return the Hurwitz zeta function for s > 1; for a < 0, where s is whole, up to 1001."""
    if a < 0:
        if s > _MAX_ORDER + 1 or not s.is_integer():
            return arb.nan()
        order = int(s.unique_fmpz()) - 1
        return (-1) ** (order + 1) * polygamma(order)(a) / arb(order + 1).gamma()
    if s < 1 << 12:
        return s.zeta(a)
    if s > arb(2) ** 200:
        s = arb(2) ** 200  # all the same: whether a < 1, a = 1 or a > 1 is told by 52 bits
    # a**-s (1 + r) with 0 < r < (1 + 1/a)**-s (1 + (a + 1) / (s - 1)), from the integral that bounds the other terms.
    rest = (-s * (1 / a).log1p()).exp() * (1 + (a + 1) / (s - 1))
    if rest.abs_upper() < arb(2) ** -64 or s > arb(2) ** 20:
        return a**-s * (1 + arb(0).union(rest))
    return s.zeta(a)


def igamma(a: arb, x: arb) -> arb:
    """Return the lower regularized incomplete gamma function P(a, x), for a ≥ 0, x ≥ 0, not both zero."""
    return _incomplete_gamma(a, x, upper=False)


def igammac(a: arb, x: arb) -> arb:
    """Return the upper regularized incomplete gamma function Q(a, x), for a ≥ 0, x ≥ 0, not both zero."""
    return _incomplete_gamma(a, x, upper=True)


def _incomplete_gamma(a: arb, x: arb, upper: bool) -> arb:
    if a.is_zero() or x.is_zero():
        return arb(upper == x.is_zero())
    value = x.gamma_upper(a, 1) if upper else x.gamma_lower(a, 1)
    if value.is_finite():
        return value
    other = x.gamma_lower(a, 1) if upper else x.gamma_upper(a, 1)
    if other.is_finite():
        return 1 - other
    if not (x > a or x < a):
        # Equal. The median of the gamma distribution is between a - 1/3 and a (Berg and Pedersen 2006), and by Stirling
        # its density at most 1 / sqrt(2 pi (a - 1)).
        half = arb(0.5) + arb(0).union(1 / (3 * (2 * arb.pi() * (a - 1)).sqrt()))
        return 1 - half if upper else half
    # Chernoff: the smaller of the two is at most exp(a - x + a log(x / a)).
    bound = (a - x + a * (x / a).log()).exp()
    if not bound.is_finite():
        return arb.nan()
    smaller = arb(0).union(bound)
    return smaller if upper == bool(x > a) else 1 - smaller
