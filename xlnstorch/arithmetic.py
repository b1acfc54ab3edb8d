"""LNS arithmetic on words: the golden model itself, in torch integers, for any device.

Operands are tensors of words in the format's dtype, and broadcast. Every operation reports itself to the observers of
:mod:`xlnstorch.observe`, with its flags. DESIGN in one table (M is the largest field; e the logarithm):

=============  =================================================  ====================================
operation      result                                             flags
=============  =================================================  ====================================
mul, div       e = ea ± eb; saturate above M, flush below 1       overflow, underflow
x / 0, 0 / 0   saturate with the sign of x; zero                  zero_divide; invalid
add, sub       larger e, plus s(d) or minus t(d); x − x is +0     overflow, underflow
pow n          n e; saturate or flush                             overflow, underflow, zero_divide
sqrt           e / 2, half to even; zero for a negative number    invalid
=============  =================================================  ====================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .exact import round_shift
from .observe import report

if TYPE_CHECKING:
    from .formats import LNSFormat

__all__ = ["absolute", "add", "compare_key", "div", "fit", "mul", "neg", "power", "relu", "sqrt", "sub"]

Words = torch.Tensor
Unpacked = tuple[torch.Tensor, torch.Tensor]


def mul(format: LNSFormat, a: Words, b: Words) -> Words:
    """Return the words of ``a * b``: exact but for saturation and flush."""
    (sign_a, field_a), (sign_b, field_b) = format.unpack(a), format.unpack(b)
    zero = (field_a == 0) | (field_b == 0)
    result, flags = fit(format, sign_a ^ sign_b, field_a + field_b - format.bias, zero)
    report("mul", format, (a, b), result, **flags)
    return result


def div(format: LNSFormat, a: Words, b: Words) -> Words:
    """Return the words of ``a / b``: exact but for saturation and flush; x / 0 saturates, 0 / 0 is zero."""
    (sign_a, field_a), (sign_b, field_b) = format.unpack(a), format.unpack(b)
    zero, by_zero = field_a == 0, field_b == 0
    result, flags = fit(format, sign_a ^ sign_b, field_a - field_b + format.bias, zero | by_zero)
    saturated = format.pack(sign_a, torch.full_like(field_a, format.max_field))
    result = torch.where(by_zero & ~zero, saturated, result)
    report("div", format, (a, b), result, invalid=by_zero & zero, zero_divide=by_zero & ~zero, **flags)
    return result


def add(format: LNSFormat, a: Words, b: Words) -> Words:
    """Return the words of ``a + b``, with the Gaussian logarithm of the format's adder."""
    result, flags = _add(format, format.unpack(a), format.unpack(b))
    report("add", format, (a, b), result, **flags)
    return result


def sub(format: LNSFormat, a: Words, b: Words) -> Words:
    """Return the words of ``a - b``: the addition of the negated b."""
    sign_b, field_b = format.unpack(b)
    result, flags = _add(format, format.unpack(a), (~sign_b & (field_b != 0), field_b))
    report("sub", format, (a, b), result, **flags)
    return result


def _add(format: LNSFormat, a: Unpacked, b: Unpacked) -> tuple[Words, dict[str, torch.Tensor]]:
    (sign_a, field_a), (sign_b, field_b) = a, b
    subtract = sign_a ^ sign_b
    a_is_larger = field_a >= field_b
    larger = torch.where(a_is_larger, field_a, field_b)
    d = (field_a - field_b).abs()
    changed = larger + format.adder.gaussian(format, d, subtract)
    # Adding zero changes nothing: its field is an offset from nowhere, so d means nothing either.
    either_zero = (field_a == 0) | (field_b == 0)
    field = torch.where(either_zero, larger, changed)
    cancelled = subtract & (d == 0)
    return fit(format, torch.where(a_is_larger, sign_a, sign_b), field, (larger == 0) | cancelled)


def power(format: LNSFormat, a: Words, n: int) -> Words:
    """Return the words of ``a ** n`` for an integer n; ``a ** 0`` is one, a negative power of zero saturates."""
    sign, field = format.unpack(a)
    if n == 0:
        return format.pack(torch.zeros_like(sign), torch.full_like(field, format.bias))
    zero = field == 0
    exponent = _saturating_product(field - format.bias, n, 2 * format.max_field)
    result, flags = fit(format, sign & bool(n % 2), exponent + format.bias, zero)
    if n < 0:
        result = torch.where(zero, format.pack(sign, torch.full_like(field, format.max_field)), result)
        flags["zero_divide"] = zero
    report(f"pow{n}", format, (a,), result, **flags)
    return result


def sqrt(format: LNSFormat, a: Words) -> Words:
    """Return the words of the square root, e / 2 half to even; zero, and invalid, for a negative number."""
    sign, field = format.unpack(a)
    root = round_shift(field - format.bias, 1) + format.bias
    result, flags = fit(format, torch.zeros_like(sign), root, (field == 0) | sign)
    report("sqrt", format, (a,), result, invalid=sign, **flags)
    return result


def neg(format: LNSFormat, a: Words) -> Words:
    """Return the words of ``-a``; zero stays zero."""
    sign, field = format.unpack(a)
    return format.pack(~sign & (field != 0), field)


def absolute(format: LNSFormat, a: Words) -> Words:
    """Return the words of ``|a|``."""
    sign, field = format.unpack(a)
    return format.pack(torch.zeros_like(sign), field)


def relu(format: LNSFormat, a: Words) -> Words:
    """Return a where it is positive, else zero."""
    sign, field = format.unpack(a)
    return format.pack(torch.zeros_like(sign), torch.where(sign, 0, field))


def compare_key(format: LNSFormat, a: Words) -> torch.Tensor:
    """Return int64 keys ordered as the numbers are; both zeros have key 0."""
    sign, field = format.unpack(a)
    return torch.where(sign, -field, field)


def fit(
    format: LNSFormat, sign: torch.Tensor, field: torch.Tensor, zero: torch.Tensor
) -> tuple[Words, dict[str, torch.Tensor]]:
    """Return words and flags of results whose fields may lie anywhere in int64: saturate above, flush below.

    Parameters
    ----------
    format : LNSFormat
    sign : bool Tensor
        Of the results, where they are not zero.
    field : int64 Tensor
        Before the range check.
    zero : bool Tensor
        Where the result is exactly zero, whatever `field` says.
    """
    underflow = (field < 1) & ~zero
    overflow = (field > format.max_field) & ~zero
    nothing = zero | underflow
    words = format.pack(sign & ~nothing, torch.where(nothing, 0, field.clamp(max=format.max_field)))
    return words, {"overflow": overflow, "underflow": underflow}


def _saturating_product(value: torch.Tensor, n: int, limit: int) -> torch.Tensor:
    """Return ``value * n`` clamped to ±limit, without leaving int64 on the way."""
    n = max(-limit, min(n, limit))  # no logarithm but zero is below one unit, so this decides nothing
    threshold = limit // abs(n)
    decided = value.abs() > threshold
    sign = torch.sign(value) * (1 if n > 0 else -1)
    return torch.where(decided, sign * limit, value.clamp(-threshold, threshold) * n)
