"""Between numbers, words and the packed form. Every rounding is to the nearest, in one step, and proved."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import torch

from . import arithmetic, kernels
from .checks import as_integer, integer_between
from .double_double import DoubleDouble, two_sum
from .formats import LNSFormat

__all__ = [
    "LNS_ZERO",
    "decode",
    "decode_fixed",
    "encode",
    "encode_fixed",
    "encode_fixed_with_flags",
    "encode_with_flags",
    "pack",
    "rescale",
    "scalar_words",
    "unpack",
]

#: Zero in the packed form: ``-2**53 | 1``, below every packed logarithm.
LNS_ZERO = -(2**53) | 1

# A logarithm of this many units is out of the range of every format, and far from the ends of int64.
LOG_LIMIT = 1 << 60

# Digits of the significand, exponent of the smallest number, exponent of the largest, and a dtype for the bits.
_NARROW = {
    torch.float32: (24, -149, 127, torch.int32),
    torch.bfloat16: (8, -133, 127, torch.int16),
    torch.float16: (11, -24, 15, torch.int16),
}
_SIGNED = {torch.int8: 8, torch.int16: 16, torch.int32: 32, torch.int64: 64}
_UNSIGNED = {torch.uint8: 8, torch.uint16: 16, torch.uint32: 32, torch.uint64: 64}


def encode(format: LNSFormat, values: torch.Tensor) -> torch.Tensor:
    """Return the words nearest to real `values`.

    Parameters
    ----------
    format : LNSFormat
    values : Tensor
        Any real or boolean dtype and shape. Infinities saturate, both zeros are zero; what is nearest to a logarithm
        below the range flushes to zero, above it saturates. With specials, what saturates is infinite, and NaN is NaN.

    Raises
    ------
    TypeError
        Complex values.
    ValueError
        NaN, in a format that has no word for it.
    """
    if values.dtype.is_floating_point:
        rest = functools.partial(_encode, format)
        if (words := kernels.encode(format, values.detach().to(torch.float64), rest)) is not None:
            return words
    return _encode(format, values)


def _encode(format: LNSFormat, values: torch.Tensor) -> torch.Tensor:
    words, flags = encode_with_flags(format, values)
    if "invalid" in flags and bool(flags["invalid"].any()):
        raise ValueError(f"{format} has no word for NaN; found one in the values to encode")
    return words


def encode_with_flags(format: LNSFormat, values: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the words nearest to real `values`, as :func:`encode` does, and the flags that gates raise.

    These are ``overflow`` and ``underflow`` as in :func:`xlnstorch.arithmetic.fit`, the former too where an infinity
    saturates, and ``invalid`` for NaN in a format that has no word for it, which becomes zero.

    Raises
    ------
    TypeError
        Complex values.

    Examples
    --------
    >>> import torch
    >>> from xlnstorch import conversions, lns8
    >>> words, flags = conversions.encode_with_flags(lns8, torch.tensor([1.0, 1e9, float("nan")]))
    >>> words.tolist(), flags["overflow"].tolist(), flags["invalid"].tolist()
    ([64, 127, 0], [False, True, False], [False, False, True])
    """
    if values.dtype.is_complex:
        raise TypeError(f"values must be real, not {values.dtype}")
    if not values.dtype.is_floating_point:
        return encode_fixed_with_flags(format, values, 0)
    values = values.detach().to(torch.float64)
    magnitude, nan = values.abs(), torch.isnan(values)
    infinite, zero = torch.isinf(magnitude), magnitude == 0
    ordinary = ~(infinite | zero | nan)
    field = torch.where(infinite, LOG_LIMIT, format.scale.log(torch.where(ordinary, magnitude, 1.0)) + format.bias)
    special = {"infinite": infinite, "nan": nan} if format.specials else {"invalid": nan}
    return arithmetic.fit(format, values < 0, field, zero, **special)


def encode_fixed(format: LNSFormat, integers: torch.Tensor, frac_bits: int) -> torch.Tensor:
    """Return the words nearest to fixed-point numbers, ``integers / 2**frac_bits``.

    Parameters
    ----------
    format : LNSFormat
    integers : Tensor
        Any integer or boolean dtype, uint64 included, and any shape.
    frac_bits : int
        From -256 to 256: how many of the bits of an integer lie behind the binary point.

    Raises
    ------
    TypeError
        `integers` or `frac_bits` is not of integers.
    ValueError
        `frac_bits` is out of range.

    Examples
    --------
    >>> import torch
    >>> from xlnstorch import conversions, lns16
    >>> words = conversions.encode_fixed(lns16, torch.tensor([3, -16]), frac_bits=4)
    >>> conversions.decode(lns16, words).tolist()
    [0.1876267587033032, -1.0]
    """
    words, _ = encode_fixed_with_flags(format, integers, frac_bits)
    return words


def encode_fixed_with_flags(
    format: LNSFormat, integers: torch.Tensor, frac_bits: int
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the words of :func:`encode_fixed`, and the flags ``overflow`` and ``underflow``."""
    if integers.dtype.is_floating_point or integers.dtype.is_complex:
        raise TypeError(f"integers must be of an integer dtype, not {integers.dtype}")
    unit = 2.0 ** -_fixed_bits(frac_bits)
    magnitude, rest = (part * unit for part in _magnitude(integers))
    zero = magnitude == 0
    log = format.scale.log(torch.where(zero, 1.0, magnitude), rest if bool(rest.any()) else None)
    negative = integers < 0 if integers.dtype in _SIGNED else torch.zeros_like(zero)
    return arithmetic.fit(format, negative, log + format.bias, zero)


def _fixed_bits(frac_bits: int) -> int:
    return integer_between("frac_bits", frac_bits, -256, 256)


def _magnitude(integers: torch.Tensor) -> DoubleDouble:
    """Return the magnitudes of integers exactly: the nearest float64, and the rest."""
    # A uint64 becomes the int64 of the same bits, and the magnitude of -2**63 is its own bits: either way 64 bits.
    wide = integers.view(torch.int64) if integers.dtype == torch.uint64 else integers.to(torch.int64).abs()
    high, low = (wide >> 32) & 0xFFFFFFFF, wide & 0xFFFFFFFF
    return two_sum(high.to(torch.float64) * 2.0**32, low.to(torch.float64))


def words_from_log(
    format: LNSFormat, sign: torch.Tensor, log: torch.Tensor, nan: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the words with these signs and int64 logarithms e; above the range saturate, below it flush.

    Where `nan` is given and true, they are NaN.
    """
    field = log.clamp(-LOG_LIMIT, LOG_LIMIT) + format.bias
    words, _ = arithmetic.fit(format, sign, field, torch.zeros_like(sign), nan=nan)
    return words


def decode(format: LNSFormat, words: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Return the values of words, each the nearest number of `dtype`, half to even.

    Parameters
    ----------
    format : LNSFormat
    words : Tensor
    dtype : torch.dtype
        ``float64``, ``float32``, ``float16`` or ``bfloat16``, rounded as IEEE 754 does, in one step: above the range to
        infinities, below it to subnormal numbers and zeros, which keep the sign. Or an integer dtype, where what is out
        of range is the nearest end of it; see :func:`decode_fixed`. The word of zero is +0 in all of them. With
        specials, infinities are infinities, and NaN is the quiet NaN without a sign or a payload.

    Raises
    ------
    TypeError
        Any other `dtype`.

    Examples
    --------
    >>> import torch
    >>> from xlnstorch import conversions, lns16
    >>> words = lns16.from_unsigned(torch.tensor([0x4080, 0xC0CB, 0]))
    >>> conversions.decode(lns16, words).tolist()
    [2.0, -3.002028139252851, 0.0]
    >>> conversions.decode(lns16, words, torch.int8).tolist()
    [2, -3, 0]
    """
    if dtype in _UNSIGNED or dtype in _SIGNED:
        width = (_UNSIGNED | _SIGNED)[dtype]
        integers, _ = _decode_integers(format, words, 0, width, dtype in _SIGNED)
        return integers.view(dtype) if width == 64 else integers.to(dtype)
    if dtype == torch.float64 and (values := kernels.decode(format, words)) is not None:
        return values
    sign, field = format.unpack(words)
    zero = field == 0
    log = torch.where(zero, 0, field - format.bias)
    if dtype == torch.float64:
        magnitude = format.scale.exp(log)
        if format.specials:
            magnitude = torch.where(format.is_inf(words), math.inf, magnitude)
        values = torch.where(zero, 0.0, torch.where(sign, -magnitude, magnitude))
        return torch.where(format.is_nan(words), math.nan, values) if format.specials else values
    if dtype not in _NARROW:
        raise TypeError(f"dtype must be float64, float32, float16, bfloat16 or of integers, not {dtype!r}")
    digits, lowest, highest, bits_dtype = _NARROW[dtype]
    exponent = format.scale.exponent(log)
    # In units of the last place the significand is an integer. Added to the exponent's bits, a significand that was
    # rounded up to the next power of two carries into them, to infinity above the largest number.
    unit = (exponent - (digits - 1)).clamp(lowest, highest)
    bits = ((unit - lowest) << (digits - 1)) + format.scale.integer(log, -unit)
    infinity = (highest - lowest - digits + 3) << (digits - 1)
    above = exponent > highest
    bits = torch.where(above | format.is_inf(words) if format.specials else above, infinity, bits)
    bits = torch.where(zero, 0, bits - (sign.to(torch.int64) << (torch.iinfo(bits_dtype).bits - 1)))
    if format.specials:
        bits = torch.where(format.is_nan(words), infinity | 1 << (digits - 2), bits)
    return bits.to(bits_dtype).view(dtype)


def decode_fixed(
    format: LNSFormat, words: torch.Tensor, frac_bits: int, width: int = 64, signed: bool = True
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the values of words in fixed point, ``integers / 2**frac_bits``: the nearest, half to even.

    Parameters
    ----------
    format : LNSFormat
    words : Tensor
    frac_bits : int
        From -256 to 256.
    width : int
        Bits of an integer, the sign included: 1 to 64, or 63 without a sign. What is beyond is the nearest end of the
        range, which without a sign is zero for negative numbers.
    signed : bool
        Whether the integers are in two's complement.

    Returns
    -------
    Tensor, dict of str to Tensor
        The integers, in int64, and the flags as in :func:`xlnstorch.arithmetic.fit`: ``overflow`` where the nearest
        integer is out of range, ``underflow`` where a number that is not zero becomes zero by rounding, and, with
        specials, ``invalid`` for NaN, which becomes zero.

    Raises
    ------
    TypeError
        `frac_bits` or `width` is not an integer.
    ValueError
        `frac_bits` or `width` is out of range.

    Examples
    --------
    >>> import torch
    >>> from xlnstorch import conversions, lns16
    >>> words = lns16.from_unsigned(torch.tensor([0x4080, 0xC0CB, 0x4400]))
    >>> integers, flags = conversions.decode_fixed(lns16, words, frac_bits=4, width=8)
    >>> integers.tolist(), flags["overflow"].tolist()
    ([32, -48, 127], [False, False, True])
    """
    bits = as_integer("width", width)
    most = 64 if signed else 63
    if not 1 <= bits <= most:
        raise ValueError(f"width must be between 1 and {most} where signed={bool(signed)}, not {bits}")
    return _decode_integers(format, words, _fixed_bits(frac_bits), bits, signed)


def _decode_integers(
    format: LNSFormat, words: torch.Tensor, frac_bits: int, width: int, signed: bool
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """As :func:`decode_fixed`, with 64 bits without a sign too: they come as the int64 of the same bits."""
    sign, field = format.unpack(words)
    zero = field == 0
    magnitude = torch.where(zero, 0, format.scale.integer(torch.where(zero, 0, field - format.bias), frac_bits))
    if format.specials:
        magnitude = torch.where(format.is_inf(words), _as_int64((1 << 64) - 1), magnitude)
    largest = (1 << (width - signed)) - 1
    limit = torch.where(sign, _as_int64(largest + 1 if signed else 0), _as_int64(largest))
    # Magnitudes have 64 bits; with the top one turned over they compare as int64.
    overflow = (magnitude ^ _as_int64(1 << 63)) > (limit ^ _as_int64(1 << 63))
    integers = torch.where(overflow, limit, magnitude)
    flags = {"overflow": overflow, "underflow": ~zero & (magnitude == 0)}
    if format.specials:
        flags["invalid"] = format.is_nan(words)
    return torch.where(sign, -integers, integers), flags


def _as_int64(bits: int) -> int:
    """Return the int64 with the bits of an integer from 0 to 2**64 - 1."""
    return bits - (bits >> 63 << 64)


def rescale(format: LNSFormat, words: torch.Tensor, other: LNSFormat) -> torch.Tensor:
    """Return words of `format` as words of `other`: the nearest logarithm, half to even; zero stays zero.

    Infinities and NaN stay what they are too; in a format without specials, infinities saturate.

    Raises
    ------
    ValueError
        NaN, where `other` has no word for it.
    """
    if all(getattr(format, field) == getattr(other, field) for field in ("int_bits", "frac_bits", "specials", "base")):
        return words
    sign, field = format.unpack(words)
    zero = field == 0
    log = format.scale.rescale(torch.where(zero, 0, field - format.bias), other.scale)
    log, nan = torch.where(zero, -LOG_LIMIT, log), None
    if format.specials:
        log, nan = torch.where(format.is_inf(words), LOG_LIMIT, log), format.is_nan(words)
        if not other.specials and bool(nan.any()):
            raise ValueError(f"{other} has no word for NaN; found one in the words to convert")
    return words_from_log(other, sign, log, nan)


def pack(format: LNSFormat, words: torch.Tensor) -> torch.Tensor:
    """Return the packed form: float64 integers ``(e << 1) | sign``, with :data:`LNS_ZERO` for zero, and NaN for NaN."""
    sign, field = format.unpack(words)
    packed = ((field - format.bias) << 1) | sign.to(torch.int64)
    packed = torch.where(field == 0, LNS_ZERO, packed).to(torch.float64)
    return torch.where(format.is_nan(words), math.nan, packed) if format.specials else packed


def unpack(format: LNSFormat, packed: torch.Tensor) -> torch.Tensor:
    """Return the words of a packed tensor; logarithms above the range saturate, below it flush to zero.

    Raises
    ------
    TypeError
        `packed` is neither float64 nor int64.
    ValueError
        An element is not an integer of at most 54 bits, nor NaN in a format that has it; the message shows the first.
    """
    if packed.dtype not in (torch.float64, torch.int64):
        raise TypeError(f"packed LNS values must be float64 or int64, not {packed.dtype}")
    packed, nan = packed.detach(), None
    if packed.dtype == torch.float64:
        if format.specials:
            nan = torch.isnan(packed)
            packed = torch.where(nan, LNS_ZERO, packed)
        bad = ~((packed == packed.round()) & (packed.abs() <= 2.0**53))
        if bool(bad.any()):
            raise ValueError(f"packed LNS values must be integers within ±2**53, not {float(packed[bad][0])}")
        packed = packed.to(torch.int64)
    return words_from_log(format, (packed & 1).bool(), torch.where(packed <= LNS_ZERO, -LOG_LIMIT, packed >> 1), nan)


def encode_scalar(format: LNSFormat, value: float) -> int:
    """Return the word, as torch holds it, nearest to one Python number; see :func:`encode`."""
    return int(scalar_words(format, value, None))


@functools.lru_cache(maxsize=4096, typed=True)
def scalar_words(format: LNSFormat, value: float, device: torch.device | None) -> torch.Tensor:
    """Return :func:`encode_scalar` as a tensor without dimensions: the same each time, so not to be written to."""
    with torch.inference_mode(False):
        if isinstance(value, int) and abs(value) > 2**53:
            log = min(format.scale.log_exact(Fraction(abs(value))), LOG_LIMIT)
            words = words_from_log(format, torch.tensor(value < 0), torch.tensor(log))
        elif isinstance(value, float) and math.isnan(value) and not format.specials:
            raise ValueError(f"{format} has no word for NaN")
        else:
            words = encode(format, torch.tensor(value, dtype=torch.float64))
        return words.to(device)
