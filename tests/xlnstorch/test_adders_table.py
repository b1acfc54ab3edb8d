"""The table of an adder, and its ROM, by hand."""

import dataclasses

import mpmath
import pytest
from lnstesting import Off

from xlnstorch import LNSFormat, lns8, lns12, lns16
from xlnstorch.adders import AdderCost, GaussianTable

mp = mpmath.MPContext()
mp.dps = 40


@pytest.mark.parametrize(
    ("format", "address_bits"),
    [(LNSFormat(3, 0), 1), (lns8, 5), (lns12, 9), (LNSFormat(8, 6), 9), (lns16, 10), (LNSFormat(5, 12), 16)],
    ids=str,
)
def test_the_rom_of_the_exact_adder_ends_where_nothing_but_ones_follow(format, address_bits):
    table, units = format.adder.table(format), 2**format.frac_bits

    def where(value, sign):
        """Return the d at which s, or t where the sign is negative, is a number of units."""
        return -mp.log(sign * (mp.mpf(2) ** (mp.mpf(value) / units * sign) - 1), 2) * units

    ends = tuple(int(mp.ceil(where(0.5, sign))) for sign in (+1, -1))
    assert len(table) == max(ends)
    half = 1 << (len(table) - 1).bit_length() - 1
    ones = half > 1 and max(where(1.5, sign) for sign in (+1, -1)) < half
    assert table.address_bits == address_bits == (half if ones else 2 * half).bit_length() - 1
    assert table.ends == (ends if ones else None)
    bits = tuple(int(mp.nint(largest)).bit_length() for largest in (units, where(1, -1)))  # s(0); t is its own inverse
    assert table.widths == bits
    assert table.rom_bits == sum(bits) << address_bits
    assert format.adder.cost(format) == AdderCost(rom_bits=sum(bits) << address_bits, multipliers=())


@pytest.mark.parametrize(
    ("sums", "differences", "address_bits", "ends"),
    [
        ((1,), (0,), 1, None),
        ((1, 1), (0, 1), 1, None),  # a ROM has two rows at least
        ((1, 1, 1), (0, 1, 1), 1, (3, 3)),
        ((2, 1, 1, 0), (0, 3, 1, 1), 1, (3, 4)),
        ((2, 1, 0, 0), (0, 3, 1, 1), 1, (2, 4)),
        ((2, 1, 2, 1), (0, 3, 1, 1), 2, None),
        ((2, 1, 1, 1), (0, 3, 0, 1), 2, None),
        ((2, 1, 1, 1, 1), (0, 3, 1, 1, 1), 2, (5, 5)),  # behind half of the table, not as early as can be
    ],
)
def test_ones_behind_a_power_of_two_are_not_in_the_rom(sums, differences, address_bits, ends):
    table = GaussianTable(sums, differences)
    assert (table.address_bits, table.ends) == (address_bits, ends)
    s_bits, _ = table.widths
    # What a gate would read: the row, or what lies behind.
    for d in range(len(sums)):
        if d < len(table.rows):
            found = (table.rows[d] % (1 << s_bits), table.rows[d] >> s_bits)
        else:
            found = (int(d < ends[0]), int(d < ends[1]))
        assert found == (sums[d], differences[d])
    assert table.rom_bits == sum(table.widths) << address_bits


def test_each_logarithm_has_the_bits_of_its_largest_integer_in_the_rom():
    assert GaussianTable((0,), (0,)).widths == (1, 1)
    assert GaussianTable((7, 1), (0, 8)).widths == (3, 4)
    assert GaussianTable((8, 1), (0, 7)).widths == (4, 3)
    assert GaussianTable((0, 0, 1), (0, 0, 1)).widths == (1, 1)


def test_an_adder_that_reaches_further_has_a_longer_table():
    off = dataclasses.replace(lns8, adder=Off(by=1, below=100))
    table = off.adder.table(off)
    assert len(table) == 100
    assert table.sums[-1] == table.differences[-1] == 1
    assert (table.address_bits, table.ends) == (6, (100, 100))
    assert off.adder.cost(off) == AdderCost(rom_bits=(4 + 5) << 6)


@pytest.mark.parametrize("int_bits", [1, 2, 3])
def test_a_table_ends_with_the_distances_of_the_format(int_bits):
    format, whole = LNSFormat(int_bits, 7), lns16.adder.table(lns16)
    table, distances = format.adder.table(format), 128 << int_bits
    assert (table.sums, table.differences) == (whole.sums[:distances], whole.differences[:distances])
    assert (len(table), table.ends) == (distances, None)
    assert format.adder.cost(format).rom_bits == 18 * distances
