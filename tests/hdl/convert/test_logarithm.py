"""Logarithms and antilogarithms in gates where they are hardest, against the reference."""

import random
from fractions import Fraction

import pytest
from lnstesting import exactly
from mpmath import mp

from hdl.convert import antilogarithm, logarithm
from hdl.convert.antilogarithm import TableAntilogarithm
from hdl.convert.closeness import closest_powers
from hdl.convert.logarithm import ThresholdLogarithm
from hdl.convert.normalization import NormalizingLogarithm
from hdl.convert.products import ProductAntilogarithm
from hdl.convert.tables import floor_of_power
from xlnstorch import LNSFormat, lns8, lns12, lns16, lns16e5, lns24, lns32
from xlnstorch.reference_sums import _antilogarithm, _nearest_log


def significands_at(frac_bits, bits, odds):
    """Return the significands on both sides of ``2**(odd / 2**(frac_bits + 1))``, without their leading ones."""
    below = [_antilogarithm(frac_bits + 1, odd, bits + 64) >> 64 for odd in odds]
    return [x - (1 << bits) for floor in below for x in (floor, floor + 1) if x < 2 << bits]


def check_logarithm(run_stages, format, bits, significands):
    got = run_stages(
        logarithm(format, bits), "significand", bits, "log", format.frac_bits + 1, [*significands, 0, (1 << bits) - 1]
    )
    for significand, log in zip([*significands, 0, (1 << bits) - 1], got, strict=True):
        assert log == _nearest_log(format.frac_bits, 1 + Fraction(significand, 1 << bits)), hex(significand)


@pytest.mark.parametrize("bits", [3, 7, 10, 23, 31, 63, 270])
@pytest.mark.parametrize("format", [LNSFormat(2, 1), lns8, lns12, lns16, lns16e5], ids=repr)
def test_every_threshold(format, bits, run_stages):
    odds = range(1, 2 << format.frac_bits, 2 if format.frac_bits < 10 else 14)
    gates = logarithm(format, bits)
    assert type(gates) is ThresholdLogarithm
    check_logarithm(run_stages, format, bits, significands_at(format.frac_bits, bits, odds))


@pytest.mark.parametrize("bits", [7, 10, 13, 23, 31])
@pytest.mark.parametrize("format", [LNSFormat(8, 13), lns24, LNSFormat(5, 18), lns32, LNSFormat(8, 24)], ids=repr)
def test_the_closest_thresholds(format, bits, run_stages):
    rng, f = random.Random(f"{format} {bits}"), format.frac_bits
    assert type(logarithm(format, bits)) is (NormalizingLogarithm if bits > 12 else ThresholdLogarithm)
    _, odds = closest_powers(f + 1, bits, odd=True)
    significands = significands_at(f, bits, [*odds, *(2 * rng.getrandbits(f) + 1 for _ in range(40))])
    check_logarithm(run_stages, format, bits, [*significands, *(rng.getrandbits(bits) for _ in range(40))])


@pytest.mark.parametrize("nearest", [False, True], ids=["floor", "nearest"])
@pytest.mark.parametrize("bits", [0, 1, 8, 11, 24, 32])
@pytest.mark.parametrize(
    "format",
    [LNSFormat(2, 0), lns8, lns16, lns16e5, LNSFormat(8, 13), lns24, LNSFormat(5, 18), lns32, LNSFormat(8, 24)],
    ids=repr,
)
def test_the_closest_antilogarithms(format, bits, nearest, run_stages):
    rng, f = random.Random(f"{format} {bits}"), format.frac_bits
    gates = antilogarithm(format, bits, nearest=nearest)
    assert type(gates) is (ProductAntilogarithm if f > 12 else TableAntilogarithm)
    fractions = range(1 << f)
    if f > 8:
        _, closest = closest_powers(f, bits + nearest)
        fractions = [0, 1, (1 << f) - 1, *closest, *(rng.getrandbits(f) for _ in range(60))]
    got = run_stages(gates, "fraction", max(1, f), "significand", bits + 2, fractions)
    for fraction, significand in zip(fractions, got, strict=True):
        exact = _antilogarithm(f, fraction, bits) if nearest else _antilogarithm(f, fraction, bits + 64) >> 64
        assert significand == exact, hex(fraction)


def fraction(x):
    """Return a positive number of mpmath as it is."""
    _, mantissa, exponent, _ = x._mpf_
    return int(mantissa) * Fraction(2) ** int(exponent)


@pytest.mark.parametrize("odd", [False, True], ids=["all", "odd"])
@pytest.mark.parametrize(("frac_bits", "bits"), [(3, 0), (5, 7), (9, 30), (13, 23), (14, 8)])
def test_how_close_powers_come_is_known(frac_bits, bits, odd):
    with mp.workprec(200):
        scaled = [mp.mpf(2) ** (mp.mpf(i) / 2**frac_bits + bits) for i in range(1 << frac_bits)]
        distances = [abs(x - mp.nint(x)) * mp.mpf(2) ** -bits for x in scaled]
    tried = range(1, 1 << frac_bits, 1 + odd)
    closest = tuple(sorted(tried, key=distances.__getitem__)[:64])
    bound, some = closest_powers(frac_bits, bits, odd)
    assert some == closest
    assert bound <= fraction(distances[closest[0]]) < bound + Fraction(1, 1 << 60)


@pytest.mark.parametrize("bits", [8, 24, 32])
def test_the_closest_powers_of_the_widest_format_are_as_close_as_stated(bits):
    bound, some = closest_powers(24, bits)
    with mp.workprec(200):
        scaled = mp.mpf(2) ** (mp.mpf(some[0]) / 2**24 + bits)
        distance = abs(scaled - mp.nint(scaled)) * mp.mpf(2) ** -bits
    assert bound <= fraction(distance) < bound + Fraction(1, 1 << 60)


@pytest.mark.parametrize("bits", [0, 3, 60, 300])
def test_integer_parts_of_powers(bits):
    for numerator in range(-9, 9):
        power = floor_of_power(numerator, 2, bits)  # raised to the fourth, it and the next one enclose 2**numerator
        assert power**4 <= Fraction(2) ** (numerator + 4 * bits) < (power + 1) ** 4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: logarithm(LNSFormat(8, 25), 23),
            "conversions in gates need a format with at most 24 fraction bits, not the 25 of LNSFormat(8, 25)",
        ),
        (
            lambda: antilogarithm(LNSFormat(8, 25), 23),
            "conversions in gates need a format with at most 24 fraction bits, not the 25 of LNSFormat(8, 25)",
        ),
        (
            lambda: logarithm(lns24, 32),
            "conversions in gates of lns24, which has over 12 fraction bits, have at most 31 bits behind the leading "
            "one, not 32",
        ),
        (
            lambda: antilogarithm(lns32, 33, nearest=True),
            "conversions in gates of lns32, which has over 12 fraction bits, have at most 33 bits behind the leading "
            "one, not 34",
        ),
        (lambda: logarithm(lns8, 7, rom="flash"), "rom must be 'block' or 'luts', not 'flash'"),
        (lambda: antilogarithm(lns32, 7, rom="flash"), "rom must be 'block' or 'luts', not 'flash'"),
        (lambda: closest_powers(26, 3), "frac_bits must be between 1 and 25, not 26"),
        (
            lambda: closest_powers(24, 50),
            "a power of 2 in steps of 2**-24 is too close to a multiple of 2**-50 to tell",
        ),
    ],
)
def test_what_cannot_be_built_is_refused_at_the_door(make, message):
    with pytest.raises(ValueError, match=exactly(message)):
        make()
