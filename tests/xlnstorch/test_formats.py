"""Word formats: sizes, bits, names and messages."""

import dataclasses

import pytest
import torch

from xlnstorch import CATALOG, Exact, LNSFormat, LogAccumulator, lns8, lns12, lns16, lns16e5, lns24, lns32
from xlnstorch.catalog import format_from_base, named_format, software_format
from xlnstorch.exact import LogScale

SMALL = [LNSFormat(1, 1), LNSFormat(2, 0), LNSFormat(3, 2), LNSFormat(4, 4), LNSFormat(6, 5)]


@pytest.mark.parametrize(
    ("name", "int_bits", "frac_bits", "width", "one", "max_field", "dtype"),
    [
        ("lns8", 4, 3, 8, 0x40, 0x7F, torch.int8),
        ("lns12", 5, 6, 12, 0x400, 0x7FF, torch.int16),
        ("lns16", 8, 7, 16, 0x4000, 0x7FFF, torch.int16),
        ("lns16e5", 5, 10, 16, 0x4000, 0x7FFF, torch.int16),
        ("lns24", 8, 15, 24, 0x400000, 0x7FFFFF, torch.int32),
        ("lns32", 8, 23, 32, 0x40000000, 0x7FFFFFFF, torch.int32),
    ],
)
def test_catalog(name, int_bits, frac_bits, width, one, max_field, dtype):
    format = CATALOG[name]
    assert (format.int_bits, format.frac_bits) == (int_bits, frac_bits)
    assert (format.log_bits, format.width) == (int_bits + frac_bits, width)
    assert (format.bias, format.max_field) == (one, max_field)
    assert format.dtype == dtype
    assert repr(format) == format.name == name
    assert named_format(name) is format


def test_catalog_is_complete():
    assert CATALOG == dict(lns8=lns8, lns12=lns12, lns16=lns16, lns16e5=lns16e5, lns24=lns24, lns32=lns32)


@pytest.mark.parametrize(
    ("log_bits", "dtype"),
    [
        (2, torch.int8),
        (7, torch.int8),
        (8, torch.int16),
        (15, torch.int16),
        (16, torch.int32),
        (31, torch.int32),
        (32, torch.int64),
        (52, torch.int64),
    ],
)
def test_dtype_is_the_smallest_that_fits(log_bits, dtype):
    assert LNSFormat(log_bits, 0).dtype == dtype


def test_specials():
    format = LNSFormat(8, 7, specials=True)
    assert (lns16.specials, lns16.max_finite_field, format.max_field, format.max_finite_field) == (
        *(False, 0x7FFF, 0x7FFF, 0x7FFE),
    )
    assert format != lns16 and format == dataclasses.replace(lns16, specials=True)
    assert (repr(format), format.name) == ("LNSFormat(8, 7, specials=True)", "lns16")
    words = torch.tensor([0x7FFF, 0xFFFF, 0x8000, 0, 0x7FFE, 0x4000])
    for kind, plain, special in (
        ("is_inf", [0] * 6, [1, 1, 0, 0, 0, 0]),
        ("is_nan", [0] * 6, [0, 0, 1, 0, 0, 0]),
        ("is_zero", [0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 0, 0]),
    ):
        assert getattr(lns16, kind)(lns16.from_unsigned(words)).tolist() == plain
        assert getattr(format, kind)(format.from_unsigned(words)).tolist() == special
    assert format.to_unsigned(format.canonical(format.from_unsigned(words))).tolist() == words.tolist()
    assert lns16.to_unsigned(lns16.canonical(lns16.from_unsigned(words))).tolist() == [0x7FFF, 0xFFFF, 0, *words[3:]]
    assert LNSFormat(1, 1, specials=True).max_finite_field == LNSFormat(1, 1).bias  # one is a number in the least one
    with pytest.raises(TypeError) as caught:
        LNSFormat(8, 7, specials=1)
    assert str(caught.value) == "specials must be True or False, not 1"


def test_value_semantics():
    assert LNSFormat(8, 7) == lns16 and hash(LNSFormat(8, 7)) == hash(lns16)
    assert LNSFormat(8, 7, accumulator=LogAccumulator("tree")) != lns16
    assert LNSFormat(8, 7, base=3) != lns16
    assert LNSFormat(8, 7).adder == Exact() and LNSFormat(8, 7).accumulator == LogAccumulator("sequential")
    assert type(LNSFormat(8, 7, base=3).base) is float
    with pytest.raises(dataclasses.FrozenInstanceError):
        lns16.int_bits = 9


def test_scale_is_shared():
    assert lns16.scale is LNSFormat(9, 7).scale is LogScale.of(7)
    assert lns16.scale is not LNSFormat(8, 7, base=3).scale


@pytest.mark.parametrize(
    ("format", "name", "text"),
    [
        (LNSFormat(8, 7), "lns16", "lns16"),
        (LNSFormat(3, 2), "3,2", "LNSFormat(3, 2)"),
        (LNSFormat(8, 7, base=3), "8,7", "LNSFormat(8, 7, base=3.0)"),
        (
            LNSFormat(8, 7, accumulator=LogAccumulator(order="tree")),
            "lns16",
            "LNSFormat(8, 7, accumulator=LogAccumulator(order='tree'))",
        ),
    ],
)
def test_names(format, name, text):
    assert (format.name, repr(format)) == (name, text)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (dict(int_bits=1.5, frac_bits=7), TypeError, "int_bits must be an integer, not 1.5"),
        (dict(int_bits=8, frac_bits="7"), TypeError, "frac_bits must be an integer, not '7'"),
        (dict(int_bits=0, frac_bits=7), ValueError, "int_bits must be at least 1, not 0"),
        (dict(int_bits=8, frac_bits=-1), ValueError, "frac_bits must be between 0 and 48, not -1"),
        (dict(int_bits=1, frac_bits=49), ValueError, "frac_bits must be between 0 and 48, not 49"),
        (dict(int_bits=1, frac_bits=0), ValueError, "int_bits + frac_bits must be between 2 and 52, not 1 + 0"),
        (dict(int_bits=40, frac_bits=13), ValueError, "int_bits + frac_bits must be between 2 and 52, not 40 + 13"),
        (dict(int_bits=8, frac_bits=7, adder=1), TypeError, "adder must be an Adder such as Exact(), not 1"),
        (
            dict(int_bits=8, frac_bits=7, accumulator="tree"),
            TypeError,
            "accumulator must be an Accumulator such as LogAccumulator(), not 'tree'",
        ),
        (dict(int_bits=8, frac_bits=7, base=1.0), ValueError, "base must be a finite number above 1, not 1.0"),
        (dict(int_bits=8, frac_bits=7, base="e"), ValueError, "base must be a finite number above 1, not 'e'"),
        (dict(int_bits=8, frac_bits=7, base=float("inf")), ValueError, "base must be a finite number above 1, not inf"),
        (dict(int_bits=8, frac_bits=7, base=float("nan")), ValueError, "base must be a finite number above 1, not nan"),
    ],
)
def test_parameters_are_checked(arguments, error, message):
    with pytest.raises(error) as caught:
        LNSFormat(**arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize("format", SMALL, ids=str)
def test_unpack_and_pack_of_every_word(format):
    unsigned = torch.arange(1 << format.width)
    words = format.from_unsigned(unsigned)
    assert words.dtype == format.dtype
    assert torch.equal(format.to_unsigned(words), unsigned)
    sign, field = format.unpack(words)
    assert (sign.dtype, field.dtype) == (torch.bool, torch.int64)
    negative_zero = 1 << format.log_bits
    assert torch.equal(field, unsigned % negative_zero)
    assert torch.equal(sign, unsigned > negative_zero)  # not the negative zero itself
    packed = format.pack(sign, field)
    assert packed.dtype == format.dtype
    assert torch.equal(packed, torch.where(unsigned == negative_zero, 0, words))


def test_positive_words_are_ordered_like_their_numbers():
    words = lns16.from_unsigned(torch.arange(1 << 15))
    assert torch.equal(words.sort().values, words)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32])
def test_from_unsigned_takes_every_integer_dtype(dtype):
    words = lns16.from_unsigned(torch.tensor([0, 1, 255], dtype=torch.int64).to(dtype))
    assert (words.tolist(), words.dtype) == ([0, 1, 255], torch.int16)


@pytest.mark.parametrize(
    ("format", "words", "error", "message"),
    [
        (lns16, torch.tensor([1.0]), TypeError, "words must be integers, not torch.float32"),
        (lns16, torch.tensor([True]), TypeError, "words must be integers, not torch.bool"),
        (lns16, torch.tensor([1j]), TypeError, "words must be integers, not torch.complex64"),
        (lns16, torch.tensor([0, -1]), ValueError, "a word of lns16 must be between 0 and 65535, not -1"),
        (lns16, torch.tensor([5, 65536, -1]), ValueError, "a word of lns16 must be between 0 and 65535, not 65536"),
        (LNSFormat(3, 2), torch.tensor(64), ValueError, "a word of LNSFormat(3, 2) must be between 0 and 63, not 64"),
    ],
)
def test_from_unsigned_errors(format, words, error, message):
    with pytest.raises(error) as caught:
        format.from_unsigned(words)
    assert str(caught.value) == message


def test_named_format():
    assert named_format("3,2") == LNSFormat(3, 2)
    assert named_format(" 8 , 7 ") == lns16


@pytest.mark.parametrize("text", ["", "lns17", "LNS16", "8", "8,7,1", "8,-7", "8,x", "²,3"])
def test_named_format_errors(text):
    with pytest.raises(ValueError) as caught:
        named_format(text)
    assert str(caught.value) == (
        "format must be one of lns8, lns12, lns16, lns16e5, lns24, lns32, "
        f"or the widths int_bits,frac_bits such as 8,7; not {text!r}"
    )


def test_software_format():
    assert software_format(23) == LNSFormat(29, 23)
    assert (software_format(23).dtype, software_format(23).log_bits) == (torch.int64, 52)
    assert [software_format(f).int_bits for f in (0, 48)] == [52, 4]


@pytest.mark.parametrize(
    ("f", "error", "message"),
    [
        (True, TypeError, "f must be an integer, not True"),
        (23.0, TypeError, "f must be an integer, not 23.0"),
        (-1, ValueError, "f must be between 0 and 48, not -1"),
        (49, ValueError, "f must be between 0 and 48, not 49"),
    ],
)
def test_software_format_errors(f, error, message):
    with pytest.raises(error) as caught:
        software_format(f)
    assert str(caught.value) == message


def test_format_from_base():
    for f in range(49):
        assert format_from_base(2.0**2.0**-f) == software_format(f)
    assert format_from_base(3) == LNSFormat(52, 0, base=3.0)
    assert format_from_base(4) == LNSFormat(52, 0, base=4.0)


@pytest.mark.parametrize("b", [1.0, 0.5, -2.0, float("inf"), float("nan")])
def test_format_from_base_errors(b):
    with pytest.raises(ValueError) as caught:
        format_from_base(b)
    assert str(caught.value) == f"b must be a finite number above 1, not {b!r}"
