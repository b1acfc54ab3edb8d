"""The factories: which format they choose, that they round to the nearest word, and what they refuse."""

import math

import mpmath
import numpy as np
import pytest
import torch
from lnstesting import exactly

import xlnstorch
from xlnstorch import (
    LNS_ZERO,
    LNSFormat,
    LNSTensor,
    conversions,
    from_words,
    lns8,
    lns16,
    lns32,
    lnstensor,
    software_format,
)

LIKE = {
    "zeros_like": 0.0,
    "empty_like": 0.0,
    "ones_like": 1.0,
    "full_like": 2.5,
}


def nearest(values, format):
    return conversions.encode(format, torch.as_tensor(values, dtype=torch.float64))


# The format -----------------------------------------------------------------------------------------------------------


def test_default_format_has_23_fraction_bits():
    assert lnstensor(1.0).format == software_format(23) == LNSFormat(29, 23)
    assert xlnstorch.zeros(1).format == xlnstorch.full(1, 2).format == xlnstorch.randn(1).format == LNSFormat(29, 23)


@pytest.mark.parametrize("f", [0, 7, 23, 48])
def test_f_is_the_software_format(f):
    x = lnstensor([1.0, 3.0, -0.1], f=f)
    assert x.format == software_format(f) and x._words.dtype == torch.int64
    with mpmath.workprec(200):
        expected = [int(mpmath.nint(mpmath.log(v, 2) * 2**f)) << 1 for v in (1.0, 3.0, 0.1)]
    assert x.lns.tolist() == [expected[0], expected[1], expected[2] | 1]
    assert xlnstorch.ones(2, f=f).format == x.format


def test_b_is_a_base():
    x = lnstensor([1.1, -(1.1**5), 1.0], b=1.1)
    assert x.format == LNSFormat(52, 0, base=1.1) and x.lns.tolist() == [2.0, 11.0, 0.0]
    # A base that f= can name is that format, so the two mix.
    assert lnstensor(3.0, b=2.0 ** (2.0**-23)).format == software_format(23)


@pytest.mark.parametrize("format", [lns8, lns16, lns32], ids=repr)
def test_format_is_any_format(format):
    values = [1.0, -2.5, 0.0, 1e30, 1e-30, math.inf]
    x = lnstensor(values, format=format)
    assert x.format is format and torch.equal(x._words, nearest(values, format))


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (dict(f=3, b=1.1), "f and b"),
        (dict(f=3, format=lns16), "f and format"),
        (dict(b=1.1, format=lns16), "b and format"),
        (dict(f=0, b=1.1, format=lns16), "f and b and format"),
    ],
)
def test_only_one_format(given, names):
    message = exactly(f"only one of f, b and format may be given, not {names}")
    for make in (
        lambda: lnstensor(1.0, **given),
        lambda: xlnstorch.ones(2, **given),
        lambda: xlnstorch.zeros_like(torch.ones(2), **given),
        lambda: lnstensor(lnstensor(1.0), **given),
    ):
        with pytest.raises(ValueError, match=message):
            make()


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (dict(format="lns16"), TypeError, "format must be an LNSFormat such as xlnstorch.lns16, not 'lns16'"),
        (dict(f=1.5), TypeError, "f must be an integer, not 1.5"),
        (dict(f=True), TypeError, "f must be an integer, not True"),
        (dict(f=49), ValueError, "f must be between 0 and 48, not 49"),
        (dict(f=-1), ValueError, "f must be between 0 and 48, not -1"),
        (dict(b=1.0), ValueError, "b must be a finite number above 1, not 1.0"),
        (dict(b=math.inf), ValueError, "b must be a finite number above 1, not inf"),
    ],
)
def test_wrong_formats(given, error, text):
    for make in (lambda: lnstensor(1.0, **given), lambda: xlnstorch.full((2,), 3.0, **given)):
        with pytest.raises(error, match=exactly(text)):
            make()


# The data -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        [[1.0, 0.1], [-3.0, 0.0]],
        ((1.0, 0.1), (-3.0, 0.0)),
        np.array([[1.0, 0.1], [-3.0, 0.0]]),
        torch.tensor([[1.0, 0.1], [-3.0, 0.0]], dtype=torch.float64),
        [[torch.tensor(1.0), 0.1], [-3, 0]],
    ],
    ids=["list", "tuple", "array", "tensor", "mixed"],
)
def test_array_like_data(data):
    x = lnstensor(data, f=40)
    assert x.shape == (2, 2) and torch.equal(x._words, nearest([[1.0, 0.1], [-3.0, 0.0]], x.format))


def test_python_floats_are_float64_whatever_torch_defaults_to():
    # At 40 fraction bits float32's 0.1 is another word.
    assert lnstensor(0.1, f=40).words.item() != lnstensor(torch.tensor(0.1), f=40).words.item()
    assert lnstensor(0.1, f=40).words.item() == lnstensor(np.float64(0.1), f=40).words.item()


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bool, torch.float16, torch.float32])
def test_every_real_dtype(dtype):
    data = torch.tensor([0, 1, 1]).to(dtype)
    assert torch.equal(lnstensor(data, format=lns16)._words, nearest([0.0, 1.0, 1.0], lns16))


def test_integers_above_2_53():
    n = 3**39  # needs 62 bits
    with mpmath.workprec(200):
        expected = int(mpmath.nint(39 * mpmath.log(3, 2) * 2**45)) << 1
    assert lnstensor(torch.tensor([n, -n]), f=45).lns.tolist() == [expected, expected | 1]
    assert lnstensor(n, f=45).lns.item() == expected


@pytest.mark.parametrize("data", ["abc", None, [[1.0], [1.0, 2.0]], object(), {1.0}])
def test_data_that_is_not_numbers(data):
    with pytest.raises(TypeError, match=r"^data must be a tensor, array, number or nested sequence of numbers: "):
        lnstensor(data, format=lns16)


def test_data_that_is_not_real():
    with pytest.raises(TypeError, match=exactly("values must be real, not torch.complex64")):
        lnstensor(1j, format=lns16)
    with pytest.raises(ValueError, match=exactly("lns16 has no word for NaN; found one in the values to encode")):
        lnstensor([1.0, math.nan], format=lns16)


def test_an_lnstensor_is_copied_or_converted():
    x = lnstensor([1.5, -3.0], format=lns32)
    same, other = lnstensor(x), lnstensor(x, format=lns16)
    assert same is not x and same.format == lns32 and torch.equal(same._words, x._words)
    same.zero_()
    assert x.words.count_nonzero() == 2
    assert other.format == lns16 and torch.equal(other._words, conversions.rescale(lns32, x._words, lns16))


def test_requires_grad():
    for make in (
        lambda: lnstensor([1.0], requires_grad=True),
        lambda: lnstensor([0.0], from_lns=True, requires_grad=True),
        lambda: lnstensor(lnstensor([1.0]), requires_grad=True),
        lambda: from_words([0x4000], lns16, requires_grad=True),
        lambda: xlnstorch.rand(2, requires_grad=True),
        lambda: xlnstorch.full_like(torch.ones(2), 3.0, requires_grad=True),
    ):
        assert make().requires_grad and make().is_leaf
    text = "requires_grad=True makes a leaf; with detach=False the result is not one"
    for data in (lnstensor([1.0], requires_grad=True), torch.ones(1, requires_grad=True)):
        with pytest.raises(ValueError, match=exactly(text)):
            lnstensor(data, detach=False, requires_grad=True)


def test_device():
    assert lnstensor([1.0], format=lns16, device="meta").device.type == "meta"
    assert lnstensor([1.0], format=lns16, device="cpu").device.type == "cpu"


# Packed ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_from_lns_takes_packed_numbers(dtype):
    packed = torch.tensor([0, 1, LNS_ZERO, 256, 257, -256], dtype=dtype)
    x = lnstensor(packed, from_lns=True, format=lns16)
    assert x.value.tolist() == [1.0, -1.0, 0.0, 2.0, -2.0, 0.5]
    assert torch.equal(x.lns, packed.double())


@pytest.mark.parametrize("data", [[0, 257], [0.0, 257.0], np.array([0, 257]), (0, 257)], ids=str)
def test_from_lns_takes_array_like_data(data):
    assert lnstensor(data, from_lns=True, format=lns16).value.tolist() == [1.0, -2.0]


def test_from_lns_saturates_and_flushes():
    x = lnstensor([2.0**30, 2.0**30 + 1, -(2.0**30)], from_lns=True, format=lns16)
    assert x.words.tolist() == [0x7FFF, 0xFFFF, 0]


def test_from_lns_hands_an_lnstensor_through():
    x = lnstensor([2.0], f=23, requires_grad=True)
    y = x * x
    assert lnstensor(x, from_lns=True) is x and lnstensor(y, from_lns=True, f=23) is y


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        ([0.5], ValueError, "packed LNS values must be integers within ±2**53, not 0.5"),
        ([math.nan], ValueError, "packed LNS values must be integers within ±2**53, not nan"),
        ([2.0**54], ValueError, f"packed LNS values must be integers within ±2**53, not {2.0**54}"),
        (torch.tensor([1.0]), TypeError, "packed LNS values must be float64 or int64, not torch.float32"),
        (
            torch.tensor([1], dtype=torch.int32),
            TypeError,
            "packed LNS values must be float64 or int64, not torch.int32",
        ),
    ],
)
def test_from_lns_refuses_what_is_not_packed(data, error, text):
    with pytest.raises(error, match=exactly(text)):
        lnstensor(data, from_lns=True, format=lns16)


# Words ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        [0x4000, 0xC080],
        np.array([0x4000, 0xC080], dtype=np.uint16),
        np.array([0x4000, 0xC080], dtype=np.uint64),
        torch.tensor([0x4000, 0xC080]),
        torch.tensor([0x4000, 0xC080], dtype=torch.int32),
        (0x4000, 0xC080),
    ],
    ids=["list", "uint16", "uint64", "int64", "int32", "tuple"],
)
def test_from_words_takes_what_hardware_shows(words):
    x = from_words(words, lns16)
    assert isinstance(x, LNSTensor) and x.words.tolist() == [0x4000, 0xC080] and x.value.tolist() == [1.0, -2.0]


def test_from_words_of_one_word_and_of_none():
    assert from_words(0x4000, lns16).item() == 1.0
    assert from_words(torch.zeros(0, dtype=torch.int64), lns16).shape == (0,)
    assert from_words(2**53 - 1, software_format(23)).words.item() == 2**53 - 1


@pytest.mark.parametrize(
    ("words", "error", "text"),
    [
        ([0x4000, 0x10000], ValueError, "a word of lns16 must be between 0 and 65535, not 65536"),
        ([-1], ValueError, "a word of lns16 must be between 0 and 65535, not -1"),
        ([1.0], TypeError, "words must be integers, not float64"),
        (torch.tensor([1.0]), TypeError, "words must be integers, not torch.float32"),
        ([True], TypeError, "words must be integers, not bool"),
    ],
)
def test_from_words_refuses(words, error, text):
    with pytest.raises(error, match=exactly(text)):
        from_words(words, lns16)


# Filled ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(2, 3), ((2, 3),), ([2, 3],), (torch.Size([2, 3]),)], ids=str)
@pytest.mark.parametrize(("name", "value"), [("zeros", 0.0), ("empty", 0.0), ("ones", 1.0)])
def test_filled(name, value, size):
    x = getattr(xlnstorch, name)(*size, format=lns16)
    assert x.shape == (2, 3) and x.format is lns16 and torch.equal(x._words, nearest([[value] * 3] * 2, lns16))


def test_full():
    assert xlnstorch.full((2, 3), 0.3, format=lns16)._words.tolist() == [[nearest(0.3, lns16).item()] * 3] * 2
    assert xlnstorch.full(2, -1, f=7).value.tolist() == [-1.0, -1.0]
    assert xlnstorch.zeros(format=lns16).shape == ()


@pytest.mark.parametrize("name", ["rand", "randn"])
def test_random_numbers_are_torchs_rounded(name):
    expected = getattr(torch, name)(50, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    x = getattr(xlnstorch, name)(50, format=lns16, generator=torch.Generator().manual_seed(7))
    assert torch.equal(x._words, nearest(expected, lns16)) and len(set(x.words.tolist())) > 30
    y = getattr(xlnstorch, f"{name}_like")(torch.zeros(50), format=lns16, generator=torch.Generator().manual_seed(7))
    assert torch.equal(y._words, x._words)


@pytest.mark.parametrize(("name", "value"), LIKE.items())
def test_like(name, value):
    make = getattr(xlnstorch, name)
    args = (value,) if name == "full_like" else ()
    x = lnstensor([[3.0, 4.0]], format=lns16, requires_grad=True)
    same, other, plain = make(x, *args), make(x, *args, format=lns8), make(torch.ones(1, 2), *args)
    assert same.format is lns16 and other.format is lns8 and plain.format == software_format(23)
    assert make(x, *args, f=7).format == software_format(7) and make(x, *args, b=1.1).format.base == 1.1
    for y in (same, other, plain):
        assert y.shape == (1, 2) and not y.requires_grad and torch.equal(y._words, nearest([[value] * 2], y.format))
    assert make(x, *args, requires_grad=True).requires_grad


@pytest.mark.parametrize("name", ["rand_like", "randn_like"])
def test_random_like_keeps_the_format(name):
    x = lnstensor([[3.0, 4.0]], format=lns16)
    assert getattr(xlnstorch, name)(x).format is lns16 and getattr(xlnstorch, name)(x, f=7).format == software_format(7)


@pytest.mark.parametrize("name", ["zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "empty_like"])
def test_torchs_own_like_functions(name):
    x = lnstensor([[3.0, 4.0]], format=lns16)
    args = (2.5,) if name == "full_like" else ()
    y = getattr(torch, name)(x, *args)
    assert isinstance(y, LNSTensor) and y.format is lns16 and y.shape == (1, 2)
    # Another dtype was asked for, so what comes is a plain tensor of that dtype.
    z = getattr(torch, name)(x, *args, dtype=torch.float32)
    assert type(z) is torch.Tensor and z.dtype == torch.float32
    if name in LIKE:
        assert torch.equal(y._words, nearest([[LIKE[name]] * 2], lns16))
    if name in ("zeros_like", "ones_like", "full_like"):
        assert z.tolist() == [[LIKE[name]] * 2]


def test_from_words_of_nothing_and_of_unsigned_arrays():
    assert from_words([], lns16).shape == (0,)
    assert from_words(np.array([0x4000, 0xFFFF], dtype=np.uint16), lns16).words.tolist() == [0x4000, 0xFFFF]
    with pytest.raises(ValueError, match="a word of lns16 must be between 0 and 65535, not 9223372036854775807"):
        from_words(np.array([2**63], dtype=np.uint64), lns16)
    with pytest.raises(TypeError, match=r"format must be an LNSFormat such as xlnstorch\.lns16, not None"):
        from_words([1], None)


@pytest.mark.parametrize("value", [10**400, -(10**400)], ids=["positive", "negative"])
def test_integers_of_any_size(value):
    top = lns16.max_field
    assert lnstensor(value, format=lns16).words.item() == (top if value > 0 else top | 0x8000)
    assert xlnstorch.full((2,), value, format=lns16).words.tolist() == [lnstensor(value, format=lns16).words.item()] * 2


def test_arrays_in_any_order_of_memory_and_bytes():
    array = np.array([1.0, 2.0, 4.0])
    assert lnstensor(array[::-1], format=lns16).value.tolist() == [4.0, 2.0, 1.0]
    assert lnstensor(array.astype(">f8"), format=lns16).value.tolist() == [1.0, 2.0, 4.0]
