"""Between numbers, words and the packed form, against the reference."""

import math
import random
from fractions import Fraction

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from xlnstorch import (
    CATALOG,
    LNS_ZERO,
    LNSFormat,
    arithmetic,
    conversions,
    lns8,
    lns12,
    lns16,
    lns24,
    lns32,
    software_format,
)
from xlnstorch.catalog import format_from_base
from xlnstorch.reference import Reference

pytestmark = pytest.mark.usefixtures("kernel")

FORMATS = [*CATALOG.values(), LNSFormat(3, 2), software_format(23), software_format(48)]


def reference_of(format):
    return Reference(format.int_bits, format.frac_bits)


def encoded(format, values):
    words = conversions.encode(format, values)
    assert words.dtype == format.dtype
    return format.to_unsigned(words).tolist()


def sample_words(format, count):
    if format.width <= 12:
        return list(range(1 << format.width))
    rng = random.Random(format.width)
    ends = [0, 1, 2, format.bias - 1, format.bias, format.bias + 1, format.max_field - 1, format.max_field]
    ends += [word + (1 << format.log_bits) for word in ends]
    # Random logarithms of a size that float64 can show, and random ones of the whole range.
    reach = min(format.bias, 1074 << format.frac_bits)
    near = [format.bias + rng.randrange(1 - reach, reach) for _ in range(count)]
    return ends + near + [rng.randrange(1 << format.width) for _ in range(count)]


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_encode(format):
    rng = random.Random(str(format))
    values = [0.0, -0.0, 1.0, -1.0, 2.0, 0.1, 5e-324, -(2.0**-1022), 1.7e308, math.inf, -math.inf, 1e39, -1e-39]
    values += [rng.gauss(0, 1) for _ in range(100)]
    values += [(-1) ** rng.randrange(2) * rng.random() * 2.0 ** rng.randrange(-140, 140) for _ in range(300)]
    reference = reference_of(format)
    assert encoded(format, torch.tensor(values, dtype=torch.float64)) == [reference.encode(x) for x in values]


def test_encode_known_words():
    values = torch.tensor([0.0, -0.0, 1.0, 2.0, 0.5, -1.0, 3.0, 10.0, 0.1, math.inf, -math.inf, 1e39])
    expected = [0, 0, 0x4000, 0x4080, 0x3F80, 0xC000, 0x40CB, 0x41A9, 0x3E57, 0x7FFF, 0xFFFF, 0x7FFF]
    assert encoded(lns16, values.to(torch.float64)) == expected


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (torch.float32, [0.1, -3.3, 1e-45, 3e38, math.inf]),
        (torch.float16, [0.1, -3.3, 6e-8, 65504.0]),
        (torch.bfloat16, [0.1, -3.3, 1e-38, 3e38]),
        (torch.int8, [-128, -1, 0, 1, 127]),
        (torch.uint8, [0, 1, 255]),
        (torch.int16, [-32768, 3, 32767]),
        (torch.int32, [-(2**31), 3, 2**31 - 1]),
        (torch.int64, [-(2**63), 3, 2**63 - 1]),
        (torch.uint16, [0, 3, 2**16 - 1]),
        (torch.uint32, [0, 3, 2**32 - 1]),
        (torch.uint64, [0, 3, 2**53 + 1, 2**63, 2**64 - 1]),
        (torch.bool, [False, True]),
        (torch.float8_e4m3fn, [0.125, -448.0]),
    ],
    ids=str,
)
def test_encode_takes_any_real_dtype(dtype, values):
    tensor = torch.tensor(values, dtype=dtype)
    for format in (lns16, software_format(40)):
        assert encoded(format, tensor) == [reference_of(format).encode(x) for x in tensor.tolist()]


def test_encode_rounds_integers_beyond_float64_once():
    # Neighbouring integers on both sides of a boundary between two logarithms round to the same float64.
    format, rng, values = LNSFormat(8, 44), random.Random(6), [2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]
    for _ in range(50):
        half = rng.randrange(54 << 44, 63 << 44) + mpmath.mpf("0.5")
        with mpmath.workdps(60):
            below = int(mpmath.mpf(2) ** (half / 2**44))
        values += [below, below + 1, -below, -below - 1]
    expected = [reference_of(format).encode(x) for x in values]
    assert encoded(format, torch.tensor(values)) == expected
    assert [int(format.to_unsigned(torch.tensor(conversions.encode_scalar(format, x)))) for x in values] == expected
    assert encoded(format, torch.tensor(values, dtype=torch.float64)) != expected  # or this test would show nothing


def test_encode_unsigned_integers_beyond_int64():
    values = [2**63 - 1, 2**63, 3 * 2**62, 2**64 - 1]
    expected = [reference_of(lns24).encode(x) for x in values]
    assert encoded(lns24, torch.tensor(values, dtype=torch.uint64)) == expected


def test_encode_scalar():
    reference = reference_of(lns16)
    for value in (0, 0.0, -0.0, 1, -2, 0.1, True, math.inf, -math.inf, 2**53 + 1, -(2**100), 10**400):
        word = conversions.encode_scalar(lns16, value)
        assert int(lns16.to_unsigned(torch.tensor(word))) == reference.encode(value)
    with pytest.raises(ValueError) as caught:
        conversions.encode_scalar(lns16, math.nan)
    assert str(caught.value) == "lns16 has no word for NaN"


def test_encode_errors():
    with pytest.raises(ValueError) as caught:
        conversions.encode(lns16, torch.tensor([1.0, math.nan]))
    assert str(caught.value) == "lns16 has no word for NaN; found one in the values to encode"
    with pytest.raises(TypeError) as caught:
        conversions.encode(lns16, torch.tensor([1j]))
    assert str(caught.value) == "values must be real, not torch.complex64"


def test_encode_keeps_the_shape():
    assert conversions.encode(lns16, torch.ones(2, 0, 3)).shape == (2, 0, 3)
    assert conversions.encode(lns16, torch.tensor(1.0)).shape == ()


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_decode(format):
    words = sample_words(format, 300)
    values = conversions.decode(format, format.from_unsigned(torch.tensor(words)))
    assert values.dtype == torch.float64
    for word, value in zip(words, values.tolist(), strict=True):
        assert value == reference_of(format).decode(word)
        assert math.copysign(1, value) == 1 or word % (1 << format.log_bits) != 0  # no negative zero from a zero


NARROW = {torch.float32: (24, -149, 127), torch.bfloat16: (8, -133, 127), torch.float16: (11, -24, 15)}


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_decode_to_narrow_floats(format, dtype):
    # Words of every size, and around the ends of the dtype's range.
    _, lowest, highest = NARROW[dtype]
    words = sample_words(format, 100)
    for exponent in (lowest - 1, lowest, lowest + 1, highest, highest + 1):
        around = format.bias + (exponent << format.frac_bits)
        words += [field for field in range(around - 2, around + 3) if 0 < field <= format.max_field]
    values = conversions.decode(format, format.from_unsigned(torch.tensor(words)), dtype)
    assert values.dtype == dtype
    expected = [reference_of(format).decode_narrow(word, *NARROW[dtype]) for word in words]
    assert list(map(repr, values.tolist())) == list(map(repr, expected))  # which tells the zeros apart


def test_decode_rounds_once():
    # The words next to a number half way between two floats: the float64 of some is that very number, which rounded
    # again goes to even, whichever side the word lies on.
    format, once, twice = LNSFormat(4, 48), 0, 0
    for dtype, digits in ((torch.float32, 24), (torch.bfloat16, 8), (torch.float16, 11)):
        halves = torch.arange(2 ** (digits - 1), 2 ** (digits - 1) + 128).to(torch.float64) + 0.5
        words = conversions.encode(format, halves / 2 ** (digits - 1))
        expected = [reference_of(format).decode_narrow(word, *NARROW[dtype]) for word in words.tolist()]
        decoded = conversions.decode(format, words, dtype)
        assert decoded.tolist() == expected
        once += len(words)
        twice += int((conversions.decode(format, words).to(dtype) != decoded).sum())
    assert once == 384 and twice > 2  # or this test would show nothing


def test_decode_asks_a_ball_where_double_double_cannot_tell(monkeypatch):
    # As if every significand were half way between two floats.
    scale, words = lns16.scale, lns16.from_unsigned(torch.arange(0x4001, 0x4080))
    expected = {dtype: conversions.decode(lns16, words, dtype) for dtype in NARROW}
    for dtype, (digits, _, _) in NARROW.items():
        unit = 2.0 ** (1 - digits)
        high, _ = scale._significand(torch.arange(1, 128))
        half = (torch.floor(high / unit) + 0.5) * unit
        monkeypatch.setattr(scale, "_significand", lambda log, half=half: (half, torch.zeros_like(half)))
        assert torch.equal(conversions.decode(lns16, words, dtype), expected[dtype])
        monkeypatch.undo()


def test_powers_of_two_are_the_only_ties():
    format = LNSFormat(9, 7)
    for dtype, (_, lowest, highest) in NARROW.items():
        words = format.bias + (torch.tensor([lowest - 1, lowest, highest, highest + 1]) << 7)
        expected = [0.0, 2.0**lowest, 2.0**highest, math.inf]
        assert conversions.decode(format, format.from_unsigned(words), dtype).tolist() == expected
        negative = conversions.decode(format, format.from_unsigned(words | 1 << 16), dtype)
        assert list(map(repr, negative.tolist())) == ["-0.0", *(repr(-x) for x in expected[1:])]


def test_decode_to_integers():
    halves = [0.25, 0.5, 0.7072, 1.0, 1.4142, 1.5, 2.5, 2.8284, 100.0, 126.9, 127.0, 128.0, 129.0, 255.0, 256.0, 1e30]
    words = [lns16_word(sign * x) for x in (0.0, *halves) for sign in (1, -1)]
    tensor = lns16.from_unsigned(torch.tensor(words))
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        bits = torch.iinfo(dtype).bits
        integers = conversions.decode(lns16, tensor, dtype)
        assert integers.dtype == dtype
        assert integers.tolist() == [reference_of(lns16).decode_fixed(word, 0, bits)[0] for word in words]
    for dtype, bits in ((torch.uint8, 8), (torch.uint16, 16), (torch.uint32, 32), (torch.uint64, 64)):
        integers = conversions.decode(lns16, tensor, dtype)
        assert integers.dtype == dtype
        assert integers.tolist() == [reference_of(lns16).decode_fixed(word, 0, bits, signed=False)[0] for word in words]


def lns16_word(value):
    return reference_of(lns16).encode(value)


def test_the_ends_of_64_bits():
    tensor = lns16.from_unsigned(torch.tensor([lns16.bias + (e << 7) for e in (62, 63, 64, 65)]))
    minus = arithmetic.neg(lns16, tensor)
    assert conversions.decode(lns16, tensor, torch.int64).tolist() == [2**62, *[2**63 - 1] * 3]
    assert conversions.decode(lns16, minus, torch.int64).tolist() == [-(2**62), *[-(2**63)] * 3]
    assert conversions.decode(lns16, tensor, torch.uint64).tolist() == [2**62, 2**63, *[2**64 - 1] * 2]
    assert conversions.decode(lns16, minus, torch.uint64).tolist() == [0] * 4
    _, flags = conversions.decode_fixed(lns16, tensor, 0)
    assert flags["overflow"].tolist() == [False, True, True, True]
    _, flags = conversions.decode_fixed(lns16, minus, 0)
    assert flags["overflow"].tolist() == [False, False, True, True]  # -2**63 is in range


def test_decode_dtypes():
    for dtype in (torch.bool, torch.complex64, torch.float8_e5m2, "float32"):
        with pytest.raises(TypeError) as caught:
            conversions.decode(lns16, torch.zeros(1, dtype=torch.int16), dtype)
        assert str(caught.value) == f"dtype must be float64, float32, float16, bfloat16 or of integers, not {dtype!r}"


formats = st.tuples(st.integers(2, 12), st.integers(0, 40)).map(lambda widths: LNSFormat(*widths))
properties = settings(max_examples=150, deadline=None, derandomize=True, database=None)


@properties
@given(formats, st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=10), st.integers(-256, 256))
def test_encode_fixed(format, integers, frac_bits):
    words = conversions.encode_fixed(format, torch.tensor(integers), frac_bits)
    expected = [reference_of(format).encode(n / Fraction(2) ** frac_bits) for n in integers]
    assert format.to_unsigned(words).tolist() == expected


def test_encode_fixed_next_to_a_power_of_two():
    # The boundary below 2**63, at 48 fraction bits, lies between 2**63 - 11357 and 2**63 - 11356, whose float64 is
    # another number, and far enough from it to look settled.
    format, integers = LNSFormat(4, 48), [2**63 - 11357 + k for k in range(-2, 4)]
    words = format.to_unsigned(conversions.encode_fixed(format, torch.tensor(integers), 62)).tolist()
    assert words == [reference_of(format).encode(Fraction(n, 2**62)) for n in integers]
    assert words[2] + 1 == words[3]


@properties
@given(formats, st.data(), st.integers(-256, 256), st.integers(1, 64), st.booleans())
def test_decode_fixed(format, data, frac_bits, width, signed):
    width = min(width, 64 if signed else 63)
    # Half of the words where the integers are neither zero nor out of range, if the format has such.
    one = format.bias - (frac_bits << format.frac_bits)
    sizes = st.integers(-2 << format.frac_bits, (width + 1) << format.frac_bits)
    near = st.builds(
        lambda size, sign: min(max(one + size, 0), format.max_field) | sign << format.log_bits, sizes, st.integers(0, 1)
    )
    words = data.draw(st.lists(near | st.integers(0, (1 << format.width) - 1), min_size=1, max_size=10))
    tensor = format.from_unsigned(torch.tensor(words))
    integers, flags = conversions.decode_fixed(format, tensor, frac_bits, width, signed)
    assert integers.dtype == torch.int64
    expected = [reference_of(format).decode_fixed(word, frac_bits, width, signed) for word in words]
    assert integers.tolist() == [integer for integer, _ in expected]
    assert flags.keys() == {"overflow", "underflow"}
    for flag, raised in flags.items():
        assert raised.tolist() == [flag in flags for _, flags in expected]


def test_fixed_point_of_other_bases():
    format = LNSFormat(8, 7, base=3.0)
    words = conversions.encode_fixed(format, torch.tensor([0, 16, 48, -144, 2**63 - 1]), 4)
    assert format.to_unsigned(words).tolist()[:4] == [0, 0x4000, 0x4080, 0xC100]
    integers, flags = conversions.decode_fixed(format, words, 1, 6)
    assert integers.tolist() == [0, 2, 6, -18, 31]
    assert flags["overflow"].tolist() == [False] * 4 + [True]


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_narrow_floats_of_other_bases(dtype):
    # Powers of 3 are integers, or their reciprocals: exact up to a size, and half way between two floats just above it.
    digits, lowest, highest = NARROW[dtype]
    format, powers = LNSFormat(8, 7, base=3.0), [*range(90), -1, -5, -80, -90, -100]
    expected = []
    for power in powers:
        x = Fraction(3) ** power
        unit = Fraction(2) ** max(math.floor(math.log2(x)) - digits + 1, lowest)
        nearest = round(x / unit) * unit
        expected.append(math.inf if nearest >= 2 ** (highest + 1) else float(nearest))
    words = format.from_unsigned(torch.tensor([format.bias + (power << 7) for power in powers]))
    assert conversions.decode(format, words, dtype).tolist() == expected


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda w: conversions.encode_fixed(lns16, w.float(), 3),
            TypeError,
            "integers must be of an integer dtype, not torch.float32",
        ),
        (lambda w: conversions.encode_fixed(lns16, w, 0.5), TypeError, "frac_bits must be an integer, not 0.5"),
        (
            lambda w: conversions.encode_fixed(lns16, w, 257),
            ValueError,
            "frac_bits must be between -256 and 256, not 257",
        ),
        (
            lambda w: conversions.decode_fixed(lns16, w, -257),
            ValueError,
            "frac_bits must be between -256 and 256, not -257",
        ),
        (
            lambda w: conversions.decode_fixed(lns16, w, 3, width=0),
            ValueError,
            "width must be between 1 and 64 where signed=True, not 0",
        ),
        (
            lambda w: conversions.decode_fixed(lns16, w, 3, width=65),
            ValueError,
            "width must be between 1 and 64 where signed=True, not 65",
        ),
        (
            lambda w: conversions.decode_fixed(lns16, w, 3, width=64, signed=False),
            ValueError,
            "width must be between 1 and 63 where signed=False, not 64",
        ),
        (lambda w: conversions.decode_fixed(lns16, w, 3, width="8"), TypeError, "width must be an integer, not '8'"),
    ],
)
def test_fixed_point_errors(call, error, text):
    with pytest.raises(error) as caught:
        call(torch.zeros(1, dtype=torch.int16))
    assert str(caught.value) == text


@pytest.mark.parametrize("format", [lns8, lns12, lns16, software_format(40)], ids=str)
def test_encode_undoes_decode(format):
    words = range(1 << 16) if format is lns16 else sample_words(format, 100)
    # Out of float64's range the value is lost, and negative zero becomes zero.
    limit = 1022 << format.frac_bits
    words = [word for word in words if 0 < word % (1 << format.log_bits) < format.bias + limit]
    words = [word for word in words if word % (1 << format.log_bits) > format.bias - limit]
    tensor = format.from_unsigned(torch.tensor([0, *words]))
    assert torch.equal(conversions.encode(format, conversions.decode(format, tensor)), tensor)


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_packed_form(format):
    words = sample_words(format, 200)
    tensor = format.from_unsigned(torch.tensor(words))
    packed = conversions.pack(format, tensor)
    assert packed.dtype == torch.float64
    expected = []
    for word in words:
        field, sign = word % (1 << format.log_bits), word >> format.log_bits
        expected.append(2 * (field - format.bias) + sign if field else LNS_ZERO)
    assert packed.tolist() == expected
    canonical = torch.tensor([word if word % (1 << format.log_bits) else 0 for word in words])
    for form in (packed, packed.to(torch.int64)):
        unpacked = conversions.unpack(format, form)
        assert unpacked.dtype == format.dtype
        assert torch.equal(format.to_unsigned(unpacked), canonical)


def test_packed_constants():
    assert LNS_ZERO == -(2**53) + 1
    assert conversions.pack(lns16, lns16.from_unsigned(torch.tensor([0x4000, 0xC000, 0, 0x8000]))).tolist() == [
        *(0, 1, LNS_ZERO, LNS_ZERO)
    ]


def test_unpack_saturates_and_flushes():
    packed = torch.tensor(
        [2 * 16383, 2 * 16384, 2 * 16384 + 1, -2 * 16383, -2 * 16384, -2 * 16384 + 1, 2**53, -(2**53)]
    )
    expected = [0x7FFF, 0x7FFF, 0xFFFF, 0x0001, 0, 0, 0x7FFF, 0]
    for form in (packed, packed.to(torch.float64)):
        assert lns16.to_unsigned(conversions.unpack(lns16, form)).tolist() == expected
    assert lns16.to_unsigned(conversions.unpack(lns16, torch.tensor([-0.0], dtype=torch.float64))).tolist() == [0x4000]


@pytest.mark.parametrize("value", [0.5, math.nan, math.inf, -math.inf, 2.0**53 + 2])
def test_unpack_errors(value):
    with pytest.raises(ValueError) as caught:
        conversions.unpack(lns16, torch.tensor([0.0, value, 0.25], dtype=torch.float64))
    assert str(caught.value) == f"packed LNS values must be integers within ±2**53, not {value}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool])
def test_unpack_dtypes(dtype):
    with pytest.raises(TypeError) as caught:
        conversions.unpack(lns16, torch.zeros(1, dtype=dtype))
    assert str(caught.value) == f"packed LNS values must be float64 or int64, not {dtype}"


def rescaled(format, word, other):
    """Return the word with the nearest logarithm, half to even, from its definition."""
    field = word % (1 << format.log_bits)
    if field == 0:
        return 0
    log = round(Fraction((field - format.bias) << other.frac_bits, 1 << format.frac_bits))
    target = min(log + other.bias, other.max_field)
    return 0 if target < 1 else target + ((word >> format.log_bits) << other.log_bits)


RESCALED_FORMATS = [lns8, lns12, lns16, lns32, software_format(0), software_format(23), software_format(48)]


@pytest.mark.parametrize("other", RESCALED_FORMATS, ids=str)
@pytest.mark.parametrize("format", RESCALED_FORMATS, ids=str)
def test_rescale(format, other):
    words = [word for word in sample_words(format, 200) if word != 1 << format.log_bits or format is not other]
    result = conversions.rescale(format, format.from_unsigned(torch.tensor(words)), other)
    assert result.dtype == other.dtype
    assert other.to_unsigned(result).tolist() == [rescaled(format, word, other) for word in words]


def test_rescale_between_bases():
    words = lns16.from_unsigned(torch.tensor([0, 0x4000, 0x4080, 0xC100, 0x0001, 0x7FFF]))
    # log3(2) = 0.63093: 128 becomes 80.76, 256 becomes 161.52, and 16383 becomes 10336.52
    thirds = conversions.rescale(lns16, words, LNSFormat(8, 7, base=3.0))
    assert lns16.to_unsigned(thirds).tolist() == [0, 0x4000, 0x4051, 0xC0A2, 0x4000 - 10337, 0x4000 + 10337]
    # In base 4 the logarithms are halved, and half goes to even.
    fourths = conversions.rescale(lns16, words, LNSFormat(8, 7, base=4.0))
    assert lns16.to_unsigned(fourths).tolist() == [0, 0x4000, 0x4040, 0xC080, 0x4000 - 8192, 0x4000 + 8192]


def test_rescale_from_a_base_near_one():
    # Two is a logarithm of 2**39.5 units here, which a clamp that is meant for base 2 cuts off.
    fine = format_from_base(1 + 2.0**-40)
    words = conversions.encode(fine, torch.tensor([2.0, 1.5, -1.0, 0.0], dtype=torch.float64))
    expected = conversions.encode(lns32, torch.tensor([2.0, 1.5, -1.0, 0.0], dtype=torch.float64))
    assert torch.equal(conversions.rescale(fine, words, lns32), expected)


@pytest.mark.parametrize("format", [lns16, lns32, LNSFormat(4, 48), LNSFormat(14, 0, base=4.0)], ids=repr)
def test_a_python_integer_of_any_size_saturates(format):
    for value in (2**40000, -(2**40000)):
        word = format.to_unsigned(torch.tensor(conversions.encode_scalar(format, value)))
        assert int(word) == format.max_field | (value < 0) << format.log_bits
