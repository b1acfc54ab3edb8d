"""Floats to words and back in gates, against the reference and the golden model."""

import dataclasses
import math
import random
import struct
from fractions import Fraction

import pytest
import torch

from hdl.convert import FromFloat, ToFloat
from hdl.convert.layouts import FLOATS
from xlnstorch import CATALOG, LNSFormat
from xlnstorch.reference import Reference
from xlnstorch.reference_sums import _nearest_log

DTYPES = list(FLOATS)
LETTERS = {torch.float16: "e", torch.float32: "f"}
SMALL = [LNSFormat(2, 0), LNSFormat(1, 3), LNSFormat(6, 1), LNSFormat(9, 2)]


def reference_of(format):
    return Reference(format.int_bits, format.frac_bits, format.specials)


def value_of(dtype, bits):
    """Return the number with these bits, as a Python float."""
    if dtype == torch.bfloat16:
        bits, dtype = bits << 16, torch.float32
    letter = LETTERS[dtype]
    return struct.unpack("<" + letter, bits.to_bytes(struct.calcsize(letter), "little"))[0]


def bits_of(dtype, value):
    """Return the bits of a number that the dtype has."""
    if dtype == torch.bfloat16:
        return bits_of(torch.float32, value) >> 16
    return int.from_bytes(struct.pack("<" + LETTERS[dtype], value), "little")


def word_of(format, dtype):
    """Return the function from a float's bits to the word and its flags."""
    reference = reference_of(format)

    def expected(bits):
        x = value_of(dtype, bits)
        if math.isnan(x):
            return (reference.nan, set()) if format.specials else (0, {"invalid"})
        if math.isinf(x):
            return reference.encode(x), set() if format.specials else {"overflow"}
        if x == 0:
            return 0, set()
        return reference._join(1 if x > 0 else -1, _nearest_log(format.frac_bits, abs(Fraction(x))))

    return expected


def float_of(format, dtype):
    """Return the function from a word to the float's bits and its flags."""
    reference, kind = reference_of(format), FLOATS[dtype]
    digits, lowest, highest = kind.fraction_bits + 1, 1 - kind.bias - kind.fraction_bits, kind.bias

    def expected(word):
        x = reference.decode_narrow(word, digits, lowest, highest)
        field, infinity = word % (1 << format.log_bits), format.max_field if format.specials else None
        flags = {"overflow"} if math.isinf(x) else {"underflow"} if x == 0 else set()
        return bits_of(dtype, x), set() if field in (0, infinity) else flags

    return expected


def corners(kind):
    """Yield the bits of floats of each exponent, of all subnormal powers of two, of infinities and of NaN."""
    for exponent in range(1 << kind.exponent_bits):
        yield exponent << kind.fraction_bits
        yield (exponent + 1 << kind.fraction_bits) - 1 | 1 << (kind.width - 1)
        yield exponent << kind.fraction_bits | random.Random(exponent).getrandbits(kind.fraction_bits)
    for place in range(kind.fraction_bits):
        yield from ((1 << place) + off for off in (-1, 0, 1))
    infinity = (1 << kind.exponent_bits) - 1 << kind.fraction_bits
    minus = 1 << (kind.width - 1)
    yield from (minus, infinity, infinity | minus, infinity + 1, infinity - 1, infinity | minus | 1 << 3)


def floats_around_words(format, dtype, fields):
    """Yield the bits of the floats next to the geometric mean of a word and the next one, where rounding changes."""
    kind, reference = FLOATS[dtype], reference_of(format)
    for field in fields:
        e = Fraction(2 * (field - format.bias) + 1, 2)
        if abs(e) > 150 << format.frac_bits:
            continue
        near = bits_of(torch.float32, 0.0)
        try:
            near = torch.tensor(2.0 ** float(e / reference.steps), dtype=torch.float64).to(dtype)
        except OverflowError:
            continue
        bits = bits_of(dtype, float(near))
        yield from (max(0, bits + off) for off in (-1, 0, 1) if bits + off < 1 << (kind.width - 1))


@pytest.mark.parametrize("specials", [False, True], ids=["saturating", "specials"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("format", [*SMALL, *CATALOG.values()], ids=repr)
def test_floats_to_words(format, dtype, specials, check):
    format = dataclasses.replace(format, specials=specials)
    rng = random.Random(f"{format} {dtype}")
    fields = [0, 1, 2, format.max_field - 2, format.max_field - 1, format.max_field]
    fields += [rng.getrandbits(format.log_bits) for _ in range(60)]
    bits = [*corners(FLOATS[dtype]), *floats_around_words(format, dtype, fields)]
    bits += [rng.getrandbits(FLOATS[dtype].width) for _ in range(60)]
    check(FromFloat(format=format, dtype=dtype), bits, word_of(format, dtype))


@pytest.mark.parametrize("specials", [False, True], ids=["saturating", "specials"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("format", [*SMALL, *CATALOG.values()], ids=repr)
def test_words_to_floats(format, dtype, specials, check):
    format = dataclasses.replace(format, specials=specials)
    rng = random.Random(f"{format} {dtype}")
    minus = 1 << format.log_bits
    words = range(1 << format.width)
    if format.width > 8:
        powers = range(0, minus, 1 << format.frac_bits)  # the only values that can be exact, or ties
        fields = {power + off for power in powers for off in (-1, 0, 1)} | {format.max_field, format.max_field - 1}
        words = [field % minus | rng.getrandbits(1) * minus for field in sorted(fields)]
        words += [0, minus, format.max_field | minus, format.max_field]
        words += [rng.getrandbits(format.width) for _ in range(100)]
    check(ToFloat(format=format, dtype=dtype), words, float_of(format, dtype))
