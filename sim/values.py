"""Values of one operand to try a unit on, by its layout: words, floats, and integers or fixed point.

All are the non-negative integers that the wires hold.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from amaranth.hdl import ShapeLike

from hdl.convert import FloatLayout
from hdl.layouts import WordLayout
from xlnstorch.formats import LNSFormat

from .payloads import dimensions, element, width

__all__ = [
    "corner_values",
    "corner_words",
    "midpoints",
    "neighbours",
    "random_distances",
    "random_values",
    "words",
]

# In formats with infinities and NaN so many of the random words are corners, of which zero and these are some.
_SPECIAL_SHARE = 1 / 16


def corner_values(layout: ShapeLike, format: LNSFormat) -> list[int]:
    """Return the values at which something changes.

    Parameters
    ----------
    layout : ShapeLike
        Of one operand; of an array, its elements.
    format : LNSFormat
        Where its words begin and end, so do floats.
    """
    layout = element(layout)
    if isinstance(layout, WordLayout):
        return corner_words(layout.word_format)
    if _float_type(layout):
        return _corner_floats(_float_type(layout), format)
    return _corner_integers(width(layout))


def random_values(layout: ShapeLike, format: LNSFormat, rng: np.random.Generator, count: int) -> np.ndarray:
    """Return random values, in int64, of shape ``(count,)``, with a dimension more for each array in `layout`.

    Where there are more bits than a word has, above it, any of them are set.
    """
    shape, layout = (count, *dimensions(layout)), element(layout)
    if isinstance(layout, WordLayout):
        above = rng.integers(0, 1 << (width(layout) - layout.word_format.width), shape)
        return _random_words(layout.word_format, rng, shape) | above << layout.word_format.width
    if _float_type(layout):
        return _random_floats(_float_type(layout), format, rng, shape)
    return _random_integers(width(layout), rng, shape)


def corner_words(format: LNSFormat) -> list[int]:
    """Return the words at which something changes: both zeros, ends of the range, one, the adder's reach.

    In a format with specials these include both infinities, the largest numbers and NaN.
    """
    one, top, step = format.bias, format.max_field, 1 << format.frac_bits
    reach = format.adder.reach(format)
    near = [0, 1, 2, step, one - step, one - 1, one, one + 1, one + step, top - step, top - 1, top]
    far = [one - reach, one - reach + 1, one + reach - 1, one + reach, one // 2, one + one // 2, top // 3]
    fields = sorted({field for field in near + far if 0 <= field <= top})
    return [(sign << format.log_bits) | field for field in fields for sign in (0, 1)]


def _float_type(layout: ShapeLike) -> torch.dtype | None:
    """Return the type of the floats of a layout, None for any other layout."""
    return layout.tensor(np.zeros(1, np.int64)).dtype if isinstance(layout, FloatLayout) else None


def _random_words(format: LNSFormat, rng: np.random.Generator, shape: tuple) -> np.ndarray:
    """Return words of uniform logarithms and both signs; where there are infinities and NaN, some of these."""
    uniform = rng.integers(0, 1 << format.width, shape)
    if not format.specials:
        return uniform
    return np.where(rng.random(shape) < _SPECIAL_SHARE, rng.choice(corner_words(format), shape), uniform)


def _float_fields(dtype: torch.dtype) -> tuple[int, int, int]:
    """Return the bits, the mantissa bits, and the bias of the exponent of a float type."""
    info = torch.finfo(dtype)
    mantissa = -round(math.log2(info.eps))
    return info.bits, mantissa, (1 << (info.bits - mantissa - 2)) - 1


def _corner_floats(dtype: torch.dtype, format: LNSFormat) -> list[int]:
    """Return zeros, ends of the subnormal and the normal numbers, infinities, several NaN, and powers of two."""
    bits, mantissa, bias = _float_fields(dtype)
    infinite, quiet = (2 * bias + 1) << mantissa, 1 << (mantissa - 1)
    # Where the words begin and end, next to one, and some on the way.
    exponents = [sign * (1 << (format.int_bits - 1)) for sign in (-1, 1)] + [-bias // 2, -1, 0, 1, 2, bias // 2]
    powers = [(bias + exponent) << mantissa for exponent in exponents if -bias < exponent <= bias]
    places = [power + offset for power in powers for offset in (-1, 0, 1)]
    places += [0, 1, 2, quiet, (1 << mantissa) - 1, 1 << mantissa, (1 << mantissa) + 1, infinite - 1, infinite]
    places += [infinite + 1, infinite + quiet, infinite + quiet + 1, (1 << (bits - 1)) - 1]
    return sorted(sign << (bits - 1) | place for place in set(places) for sign in (0, 1))


def _random_floats(dtype: torch.dtype, format: LNSFormat, rng: np.random.Generator, shape: tuple) -> np.ndarray:
    """Return uniform bits, and as many floats of uniform exponents in, and a little beyond, the range of the words."""
    bits, mantissa, bias = _float_fields(dtype)
    reach = (1 << (format.int_bits - 1)) + 2
    exponent = rng.integers(max(0, bias - reach), min(2 * bias, bias + reach), shape, endpoint=True)
    fraction, sign = rng.integers(0, 1 << mantissa, shape), rng.integers(0, 2, shape)
    near = sign << (bits - 1) | exponent << mantissa | fraction
    return np.where(rng.random(shape) < 0.5, near, rng.integers(0, 1 << bits, shape))


def _corner_integers(bits: int) -> list[int]:
    """Return zero, powers of two, their neighbours and the negatives of all these, in two's complement."""
    near = {power + offset for power in (1 << bit for bit in range(bits)) for offset in (-1, 0, 1)}
    return sorted({sign * value & ((1 << bits) - 1) for value in near for sign in (-1, 1)})


def _random_integers(bits: int, rng: np.random.Generator, shape: tuple) -> np.ndarray:
    """Return uniform integers, and as many of about uniform logarithm, of either sign."""
    uniform = rng.integers(0, 1 << bits, shape, dtype=np.uint64)
    if bits == 1:
        return uniform.astype(np.int64)
    small = uniform >> rng.integers(0, bits, shape, dtype=np.uint64)
    negated = -small & np.uint64((1 << bits) - 1)
    return np.choose(rng.integers(0, 4, shape), (uniform, uniform, small, negated)).astype(np.int64)


def midpoints(layout: ShapeLike, format: LNSFormat, rng: np.random.Generator, count: int) -> np.ndarray:
    """Return real numbers, in float64, about midway between two neighbours of a layout: where rounding to it changes.

    Of words it is the logarithm that is rounded, so they are geometric means.
    """
    if isinstance(layout, WordLayout):
        format = layout.word_format
        log = rng.integers(1, format.max_field, count, endpoint=True) - format.bias + 0.5
        return np.exp2(np.clip(log / 2.0**format.frac_bits, -1000, 1000)) * rng.choice((-1, 1), count)
    if dtype := _float_type(layout):
        bits, mantissa, _ = _float_fields(dtype)
        finite = (1 << (bits - 1)) - (1 << mantissa) - 2
        lower = np.minimum(_random_floats(dtype, format, rng, count) & ((1 << (bits - 1)) - 1), finite)
        total = layout.tensor(lower).double() + layout.tensor(lower + 1).double()
        return total.numpy() / 2 * rng.choice((-1, 1), count)
    integers = layout.tensor(_random_integers(layout.width, rng, (count,))).numpy()
    return (integers + 0.5) / 2.0**layout.frac_bits


def neighbours(layout: ShapeLike, reals: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return values of a layout that are at most two units from real numbers; such beyond the range are at its end."""
    offset = rng.integers(-2, 3, len(reals))
    if isinstance(layout, WordLayout):
        format = layout.word_format
        with np.errstate(divide="ignore"):
            log = np.maximum(np.log2(np.abs(reals)), -2000.0) * 2.0**format.frac_bits
        field = np.clip(np.rint(log).astype(np.int64) + format.bias + offset, 0, format.max_field)
        return (reals < 0).astype(np.int64) << format.log_bits | field
    if dtype := _float_type(layout):
        bits, mantissa, bias = _float_fields(dtype)
        magnitude = layout.integers(torch.from_numpy(np.abs(reals)).to(dtype)) + offset
        return (reals < 0).astype(np.int64) << (bits - 1) | np.clip(magnitude, 0, (2 * bias + 1) << mantissa)
    low, high = (-1 << (layout.width - 1), 1 << (layout.width - 1)) if layout.signed else (0, 1 << layout.width)
    # As floats, so that nothing beyond int64 is converted.
    scaled = np.clip(np.rint(reals * 2.0**layout.frac_bits), low, high)
    near = [min(max(int(x) + int(y), low), high - 1) for x, y in zip(scaled, offset, strict=True)]
    return layout.integers(torch.tensor(near, dtype=torch.int64))


def random_distances(format: LNSFormat, rng: np.random.Generator, count: int):
    """Return signed distances of logarithms, log-uniform from zero to a little beyond the adder's reach."""
    octaves = np.log2(format.adder.reach(format)) + 0.5
    return (np.exp2(rng.uniform(0, octaves, count)).astype(np.int64) - 1) * rng.choice((-1, 1), count)


def words(format: LNSFormat, sign: np.ndarray, field: np.ndarray) -> np.ndarray:
    """Return the words with these signs and fields, which are clipped to the range."""
    return (sign.astype(np.int64) << format.log_bits) | np.clip(field, 0, format.max_field)
