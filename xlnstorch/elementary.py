"""Elementwise functions that LNS hardware has no primitive for, rounded to the nearest word.

A function is given twice: as a float64 estimate, and as a ball (Arb, through python-flint) around the exact value. The
estimate decides a word only where it is further from a rounding boundary, and from zero, than it can be wrong. How
wrong it can be is the error of the float64 function, plus what the rounding of the arguments to float64 may change,
which is seen by moving them by more than that. All other elements are computed in balls, with the precision doubled
until the ball lies on one side of the boundary. So no word depends on the last bits of a libm.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import flint
import torch

from . import conversions
from .arithmetic import fit, neg
from .conversions import LOG_LIMIT
from .formats import LNSFormat
from .lookup import of_each_word
from .observe import report
from .rounding import nearest_integer

__all__ = ["Function", "apply", "rational_words", "real_power"]

_MOVE = 2.0**-50  # more than the relative error of an argument in float64, see _values
_LARGEST = 2.0**1000  # arguments beyond, or below the inverse, are left to balls
_PRECISION = 1 << 13  # where so many bits do not tell a value from zero, it is outside the domain


@dataclasses.dataclass(frozen=True)
class Function:
    """A real function of one or more real arguments.

    Attributes
    ----------
    name : str
        For reports and lists.
    estimate : callable
        Takes and returns float64 tensors; NaN outside the domain, infinite at poles. A whole number among the
        arguments is exact, or from ``2**52`` up where `error` is finite. Zero only where the function is zero or the
        float64 underflows.
    ball : callable
        Takes and returns ``flint.arb``; encloses the exact value.
    error : float
        Bound of the relative error of `estimate`; infinite where only balls decide, and `estimate` tells no more than
        domain, poles and the sign of what overflows.
    offset : float
        Bound of the absolute error that `estimate` may have on top, near the function's zeros and where it underflows.
    trusted : callable, optional
        Takes the float64 arguments and tells where moving them tells something; elsewhere (a sine of a large number has
        many periods in one unit) balls decide.
    pole : bool
        An infinite estimate is a pole and no overflow.
    zeros : callable, optional
        Takes the format and the operands' words and tells where the exact value is zero although no ball would show it.
    rational : callable, optional
        Takes and returns ``Fraction``: the exact value, for functions that are discontinuous or reach rounding
        boundaries at rational arguments; None where the value is irrational.
    limit : callable, optional
        Takes and returns float64 tensors, as `estimate`, which it is by default: the values where arguments are
        infinite or NaN. They are rational, an argument or a multiple of a quarter of pi.
    """

    name: str
    estimate: Callable[..., torch.Tensor]
    ball: Callable[..., flint.arb]
    error: float = 2.0**-46
    offset: float = 2.0**-1000
    trusted: Callable[..., torch.Tensor] | None = None
    pole: bool = False
    zeros: Callable[..., torch.Tensor] | None = None
    rational: Callable[..., Fraction | None] | None = None
    limit: Callable[..., torch.Tensor] | None = None


def apply(function: Function, format: LNSFormat, *operands: torch.Tensor) -> torch.Tensor:
    """Return the words nearest to the function's values at words of `format`.

    Parameters
    ----------
    function : Function
    format : LNSFormat
    operands : Tensor
        Words, one tensor for each argument; they broadcast.

    Returns
    -------
    Tensor
        Words. Saturated above the range and at poles (raising ``zero_divide`` there), flushed to zero below it; zero,
        or NaN if the format has it, outside the domain, raising ``invalid``, as a square root does. Outside is also
        what balls of 8192 bits do not decide: a sine of ``2**9000.5``, an incomplete gamma function of two large
        numbers that are nearly equal. Of infinities and NaN, what torch has.
    """
    compute = functools.partial(_with_specials if format.specials else _apply, function, format)
    if len(operands) == 1:
        return of_each_word(function.name, format, *operands, compute, function)
    operands = torch.broadcast_tensors(*operands)
    result, flags = compute(*operands)
    report(function.name, format, tuple(operands), result, **flags)
    return result


def _with_specials(
    function: Function, format: LNSFormat, *operands: torch.Tensor
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return words and flags as :func:`_apply` does: by limits where an operand is infinite or NaN."""
    special, nan = _special(format, operands), functools.reduce(torch.logical_or, map(format.is_nan, operands))
    result, flags = _apply(function, format, *(torch.where(special, format.bias, words) for words in operands))
    flags = {name: raised & ~special for name, raised in flags.items()}
    if bool(special.any()):
        operands_there = [words[special] for words in operands]
        values = [_limit_values(format, words) for words in operands_there]
        limit = (function.limit or function.estimate)(*values)
        words = conversions.encode(format, limit.abs())
        for quarters in range(1, 5):
            of_pi = limit.abs() == quarters * math.pi / 4
            words = torch.where(of_pi, _word_of_pi(format, quarters) if bool(of_pi.any()) else 0, words)
        words = torch.where(limit < 0, neg(format, words), words)
        for value, operand in zip(values, operands_there, strict=True):
            words = torch.where(limit == value, operand, words)
        result = result.masked_scatter(special, words)
        flags["invalid"] = flags["invalid"].masked_scatter(special, torch.isnan(limit)) & ~nan
    return result, flags


def _special(format: LNSFormat, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return where any operand is infinite or NaN."""
    return functools.reduce(torch.logical_or, [format.is_inf(words) | format.is_nan(words) for words in operands])


def _limit_values(format: LNSFormat, words: torch.Tensor) -> torch.Tensor:
    """Return values of words as :func:`_values` has them, with infinities and NaN."""
    sign, _ = format.unpack(words)
    values = torch.where(format.is_inf(words), torch.where(sign, -math.inf, math.inf), _values(format, words, True))
    return torch.where(format.is_nan(words), math.nan, values)


@functools.lru_cache(maxsize=64)
def _word_of_pi(format: LNSFormat, quarters: int) -> int:
    """Return the word nearest to a multiple of a quarter of pi."""
    log = nearest_integer(lambda: format.scale._arb_log(flint.arb.pi() * quarters / 4))
    return int(conversions.words_from_log(format, torch.tensor(False), torch.tensor(log)))


def _apply(
    function: Function, format: LNSFormat, *operands: torch.Tensor
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return words and flags of the function's values at words that are neither infinite nor NaN."""
    special = math.isinf(function.error)
    values = [_values(format, words, special) for words in operands]
    estimate = function.estimate(*values)
    magnitude = estimate.abs()
    invalid, infinite = torch.isnan(estimate), torch.isinf(estimate)
    pole = infinite & function.pole

    error = _uncertainty(function, format, operands, values, estimate)
    known = torch.isfinite(magnitude) & (error < magnitude / 4)
    rounded, doubt = _log(format, torch.where(known, magnitude, 1.0))
    settled = known & (doubt > 2.0 * error / torch.where(known, magnitude, 1.0) / format.scale._ln_unit)
    narrow = (format.max_field - format.bias) * format.scale._ln_unit < 1000 * math.log(2.0)
    settled |= invalid | pole | (infinite & narrow)
    sign = estimate < 0
    log = torch.where(infinite, LOG_LIMIT, torch.where(settled, rounded, -LOG_LIMIT))
    of_zero = functools.reduce(torch.logical_and, [format.unpack(words)[1] == 0 for words in operands])
    zero = invalid | ((estimate == 0) & ((error == 0) | of_zero))
    if function.zeros is not None:
        zero |= function.zeros(format, *operands)
    settled |= zero

    slow = ~settled
    if bool(slow.any()):
        cases, which = torch.unique(torch.stack([words[slow] for words in operands]), dim=1, return_inverse=True)
        estimates = torch.empty_like(cases[0], dtype=torch.float64).index_put((which,), estimate[slow])
        decided = torch.tensor(
            [_decide(function, format, *case) for case in zip(cases.T.tolist(), estimates.tolist(), strict=True)],
            device=which.device,
        )
        negative, vanishes, unknown, nearest = decided[which].unbind(1)
        sign, log = sign.masked_scatter(slow, negative.bool()), log.masked_scatter(slow, nearest)
        invalid = invalid.masked_scatter(slow, unknown.bool())
        zero = zero.masked_scatter(slow, (vanishes | unknown).bool())
    result, flags = fit(
        format, sign, log.clamp(-LOG_LIMIT, LOG_LIMIT) + format.bias, zero, infinite=pole, invalid=invalid
    )
    return result, {"zero_divide": pole, **flags}


@functools.cache
def rational_words(frac_bits: int, base: float) -> tuple[Fraction, int]:
    """Return root and step: the words with rational values are ``root**n``, of the logarithms ``n * step``.

    With e / 2**f = p / 2**j in lowest terms, base**(e / 2**f) is rational where base**p, p odd, is the power 2**j of a
    rational number, and so where the base is.
    """
    root, step = Fraction(base), 1 << frac_bits
    while step > 1:
        numerator, denominator = math.isqrt(root.numerator), math.isqrt(root.denominator)
        if Fraction(numerator, denominator) ** 2 != root:
            break
        root, step = Fraction(numerator, denominator), step >> 1
    return root, step


def _is_whole(format: LNSFormat, words: torch.Tensor) -> torch.Tensor:
    """Where the value of a word is a whole number."""
    _, field = format.unpack(words)
    log = field - format.bias
    root, step = rational_words(format.frac_bits, format.base)
    return (field == 0) | (log == 0) | ((log > 0) & (log % step == 0) & (root.denominator == 1))


def _is_exact(format: LNSFormat, words: torch.Tensor) -> torch.Tensor:
    """Where float64 has the value of a word, as far as that is easily seen."""
    _, field = format.unpack(words)
    log = field - format.bias
    powers_of_two = (log % (1 << format.frac_bits) == 0) & (format.base == 2.0)
    size = log.abs() * (format.scale._ln_unit / math.log(2.0))
    return (_is_whole(format, words) & (size < 53)) | (powers_of_two & (size < 1000)) | (field == 0)


def _values(format: LNSFormat, words: torch.Tensor, special: bool) -> torch.Tensor:
    """Return values of words in float64, within 1.5 * 2**-52 relatively and with 2**±1000 for what is beyond.

    They are on the words' side of 0 and 1, and no whole numbers where the words are none: those above 2**51 are set to
    what is one less a half if `special`, and else may be, since there are no others.
    """
    sign, field = format.unpack(words)
    size = conversions.decode(format, words).abs().clamp(1 / _LARGEST, _LARGEST)
    inexact = ~_is_whole(format, words)
    if special:
        size = torch.where(inexact, size.clamp(max=2.0**51 - 0.5), size)
    aside = torch.where(field < format.bias, 0.0, math.inf)
    size = torch.where(inexact & (size == size.round()), torch.nextafter(size, aside.to(size.dtype)), size)
    return torch.where(field == 0, 0.0, torch.where(sign, -size, size))


def _uncertainty(function: Function, format: LNSFormat, operands, values, estimate) -> torch.Tensor:
    """Return how far `estimate` may be from the exact value, infinite where nothing is known."""
    if math.isinf(function.error):
        return torch.full_like(estimate, math.inf)
    error = estimate.abs() * function.error + function.offset
    for i, (words, value) in enumerate(zip(operands, values, strict=True)):
        inexact = ~_is_exact(format, words)
        for step in (1.0 - _MOVE, 1.0 + _MOVE):
            moved = [*values]
            moved[i] = torch.where(inexact, value * step, value)
            # Twice what a locally monotonic function changes; and near an extremum, less is changed than this.
            error = error + 2.0 * (function.estimate(*moved) - estimate).abs()
        size = value.abs()
        error = torch.where((value != 0) & ((size <= 1 / _LARGEST) | (size >= _LARGEST)), math.inf, error)
    if function.trusted is not None:
        error = torch.where(function.trusted(*values), error, math.inf)
    return torch.where(torch.isnan(error), math.inf, error)


def _log(format: LNSFormat, magnitude: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the nearest integer logarithms of positive float64, and how far each is from a rounding boundary."""
    mantissa, exponent = torch.frexp(magnitude)
    unit = format.scale._ln_unit
    whole = torch.zeros_like(exponent, dtype=torch.int64)
    log = torch.log(mantissa) / unit
    if format.base == 2.0:
        whole = exponent.to(torch.int64) << format.frac_bits  # exact, so only the fraction's error counts
    else:
        log = log + exponent.to(torch.float64) * (math.log(2.0) / unit)
    rounded = torch.round(log)
    margin = (log.abs() + math.log(2.0) / unit) * 2.0**-47
    return whole + rounded.to(torch.int64), 0.5 - (log - rounded).abs() - margin


def _rational_of(format: LNSFormat, word: int) -> Fraction | None:
    """Return a word's value if it is rational and not of absurd size."""
    field = word & format.max_field
    if field == 0:
        return Fraction(0)
    root, step = rational_words(format.frac_bits, format.base)
    power, rest = divmod(field - format.bias, step)
    if rest or abs(power) * max(root.numerator, root.denominator).bit_length() > _PRECISION:
        return None
    return -(root**power) if word >> format.log_bits & 1 else root**power


def _ball_of(format: LNSFormat, word: int) -> flint.arb:
    """Return a word's value as a ball: exact where the value is a whole number or, in base 2, a power of two."""
    field = word & format.max_field
    if field == 0:
        return flint.arb(0)
    root, step = rational_words(format.frac_bits, format.base)
    power, rest = divmod(field - format.bias, step)
    if rest == 0 and (root == 2 or (root.denominator == 1 and power >= 0)):
        magnitude = flint.arb(root.numerator) ** power
    else:
        magnitude = (flint.arb(field - format.bias) * format.scale._arb_unit()).exp()
    return -magnitude if word >> format.log_bits & 1 else magnitude


def _decide(function: Function, format: LNSFormat, words: list[int], estimate: float) -> tuple[bool, bool, bool, int]:
    """Return of the exact value at these words: whether it is negative, zero, unknown; and its nearest logarithm."""
    if function.rational is not None:
        fractions = [_rational_of(format, word) for word in words]
        value = None if None in fractions else function.rational(*fractions)
        if value is not None:
            return value < 0, value == 0, False, format.scale.log_exact(abs(value)) if value else 0
    precision = 128
    while precision <= _PRECISION:
        with flint.ctx.workprec(precision):
            value = function.ball(*(_ball_of(format, word) for word in words))
            if value.is_zero():
                return False, True, False, 0
            if value.is_finite():
                negative = bool(value < 0)
                if negative or value > 0:
                    break
                ceiling = value.abs_upper()
                if ceiling.is_finite() and ceiling.log() / format.scale._arb_unit() < -format.bias - 2:
                    return False, False, False, -LOG_LIMIT  # below every word, whatever its sign
            elif math.isinf(estimate) and precision >= 1024:
                return estimate < 0, False, False, LOG_LIMIT  # more than a ball can hold
        precision *= 2
    else:
        return False, False, True, 0

    def log() -> flint.arb:
        return format.scale._arb_log(abs(function.ball(*(_ball_of(format, word) for word in words))))

    with flint.ctx.workprec(precision):
        size = log()
        if size.is_finite() and abs(size) > LOG_LIMIT:
            return negative, False, False, LOG_LIMIT if size > 0 else -LOG_LIMIT
    try:
        return negative, False, False, nearest_integer(log)
    except ArithmeticError:  # the enclosure does not shrink
        return False, False, True, 0


# Powers with a real exponent ------------------------------------------------------------------------------------------


def real_power(format: LNSFormat, base: torch.Tensor, exponent: torch.Tensor, words: bool) -> torch.Tensor:
    """Return the words nearest to ``base ** exponent``: the logarithm times the exponent, rounded half to even.

    Parameters
    ----------
    format : LNSFormat
    base : Tensor
        Words.
    exponent : Tensor
        Words where `words`, else exact float64 numbers, which only a format with specials takes infinite or NaN;
        broadcasts with `base`.
    words : bool
        What `exponent` holds.

    Returns
    -------
    Tensor
        Words. ``x ** 0`` is one, 0 to a negative power saturates (``zero_divide``), a negative number to a power that
        is no integer is zero, or NaN if the format has it (``invalid``). Infinities and NaN as in ``torch.pow``.
    """
    base, exponent = torch.broadcast_tensors(base, exponent)
    if format.specials:
        special = _special(format, [base, exponent]) if words else _special(format, [base]) | ~torch.isfinite(exponent)
        one = torch.where(special, format.bias if words else 1.0, exponent)
        result, flags = _real_power(format, torch.where(special, format.bias, base), one, words)
        limit = torch.pow(
            _limit_values(format, base[special]),
            _limit_values(format, exponent[special]) if words else exponent[special],
        )
        result = result.masked_scatter(special, conversions.encode(format, limit))
    else:
        result, flags = _real_power(format, base, exponent, words)
    operands = (base, exponent if words else conversions.encode(format, exponent))
    report("pow", format, operands, result, **flags)
    return result


def _real_power(
    format: LNSFormat, base: torch.Tensor, exponent: torch.Tensor, words: bool
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return words and flags of finite powers."""
    sign, field = format.unpack(base)
    log = field - format.bias
    value = _values(format, exponent, special=False) if words else exponent
    if words:
        whole = _is_whole(format, exponent)
        odd = whole & (format.unpack(exponent)[1] >= format.bias)
        odd &= (format.unpack(exponent)[1] == format.bias) | bool(
            rational_words(format.frac_bits, format.base)[0].numerator % 2
        )
    else:
        whole = value == value.round()
        odd = whole & (torch.remainder(value, 2.0) == 1.0)
    product = log.to(torch.float64) * value
    rounded = torch.round(product)
    settled = 0.5 - (product - rounded).abs() > product.abs() * 2.0**-50
    settled |= product.abs() > float(LOG_LIMIT)
    nearest = rounded.clamp(-float(LOG_LIMIT), float(LOG_LIMIT)).to(torch.int64).reshape(-1)
    for i in (~settled).reshape(-1).nonzero().reshape(-1).tolist():
        nearest[i] = _nearest_product(format, int(log.reshape(-1)[i]), exponent.reshape(-1)[i], words)
    zero, one = field == 0, value == 0
    invalid, pole = sign & ~whole, zero & (value < 0)
    nearest = torch.where(one, 0, nearest.reshape(log.shape))
    result, flags = fit(format, sign & odd, nearest + format.bias, zero & ~one, infinite=pole, invalid=invalid)
    return result, {"zero_divide": pole, **flags}


def _nearest_product(format: LNSFormat, log: int, exponent: torch.Tensor, words: bool) -> int:
    """Return the integer nearest to ``log * exponent``, half to even."""
    value = _rational_of(format, int(exponent)) if words else Fraction(float(exponent))
    if value is not None:
        return round(log * value)
    return nearest_integer(lambda: log * _ball_of(format, int(exponent)))
