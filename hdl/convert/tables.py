"""Tables in block RAM, and the powers of two that fill them, exact to the last bit."""

from __future__ import annotations

from types import SimpleNamespace

import flint
from amaranth.hdl import Cat, Module, Value
from amaranth.lib.memory import Memory
from amaranth.utils import bits_for

from xlnstorch.rounding import nearest_integer

from ..memories import check_rom, rom_attributes
from ..pipeline import Pipeline

__all__ = ["Table", "floor_of_power"]

# A table of no more bits is cheaper in lookup tables than in a block RAM.
_FEW_BITS = 1024


def floor_of_power(numerator: int, frac_bits: int, bits: int) -> int:
    """Return the integer part of ``2**(numerator / 2**frac_bits + bits)``, exactly."""
    whole, fraction = divmod(numerator, 1 << frac_bits)
    if fraction == 0:
        return 1 << whole + bits if whole + bits >= 0 else 0

    def less_half() -> flint.arb:  # irrational, so no integer lies half way
        power = flint.arb(flint.fmpq(fraction, 1 << frac_bits)) + whole + bits
        return (power * flint.arb.const_log2()).exp() - flint.arb(0.5)

    return nearest_integer(less_half)


class Table:
    """Rows of unsigned integers, all columns of which are read at once. Latency 2 clocks.

    Parameters
    ----------
    columns : dict of str to list of int
        The columns by name, of equal length.
    rom : {"block", "luts"}
        Where it is kept; up to 1024 bits are lookup tables either way.

    Attributes
    ----------
    latency : int
        Clocks: the read, and a register behind it, since a block RAM is slow to its output.
    widths : dict of str to int
        Bits of each column.
    """

    latency = 2

    def __init__(self, columns: dict[str, list[int]], rom: str = "block"):
        self.columns = columns
        self.widths = {name: bits_for(max(column)) for name, column in columns.items()}
        self._rom = check_rom(rom)

    @property
    def rows(self) -> list[int]:
        """What the memory holds: in each row the columns, the first in the lowest bits."""
        rows = []
        for values in zip(*self.columns.values(), strict=True):
            row = place = 0
            for value, width in zip(values, self.widths.values(), strict=True):
                row |= value << place
                place += width
            rows.append(row)
        return rows

    def read(self, m: Module, pipeline: Pipeline, address: Value, **along: Value) -> SimpleNamespace:
        """Add the stages; return registers for each column, and those of `along`, by their names."""
        rows, width = self.rows, sum(self.widths.values())
        attributes = rom_attributes(self._rom if len(rows) * width > _FEW_BITS else "luts")
        memory = Memory(shape=width, depth=max(2, len(rows)), init=rows, attrs=attributes)
        m.submodules += memory
        port = memory.read_port()
        m.d.comb += [port.addr.eq(Cat(address)), port.en.eq(pipeline.advance)]
        stage = pipeline.stage(**along)
        place, values = 0, {}
        for name, bits in self.widths.items():
            values[name] = port.data[place : place + bits]
            place += bits
        return pipeline.stage(**values, **vars(stage))
