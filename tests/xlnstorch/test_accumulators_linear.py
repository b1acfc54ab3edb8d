"""Sums in fixed point: whatever the order, in registers of any width, and back to the nearest word."""

import dataclasses
import math
import random
from fractions import Fraction

import pytest
import torch
from lnstesting import check, exactly, randn

import xlnstorch.accumulators.linear as linear
from xlnstorch import LNSFormat, conversions, lns8, lns12, lns16, lns16e5, lns24, lns32, lnstensor, software_format
from xlnstorch.accumulators import LinearAccumulator, LogAccumulator
from xlnstorch.accumulators.register import Registers
from xlnstorch.exact import LogScale
from xlnstorch.observe import flags
from xlnstorch.reference import Reference
from xlnstorch.reference_sums import linear_sum

WIDE = LNSFormat(12, 40)  # a register of 4143 bits
LINEAR = LinearAccumulator()


def random_words(format, shape, seed):
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(0, 1 << format.width, shape, generator=generator)
    return format.from_unsigned(words)


def registers_of(integers, width=32):
    """Return registers that hold Python integers, added in pieces of `width` bits."""
    most = max(abs(n) for n in integers).bit_length()
    registers = Registers(len(integers), max(1, most), torch.device("cpu"))
    for low in range(0, most, width):
        pieces = [(-1 if n < 0 else 1) * (abs(n) >> low & ((1 << width) - 1)) for n in integers]
        registers.add(torch.tensor([pieces]), torch.full((1, len(integers)), low), width)
    return registers


@pytest.mark.parametrize("format", [lns8, lns12, lns16, lns16e5, lns24, lns32, WIDE, LNSFormat(4, 48)], ids=repr)
def test_a_sum_of_one_term_is_that_term(format):
    words = random_words(format, (1, 500), seed=1)
    if format.width <= 12:
        words = format.from_unsigned(torch.arange(1 << format.width)).unsqueeze(0)
    _, field = format.unpack(words[0])
    expected = torch.where(field == 0, 0, words[0])
    for accumulator in (LINEAR, LinearAccumulator(table_bits=min(60, format.frac_bits + 1))):
        assert torch.equal(accumulator.sum(format, words, 0), expected)


def test_one_table_bit_less_and_some_terms_change():
    words = lns16.from_unsigned(torch.arange(1 << 14, 3 << 13)).unsqueeze(0)
    assert not torch.equal(LinearAccumulator(table_bits=7).sum(lns16, words, 0), words[0])


@pytest.mark.parametrize("accumulator", [LINEAR, LinearAccumulator(4, 6)], ids=repr)
@pytest.mark.parametrize("format", [lns8, lns16, lns32], ids=repr)
def test_the_order_does_not_matter(format, accumulator):
    words = randn(40, 30, seed=2, format=format)._words
    expected = accumulator.sum(format, words, 0)
    generator = torch.Generator().manual_seed(3)
    for _ in range(5):
        assert torch.equal(accumulator.sum(format, words[torch.randperm(40, generator=generator)], 0), expected)
    # Of LNS additions it does, or this would show nothing.
    other = LogAccumulator(guard_bits=4)
    assert not torch.equal(other.sum(format, words.flip(0), 0), other.sum(format, words, 0))


def test_the_order_does_not_matter_in_matrix_products():
    format = dataclasses.replace(lns16, accumulator=LINEAR)
    a, b = randn(4, 50, seed=1, format=format), randn(50, 3, seed=2, format=format)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(3))
    check(a[:, order] @ b[order], format, (a @ b)._words)
    check((a.T.flip(0).T @ b.flip(0)), format, (a @ b)._words)


@pytest.mark.parametrize("format", [lns8, lns16, lns32], ids=repr)
def test_what_cancels_leaves_the_rest_and_no_flag(format):
    words = random_words(format, (20, 50), seed=4)
    rest = random_words(format, (1, 50), seed=5)
    negated = format.from_unsigned(format.to_unsigned(words) ^ (1 << format.log_bits))
    with flags() as counts:
        assert torch.equal(LINEAR.sum(format, torch.cat([words, negated]), 0), torch.zeros(50, dtype=format.dtype))
        result = LINEAR.sum(format, torch.cat([words, rest, negated]), 0)
    assert torch.equal(result, format.pack(*format.unpack(rest[0])))
    assert (counts.operations, counts.overflow, counts.underflow) == (100, 0, 0)


def test_ones_do_not_stall():
    for count in (2, 1000, 1 << 15, 100_000):
        total = LINEAR.sum(lns16, torch.full((count,), lns16.bias, dtype=torch.int16), 0)
        assert int(total) == conversions.encode_scalar(lns16, count)


def test_blocks_do_not_show(monkeypatch):
    words = random_words(lns16, (100, 7), seed=6)
    a, b = randn(5, 30, seed=1)._words, randn(30, 6, seed=2)._words
    expected = LINEAR.sum(lns16, words, 0), LINEAR.matmul(lns16, a, b)
    monkeypatch.setattr(linear, "_BLOCK", 50)
    assert torch.equal(LINEAR.sum(lns16, words, 0), expected[0])
    assert torch.equal(LINEAR.matmul(lns16, a, b), expected[1])


def test_the_table_does_not_show(monkeypatch):
    words = random_words(lns16, (100, 20), seed=7)
    expected = LINEAR.sum(lns16, words, 0)
    monkeypatch.setattr(linear, "_MAX_TABLED_FRAC_BITS", 6)
    assert torch.equal(LINEAR.sum(lns16, words, 0), expected)


@pytest.mark.parametrize(
    ("format", "accumulator"),
    [
        (WIDE, LINEAR),
        (LNSFormat(4, 48), LINEAR),  # significands of 53 bits: two limbs and more
        (lns16, LinearAccumulator(table_bits=31)),
        (lns16, LinearAccumulator(table_bits=32)),
        (lns16, LinearAccumulator(table_bits=60)),
        (lns16, LinearAccumulator(table_bits=60, frac_bits=0)),
        (lns16, LinearAccumulator(frac_bits=0)),
        (lns16, LinearAccumulator(frac_bits=500)),
        (LNSFormat(13, 3), LinearAccumulator(frac_bits=100)),
        (LNSFormat(1, 1), LINEAR),
        (LNSFormat(2, 0), LinearAccumulator(table_bits=0, frac_bits=0)),
    ],
    ids=str,
)
def test_any_width(format, accumulator):
    reference = Reference(format.int_bits, format.frac_bits)
    rng = random.Random(8)
    center = [0, *range(-format.bias + 1, format.bias, max(1, format.bias // 3))]
    rows = []
    for e in center:
        spread = min(format.bias, 40 << format.frac_bits)
        fields = [min(max(0, format.bias + e + rng.randrange(-spread, spread)), format.max_field) for _ in range(6)]
        rows.append([field + (rng.randrange(2) << format.log_bits) for field in fields])
    result = accumulator.sum(format, format.from_unsigned(torch.tensor(rows)), 1)
    expected = [linear_sum(reference, row, accumulator.table_bits, accumulator.frac_bits)[0] for row in rows]
    assert format.to_unsigned(result).tolist() == expected


@pytest.mark.parametrize("frac_bits", [0, 1, 7, 23, 48])
def test_logarithms_of_registers(frac_bits):
    rng = random.Random(frac_bits)
    reference = Reference(12, frac_bits)
    integers = [1, -1, 2, 3, -(2**31), 2**32, 2**32 - 1, 2**64, -(2**64) - 1, 2**96, 2**96 + 1]
    integers += [rng.choice((1, -1)) * (rng.getrandbits(rng.randrange(1, 400)) or 5) for _ in range(150)]
    scale = LogScale.of(frac_bits)
    for width in (32, 63, 13):
        negative, log, zero = registers_of(integers, width).nearest_logs(scale, 0)
        assert negative.tolist() == [n < 0 for n in integers]
        assert not zero.any()
        assert [reference.encode(abs(n)) for n in integers] == (log + reference.bias).tolist()


@pytest.mark.parametrize("frac_bits", [0, 1, 3])
@pytest.mark.parametrize("bits", [40, 90, 97, 130, 300])
def test_logarithms_beside_a_boundary(frac_bits, bits):
    # Boundaries are 2**((2 n + 1) / 2**(f + 1)); the two integers beside one have different logarithms, and the same
    # highest 96 bits where they are longer.
    root = 2 ** (frac_bits + 1)
    integers, logs = [], []
    for n in range(bits * 2**frac_bits, bits * 2**frac_bits + 2**frac_bits):
        below = _integer_root(2 ** (2 * n + 1), root)
        integers += [below, below + 1, -below, -below - 1]
        logs += [n, n + 1] * 2
    negative, log, _ = registers_of(integers).nearest_logs(LogScale.of(frac_bits), 0)
    assert log.tolist() == logs
    assert negative.tolist() == [n < 0 for n in integers]


def _integer_root(x, power):
    """Return the largest integer whose `power`, which is a power of two, is at most x."""
    while power > 1:
        x, power = math.isqrt(x), power // 2
    return x


def test_registers_take_many_carries():
    count = 1 << 12
    top = (1 << 63) - 1
    registers = Registers(2, 63 + 31, torch.device("cpu"))
    registers.add(torch.tensor([[top, -top]]).expand(count, 2), torch.full((count, 2), 31), 63)
    registers.add(torch.tensor([[1, -1]]), torch.tensor([[0, 0]]), 1)
    negative, log, _ = registers.nearest_logs(LogScale.of(40), 31)
    total = count * top * 2**31 + 1
    expected = LogScale.of(40).log_exact(Fraction(total, 2**31))
    assert log.tolist() == [expected, expected] and negative.tolist() == [False, True]


@pytest.mark.parametrize(
    ("format", "accumulator", "terms", "bits"),
    [
        # Sign, 8 integer bits, 8 + 7 fraction bits.
        (lns8, LINEAR, 1, 24),
        (lns16, LINEAR, 1, 1 + 128 + 128 + 11),
        (lns16, LINEAR, 2, 1 + 128 + 128 + 11 + 1),
        (lns16, LINEAR, 1 << 20, 1 + 128 + 128 + 11 + 20),
        (lns32, LINEAR, 1, 1 + 128 + 128 + 27),
        (lns16, LinearAccumulator(9, 30), 1, 1 + 128 + 30),
        (LNSFormat(2, 1), LinearAccumulator(10, 0), 1, 1 + 2),
        # The largest significand, 1.995, is rounded up to 2.
        (lns16, LinearAccumulator(2, 30), 1, 1 + 129 + 30),
    ],
    ids=str,
)
def test_register_bits(format, accumulator, terms, bits):
    assert accumulator.register_bits(format, terms) == bits


def test_register_bits_are_what_the_largest_sums_need():
    for accumulator in (LINEAR, LinearAccumulator(1, 3)):
        for terms in (1, 3, 8):
            largest = conversions.decode(lns8, torch.tensor(lns8.max_field, dtype=lns8.dtype)).item()
            table_bits = lns8.frac_bits + 4 if accumulator.table_bits is None else 1
            frac_bits = table_bits + 8 if accumulator.frac_bits is None else 3
            significand = round(largest / 2**7 * 2**table_bits)
            total = terms * (Fraction(significand, 2**table_bits) * 2**7 * 2**frac_bits)
            assert accumulator.register_bits(lns8, terms) == 1 + math.floor(total).bit_length()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: LinearAccumulator("9"), TypeError, "table_bits must be an integer, not '9'"),
        (lambda: LinearAccumulator(61), ValueError, "table_bits must be between 0 and 60, not 61"),
        (lambda: LinearAccumulator(frac_bits=-1), ValueError, "frac_bits must be between 0 and 8192, not -1"),
        (
            lambda: LNSFormat(8, 7, accumulator=LINEAR, base=3.0),
            ValueError,
            "LinearAccumulator needs base 2, not 3.0",
        ),
        (
            lambda: LNSFormat(13, 7, accumulator=LINEAR),
            ValueError,
            "a register of LinearAccumulator has at most 8192 bits, not the 8204 that 13 integer bits need; "
            "frac_bits must be at most 4095",
        ),
        (
            lambda: dataclasses.replace(software_format(23), accumulator=LINEAR),
            ValueError,
            "a register of LinearAccumulator has at most 8192 bits, not the 536870940 that 29 integer bits need; "
            "no frac_bits is few enough for so many",
        ),
        (
            lambda: LNSFormat(14, 7, accumulator=LinearAccumulator(frac_bits=0)),
            ValueError,
            "a register of LinearAccumulator has at most 8192 bits, not the 8193 that 14 integer bits need; "
            "no frac_bits is few enough for so many",
        ),
        (
            lambda: LINEAR.sum(lns8, torch.zeros(1, dtype=torch.int8).expand((1 << 30) + 1), 0),
            ValueError,
            "a sum in LinearAccumulator must have at most 1073741824 terms, not 1073741825",
        ),
    ],
)
def test_errors(make, error, message):
    with pytest.raises(error, match=exactly(message)):
        make()


def test_the_last_fraction_bits_that_fit():
    format = LNSFormat(13, 7, accumulator=LinearAccumulator(frac_bits=4095))
    assert format.accumulator.register_bits(format) == 8192
    assert lnstensor([1.5, -1.0, 2.0], format=format).sum().item() == lnstensor(2.5, format=format).item()


def test_repr():
    assert repr(LINEAR) == "LinearAccumulator()"
    assert repr(LinearAccumulator(frac_bits=9)) == "LinearAccumulator(frac_bits=9)"
    assert repr(LinearAccumulator(5, 9)) == "LinearAccumulator(table_bits=5, frac_bits=9)"
