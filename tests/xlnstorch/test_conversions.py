"""Between numbers, words and the packed form, against the reference."""

import math
import random
from fractions import Fraction

import mpmath
import pytest
import torch

from xlnstorch import CATALOG, LNS_ZERO, LNSFormat, conversions, lns8, lns12, lns16, lns24, lns32, software_format
from xlnstorch.catalog import format_from_base
from xlnstorch.reference import Reference

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
        (torch.bool, [False, True]),
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
        best = reference_of(format).decode(word)
        if format.frac_bits <= 16:
            assert value == best
        else:
            assert value in (math.nextafter(best, -math.inf), best, math.nextafter(best, math.inf))
        assert math.copysign(1, value) == 1 or word % (1 << format.log_bits) != 0  # no negative zero from a zero


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
