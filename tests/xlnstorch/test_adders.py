"""The exact adder, as a table and on the fly, against the reference."""

import random

import pytest
import torch

from xlnstorch import (
    Adder,
    Exact,
    GaussianTable,
    LNSFormat,
    lns8,
    lns12,
    lns16,
    lns16e5,
    lns32,
    software_format,
)
from xlnstorch.adders import adder
from xlnstorch.reference import Reference


def reference_of(format):
    return Reference(format.int_bits, format.frac_bits)


@pytest.mark.parametrize("format", [LNSFormat(3, 0), lns8, lns12, lns16], ids=str)
def test_table_is_the_reference_for_every_d(format):
    reference, table = reference_of(format), format.adder.table(format)
    assert isinstance(table, GaussianTable)
    assert len(table) == len(table.sums) == len(table.differences)
    assert list(table.sums) == [reference.gaussian_sum(d) for d in range(len(table))]
    assert table.differences[0] == 0  # infinite; x - x is handled before
    assert list(table.differences[1:]) == [reference.gaussian_difference(d) for d in range(1, len(table))]
    # Nothing is missing behind the last entry, and the last entry is needed.
    assert table.sums[-1] or table.differences[-1]
    beyond = range(len(table), (format.frac_bits + 5) << format.frac_bits)
    assert not any(reference.gaussian_sum(d) or reference.gaussian_difference(d) for d in beyond)


def check_a_sample_of_lns16e5(step):
    reference, table = reference_of(lns16e5), lns16e5.adder.table(lns16e5)
    assert len(table) == 11806
    for d in (*range(1, 40), *range(40, len(table), step), len(table) - 1):
        assert table.sums[d] == reference.gaussian_sum(d)
        assert table.differences[d] == reference.gaussian_difference(d)


def test_table_of_ten_fraction_bits_is_the_reference_for_a_sample():
    check_a_sample_of_lns16e5(step=37)


@pytest.mark.slow
def test_table_of_ten_fraction_bits_is_the_reference_for_every_d():
    check_a_sample_of_lns16e5(step=1)


def test_known_entries():
    table = lns16.adder.table(lns16)
    assert (table.sums[0], table.sums[128]) == (128, 75)
    assert (table.differences[1], table.differences[128], table.differences[256]) == (964, 128, 53)
    assert list(table.sums) == sorted(table.sums, reverse=True)
    assert list(table.differences[1:]) == sorted(table.differences[1:], reverse=True)


@pytest.mark.parametrize("format", [LNSFormat(2, 0), lns8, lns16, lns16e5], ids=str)
def test_torch_path_is_the_table(format):
    table = format.adder.table(format)
    d = torch.arange(2 * len(table) + 10)
    zeros = [0] * (len(d) - len(table))
    sums = format.adder.gaussian(format, d, torch.zeros_like(d, dtype=torch.bool))
    differences = format.adder.gaussian(format, d, torch.ones_like(d, dtype=torch.bool))
    assert (sums.dtype, differences.dtype) == (torch.int64, torch.int64)
    assert sums.tolist() == [*table.sums, *zeros]
    assert differences.tolist()[1:] == [-t for t in table.differences[1:]] + zeros
    assert format.adder.gaussian(format, torch.tensor([2**51]), torch.tensor([True])).tolist() == [0]


@pytest.mark.parametrize("format", [LNSFormat(8, 17), lns32, software_format(23), software_format(40)], ids=str)
def test_on_the_fly_path_is_the_reference(format):
    reference, rng = reference_of(format), random.Random(format.frac_bits)
    reach = format.scale.gaussian_reach
    assert reach >= adder.MAX_TABLE_ENTRIES
    ds = [1, 2, 3, 2**format.frac_bits, reach - 2, reach - 1, reach, reach + 1, 2**51]
    ds += [int(2 ** rng.uniform(0, format.frac_bits + 5)) for _ in range(150)]
    rng.shuffle(ds)
    subtract = torch.tensor([rng.random() < 0.5 for _ in ds])
    result = format.adder.gaussian(format, torch.tensor(ds), subtract)
    expected = [
        -reference.gaussian_difference(d) if minus else reference.gaussian_sum(d)
        for d, minus in zip(ds, subtract.tolist(), strict=True)
    ]
    assert result.tolist() == expected
    zero = torch.zeros(2, dtype=torch.int64)
    assert format.adder.gaussian(format, zero, torch.tensor([False, True]))[0] == 2**format.frac_bits


def test_both_paths_agree(monkeypatch):
    d = torch.arange(1, 2000).reshape(-1, 1)
    subtract = torch.tensor([False, True])
    table = lns16.adder.gaussian(lns16, d.expand(-1, 2), subtract.expand(len(d), 2))
    monkeypatch.setattr(adder, "MAX_TABLE_ENTRIES", 0)
    assert torch.equal(lns16.adder.gaussian(lns16, d.expand(-1, 2), subtract.expand(len(d), 2)), table)


def test_table_that_is_too_large():
    with pytest.raises(ValueError) as caught:
        lns32.adder.table(lns32)
    assert str(caught.value) == (
        f"a table must have fewer than 2097152 entries, not the {lns32.scale.gaussian_reach} of lns32"
    )


def test_adder_is_part_of_the_format():
    assert Exact() == Exact() and hash(Exact()) == hash(Exact())
    assert repr(Exact()) == "Exact()"
    assert Exact().name == "exact"
    with pytest.raises(TypeError):
        Adder()
