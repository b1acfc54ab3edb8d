"""The Mitchell adder: its integers against the reference, and its errors against the stated ones."""

import dataclasses
import functools
import random

import pytest
import torch
from lnstesting import exactly

from xlnstorch import LNSFormat, arithmetic, lns8, lns12, lns16, lns16e5, lns24, lns32, software_format
from xlnstorch.adders import AdderCost, Mitchell, adder, measure, named_adder
from xlnstorch.reference_adders import AdderReference
from xlnstorch.reference_adders import mitchell as reference

CORRECTIONS = [0, 1, 2]


def with_mitchell(format, corrections):
    return dataclasses.replace(format, adder=Mitchell(corrections))


def gaussian(format, ds, subtract):
    """Return s or t as a list, with the sign that the adder gives t taken away."""
    d = torch.tensor(list(ds))
    result = format.adder.gaussian(format, d, torch.full_like(d, subtract, dtype=torch.bool))
    assert result.dtype == torch.int64
    return (-result if subtract else result).tolist()


def expected(format, ds, subtract):
    return [reference(format.frac_bits, d, subtract, format.adder.corrections) for d in ds]


def check(format, ds):
    assert gaussian(format, ds, False) == expected(format, ds, False)
    ds = [d for d in ds if d]
    assert gaussian(format, ds, True) == expected(format, ds, True)


@pytest.mark.parametrize("corrections", CORRECTIONS)
@pytest.mark.parametrize("format", [LNSFormat(2, 0), LNSFormat(1, 1), LNSFormat(4, 2), lns8, lns12, lns16], ids=str)
def test_every_integer_is_the_reference(format, corrections):
    format = with_mitchell(format, corrections)
    check(format, range(format.adder.reach(format) + 20))


def corners(format, count):
    """Return the smallest and the largest d, both sides of every power of two, and others of every size."""
    rng, largest = random.Random(repr(format)), (1 << format.log_bits) - 1
    reach = format.adder.reach(format)
    ds = [0, 1, 2, 3, 5, reach - 2, reach - 1, reach, reach + 1, largest]
    ds += [(1 << n) + off for n in range(format.log_bits) for off in (-1, 0, 1)]
    ds += [(n << format.frac_bits) + off for n in range(6) for off in (-1, 0, 1)]
    ds += [int(2 ** rng.uniform(0, format.frac_bits + 6)) for _ in range(count)]
    return sorted({d for d in ds if 0 <= d <= largest})


@pytest.mark.parametrize("corrections", CORRECTIONS)
@pytest.mark.parametrize(
    "format",
    [
        lns16e5,
        LNSFormat(5, 12),
        lns24,
        LNSFormat(8, 17),
        lns32,
        software_format(40),
        LNSFormat(4, 48),
        LNSFormat(52, 0),
    ],
    ids=str,
)
def test_integers_of_wide_formats_are_the_reference(format, corrections):
    format = with_mitchell(format, corrections)
    check(format, corners(format, 300))


@pytest.mark.parametrize("corrections", CORRECTIONS)
def test_the_integers_are_the_same_without_a_table(corrections, monkeypatch):
    format = with_mitchell(lns16, corrections)
    tabled = [gaussian(format, range(1, 1300), subtract) for subtract in (False, True)]
    monkeypatch.setattr(adder, "MAX_TABLE_ENTRIES", 0)
    assert [gaussian(format, range(1, 1300), subtract) for subtract in (False, True)] == tabled


@pytest.mark.parametrize("corrections", CORRECTIONS)
@pytest.mark.parametrize("format", [LNSFormat(2, 0), lns8, lns16, lns16e5, LNSFormat(5, 13)], ids=str)
def test_neither_logarithm_rises_or_goes_beyond_the_reach(format, corrections):
    format = with_mitchell(format, corrections)
    reach = format.adder.reach(format)
    for subtract in (False, True):
        found = gaussian(format, range(1, reach + 100), subtract)
        assert found == sorted(found, reverse=True)
        assert found[0] > 0 and found[-1] == 0
        assert not any(found[reach - 1 :])
    assert gaussian(format, [0], False) == [1 << format.frac_bits]


def test_the_reach_is_no_longer_than_needed():
    format = with_mitchell(lns16, 0)
    assert format.adder.reach(format) == 9 * 128 + 1
    assert gaussian(format, [9 * 128, 9 * 128 + 1], True) == [1, 0]


@pytest.mark.parametrize("corrections", CORRECTIONS)
def test_wide_formats_do_not_rise_either(corrections):
    format = with_mitchell(lns32, corrections)
    for centre in (1 << 9, 1 << 22, 1 << 23, 2 << 23, 4 << 23, 5 << 22, 23 << 23):
        for subtract in (False, True):
            found = gaussian(format, range(max(1, centre - 3000), centre + 3000), subtract)
            assert found == sorted(found, reverse=True)


# As the docstring has them, in units of one.
STATED = {0: (0.0850, 0.1226), 1: (0.0166, 0.0191), 2: (0.0061, 0.0126)}


@pytest.mark.parametrize("corrections", CORRECTIONS)
def test_the_errors_are_the_stated_ones(corrections):
    format = with_mitchell(LNSFormat(5, 14), corrections)
    quality = measure(format)
    found = (quality.max_sum / 2**14, quality.max_difference / 2**14)
    assert found == pytest.approx(STATED[corrections], abs=1.5e-4)  # two units of this format


@pytest.mark.parametrize("corrections", CORRECTIONS)
@pytest.mark.parametrize("format", [lns8, lns12, lns16], ids=str)
def test_narrow_formats_err_by_at_most_a_rounding_more(format, corrections):
    quality = measure(with_mitchell(format, corrections))
    limits = [error * 2**format.frac_bits + 0.55 for error in STATED[corrections]]
    assert quality.max_sum <= limits[0] and quality.max_difference <= limits[1]


def test_errors_at_lns16_are_those_of_the_documentation():
    quality = measure(with_mitchell(lns16, 2))
    assert (round(quality.max_sum, 2), round(quality.max_difference, 2)) == (1.24, 1.94)
    assert (round(quality.mean_sum, 2), round(quality.mean_difference, 2)) == (0.31, 0.39)


@pytest.mark.parametrize("corrections", CORRECTIONS)
def test_addition_of_all_words_is_the_reference(corrections):
    format = with_mitchell(LNSFormat(4, 2), corrections)
    by_hand = AdderReference(4, 2, functools.cache(functools.partial(reference, corrections=corrections)))
    words = torch.arange(1 << format.width)
    a, b = torch.meshgrid(format.from_unsigned(words), format.from_unsigned(words), indexing="ij")
    for name in ("add", "sub"):
        found = format.to_unsigned(getattr(arithmetic, name)(format, a, b)).tolist()
        want = [[getattr(by_hand, name)(x, y)[0] for y in words.tolist()] for x in words.tolist()]
        assert found == want


@pytest.mark.parametrize("format", [lns16, lns32, software_format(30)], ids=str)
def test_a_number_and_itself(format):
    format = with_mitchell(format, 2)
    generator, one = torch.Generator().manual_seed(0), 1 << format.frac_bits
    fields = torch.randint(1, format.max_field - one, (200,), generator=generator)
    words = format.pack(torch.rand(200, generator=generator) < 0.5, fields)
    doubled = format.unpack(arithmetic.add(format, words, words))[1]
    assert torch.equal(doubled, fields + one)
    assert not arithmetic.sub(format, words, words).any()


def test_shapes_are_broadcast_and_meta_tensors_have_one():
    for format in (with_mitchell(lns16, 2), with_mitchell(lns32, 2)):
        d, subtract = torch.arange(1, 7).reshape(-1, 1), torch.tensor([False, True])
        found = format.adder.gaussian(format, d, subtract)
        assert found.shape == (6, 2)
        assert found[:, 1].tolist() == [-t for t in expected(format, range(1, 7), True)]
        meta = format.adder.gaussian(format, d.to("meta"), subtract.to("meta"))
        assert meta.is_meta and meta.shape == (6, 2) and meta.dtype == torch.int64


def test_its_name_and_its_cost():
    assert Mitchell() == Mitchell(2) != Mitchell(1)
    assert repr(Mitchell()) == "Mitchell(corrections=2)"
    for corrections, name in ((2, "mitchell"), (1, "mitchell:corrections=1"), (0, "mitchell:corrections=0")):
        assert Mitchell(corrections).name == name
        assert named_adder(name) == Mitchell(corrections)
    assert Mitchell().cost(with_mitchell(lns32, 2)) == AdderCost(rom_bits=0, multipliers=())


@pytest.mark.parametrize("corrections", [3, -1, 1.0, True, "1", None])
def test_other_numbers_of_corrections_are_refused(corrections):
    with pytest.raises(ValueError, match=exactly(f"corrections must be 0, 1 or 2, not {corrections!r}")):
        Mitchell(corrections)


def test_another_base_is_refused():
    with pytest.raises(ValueError, match=exactly("the adder mitchell needs base 2, not 3.0")):
        LNSFormat(8, 7, adder=Mitchell(), base=3.0)
