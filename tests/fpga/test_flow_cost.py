"""What an adder says its gates have (`Adder.cost`) is what the unit that adds has."""

import dataclasses
import json

import pytest
import torch
from lnstesting import Off
from pyosys import libyosys

from fpga.flow import memory_bits, to_rtlil
from hdl import AddSubtract
from xlnstorch import Exact, LNSFormat, Mitchell, Piecewise, lns8, lns12, lns16, lns16e5, lns24, lns32
from xlnstorch.adders.regions import RegionList


@dataclasses.dataclass(frozen=True)
class Cut(Exact):
    """The exact adder without its last bits."""

    bits: int = 1

    def gaussian(self, format, d, subtract):
        exact = super().gaussian(format, d, subtract)
        return torch.where(exact < 0, -1, 1) * (exact.abs() >> self.bits << self.bits)


ROMS = [Exact(), Cut(), Cut(3), Off(by=1, below=20)]
SHIFTS = [Mitchell(0), Mitchell(1), Mitchell(2)]
POLYNOMIALS = [Piecewise(degree, error) for degree in (1, 2) for error in (0.5, 1.0, 64.0)]
LOGARITHMS = [Piecewise(degree, error, "logarithm") for degree in (1, 2) for error in (1.0, 64.0)]
FORMATS = [
    *((format, adder) for format in (lns8, lns12, lns16) for adder in (*ROMS, *SHIFTS, *POLYNOMIALS)),
    *((LNSFormat(*bits), Exact()) for bits in ((2, 0), (3, 1), (3, 2), (2, 6), (1, 7), (3, 10))),
    # Plain tables, which have no multiplier, and products of single bits.
    *((LNSFormat(*bits), adder) for bits in ((8, 0), (2, 1)) for adder in POLYNOMIALS),
    *((format, adder) for format in (LNSFormat(1, 8), lns16e5) for adder in (Exact(), Piecewise(2), *LOGARITHMS)),
    *((lns24, adder) for adder in (Piecewise(), Piecewise(2), *LOGARITHMS[::2])),
    # Slopes in two parts, and a list of regions in a memory.
    *((lns32, adder) for adder in (Mitchell(), Piecewise(2), LOGARITHMS[2])),
]
FORMATS = [dataclasses.replace(format, adder=adder) for format, adder in FORMATS]

formats = pytest.mark.parametrize("format", FORMATS, ids=lambda format: f"{format.name} {format.adder.name}")


@formats
def test_the_memories_have_the_bits_of_its_rom(format):
    bits = format.adder.cost(format).rom_bits
    assert memory_bits(to_rtlil(AddSubtract(format=format))) == bits
    if isinstance(format.adder, Piecewise):  # a list of regions in lookup tables is no memory
        bits -= RegionList(format.adder.design(format), format.log_bits).rom_bits
    assert memory_bits(to_rtlil(AddSubtract(format=format, rom="luts"))) == bits


def test_specials_change_neither():
    for format in (lns8, lns16):
        special = dataclasses.replace(format, specials=True)
        bits = memory_bits(to_rtlil(AddSubtract(format=special)))
        assert bits == special.adder.cost(special).rom_bits == format.adder.cost(format).rom_bits


def multipliers(rtlil, folder):
    """Return the widths of the operands of each multiplier, without the bits that Yosys finds to be always zero."""
    source, result = folder / "unit", folder / "result"
    source.write_text(rtlil)
    design = libyosys.Design()
    trim = ["opt -full", "wreduce"] * 2
    for command in (f'read_rtlil "{source}"', "proc", "flatten", *trim, f'write_json "{result}"'):
        design.run_pass(f"tee -q -o {folder / 'log'} {command}")
    cells = json.loads(result.read_text())["modules"]["top"]["cells"].values()
    parameters = [cell["parameters"] for cell in cells if cell["type"] == "$mul"]
    return sorted(tuple(int(found[f"{side}_WIDTH"], 2) for side in "AB") for found in parameters)


@pytest.mark.synth
@formats
def test_the_multipliers_have_operands_of_these_widths(format, tmp_path):
    cost = format.adder.cost(format)
    assert multipliers(to_rtlil(AddSubtract(format=format)), tmp_path) == sorted(cost.multipliers)
    assert all(max(widths) <= 18 for widths in cost.multipliers)
