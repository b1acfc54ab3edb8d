import mpmath
import numpy as np
import pytest
import torch
from lnstesting import exactly

from xlnstorch import CATALOG, LNSFormat, conversions, lns8, lns12, lns16, lns32
from xlnstorch.plot import number_histogram, spacing, staircase
from xlnstorch.plot.floats import round_to_float

SOFTWARE = LNSFormat(4, 48)
BASE_E = LNSFormat(5, 4, base=2.5)


def power(format, numerator, denominator=1):
    """Return ``base**(numerator / denominator / 2**f)`` to 300 bits."""
    with mpmath.workprec(300):
        return mpmath.power(mpmath.mpf(format.base), mpmath.mpf(numerator) / denominator / 2**format.frac_bits)


def all_values(format):
    """Return every number of a format in order, each once."""
    words = format.from_unsigned(torch.arange(1 << format.width))
    return np.unique(conversions.decode(format, words).numpy())


# Spacing -----------------------------------------------------------------------------------------------------------


def test_the_spacing_of_lns8_is_the_difference_of_decoded_neighbours():
    (line,) = spacing(lns8).lines
    values = all_values(lns8)
    values = values[values > 0]
    assert np.array_equal(line.magnitudes, values[:-1])
    # A difference of decoded values is off by what decoding is: half a last place of each.
    assert (np.abs(line.spacing - np.diff(values)) <= np.spacing(values[1:])).all()


@pytest.mark.parametrize("format", [lns8, lns12, lns16, lns32, SOFTWARE, BASE_E], ids=repr)
def test_each_distance_is_the_nearest_float64(format):
    (line,) = spacing(format, points=40, interval=(2.0**-5, 2.0**5)).lines
    for magnitude, distance in zip(line.magnitudes, line.spacing, strict=True):
        e = int(format.scale.log(torch.tensor(float(magnitude), dtype=torch.float64)))
        with mpmath.workprec(300):
            assert distance == float(power(format, e + 1) - power(format, e))


def test_spacing_keeps_to_the_interval_and_to_the_number_of_points():
    lines = spacing(["lns8", "lns16"], interval=(1.0, 3.0), points=11).lines
    for line, step in zip(lines, (2**0.125, 2 ** (1 / 128)), strict=True):
        assert 2 <= len(line.magnitudes) <= 11
        assert line.magnitudes[0] == 1.0
        assert 3.0 / step < line.magnitudes[-1] <= 3.0


def test_the_default_interval_is_all_of_the_formats_within_forty_octaves():
    assert spacing("lns8").interval == (2.0 ** (-63 / 8), 2.0 ** (63 / 8))
    assert spacing(["lns8", "lns16"]).interval == (2.0**-20, 2.0**20)
    assert spacing(["lns8", "lns12"]).interval == (2.0 ** (-1023 / 64), 2.0 ** (1023 / 64))


@pytest.mark.parametrize(
    ("name", "bits", "dtype"),
    [
        ("bfloat16", torch.int16, torch.bfloat16),
        ("float16", torch.int16, torch.float16),
        ("float32", torch.int32, torch.float32),
    ],
)
def test_the_spacing_of_a_float_is_that_of_its_neighbouring_bit_patterns(name, bits, dtype):
    *_, line = spacing("lns16", beside=name, interval=(2.0**-133, 2.0**120)).lines
    assert line.label == name
    assert line.steps
    for start, end, distance in zip(line.magnitudes[:-1], line.magnitudes[1:], line.spacing, strict=False):
        for x in (start, (start + end) / 2):
            below = torch.tensor(x, dtype=torch.float64).to(dtype)
            if below >= end:
                continue
            above = (below.view(bits) + 1).view(dtype)
            assert float(above) - float(below) == distance


# Rounding to floating point, which the errors of rounding use ------------------------------------------------------


def test_rounding_to_float_is_numpys_where_numpy_has_the_format():
    rng = np.random.default_rng(1)
    values = rng.choice([-1, 1], 3000) * np.exp2(rng.uniform(-30, 15, 3000))
    for name, dtype in (("float16", np.float16), ("float32", np.float32)):
        assert np.array_equal(round_to_float(name, values), values.astype(dtype).astype(np.float64))
    assert round_to_float("float16", np.array([65519.0, -65520.0, 0.0])).tolist() == [65504.0, -np.inf, 0.0]


def test_rounding_to_bfloat16_is_nearest_and_happens_once():
    rng = np.random.default_rng(2)
    values = np.exp2(rng.uniform(-130, 120, 3000))
    rounded = round_to_float("bfloat16", values)
    patterns = rounded.astype(np.float32).view(np.uint32)
    assert np.array_equal(rounded.astype(np.float32).astype(np.float64), rounded)
    assert (patterns & 0xFFFF == 0).all()
    above = (patterns + 0x10000).view(np.float32).astype(np.float64)
    below = (patterns - 0x10000).view(np.float32).astype(np.float64)
    error = np.abs(rounded - values)
    assert (error <= np.abs(above - values)).all()
    assert (error <= np.abs(below - values)).all()
    ties = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8])
    assert round_to_float("bfloat16", ties).tolist() == [1.0, 1 + 2.0**-6]
    # By way of float32 this would first become a tie, and then 1.
    assert round_to_float("bfloat16", np.array([1 + 2.0**-8 + 2.0**-40])).tolist() == [1 + 2.0**-7]


# Staircase ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "interval"),
    [
        (lns8, (-300.0, 300.0)),
        (lns8, (0.0, 0.01)),
        (LNSFormat(3, 1), (-2.0, 1.5)),
        (lns12, (-1.0, -0.5)),
        (lns32, (1.0, 1.00001)),
        (SOFTWARE, (1.0, 1.0 + 2.0**-43)),
        (BASE_E, (-1.0, 3.0)),
    ],
    ids=repr,
)
def test_each_edge_is_where_rounding_changes(format, interval):
    (stairs,) = staircase(format, interval=interval).stairs
    words, edges = stairs.words, stairs.edges
    assert (edges[0], edges[-1]) == interval
    assert len(edges) == len(words) + 1
    assert len(words) > 3
    assert (np.diff(stairs.values) > 0).all()

    def rounded(values):
        return format.to_unsigned(conversions.encode(format, torch.from_numpy(values))).numpy()

    inner = edges[1:-1]
    assert np.array_equal(rounded(np.nextafter(inner, -np.inf)), words[:-1])
    assert np.array_equal(rounded(np.nextafter(inner, np.inf)), words[1:])
    assert rounded(np.array(interval)).tolist() == [words[0], words[-1]]
    assert np.array_equal(rounded(stairs.values), words)


def test_a_staircase_of_several_formats():
    assert [stairs.format for stairs in staircase(["4,1", lns8, "lns8"]).stairs] == [LNSFormat(4, 1), lns8]


# Histogram ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", [lns8, lns12, LNSFormat(2, 3), BASE_E], ids=repr)
@pytest.mark.parametrize(
    ("interval", "bins", "scale"),
    [
        ((-4.0, 4.0), 64, "linear"),
        ((-300.0, 500.0), 7, "linear"),
        ((0.5, 1.0), 1, "linear"),
        ((-2.0, -0.25), 7, "linear"),
        ((2.0**-20, 2.0**20), 40, "log"),
        ((0.1, 1000.0), 13, "log"),
    ],
)
def test_counts_are_those_of_all_decoded_words(format, interval, bins, scale):
    data = number_histogram(format, interval=interval, bins=bins, scale=scale)
    assert len(data.edges) == bins + 1
    assert data.edges[0] == interval[0]
    assert data.edges[-1] == interval[1]
    assert np.array_equal(data.counts[0], np.histogram(all_values(format), data.edges)[0])


def test_the_numbers_of_wide_formats_are_counted_without_listing_them():
    formats = [*CATALOG.values(), SOFTWARE]
    data = number_histogram(formats, interval=(1.0, 2.0), bins=1)
    assert data.counts.tolist() == [[2**format.frac_bits + 1] for format in formats]
    data = number_histogram(lns32, interval=(-1e39, 1e39), bins=2)
    assert data.counts.tolist() == [[2**31 - 1, 2**31]]  # zero is in the upper half


# What is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: spacing([]), ValueError, "at least one format must be given"),
        (lambda: spacing([16]), TypeError, "format must be an LNSFormat or the name of one, not 16"),
        (
            lambda: spacing("lns7"),
            ValueError,
            "format must be one of lns8, lns12, lns16, lns16e5, lns24, lns32, or the widths int_bits,frac_bits such as "
            "8,7; not 'lns7'",
        ),
        (lambda: spacing(points=1), ValueError, "points must be between 2 and 100,000, not 1"),
        (lambda: spacing(points=2.5), TypeError, "points must be an integer, not 2.5"),
        (
            lambda: spacing(beside="float8"),
            ValueError,
            "beside must be one of bfloat16, float16, float32, not 'float8'",
        ),
        (lambda: spacing(interval=(0, 1)), ValueError, "interval must be of magnitudes above zero, not from 0"),
        (
            lambda: spacing(interval=(2, 1)),
            ValueError,
            "interval must be two finite numbers, the lower first, not 2 and 1",
        ),
        (
            lambda: spacing(interval=(1, float("nan"))),
            ValueError,
            "interval must be two finite numbers, the lower first, not 1 and nan",
        ),
        (lambda: spacing(interval=3), TypeError, "interval must be two numbers, not 3"),
        (
            lambda: spacing("lns8", interval=(1000, 2000)),
            ValueError,
            "interval must hold two numbers of lns8, not lie from 1000 to 2000",
        ),
        (
            lambda: spacing(beside="float16", interval=(1e6, 1e7)),
            ValueError,
            "interval must hold two numbers of float16, not lie from 1e+06 to 1e+07",
        ),
        (
            lambda: staircase("lns32"),
            ValueError,
            "a staircase must have at most 10,000 steps, not the 16,777,217 that lns32 has from 1 to 4",
        ),
        (lambda: number_histogram(bins=0), ValueError, "bins must be between 1 and 10,000, not 0"),
        (lambda: number_histogram(scale="cubic"), ValueError, "scale must be one of linear, log, not 'cubic'"),
        (
            lambda: number_histogram(scale="log", interval=(-1, 1)),
            ValueError,
            "interval must be of magnitudes above zero, not from -1",
        ),
        (
            lambda: number_histogram(interval=(1, 1 + 2**-52)),
            ValueError,
            "interval must be long enough for 64 bins, not from 1.0 to 1.0000000000000002",
        ),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=exactly(message)):
        call()
