"""The list of regions, read as the gates read it, against where each distance lies."""

import dataclasses
import random

import pytest

from xlnstorch import LNSFormat, Piecewise, lns8, lns12, lns16, lns32
from xlnstorch.adders.regions import RegionList


def with_piecewise(format, *parameters):
    return dataclasses.replace(format, adder=Piecewise(*parameters))


def list_of(format):
    return RegionList(format.adder.design(format), format.log_bits)


def number_of(regions, design, d, subtract):
    near = subtract and d < 1 << design.top
    place = d.bit_length() - 1 if near else d >> design.frac_bits
    return None if place >> regions.place_bits else place | (subtract | near << 1) << regions.place_bits


@pytest.mark.parametrize(
    "format",
    [
        *(with_piecewise(format) for format in (LNSFormat(2, 0), LNSFormat(1, 3), lns8, lns12, lns16)),
        *(with_piecewise(lns16, 2), with_piecewise(LNSFormat(1, 8), 1, 1.0, "logarithm")),
        *(with_piecewise(LNSFormat(8, 9), 2, 1.0, "logarithm"), with_piecewise(LNSFormat(8, 8), 1, 64.0, "logarithm")),
        *(with_piecewise(lns32, 2), with_piecewise(lns32, 2, 1.0, "logarithm")),
    ],
    ids=repr,
)
def test_shift_and_key_lead_to_the_row_of_a_distance(format):
    design, regions = format.adder.design(format), list_of(format)
    distances = [*range(min(max(design.ends) + 100, 2000)), (1 << format.log_bits) - 1]
    if max(design.ends) > distances[-2]:
        corners = random.Random(7).choices(list(format.adder.corners(format)), k=300)
        distances += [d + off for d in [*corners, *design.ends] for off in (-1, 0, 1)]
    for subtract in (False, True):
        for d in (d for d in distances if subtract <= d < 1 << format.log_bits):
            item = regions.items.get(number_of(regions, design, d, subtract))
            if d >= design.ends[subtract]:
                assert item is None
                continue
            shifted = d % (1 << design.top) << item["shift"]
            row = item["key"] ^ shifted % (1 << regions.widest + regions.segment_bits) >> regions.widest
            offset = shifted % (1 << regions.widest)

            up = item.get("whole", 0) + design.near if design.fall and subtract and d < 1 << design.top else 0
            (region,) = (
                region
                for region in design.polynomials.regions
                if region.subtract == subtract and region.start <= d << up < region.start + (1 << region.size)
            )
            assert row == region.row + ((d << up) - region.start >> region.width)
            assert offset == (d << up) % (1 << region.width) << regions.widest - region.width


@pytest.mark.parametrize(
    ("format", "number_bits", "widths", "rom_bits"),
    [
        (with_piecewise(lns16), 5, {"key": 6, "shift": 3, "known": 1}, 0),
        (with_piecewise(lns32, 2), 7, {"key": 11, "shift": 5, "known": 1}, 17 << 7),
        (with_piecewise(lns32, 2, 1.0, "logarithm"), 7, {"key": 9, "shift": 5, "whole": 6, "known": 1}, 21 << 7),
    ],
    ids=lambda value: value.adder.name if isinstance(value, LNSFormat) else "",
)
def test_a_long_list_lies_in_a_memory(format, number_bits, widths, rom_bits):
    regions = list_of(format)
    assert (regions.number_bits, regions.widths, regions.rom_bits) == (number_bits, widths, rom_bits)
    assert regions.in_memory == (rom_bits > 0)
    for name, bits in widths.items():
        low, high = (-(1 << bits - 1), 1 << bits - 1) if name == "whole" else (0, 1 << bits)
        assert all(low <= item[name] < high for item in regions.items.values())
    assert all(0 <= number < 1 << number_bits for number in regions.items)
