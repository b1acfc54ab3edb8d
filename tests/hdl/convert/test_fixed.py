"""Fixed point to words and back in gates, against the reference and the golden model."""

import dataclasses
import random
from fractions import Fraction

import pytest

from hdl.convert import FromFixed, ToFixed
from xlnstorch import CATALOG, LNSFormat, lns8, lns12, lns16
from xlnstorch.reference import Reference
from xlnstorch.reference_sums import _nearest_log

SMALL = [LNSFormat(2, 0), LNSFormat(1, 3), LNSFormat(6, 1), LNSFormat(9, 2)]

# Width, fraction bits and sign: whole numbers, fractions, points outside of the number, the narrowest and the widest.
FIXED = [(8, 4, True), (8, 4, False), (16, 0, True), (16, 17, False), (10, -3, True), (1, 0, True), (1, 0, False)]
FIXED += [(2, 1, True), (2, -1, False), (32, 16, True)]
WIDE = [(64, 20, True), (63, 50, False), (40, 256, True), (40, -256, False)]


def reference_of(format):
    return Reference(format.int_bits, format.frac_bits, format.specials)


def word_of(format, width, frac_bits, signed):
    """Return the function from the bits of a fixed-point number to the word and its flags."""

    def expected(bits):
        integer = bits - (bits >> (width - 1) << width) if signed else bits
        if integer == 0:
            return 0, set()
        log = _nearest_log(format.frac_bits, abs(integer) / Fraction(2) ** frac_bits)
        return reference_of(format)._join(1 if integer > 0 else -1, log)

    return expected


def fixed_of(format, width, frac_bits, signed):
    """Return the function from a word to the bits of the fixed-point number and its flags."""

    def expected(word):
        integer, flags = reference_of(format).decode_fixed(word, frac_bits, width, signed)
        return integer % (1 << width), flags

    return expected


def fixed_numbers(format, width, frac_bits, rng):
    """Yield bits of numbers of all sizes, and of those where the word changes."""
    if width <= 8:
        yield from range(1 << width)
        return
    for place in range(width):
        for off in (-1, 0, 1):
            yield ((1 << place) + off) % (1 << width)
            yield (-(1 << place) + off) % (1 << width)
        yield rng.getrandbits(place + 1)
        e = Fraction((place << format.frac_bits) + rng.getrandbits(format.frac_bits)) + Fraction(1, 2)
        near = int(2 ** float(e / (1 << format.frac_bits)))
        yield from ((near + off) % (1 << width) for off in (-1, 0, 1, 2))


@pytest.mark.parametrize("specials", [False, True], ids=["saturating", "specials"])
@pytest.mark.parametrize(
    ("format", "fixed"),
    [(format, fixed) for format in [*SMALL, *CATALOG.values()] for fixed in FIXED]
    + [(format, fixed) for format in (lns8, lns12, lns16) for fixed in WIDE],
    ids=repr,
)
def test_fixed_point_to_words_and_back(format, fixed, specials, check):
    format = dataclasses.replace(format, specials=specials)
    width, frac_bits, signed = fixed
    rng = random.Random(f"{format} {fixed}")
    options = {"format": format, "width": width, "frac_bits": frac_bits, "signed": signed}

    check(FromFixed(**options), fixed_numbers(format, width, frac_bits, rng), word_of(format, *fixed))

    # Words of all sizes that matter, and of one that is exact or a tie at each power of two.
    unit, half = format.bias - (frac_bits << format.frac_bits), 1 << format.frac_bits
    fields = {0, 1, format.max_field, format.max_field - 1}
    fields |= {unit + (place << format.frac_bits) + off for place in range(-3, width + 2) for off in (-1, 0, 1)}
    fields |= {unit + rng.randint(-2 * half, width * half) for _ in range(40)}
    fields = sorted(field for field in fields if 0 <= field <= format.max_field)
    words = [field | sign << format.log_bits for field in fields for sign in (0, 1)]
    check(ToFixed(**options), words, fixed_of(format, *fixed))
