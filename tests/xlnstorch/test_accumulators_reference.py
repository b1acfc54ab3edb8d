"""Every accumulator against the reference: words and flags."""

import ast
import dataclasses
import functools
import itertools
import math
import operator
import random
import sys
from pathlib import Path

import pytest
import torch

from xlnstorch import GaussianFunction, LNSFormat, LogAccumulator, arithmetic, lns8, lns12, lns16, lns32, reference_sums
from xlnstorch.accumulators import LinearAccumulator
from xlnstorch.observe import FLAGS, observing
from xlnstorch.reference import Reference
from xlnstorch.reference_adders import AdderReference
from xlnstorch.reference_sums import dot, linear_sum, logarithmic_sum

pytestmark = pytest.mark.usefixtures("kernel")

LOGARITHMIC = [LogAccumulator(order, guard_bits) for order in ("sequential", "tree") for guard_bits in (0, 1, 4)]
LNS8_SPECIALS, LNS16_SPECIALS = (dataclasses.replace(format, specials=True) for format in (lns8, lns16))
LINEAR = [LinearAccumulator(), LinearAccumulator(table_bits=1), LinearAccumulator(table_bits=9, frac_bits=3)]


def summed(accumulator, format, reference=None):
    """Return the reference's sum that an accumulator must give, as a function of a list of words."""
    reference = reference or Reference(format.int_bits, format.frac_bits, format.specials)
    if isinstance(accumulator, LinearAccumulator):
        own = {"table_bits": accumulator.table_bits, "frac_bits": accumulator.frac_bits}
        return functools.partial(linear_sum, reference, **own)
    return functools.partial(logarithmic_sum, reference, order=accumulator.order, guard_bits=accumulator.guard_bits)


def bits(flags):
    return sum(1 << FLAGS.index(flag) for flag in flags)


def check_columns(accumulator, format, words, expected):
    """Assert that the sums of the columns of words (K, R) are the `expected` R pairs of word and flags."""
    raised = torch.zeros(words.shape[1], dtype=torch.int64)

    def note(operation):
        for row in operation.flags.reshape(-1, len(raised)):
            raised.bitwise_or_(row)

    with observing(note):
        result = accumulator.sum(format, format.from_unsigned(words), 0)
    assert result.dtype == format.dtype
    words, flags = zip(*expected, strict=True)
    assert format.to_unsigned(result).tolist() == list(words)
    assert raised.tolist() == [bits(flag) for flag in flags]


def columns_of(format, rng, length, count):
    """Words whose sums cancel, saturate, flush, or lose some terms beside others; (length, count)."""
    top, sign = format.max_field, 1 << format.log_bits

    def field(kind, center):
        match kind:
            case "any":
                return rng.randrange(top + 1)
            case "top":
                return top - rng.randrange(3 << format.frac_bits) // 2
            case "bottom":
                return 1 + rng.randrange(3 << format.frac_bits)
        return min(max(1, center + rng.randrange(-(2 << format.frac_bits), 2 << format.frac_bits)), top)

    columns = []
    for i in range(count):
        kind, center = ("any", "top", "bottom", "near", "near")[i % 5], rng.randrange(1, top + 1)
        column = [field(kind, center) + sign * rng.randrange(2) for _ in range(length)]
        if rng.random() < 0.3:  # half of it cancels the other
            column[length // 2 :] = [word ^ sign for word in column[: length - length // 2]]
            rng.shuffle(column)
        if rng.random() < 0.3:
            column[rng.randrange(length)] = sign * rng.randrange(2)  # either zero
        columns.append(column)
    return torch.tensor(columns).T


@pytest.mark.slow
@pytest.mark.parametrize(
    "accumulator",
    [LogAccumulator(guard_bits=2), LinearAccumulator(), LinearAccumulator(table_bits=2, frac_bits=5)],
    ids=repr,
)
def test_all_pairs_of_lns8(accumulator):
    # The reference for a first word without a sign; changing both signs must change that of the result and no more.
    words = torch.tensor(list(itertools.product(range(128), range(256)))).T
    expected = list(map(summed(accumulator, lns8), words.T.tolist()))
    check_columns(accumulator, lns8, words, expected)
    check_columns(accumulator, lns8, words ^ 128, [(word ^ 128 if word else 0, flags) for word, flags in expected])


@pytest.mark.parametrize("accumulator", [*LOGARITHMIC, *LINEAR], ids=repr)
@pytest.mark.parametrize(("widths", "length"), [((2, 1), 3), ((1, 1), 4), ((2, 0), 4), ((3, 2), 2)], ids=str)
@pytest.mark.parametrize("specials", [False, True])
def test_all_words_of_tiny_formats(accumulator, widths, length, specials):
    format = LNSFormat(*widths, specials=specials)
    words = torch.tensor(list(itertools.product(range(1 << format.width), repeat=length))).T
    check_columns(accumulator, format, words, list(map(summed(accumulator, format), words.T.tolist())))


@pytest.mark.parametrize("accumulator", [*LOGARITHMIC, *LINEAR], ids=repr)
@pytest.mark.parametrize("format", [lns8, lns12, lns16, lns32, LNS8_SPECIALS, LNS16_SPECIALS], ids=repr)
def test_random_sums(accumulator, format):
    rng = random.Random(1)
    for length, count in ((1, 10), (2, 15), (3, 30), (4, 15), (7, 20), (33, 5)):
        words = columns_of(format, rng, length, count)
        check_columns(accumulator, format, words, list(map(summed(accumulator, format), words.T.tolist())))


@pytest.mark.parametrize("accumulator", [*LOGARITHMIC, *LINEAR], ids=repr)
@pytest.mark.parametrize("format", [lns8, lns16, lns32, LNS8_SPECIALS], ids=repr)
def test_random_dot_products(accumulator, format):
    rng = random.Random(2)
    sum_of = summed(accumulator, format)
    reference = Reference(format.int_bits, format.frac_bits, format.specials)
    a, b = (columns_of(format, rng, 6, 5) for _ in range(2))
    expected = [[dot(reference, x, y, sum_of) for y in b.T.tolist()] for x in a.T.tolist()]
    products = format.to_unsigned(
        arithmetic.mul(format, format.from_unsigned(a).unsqueeze(2), format.from_unsigned(b).unsqueeze(1))
    )
    result = accumulator.matmul(format, format.from_unsigned(a.T), format.from_unsigned(b))
    assert format.to_unsigned(result).tolist() == [[word for word, _ in row] for row in expected]
    # Flags, over all elements together: of the products, and of the sums.
    raised = []
    with observing(lambda operation: raised.extend(operation.flags.flatten().tolist())):
        accumulator.matmul(format, format.from_unsigned(a.T), format.from_unsigned(b))
    assert functools.reduce(operator.or_, raised) == bits(set().union(*(f for row in expected for _, f in row)))
    check_columns(accumulator, format, products.reshape(6, 25), [sum_of(c) for c in products.reshape(6, 25).T.tolist()])


@pytest.mark.parametrize("accumulator", [*LOGARITHMIC, *LINEAR], ids=repr)
def test_sums_with_infinities_and_nan(accumulator):
    format, rng, special = LNS16_SPECIALS, random.Random(4), [0x7FFF, 0xFFFF, 0x8000]
    columns = [[rng.randrange(1 << 16) for _ in range(length)] for length in (1, 2, 3, 8) for _ in range(20)]
    for column in columns:
        for _ in range(rng.randrange(3)):
            column[rng.randrange(len(column))] = rng.choice(special)
        check_columns(accumulator, format, torch.tensor([column]).T, [summed(accumulator, format)(column)])


@pytest.mark.parametrize("accumulator", LINEAR, ids=repr)
@pytest.mark.parametrize("place", [0, 39_999])
def test_infinities_in_any_block_of_a_linear_sum(accumulator, place):
    words = torch.full((40_000, 3), 0x4000)
    words[place] = torch.tensor([0x7FFF, 0xFFFF, 0x8000])
    result = accumulator.sum(LNS16_SPECIALS, LNS16_SPECIALS.from_unsigned(words), 0)
    assert LNS16_SPECIALS.to_unsigned(result).tolist() == [0x7FFF, 0xFFFF, 0x8000]


def halving(frac_bits, d, subtract):
    """A crude adder: one at no distance, or three where it subtracts, and half of that for each whole one."""
    return (1 << frac_bits) * (3 if subtract else 1) >> (d >> frac_bits)


def halving_in_torch(z, s, base):
    frac_bits = -round(math.log2(math.log2(base)))
    return 2 * torch.where(s == 1, -1, 1) * ((1 << frac_bits) * torch.where(s == 1, 3, 1) >> (-z >> frac_bits))


@pytest.mark.parametrize("accumulator", [*LOGARITHMIC, LINEAR[0]], ids=repr)
def test_sums_with_another_adder(accumulator):
    format = LNSFormat(8, 7, adder=GaussianFunction(halving_in_torch), accumulator=accumulator)
    sum_of = summed(accumulator, format, AdderReference(8, 7, halving))
    words = columns_of(format, random.Random(3), 5, 40)
    check_columns(accumulator, format, words, list(map(sum_of, words.T.tolist())))


def test_the_samples_have_what_they_are_meant_to_have():
    raised, zeros = set(), 0
    for format in (lns8, lns12, lns16, lns32):
        for column in columns_of(format, random.Random(1), 4, 40).T.tolist():
            word, flags = linear_sum(Reference(format.int_bits, format.frac_bits), column)
            raised |= flags
            zeros += word == 0 and not flags
    assert raised == {"overflow", "underflow"}
    assert zeros > 5


def test_the_reference_by_hand():
    lns16 = Reference(8, 7)
    # s(9) is 2048 · 0.002815 = 5.77, or 6, with 4 guard bits, of which 16 make one unit; and 1 is larger by it 2 times.
    assert (Reference(8, 11).gaussian_sum(9 * 2048), lns16.gaussian_sum(9 * 128)) == (6, 0)
    small = 0x4000 - 9 * 128
    assert logarithmic_sum(lns16, [0x4000, small], guard_bits=4) == (0x4000, frozenset())
    assert logarithmic_sum(lns16, [0x4000, small, small], guard_bits=4) == (0x4001, frozenset())
    assert logarithmic_sum(lns16, [0x4000, small, small]) == (0x4000, frozenset())
    # With 1 guard bit s(8) = 256 · 0.005625 = 1.44 is a half: to even, once down and once up.
    assert logarithmic_sum(lns16, [0x4000, 0x4000 - 8 * 128], guard_bits=1) == (0x4000, frozenset())
    assert logarithmic_sum(lns16, [0x4001, 0x4001 - 8 * 128], guard_bits=1) == (0x4002, frozenset())
    # (1 + 1) + (4 + 1): 5 is 256 + 41, and 7 is 62 above it. 128 log2(7) = 359.3
    assert logarithmic_sum(lns16, [0x4000, 0x4000, 0x4100, 0x4000], order="tree") == (0x4167, frozenset())
    assert linear_sum(lns16, [0x4040], table_bits=0, frac_bits=0) == (0x4000, frozenset())
    assert linear_sum(lns16, [0x4041], table_bits=0) == (0x4000, frozenset())  # 1.42 rounds to 1
    assert linear_sum(lns16, [0x404B], table_bits=0) == (0x4080, frozenset())  # 1.501 rounds to 2
    assert linear_sum(lns16, [0x4000, 0x3F80, 0x3F80], frac_bits=0) == (0x4000, frozenset())  # two halves are cut off
    assert linear_sum(lns16, [0x4000, 0x4000, 0x4000]) == (0x40CB, frozenset())  # 128 log2(3) = 202.88
    assert linear_sum(lns16, [0x7FFF, 0x7FFF, 0xFFFF]) == (0x7FFF, frozenset())  # nothing saturates on the way
    assert linear_sum(lns16, [0x7FFF, 0x7FFF]) == (0x7FFF, frozenset({"overflow"}))
    assert linear_sum(lns16, [0x0081, 0x8080]) == (0x0000, frozenset({"underflow"}))
    assert linear_sum(lns16, []) == logarithmic_sum(lns16, []) == (0x0000, frozenset())
    assert linear_sum(lns16, [0x8000]) == logarithmic_sum(lns16, [0x8000]) == (0x0000, frozenset())


def test_the_reference_shares_nothing_with_the_model_it_checks():
    tree = ast.parse(Path(reference_sums.__file__).read_text())
    imports = {(node.module, node.level) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imports |= {(alias.name, 0) for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {name for name, level in imports if level} == {"reference"}
    assert {name.split(".")[0] for name, level in imports if not level} <= set(sys.stdlib_module_names)
