"""Both Gaussian logarithms in one ROM, for any adder with a table that is not too long."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Const, Module, Mux, Value
from amaranth.lib.memory import Memory

from xlnstorch.adders import GaussianTable
from xlnstorch.formats import LNSFormat

from ..pipeline import Pipeline, carry
from .datapath import GaussianDatapath

__all__ = ["RomDatapath"]

_MAX_FRAC_BITS = 12


class RomDatapath(GaussianDatapath):
    """A table with a row for each distance: ``s`` in its lower bits, ``t`` above it.

    Any adder with a table, at up to 12 fraction bits: the exact adder's ROM then has 2**16 rows of 29 bits. A table
    that reaches a little beyond a power of two, with nothing but ones there, ends at it: that of lns16 has 1024 rows of
    18 bits, one block RAM of an ECP5.

    Latency 3 clocks: the read; a register behind it, since a block RAM is slow to its output, which the ECP5's has
    inside (:func:`fpga.flow.synthesize` moves it there); the choice of one of the two.
    """

    latency = 3

    def __init__(self, format: LNSFormat, *, rom: str = "block"):
        super().__init__(format, rom=rom)
        if format.frac_bits > _MAX_FRAC_BITS:
            raise ValueError(
                f"the gates of the {format.adder.name} adder are a ROM, so a format must have at most "
                f"{_MAX_FRAC_BITS} fraction bits, not the {format.frac_bits} of {format}"
            )

    def table(self) -> GaussianTable:
        """Return what the ROM holds."""
        return self.format.adder.table(self.format)

    def stages(
        self, m: Module, pipeline: Pipeline, *, d: Value, subtract: Value, silent: Value, **along: Value
    ) -> SimpleNamespace:
        table = self.table()
        bits, (sum_bits, difference_bits) = table.address_bits, table.widths
        m.submodules.rom = rom = Memory(
            shape=sum_bits + difference_bits, depth=1 << bits, init=table.rows, attrs=self.memory_attributes
        )
        port = rom.read_port()
        m.d.comb += [port.addr.eq(d[:bits]), port.en.eq(pipeline.advance)]

        beyond = d[bits:].any()
        one = Const(0)
        if table.ends:
            one = beyond & ~silent & Mux(subtract, *(_is_below(d, end) for end in reversed(table.ends)))
        read = pipeline.stage(one=one, silent=silent | beyond, subtract=subtract, **along)
        kept = pipeline.stage(row=port.data, **vars(read))
        chosen = Mux(kept.subtract, kept.row[sum_bits:], kept.row[:sum_bits])
        gaussian = Mux(kept.silent, 0, chosen) | kept.one
        # Inverted here, in the LUTs that choose, it need not be in front of the adder's carry chain.
        inverse = pipeline.stage(
            gaussian=gaussian ^ kept.subtract.replicate(len(gaussian)),
            subtract=kept.subtract,
            **carry(kept, along),
        )
        inverse.gaussian ^= inverse.subtract.replicate(len(gaussian))
        return inverse


def _is_below(value: Value, limit: int) -> Value:
    """Return ``value < limit`` as patterns of bits, a few LUTs, where a comparison would be a carry chain."""
    digits = f"{limit:0{len(value)}b}"
    if len(digits) > len(value):
        return Const(1)
    patterns = [digits[:i] + "0" + "-" * (len(digits) - i - 1) for i, digit in enumerate(digits) if digit == "1"]
    return value.matches(*patterns)
