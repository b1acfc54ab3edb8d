"""Between numbers, words and the packed form where words for infinities and NaN exist, against the reference."""

import dataclasses
import math

import pytest
import torch
from lnstesting import exactly

from xlnstorch import LNS_ZERO, LNSFormat, conversions, lns8, lns16, lns32, software_format
from xlnstorch.reference import Reference

FORMATS = [
    dataclasses.replace(format, specials=True)
    for format in (LNSFormat(1, 1), LNSFormat(3, 2), lns8, lns16, lns32, software_format(23), software_format(0))
]
LNS16 = dataclasses.replace(lns16, specials=True)
INF, MINUS_INF, NAN, LARGEST, ONE = 0x7FFF, 0xFFFF, 0x8000, 0x7FFE, 0x4000
NARROW = {torch.float32: (24, -149, 127), torch.bfloat16: (8, -133, 127), torch.float16: (11, -24, 15)}


def reference_of(format):
    return Reference(format.int_bits, format.frac_bits, format.specials)


def ends_of(format):
    fields = {0, 1, format.bias, format.max_field - 2, format.max_field - 1, format.max_field}
    return sorted(fields | {field + (1 << format.log_bits) for field in fields})


def words_of(*words, format=LNS16):
    return format.from_unsigned(torch.tensor(words))


def unsigned(words, format=LNS16):
    return format.to_unsigned(words).tolist()


@pytest.mark.parametrize("format", FORMATS, ids=repr)
def test_encode(format):
    step = 2.0 ** (2.0**-format.frac_bits)
    top = reference_of(format).decode(format.max_finite_field)
    values = [math.inf, -math.inf, math.nan, -math.nan, 0.0, -0.0, 1.0, -3.0, 1e308, 5e-324]
    if top < 1e300:
        values += [top, top * step**0.49, top * step**0.51, -top * step**0.51, -top * step]
    expected = [reference_of(format).encode(x) for x in values]
    assert unsigned(conversions.encode(format, torch.tensor(values, dtype=torch.float64)), format) == expected
    assert [unsigned(torch.tensor(conversions.encode_scalar(format, x)), format) for x in values] == expected
    assert expected[:4] == [format.max_field, format.max_field | 1 << format.log_bits, *[1 << format.log_bits] * 2]


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_encode_narrow_floats(dtype):
    values = torch.tensor([math.nan, math.inf, -math.inf, 1.0], dtype=dtype)
    assert unsigned(conversions.encode(LNS16, values)) == [NAN, INF, MINUS_INF, ONE]


def test_encode_integers():
    assert unsigned(torch.tensor(conversions.encode_scalar(LNS16, -(10**400)))) == MINUS_INF
    lns8_specials = dataclasses.replace(lns8, specials=True)
    assert unsigned(conversions.encode_fixed(lns8_specials, torch.tensor([1, -255, 255]), 0), lns8_specials) == [
        *(0x40, 0xFF, 0x7F)
    ]


@pytest.mark.parametrize("format", FORMATS, ids=repr)
def test_decode(format):
    words = ends_of(format)
    values = conversions.decode(format, words_of(*words, format=format))
    assert list(map(repr, values.tolist())) == [repr(reference_of(format).decode(word)) for word in words]
    for dtype, widths in NARROW.items():
        values = conversions.decode(format, words_of(*words, format=format), dtype)
        expected = [reference_of(format).decode_narrow(word, *widths) for word in words]
        assert list(map(repr, values.tolist())) == list(map(repr, expected))


@pytest.mark.parametrize(
    ("dtype", "bits", "nan"),
    [
        (torch.float64, torch.int64, 0x7FF8 << 48),
        (torch.float32, torch.int32, 0x7FC00000),
        (torch.float16, torch.int16, 0x7E00),
        (torch.bfloat16, torch.int16, 0x7FC0),
    ],
    ids=str,
)
def test_the_bits_of_nan(dtype, bits, nan):
    assert conversions.decode(LNS16, words_of(NAN), dtype).view(bits).tolist() == [nan]


@pytest.mark.parametrize(
    ("frac_bits", "width", "signed"), [(0, 8, True), (3, 8, False), (-256, 64, True), (0, 1, True)]
)
@pytest.mark.parametrize("format", FORMATS, ids=repr)
def test_decode_fixed(format, frac_bits, width, signed):
    words = ends_of(format)
    integers, flags = conversions.decode_fixed(format, words_of(*words, format=format), frac_bits, width, signed)
    expected = [reference_of(format).decode_fixed(word, frac_bits, width, signed) for word in words]
    assert integers.tolist() == [integer for integer, _ in expected]
    assert flags.keys() == {"overflow", "underflow", "invalid"}
    for flag, raised in flags.items():
        assert raised.tolist() == [flag in flags for _, flags in expected], flag


def test_decode_to_integers():
    words = words_of(INF, MINUS_INF, NAN)
    assert conversions.decode(LNS16, words, torch.int8).tolist() == [127, -128, 0]
    assert conversions.decode(LNS16, words, torch.int64).tolist() == [2**63 - 1, -(2**63), 0]
    assert conversions.decode(LNS16, words, torch.uint64).tolist() == [2**64 - 1, 0, 0]


def test_packed_form():
    words = words_of(INF, MINUS_INF, NAN, 0, LARGEST, ONE)
    packed = conversions.pack(LNS16, words)
    assert list(map(repr, packed.tolist())) == ["32766.0", "32767.0", "nan", repr(float(LNS_ZERO)), "32764.0", "0.0"]
    assert torch.equal(conversions.unpack(LNS16, packed), words)
    beyond = torch.tensor([32764, 32766, 32768, 32769], dtype=torch.int64)
    assert unsigned(conversions.unpack(LNS16, beyond)) == [LARGEST, INF, INF, MINUS_INF]
    with pytest.raises(ValueError, match=exactly("packed LNS values must be integers within ±2**53, not inf")):
        conversions.unpack(LNS16, torch.tensor([math.nan, math.inf], dtype=torch.float64))


def test_rescale():
    wide, narrow = dataclasses.replace(lns32, specials=True), dataclasses.replace(lns8, specials=True)
    every = words_of(INF, MINUS_INF, NAN, 0, ONE, LARGEST)
    for format in (wide, narrow):
        lowest = format.max_field | 1 << format.log_bits
        largest = (LARGEST - lns16.bias << 16) + wide.bias if format is wide else format.max_field
        expected = [format.max_field, lowest, 1 << format.log_bits, 0, format.bias, largest]
        assert unsigned(conversions.rescale(LNS16, every, format), format) == expected
    # To a format without specials of the same widths, and back: infinity is the largest number, and that is infinity.
    assert unsigned(conversions.rescale(LNS16, words_of(INF, MINUS_INF, 0, LARGEST), lns16)) == [
        *(0x7FFF, 0xFFFF, 0, LARGEST)
    ]
    plain = lns16.from_unsigned(torch.tensor([0x7FFF, 0xFFFF, 0x8000, 0x7FFE]))
    assert unsigned(conversions.rescale(lns16, plain, LNS16)) == [INF, MINUS_INF, 0, LARGEST]
    with pytest.raises(ValueError, match=exactly("lns16 has no word for NaN; found one in the words to convert")):
        conversions.rescale(LNS16, every, lns16)
