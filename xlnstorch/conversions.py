"""Between numbers, words and the packed form. Every rounding is to the nearest logarithm, and proved."""

from __future__ import annotations

import math
from fractions import Fraction

import torch

from . import arithmetic
from .exact import replace_where
from .formats import LNSFormat

__all__ = ["LNS_ZERO", "decode", "encode", "pack", "rescale", "unpack"]

#: Zero in the packed form: ``-2**53 | 1``, below every packed logarithm.
LNS_ZERO = -(2**53) | 1

# A logarithm of this many units is out of the range of every format, and far from the ends of int64.
_LOG_LIMIT = 1 << 60


def encode(format: LNSFormat, values: torch.Tensor) -> torch.Tensor:
    """Return the words nearest to real `values`.

    Parameters
    ----------
    format : LNSFormat
    values : Tensor
        Any real or boolean dtype and shape. Infinities saturate, both zeros are zero; what is nearest to a logarithm
        below the range flushes to zero, above it saturates.

    Raises
    ------
    TypeError
        Complex values.
    ValueError
        NaN, which the format has no word for.
    """
    if values.dtype.is_complex:
        raise TypeError(f"values must be real, not {values.dtype}")
    source, values = values, values.detach().to(torch.float64)
    if bool(torch.isnan(values).any()):
        raise ValueError(f"{format} has no word for NaN; found one in the values to encode")
    magnitude = values.abs()
    finite = torch.isfinite(magnitude) & (magnitude != 0)
    log = format.scale.log(torch.where(finite, magnitude, 1.0))
    if not source.dtype.is_floating_point:
        # Large integers may not fit a float64, and rounding twice can end one unit off.
        log = replace_where(
            log, magnitude >= 2.0**53, lambda i: format.scale.log_exact(Fraction(abs(source.reshape(-1)[i].item())))
        )
    log = torch.where(torch.isinf(magnitude), _LOG_LIMIT, torch.where(magnitude == 0, -_LOG_LIMIT, log))
    return words_from_log(format, values < 0, log)


def words_from_log(format: LNSFormat, sign: torch.Tensor, log: torch.Tensor) -> torch.Tensor:
    """Return the words with these signs and int64 logarithms e; above the range saturate, below it flush."""
    field = log.clamp(-_LOG_LIMIT, _LOG_LIMIT) + format.bias
    words, _ = arithmetic.fit(format, sign, field, torch.zeros_like(sign))
    return words


def decode(format: LNSFormat, words: torch.Tensor) -> torch.Tensor:
    """Return the float64 values of words: the nearest up to 16 fraction bits in base 2, else within 1 ulp.

    Magnitudes outside float64's range come out as infinities and zeros.
    """
    sign, field = format.unpack(words)
    zero = field == 0
    magnitude = format.scale.exp(torch.where(zero, 0, field - format.bias))
    return torch.where(zero, 0.0, torch.where(sign, -magnitude, magnitude))


def rescale(format: LNSFormat, words: torch.Tensor, other: LNSFormat) -> torch.Tensor:
    """Return words of `format` as words of `other`: the nearest logarithm, half to even; zero stays zero."""
    if (format.int_bits, format.frac_bits, format.base) == (other.int_bits, other.frac_bits, other.base):
        return words
    sign, field = format.unpack(words)
    zero = field == 0
    log = format.scale.rescale(torch.where(zero, 0, field - format.bias), other.scale)
    return words_from_log(other, sign, torch.where(zero, -_LOG_LIMIT, log))


def pack(format: LNSFormat, words: torch.Tensor) -> torch.Tensor:
    """Return the packed form: float64 integers ``(e << 1) | sign``, with :data:`LNS_ZERO` for zero."""
    sign, field = format.unpack(words)
    packed = ((field - format.bias) << 1) | sign.to(torch.int64)
    return torch.where(field == 0, LNS_ZERO, packed).to(torch.float64)


def unpack(format: LNSFormat, packed: torch.Tensor) -> torch.Tensor:
    """Return the words of a packed tensor; logarithms above the range saturate, below it flush to zero.

    Raises
    ------
    TypeError
        `packed` is neither float64 nor int64.
    ValueError
        An element is not an integer of at most 54 bits; the message shows the first.
    """
    if packed.dtype not in (torch.float64, torch.int64):
        raise TypeError(f"packed LNS values must be float64 or int64, not {packed.dtype}")
    packed = packed.detach()
    if packed.dtype == torch.float64:
        bad = ~((packed == packed.round()) & (packed.abs() <= 2.0**53))
        if bool(bad.any()):
            raise ValueError(f"packed LNS values must be integers within ±2**53, not {float(packed[bad][0])}")
        packed = packed.to(torch.int64)
    return words_from_log(format, (packed & 1).bool(), torch.where(packed <= LNS_ZERO, -_LOG_LIMIT, packed >> 1))


def encode_scalar(format: LNSFormat, value: float) -> int:
    """Return the word, as torch holds it, nearest to one Python number; see :func:`encode`."""
    if isinstance(value, int) and abs(value) > 2**53:
        log = min(format.scale.log_exact(Fraction(abs(value))), _LOG_LIMIT)
        return int(words_from_log(format, torch.tensor(value < 0), torch.tensor(log)))
    if isinstance(value, float) and math.isnan(value):
        raise ValueError(f"{format} has no word for NaN")
    return int(encode(format, torch.tensor(value, dtype=torch.float64)))
