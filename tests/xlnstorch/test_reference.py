"""The reference against results worked out by hand, so that it does not only agree with what it is meant to judge."""

import math
import subprocess
import sys
from fractions import Fraction

import pytest

from xlnstorch.reference import Reference

LNS8, LNS16, LNS32 = Reference(4, 3), Reference(8, 7), Reference(8, 23)
NONE = frozenset()
OVERFLOW, UNDERFLOW = frozenset({"overflow"}), frozenset({"underflow"})
INVALID, ZERO_DIVIDE = frozenset({"invalid"}), frozenset({"zero_divide"})


@pytest.mark.parametrize(
    ("reference", "number", "word"),
    [
        (LNS16, 0, 0x0000),
        (LNS16, -0.0, 0x0000),
        (LNS16, 1, 0x4000),
        (LNS16, 2.0, 0x4080),
        (LNS16, Fraction(1, 2), 0x3F80),
        (LNS16, -1, 0xC000),
        (LNS16, -2, 0xC080),
        (LNS16, 3, 0x40CB),  # 128 log2(3) = 202.88
        (LNS16, 10, 0x41A9),  # 128 log2(10) = 425.21
        (LNS16, Fraction(1, 10), 0x3E57),
        (LNS16, 2**127, 0x7F80),
        (LNS16, 1e39, 0x7FFF),
        (LNS16, -(10**400), 0xFFFF),
        (LNS16, math.inf, 0x7FFF),
        (LNS16, -math.inf, 0xFFFF),
        (LNS16, 5e-324, 0x0000),
        (LNS16, -(2.0**-128), 0x0000),  # its field would be 0
        (LNS8, 1, 0x40),
        (LNS8, 3, 0x4D),  # 8 log2(3) = 12.68
        (LNS8, -1, 0xC0),
        (LNS8, 1000, 0x7F),
        (LNS32, 1, 0x40000000),
        (LNS32, -2, 0xC0800000),
        (LNS32, 3, 0x40CAE00D),  # 2**23 log2(3) = 13295629.3
    ],
)
def test_encode(reference, number, word):
    assert reference.encode(number) == word


@pytest.mark.parametrize("exponent", [20, 100, 1000])
def test_encode_beside_a_boundary(exponent):
    # The square root of 2**(2 n + 1) has the logarithm n + 1/2; the integers beside it are 2**-n away, relatively.
    reference = Reference(12, 0)
    below = math.isqrt(2 ** (2 * exponent + 1))
    assert reference.encode(below) == reference.bias + exponent
    assert reference.encode(below + 1) == reference.bias + exponent + 1
    assert reference.encode(Fraction(1, below)) == reference.bias - exponent
    assert reference.encode(Fraction(1, below + 1)) == reference.bias - exponent - 1


@pytest.mark.parametrize(
    ("reference", "word", "number"),
    [
        (LNS16, 0x0000, 0.0),
        (LNS16, 0x8000, 0.0),
        (LNS16, 0x4000, 1.0),
        (LNS16, 0xC080, -2.0),
        (LNS16, 0x4040, math.sqrt(2)),
        (LNS16, 0xC020, -math.sqrt(math.sqrt(2))),
        (LNS16, 0x0080, 2.0**-127),
        (LNS8, 0x48, 2.0),
        (Reference(12, 0), 2048 + 1023, 2.0**1023),
        (Reference(12, 0), 2048 + 1024, math.inf),
        (Reference(12, 0), 4096 + 2048 + 1024, -math.inf),
        (Reference(12, 0), 2048 - 1074, 5e-324),
        (Reference(12, 0), 2048 - 1075, 0.0),  # a tie, to even
        (Reference(12, 1), 4096 - 2149, 5e-324),  # 2**-1074.5 is nearer to 2**-1074 than to zero
        (Reference(52, 0), 2**52 - 1, math.inf),
        (Reference(52, 0), 2**52 + 1, 0.0),
    ],
)
def test_decode(reference, word, number):
    assert reference.decode(word) == number
    assert not (word & reference.max_field == 0 and math.copysign(1, reference.decode(word)) < 0)


def test_gaussian_logarithms():
    assert LNS16.gaussian_sum(0) == 128
    assert LNS16.gaussian_sum(128) == 75  # 128 log2(3/2) = 74.88
    assert LNS16.gaussian_difference(128) == 128
    assert LNS16.gaussian_difference(1) == 964  # 128 · 7.5327
    assert LNS16.gaussian_difference(256) == 53  # 128 log2(4/3) = 53.13
    # s and t reach one half where 2**-x is about ln(2) / 256, that is x = 8.529, d = 1091.7
    assert [LNS16.gaussian_sum(d) for d in (1090, 1093)] == [1, 0]
    assert [LNS16.gaussian_difference(d) for d in (1091, 1093)] == [1, 0]
    assert (Reference(4, 0).gaussian_sum(0), Reference(4, 0).gaussian_sum(1), Reference(4, 0).gaussian_sum(2)) == (
        1,
        1,
        0,
    )


@pytest.mark.parametrize(
    ("operation", "operands", "result"),
    [
        ("mul", (0x4080, 0xC080), (0xC100, NONE)),
        ("mul", (0x7FFF, 0x4080), (0x7FFF, OVERFLOW)),
        ("mul", (0xFFFF, 0x4001), (0xFFFF, OVERFLOW)),
        ("mul", (0x8001, 0x3F80), (0x0000, UNDERFLOW)),
        ("mul", (0x0000, 0xFFFF), (0x0000, NONE)),
        ("mul", (0x8000, 0x7FFF), (0x0000, NONE)),
        ("div", (0x4000, 0xC080), (0xBF80, NONE)),
        ("div", (0x7FFF, 0x3FFF), (0x7FFF, OVERFLOW)),
        ("div", (0x0001, 0x4001), (0x0000, UNDERFLOW)),
        ("div", (0x4000, 0x0000), (0x7FFF, ZERO_DIVIDE)),
        ("div", (0xC000, 0x8000), (0xFFFF, ZERO_DIVIDE)),
        ("div", (0x0000, 0x0000), (0x0000, INVALID)),
        ("div", (0x8000, 0xC000), (0x0000, NONE)),
        ("add", (0x4000, 0x4000), (0x4080, NONE)),
        ("add", (0x4000, 0x4080), (0x40CB, NONE)),
        ("add", (0x4080, 0xC000), (0x4000, NONE)),
        ("add", (0xC080, 0x4000), (0xC000, NONE)),
        ("add", (0x4000, 0xC000), (0x0000, NONE)),
        ("add", (0x4000, 0x8000), (0x4000, NONE)),
        ("add", (0x8000, 0x8000), (0x0000, NONE)),
        ("add", (0x7F80, 0x7F80), (0x7FFF, OVERFLOW)),
        ("add", (0xFFFF, 0xFFFF), (0xFFFF, OVERFLOW)),
        ("add", (0x0080, 0x807F), (0x0000, UNDERFLOW)),
        ("add", (0x7FFF, 0x8001), (0x7FFF, NONE)),
        ("sub", (0x4100, 0x4000), (0x40CB, NONE)),
        ("sub", (0x0000, 0x4000), (0xC000, NONE)),
        ("sub", (0x4000, 0x4000), (0x0000, NONE)),
        ("sub", (0x0000, 0x0000), (0x0000, NONE)),
        ("pow", (0xC080, 2), (0x4100, NONE)),
        ("pow", (0xC080, 3), (0xC180, NONE)),
        ("pow", (0x4080, -1), (0x3F80, NONE)),
        ("pow", (0x4080, 2**70), (0x7FFF, OVERFLOW)),
        ("pow", (0xC080, -(2**70) - 1), (0x0000, UNDERFLOW)),
        ("pow", (0x0000, 0), (0x4000, NONE)),
        ("pow", (0x8000, -3), (0x7FFF, ZERO_DIVIDE)),
        ("pow", (0x8000, 3), (0x0000, NONE)),
        ("sqrt", (0x4001,), (0x4000, NONE)),
        ("sqrt", (0x4003,), (0x4002, NONE)),
        ("sqrt", (0x3FFD,), (0x3FFE, NONE)),
        ("sqrt", (0x8000,), (0x0000, NONE)),
        ("sqrt", (0xC000,), (0x0000, INVALID)),
        ("neg", (0x8000,), (0x0000, NONE)),
        ("neg", (0x0001,), (0x8001, NONE)),
        ("abs", (0xC080,), (0x4080, NONE)),
        ("relu", (0xC080,), (0x0000, NONE)),
        ("relu", (0x4080,), (0x4080, NONE)),
        ("maximum", (0xC080, 0xC000), (0xC000, NONE)),
        ("maximum", (0x8000, 0xC000), (0x0000, NONE)),
        ("minimum", (0x0000, 0x0001), (0x0000, NONE)),
        ("minimum", (0x4000, 0x8001), (0x8001, NONE)),
        ("sum", ((),), (0x0000, NONE)),
        ("sum", ((0x8000,),), (0x0000, NONE)),
        ("sum", ((0x7FFF, 0x7FFF, 0xFFFF),), (0x0000, OVERFLOW)),
        ("sum", ((0x4000, 0x4000, 0x4100),), (0x4180 - 53, NONE)),  # (1 + 1) + 4: 256 + s(128) = 331
        ("dot", ((0x4000, 0x7FFF), (0x4080, 0x7FFF)), (0x7FFF, OVERFLOW)),
    ],
)
def test_operations(operation, operands, result):
    assert getattr(LNS16, operation)(*operands) == result


def test_compare():
    ordered = [0xFFFF, 0xC000, 0x8001, 0x0000, 0x0001, 0x4000, 0x7FFF]
    for i, a in enumerate(ordered):
        for j, b in enumerate(ordered):
            assert LNS16.compare(a, b) == (i > j) - (i < j)
    assert LNS16.compare(0x8000, 0x0000) == 0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: LNS16.neg(0x10000), ValueError, "a word must be between 0 and 65535, not 65536"),
        (lambda: LNS16.decode(-1), ValueError, "a word must be between 0 and 65535, not -1"),
        (lambda: LNS16.encode(math.nan), ValueError, "NaN has no word."),
        (lambda: LNS16.encode("1"), TypeError, "x must be an integer, a float or a Fraction, not '1'"),
        (lambda: LNS16.gaussian_sum(-1), ValueError, "d must be at least 0, not -1"),
        (lambda: LNS16.gaussian_difference(0), ValueError, "d must be at least 1, not 0"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message


def test_source_shares_no_code_with_the_golden_model():
    # Loaded by its path: importing it by name would run the package's own __init__, and with it torch.
    program = (
        "import importlib.util, sys\n"
        "spec = importlib.util.spec_from_file_location('reference', sys.argv[1])\n"
        "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)\n"
        "assert module.Reference(8, 7).add(0x4000, 0x4000)[0] == 0x4080\n"
        "print(sorted({'torch', 'numpy', 'flint', 'xlnstorch'} & set(sys.modules)))\n"
    )
    path = sys.modules["xlnstorch.reference"].__file__
    shown = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
