"""The exact adder holds the nearest integers: proved with interval arithmetic for every d up to 16 fraction bits.

Both Gaussian logarithms fall strictly as d grows. So where a run of neighbouring d share an integer n, and the real
values at both ends of the run are within less than half a unit of n, all those in between are as well. And both are
positive, so where the value at some d is below half a unit, all values behind it are between zero and that. The real
values are balls of Arb, or intervals of mpmath; none of the package's own functions takes part, and a comparison of
intervals holds only if it holds for all their points. Since the inequalities are strict, there are no ties.
"""

import dataclasses
import itertools

import flint
import mpmath
import pytest
import torch

from xlnstorch import LNSFormat

INTERVALS = mpmath.ctx_iv.MPIntervalContext()
INTERVALS.prec = 100


@pytest.fixture(autouse=True)
def precision():
    with flint.ctx.workprec(100):
        yield


def in_balls(frac_bits, sign):
    """Return the function from d to a ball around s(d), or t(d) if the sign is -1, in units of the last place."""
    ln2 = flint.arb.const_log2()
    unit, scale = ln2 / (1 << frac_bits), sign * (1 << frac_bits) / ln2

    def logarithm(d):
        return (1 + sign * (-d * unit).exp()).log() * scale

    return logarithm


def in_intervals(frac_bits, sign):
    """Return the same in intervals of mpmath."""
    steps = INTERVALS.mpf(1 << frac_bits)

    def logarithm(d):
        return sign * steps * INTERVALS.log(1 + sign * INTERVALS.mpf(2) ** (-d / steps)) / INTERVALS.log(2)

    return logarithm


def runs(integers, start):
    """Yield the first and the last d of each run of equal integers, and the integer; `start` is the d of the first."""
    for integer, run in itertools.groupby(integers):
        length = sum(1 for _ in run)
        yield start, start + length - 1, integer
        start += length


def unproved(table, frac_bits, real=in_balls):
    """Return the ends of runs, as (function, d), at which the table's integer is not proved to be the nearest."""
    found = []
    for name, sign, start in (("sums", +1, 0), ("differences", -1, 1)):
        logarithm = real(frac_bits, sign)
        # The zero behind the last entry stands for all that follow.
        for first, last, n in runs([*getattr(table, name)[start:], 0], start):
            found += [(name, d) for d in sorted({first, last}) if not abs(logarithm(d) - n) < 0.5]
    return found


def table_of(frac_bits):
    format = LNSFormat(8, frac_bits)
    return format.adder.table(format)


def changed(table, name, d, by):
    entries = list(getattr(table, name))
    entries[d] += by
    return dataclasses.replace(table, **{name: tuple(entries)})


@pytest.mark.parametrize("frac_bits", range(17))
def test_every_integer_is_the_nearest_by_balls(frac_bits):
    assert unproved(table_of(frac_bits), frac_bits) == []


@pytest.mark.parametrize("frac_bits", range(9))
def test_every_integer_is_the_nearest_by_intervals(frac_bits):
    assert unproved(table_of(frac_bits), frac_bits, in_intervals) == []


@pytest.mark.parametrize("frac_bits", range(17))
def test_what_the_adder_returns_is_the_table_and_zero_behind_it(frac_bits):
    format, table = LNSFormat(8, frac_bits), table_of(frac_bits)
    behind = [len(table), len(table) + 1, 2 * len(table), 1 << 40, (1 << 52) - 1]
    d = torch.tensor([*range(len(table)), *behind])
    for entries, subtract, start in ((table.sums, False, 0), (table.differences, True, 1)):
        found = format.adder.gaussian(format, d, torch.full_like(d, subtract, dtype=torch.bool)).abs()
        assert found[start:].tolist() == [*entries[start:], *[0] * len(behind)]
    # s(0) is the logarithm of 2: an integer, and so no other.
    assert table.sums[0] == 1 << frac_bits


@pytest.mark.parametrize("real", [in_balls, in_intervals])
def test_no_single_integer_can_be_wrong_without_being_seen(real):
    table = table_of(3)
    for name, start in (("sums", 0), ("differences", 1)):
        for d, by in itertools.product(range(start, len(table)), (-1, 1)):
            assert (name, d) in unproved(changed(table, name, d, by), 3, real)


def test_wrong_integers_are_seen_at_16_fraction_bits():
    table = table_of(16)
    # An entry that no other equals, one inside a run, one at the end of a run, and the last one.
    wrong = [("differences", 1), ("sums", 600_000), ("sums", 65_536), ("differences", len(table) - 1)]
    for name, d in wrong:
        table = changed(table, name, d, +1)
    assert set(wrong) <= set(unproved(table, 16))


def test_a_table_that_ends_too_early_is_seen():
    table = table_of(7)
    short = dataclasses.replace(table, sums=table.sums[:-1], differences=table.differences[:-1])
    assert ("differences", len(table) - 1) in unproved(short, 7)
