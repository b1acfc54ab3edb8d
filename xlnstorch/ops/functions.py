"""Elementwise functions that LNS hardware has no primitive for; ``xlnstorch.float_fallbacks()`` lists them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction

import flint
import torch

from .. import arithmetic, balls
from ..elementary import Function, apply, rational_words, real_power
from ..lookup import of_each_word
from ..tensor import LNSTensor
from ._registry import aten, note_float_fallback, operands, prims, register, register_inplace, words_of

_PROVED = "nearest word to the exact result, proved"
# Nobody states how far torch's special functions are from the exact values (its Bessel functions, up to 9e-7), and some
# take minutes at large arguments. So balls alone decide, and estimates tell domain, poles and what overflows.
_SPECIAL = {"error": math.inf}
# Steps are where they are, and remainders of floats are exact, subnormal ones too.
_EXACT = {"offset": 0.0}


def _arb_trunc(x: flint.arb) -> flint.arb:
    return x.floor() if x >= 0 else x.ceil() if x <= 0 else x.floor().union(x.ceil())


def _arb_remainder(x: flint.arb, y: flint.arb) -> flint.arb:
    return x - y * (x / y).floor()


def _arb_fmod(x: flint.arb, y: flint.arb) -> flint.arb:
    return x - y * _arb_trunc(x / y)


def _divides(format, x, y):
    """Where x / y, a power of the format's base, is a whole number, or zero."""
    (_, a), (_, b) = format.unpack(x), format.unpack(y)
    root, step = rational_words(format.frac_bits, format.base)
    whole = (a == b) | ((a > b) & ((a - b) % step == 0) & (root.denominator == 1))
    return (b != 0) & (whole | (a == 0))


def _whole_logarithm(base: int) -> Callable[[Fraction], Fraction | None]:
    """Return a function that finds the logarithms which are whole numbers."""

    def logarithm(x: Fraction) -> Fraction | None:
        power = round(math.log(x.numerator, base) - math.log(x.denominator, base))
        return Fraction(power) if Fraction(base) ** power == x else None

    return logarithm


def _few_periods(x):
    return x.abs() < 2.0**20


def _small_quotient(x, y):
    return (x / y).abs() < 2.0**24


def _outline(invalid: Callable | None = None, pole: Callable | None = None) -> Callable:
    """Return an estimate: NaN where `invalid`, infinite with the sign of `pole` where that is not zero, else 1."""

    def estimate(*xs):
        result = torch.ones_like(xs[0])
        if pole is not None:
            sign = pole(*xs).to(result.dtype)
            result = torch.where(sign != 0, sign * math.inf, result)
        return result if invalid is None else torch.where(invalid(*xs), math.nan, result)

    return estimate


def _whole(x):
    return x == x.round()


def _outside_igamma(a, x):
    return (a < 0) | (x < 0) | ((a == 0) & (x == 0))


def _outside_zeta(s, a):
    return (s < 1) | ((s > 1) & (a < 0) & ~_whole(a) & ~_whole(s))


_FUNCTIONS: dict[str, Function] = {}


def _torch_function(name: str) -> Callable:
    return getattr(torch.special, name.removeprefix("special_")) if "special" in name else getattr(torch, name)


def _function(name: str, ball: Callable, *, of: Callable | None = None, **properties) -> None:
    in_torch = _torch_function(name)
    _FUNCTIONS[name] = Function(name.removeprefix("special_"), of or in_torch, ball, limit=in_torch, **properties)


_arb = flint.arb
_function("sin", _arb.sin, offset=2.0**-52, trusted=_few_periods)
_function("cos", _arb.cos, offset=2.0**-52, trusted=_few_periods)
_function("tan", _arb.tan, offset=2.0**-52, trusted=_few_periods)
_function("asin", _arb.asin)
_function("acos", _arb.acos)
_function("atan", _arb.atan)
_function("sinh", _arb.sinh)
_function("cosh", _arb.cosh)
_function("tanh", _arb.tanh)
_function("asinh", _arb.asinh)
_function("acosh", _arb.acosh)
_function("atanh", _arb.atanh, pole=True)
_function("atan2", lambda y, x: _arb.atan2(y, x))
_function("sinc", _arb.sinc_pi, offset=2.0**-50, trusted=_few_periods)
_function("expm1", _arb.expm1)
_function("log1p", _arb.log1p, pole=True)
_function("log2", lambda x: x.log() / _arb.const_log2(), pole=True, rational=_whole_logarithm(2))
_function("log10", lambda x: x.log() / _arb.const_log10(), pole=True, rational=_whole_logarithm(10))
_function("erf", _arb.erf)
_function("erfc", _arb.erfc)
_function(
    "erfinv", _arb.erfinv, of=_outline(lambda x: x.abs() > 1, lambda x: x * (x.abs() == 1)), pole=True, **_SPECIAL
)
_function("special_erfcx", balls.erfcx, **_SPECIAL)
_function(
    "special_ndtri",
    balls.ndtri,
    of=_outline(lambda p: (p < 0) | (p > 1), lambda p: torch.sign(p - 0.5) * ((p == 0) | (p == 1))),
    pole=True,
    **_SPECIAL,
)
_function("special_log_ndtr", balls.log_ndtr, of=_outline(), **_SPECIAL)
_function("lgamma", balls.lgamma, of=_outline(pole=lambda x: (x <= 0) & _whole(x)), pole=True, **_SPECIAL)
_function(
    "digamma",
    _arb.digamma,
    of=_outline(lambda x: (x < 0) & _whole(x), lambda x: -1.0 * (x == 0)),
    pole=True,
    **_SPECIAL,
)
_function("igamma", balls.igamma, of=_outline(_outside_igamma), **_SPECIAL)
_function("igammac", balls.igammac, of=_outline(_outside_igamma), **_SPECIAL)
_function(
    "special_zeta",
    balls.zeta,
    of=_outline(_outside_zeta, lambda s, a: (s == 1) | ((s > 1) & (a <= 0) & _whole(a))),
    pole=True,
    **_SPECIAL,
)
_function("i0", lambda x: x.bessel_i(0), **_SPECIAL)
_function("special_i1", lambda x: x.bessel_i(1), **_SPECIAL)
for _order in (0, 1):
    _function(f"special_i{_order}e", balls.bessel_i_scaled(_order), of=_outline(), **_SPECIAL)
    _function(f"special_modified_bessel_i{_order}", lambda x, n=_order: x.bessel_i(n), **_SPECIAL)
    _function(f"special_bessel_j{_order}", lambda x, n=_order: x.bessel_j(n), of=_outline(), **_SPECIAL)
    _function(
        f"special_bessel_y{_order}",
        lambda x, n=_order: x.bessel_y(n),
        of=_outline(lambda x: x < 0, lambda x: -1.0 * (x == 0)),
        pole=True,
        **_SPECIAL,
    )
    for _prefix, _scaled in (("", False), ("scaled_", True)):
        _function(
            f"special_{_prefix}modified_bessel_k{_order}",
            lambda x, n=_order, scaled=_scaled: x.bessel_k(n, scaled=scaled),
            of=_outline(lambda x: x < 0, lambda x: x == 0),
            pole=True,
            **_SPECIAL,
        )
_function("special_airy_ai", _arb.airy_ai, of=_outline(), **_SPECIAL)
_function("special_spherical_bessel_j0", _arb.sinc, of=_outline(), **_SPECIAL)
# Which whole number a number lies beside is not in its logarithm.
_function("floor", _arb.floor, error=0.0, rational=lambda x: Fraction(math.floor(x)), **_EXACT)
_function("ceil", _arb.ceil, error=0.0, rational=lambda x: Fraction(math.ceil(x)), **_EXACT)
_function("trunc", _arb_trunc, error=0.0, rational=lambda x: Fraction(math.trunc(x)), **_EXACT)
_function("round", lambda x: (x + 0.5).floor(), error=0.0, rational=lambda x: Fraction(round(x)), **_EXACT)
_function(
    "fmod",
    _arb_fmod,
    zeros=_divides,
    trusted=_small_quotient,
    rational=lambda x, y: x - y * math.trunc(x / y),
    **_EXACT,
)
_function(
    "remainder",
    _arb_remainder,
    zeros=_divides,
    trusted=_small_quotient,
    rational=lambda x, y: x % y,
    **_EXACT,
)


def _register_function(name: str, function: Function) -> None:
    packet = getattr(aten, name)
    note_float_fallback(function.name, _PROVED)
    overloads = [name for name in ("default", "Tensor", "Scalar") if name in packet.overloads()]

    @register(*(getattr(packet, overload) for overload in overloads))
    def handler(func, *xs):
        format, words = operands(func, *xs)
        return LNSTensor(apply(function, format, *words), format)

    for overload in overloads:
        in_place = getattr(aten, f"{name}_", None)
        if in_place is not None and overload in in_place.overloads():
            register_inplace(getattr(in_place, overload), getattr(packet, overload))


for _name, _entry in _FUNCTIONS.items():
    _register_function(_name, _entry)

note_float_fallback("exp", _PROVED)
note_float_fallback("exp2", _PROVED)
note_float_fallback("log", _PROVED)
note_float_fallback("polygamma", _PROVED)
note_float_fallback("pow", "with an exponent that is no multiple of one half: nearest word to the exact result, proved")


def _exp(format, words):
    sign, field = format.unpack(words)
    zero = field == 0
    log = torch.where(zero, 0, format.scale.log_of_exp(sign, torch.where(zero, 0, field - format.bias)))
    nothing = torch.zeros_like(sign)
    vanishes, special = nothing, {}
    if format.specials:
        infinite = format.is_inf(words)
        vanishes, special = infinite & sign, {"infinite": infinite & ~sign, "nan": format.is_nan(words)}
    return arithmetic.fit(format, nothing, log + format.bias, vanishes, **special)


@register(aten.exp.default, prims.exp.default)
def exp(func, self):
    compute = functools.partial(_exp, self.format)
    return LNSTensor(of_each_word("exp", self.format, self._words, compute, _exp), self.format)


def _log(format, words):
    sign, field = format.unpack(words)
    e = field - format.bias
    one = e == 0
    log = format.scale.log_of_log(torch.where(sign | one, 1, e))
    # ln(1) is zero, the logarithm of a negative number invalid; ln(0) saturates.
    pole, infinite, nan = field == 0, field == 0, None
    if format.specials:
        nan = format.is_nan(words)
        pole, infinite = pole & ~nan, infinite | format.is_inf(words)
    result, flags = arithmetic.fit(format, e < 0, log + format.bias, one, infinite=infinite, invalid=sign, nan=nan)
    return result, {"zero_divide": pole, **flags}


@register(aten.log.default)
def log(func, self):
    compute = functools.partial(_log, self.format)
    return LNSTensor(of_each_word("log", self.format, self._words, compute, _log), self.format)


def _whole_power_of_two(x: Fraction) -> Fraction | None:
    return Fraction(2) ** x if x.denominator == 1 and abs(x) < 1 << 13 else None


_EXP2 = Function("exp2", torch.exp2, lambda x: (x * _arb.const_log2()).exp(), rational=_whole_power_of_two)


@register(aten.exp2.default)
def exp2(func, self):
    format = self.format
    root, _ = rational_words(format.frac_bits, format.base)
    if root != 2:  # 2 is no word
        return LNSTensor(apply(_EXP2, format, self._words), format)
    return LNSTensor(real_power(format, words_of(format, 2, self.device), self._words, words=True), format)


@functools.cache
def _polygamma(n: int) -> Function:
    outline = _FUNCTIONS["digamma"].estimate
    if n != 0:
        outline = _outline(pole=lambda x: (-1.0) ** (n + 1) * ((x <= 0) & _whole(x)))
    limit = functools.partial(torch.polygamma, n)
    return Function("polygamma", outline, balls.polygamma(n), limit=limit, pole=True, **_SPECIAL)


@register(aten.polygamma.default)
def polygamma(func, n, self):
    return LNSTensor(apply(_polygamma(n), self.format, self._words), self.format)


def _power(func, self, exponent):
    if isinstance(exponent, LNSTensor):
        format, (base, words) = operands(func, self, exponent)
        return LNSTensor(real_power(format, base, words, words=True), format)
    # A plain exponent is taken as it is: its nearest logarithm would make 3 another number.
    exponent = torch.as_tensor(exponent, dtype=torch.float64, device=self.device)
    if not self.format.specials and not bool(torch.isfinite(exponent).all()):
        raise ValueError(f"{func} of {self.format} takes a finite exponent, not {exponent[~exponent.isfinite()][0]}")
    return LNSTensor(real_power(self.format, self._words, exponent, words=False), self.format)


@register(aten.pow.Tensor_Scalar)
def pow_scalar(func, self, exponent):
    if not math.isfinite(exponent) or 2 * exponent != int(2 * exponent):
        return _power(func, self, exponent)
    if exponent == int(exponent):
        return LNSTensor(arithmetic.power(self.format, self._words, int(exponent)), self.format)
    root = arithmetic.sqrt(self.format, self._words)
    return LNSTensor(root if exponent == 0.5 else arithmetic.power(self.format, root, int(2 * exponent)), self.format)


@register(aten.pow.Tensor_Tensor)
def pow_tensor(func, self, exponent):
    return _power(func, self, exponent)


@register(aten.pow.Scalar)
def pow_of_scalar(func, self, exponent):
    return _power(func, LNSTensor(words_of(exponent.format, self, exponent.device), exponent.format), exponent)


for _inplace, _functional in [
    (aten.exp_.default, aten.exp.default),
    (aten.log_.default, aten.log.default),
    (aten.exp2_.default, aten.exp2.default),
    (aten.pow_.Scalar, aten.pow.Tensor_Scalar),
    (aten.pow_.Tensor, aten.pow.Tensor_Tensor),
]:
    register_inplace(_inplace, _functional)
