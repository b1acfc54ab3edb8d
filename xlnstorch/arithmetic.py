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

In a format with specials, M is infinity, so that what saturates is infinite, and what is invalid is NaN. Beyond that:

===================================  ===========================  ====================================
operands                             result                       flags
===================================  ===========================  ====================================
any NaN, but of pow 0                NaN
0 · Inf, Inf / Inf, Inf − Inf        NaN                          invalid
Inf · x, Inf / x, Inf + x, Inf**n    Inf
x / Inf, Inf**−n                     zero
===================================  ===========================  ====================================
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import torch

from . import kernels
from .exact import round_shift
from .observe import report

if TYPE_CHECKING:
    from .formats import LNSFormat

__all__ = [
    "absolute",
    "add",
    "compare_key",
    "div",
    "fit",
    "from_order",
    "maximum",
    "minimum",
    "mul",
    "neg",
    "order",
    "pack_like",
    "power",
    "relu",
    "sqrt",
    "sub",
]

Words = torch.Tensor
Result = tuple[torch.Tensor, dict[str, torch.Tensor]]


def mul(format: LNSFormat, a: Words, b: Words) -> Words:
    """Return the words of ``a * b``: exact but for saturation and flush."""
    if (result := kernels.elementwise("mul", format, a, b)) is not None:
        return result
    (sign_a, field_a), (sign_b, field_b) = format.unpack(a), format.unpack(b)
    zero = (field_a == 0) | (field_b == 0)
    special = {}
    if format.specials:
        infinite = format.is_inf(a) | format.is_inf(b)
        special = {"infinite": infinite, "invalid": infinite & zero, "nan": format.is_nan(a) | format.is_nan(b)}
    result, flags = fit(format, sign_a ^ sign_b, field_a + field_b - format.bias, zero, **special)
    report("mul", format, (a, b), result, **flags)
    return result


def div(format: LNSFormat, a: Words, b: Words) -> Words:
    """Return the words of ``a / b``: exact but for saturation and flush; x / 0 saturates, 0 / 0 is zero."""
    if (result := kernels.elementwise("div", format, a, b)) is not None:
        return result
    (sign_a, field_a), (sign_b, field_b) = format.unpack(a), format.unpack(b)
    zero, by_zero = field_a == 0, field_b == 0
    infinite, invalid, pole, nan = by_zero, by_zero & zero, by_zero & ~zero, None
    if format.specials:
        nan, inf_a, inf_b = format.is_nan(a) | format.is_nan(b), format.is_inf(a), format.is_inf(b)
        zero, infinite = zero | inf_b, infinite | inf_a
        invalid, pole = invalid | (inf_a & inf_b), pole & ~inf_a & ~nan
    result, flags = fit(
        format,
        sign_a ^ sign_b,
        field_a - field_b + format.bias,
        zero,
        infinite=infinite,
        invalid=invalid,
        nan=nan,
    )
    report("div", format, (a, b), result, zero_divide=pole, **flags)
    return result


def add(format: LNSFormat, a: Words, b: Words) -> Words:
    """Return the words of ``a + b``, with the Gaussian logarithm of the format's adder."""
    if (result := kernels.elementwise("add", format, a, b)) is not None:
        return result
    result, flags = _add(format, a, b, *format.unpack(b))
    report("add", format, (a, b), result, **flags)
    return result


def sub(format: LNSFormat, a: Words, b: Words) -> Words:
    """Return the words of ``a - b``: the addition of the negated b."""
    if (result := kernels.elementwise("sub", format, a, b)) is not None:
        return result
    sign_b, field_b = format.unpack(b)
    result, flags = _add(format, a, b, ~sign_b & (field_b != 0), field_b)
    report("sub", format, (a, b), result, **flags)
    return result


def _add(format: LNSFormat, a: Words, b: Words, sign_b: torch.Tensor, field_b: torch.Tensor) -> Result:
    """Return words and flags of a plus b, which is taken to have another sign than its own."""
    sign_a, field_a = format.unpack(a)
    subtract = sign_a ^ sign_b
    a_is_larger = field_a >= field_b
    larger = torch.where(a_is_larger, field_a, field_b)
    d = (field_a - field_b).abs()
    changed = larger + format.adder.gaussian(format, d, subtract)
    # Adding zero changes nothing: its field is an offset from nowhere, so d means nothing either.
    either_zero = (field_a == 0) | (field_b == 0)
    field = torch.where(either_zero, larger, changed)
    cancelled = subtract & (d == 0)
    special = {}
    if format.specials:
        infinite = larger == format.max_field
        special = {"infinite": infinite, "invalid": infinite & cancelled, "nan": format.is_nan(a) | format.is_nan(b)}
    return fit(format, torch.where(a_is_larger, sign_a, sign_b), field, (larger == 0) | cancelled, **special)


def power(format: LNSFormat, a: Words, n: int) -> Words:
    """Return the words of ``a ** n`` for an integer n; ``a ** 0`` is one, a negative power of zero saturates."""
    sign, field = format.unpack(a)
    if n == 0:
        return format.pack(torch.zeros_like(sign), torch.full_like(field, format.bias))
    zero, infinite, nan = field == 0, None, None
    if format.specials:
        infinite, nan = format.is_inf(a), format.is_nan(a)
    pole = {}
    if n < 0:
        zero, infinite = infinite, zero
        pole["zero_divide"] = infinite if nan is None else infinite & ~nan
    exponent = _saturating_product(field - format.bias, n, 2 * format.max_field)
    result, flags = fit(format, sign & bool(n % 2), exponent + format.bias, zero, infinite=infinite, nan=nan)
    report(f"pow{n}", format, (a,), result, **pole, **flags)
    return result


def sqrt(format: LNSFormat, a: Words) -> Words:
    """Return the words of the square root, e / 2 half to even; zero, and invalid, for a negative number."""
    if (result := kernels.elementwise("sqrt", format, a)) is not None:
        return result
    sign, field = format.unpack(a)
    root = round_shift(field - format.bias, 1) + format.bias
    special = {"infinite": format.is_inf(a), "nan": format.is_nan(a)} if format.specials else {}
    result, flags = fit(format, torch.zeros_like(sign), root, field == 0, invalid=sign, **special)
    report("sqrt", format, (a,), result, **flags)
    return result


def neg(format: LNSFormat, a: Words) -> Words:
    """Return the words of ``-a``; zero stays zero."""
    if (result := kernels.elementwise("neg", format, a)) is not None:
        return result
    sign, field = format.unpack(a)
    result = pack_like(format, a, ~sign & (field != 0), field)
    report("neg", format, (a,), result)
    return result


def absolute(format: LNSFormat, a: Words) -> Words:
    """Return the words of ``|a|``."""
    if (result := kernels.elementwise("abs", format, a)) is not None:
        return result
    sign, field = format.unpack(a)
    result = pack_like(format, a, torch.zeros_like(sign), field)
    report("abs", format, (a,), result)
    return result


def relu(format: LNSFormat, a: Words) -> Words:
    """Return a where it is positive, else zero; NaN stays."""
    if (result := kernels.elementwise("relu", format, a)) is not None:
        return result
    sign, field = format.unpack(a)
    result = pack_like(format, a, torch.zeros_like(sign), torch.where(sign, 0, field))
    report("relu", format, (a,), result)
    return result


def maximum(format: LNSFormat, a: Words, b: Words) -> Words:
    """Return the words of the larger number; NaN if either is."""
    result = from_order(format, torch.maximum(order(format, a), order(format, b)))
    report("max", format, (a, b), result)
    return result


def minimum(format: LNSFormat, a: Words, b: Words) -> Words:
    """Return the words of the smaller number; NaN if either is."""
    result = from_order(format, torch.minimum(order(format, a), order(format, b)))
    report("min", format, (a, b), result)
    return result


def pack_like(format: LNSFormat, a: Words, sign: torch.Tensor, field: torch.Tensor) -> Words:
    """Return the words with these signs and fields, and NaN where a is, whose field 0 must have been kept."""
    return format.pack(sign | format.is_nan(a) if format.specials else sign, field)


def compare_key(format: LNSFormat, a: Words) -> torch.Tensor:
    """Return int64 keys ordered as the numbers are; both zeros have key 0, and so has NaN: see :func:`order`."""
    wide = a.to(torch.int64)
    field = wide & format.max_field
    return torch.where((wide & ~format.max_field) != 0, -field, field)


def order(format: LNSFormat, a: Words) -> torch.Tensor:
    """Return float64 numbers ordered as the words are, exactly, for a key has at most 53 bits; NaN where a is."""
    if (found := kernels.order(format, a)) is not None:
        return found
    key = compare_key(format, a).to(torch.float64)
    return torch.where(format.is_nan(a), math.nan, key) if format.specials else key


def from_order(format: LNSFormat, order: torch.Tensor) -> Words:
    """Return the words of which :func:`order` gave these numbers.

    Infinities are beyond all words, and become the largest; NaN becomes zero where there is no word for it.
    """
    if (words := kernels.from_order(format, order)) is not None:
        return words
    nan = torch.isnan(order)
    field = torch.where(nan, 0.0, order).abs().clamp(max=format.max_field).to(torch.int64)
    return format.pack((order < 0) | nan if format.specials else order < 0, field)


def fit(
    format: LNSFormat,
    sign: torch.Tensor,
    field: torch.Tensor,
    zero: torch.Tensor | None,
    *,
    infinite: torch.Tensor | None = None,
    invalid: torch.Tensor | None = None,
    nan: torch.Tensor | None = None,
) -> Result:
    """Return words and flags of results whose fields may lie anywhere in int64: saturate above, flush below.

    Parameters
    ----------
    format : LNSFormat
    sign : bool Tensor
        Of the results, where they are neither zero nor NaN.
    field : int64 Tensor
        Before the range check.
    zero, infinite, invalid, nan : bool Tensor, optional
        Where the result is known, whatever `field` says, and neither flushes nor overflows. It is exactly zero; has the
        largest field, which is infinity if the format has that; or is NaN, and zero without it, of which `invalid`
        raises that flag and `nan` none. The later of them goes before the earlier.
    """
    known = [mask for mask in (zero, infinite, invalid, nan) if mask is not None]
    number = ~functools.reduce(torch.logical_or, known)
    flags = {"overflow": (field > format.max_finite_field) & number, "underflow": (field < 1) & number}
    field = field.clamp(max=format.max_field)
    nothing = flags["underflow"] if zero is None else flags["underflow"] | zero
    if infinite is not None:
        field = torch.where(infinite, format.max_field, field)
        nothing = nothing & ~infinite
    failed = nan
    if invalid is not None:
        flags["invalid"] = invalid if nan is None else invalid & ~nan
        failed = invalid if nan is None else invalid | nan
    if failed is not None:
        nothing = nothing | failed
    sign = sign & ~nothing
    if failed is not None and format.specials:
        sign = sign | failed
    return format.pack(sign, torch.where(nothing, 0, field)), flags


def _saturating_product(value: torch.Tensor, n: int, limit: int) -> torch.Tensor:
    """Return ``value * n`` clamped to ±limit, without leaving int64 on the way."""
    n = max(-limit, min(n, limit))  # no logarithm but zero is below one unit, so this decides nothing
    threshold = limit // abs(n)
    decided = value.abs() > threshold
    sign = torch.sign(value) * (1 if n > 0 else -1)
    return torch.where(decided, sign * limit, value.clamp(-threshold, threshold) * n)
