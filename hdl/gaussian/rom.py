"""Both Gaussian logarithms in one ROM, for any adder with a table that is not too long."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, Value
from amaranth.lib.memory import Memory

from xlnstorch.adders import GaussianTable
from xlnstorch.formats import LNSFormat

from ..pipeline import Pipeline
from .datapath import GaussianDatapath

__all__ = ["RomDatapath"]

_MAX_FRAC_BITS = 12


class RomDatapath(GaussianDatapath):
    """A table with an entry for each distance: ``s`` in its lower half, ``t`` in its upper one.

    Any adder with a table, at up to 12 fraction bits: the exact adder's ROM then has 2**17 entries of 16 bits.
    Latency 2 clocks: the read, and a register behind it, since a block RAM is slow to its output.
    """

    latency = 2

    def __init__(self, format: LNSFormat, *, rom: str = "block"):
        super().__init__(format, rom=rom)
        if format.frac_bits > _MAX_FRAC_BITS:
            raise ValueError(
                f"the gates of the {format.adder.name} adder are a ROM, so a format must have at most "
                f"{_MAX_FRAC_BITS} fraction bits, not the {format.frac_bits} of {format}"
            )

    def table(self) -> GaussianTable:
        """Return what the ROM holds: the table of the adder, as far as the format has such distances."""
        table, distances = self.format.adder.table(self.format), 1 << self.format.log_bits
        return GaussianTable(table.sums[:distances], table.differences[:distances])

    def stages(
        self, m: Module, pipeline: Pipeline, *, d: Value, subtract: Value, silent: Value, **along: Value
    ) -> SimpleNamespace:
        table = self.table()
        padding = [0] * ((1 << table.address_bits) - len(table))
        m.submodules.rom = rom = Memory(
            shape=table.data_bits,
            depth=2 << table.address_bits,
            init=[*table.sums, *padding, *table.differences],
            attrs=self.memory_attributes,
        )
        port = rom.read_port()
        m.d.comb += [port.addr.eq(Cat(d[: table.address_bits], subtract)), port.en.eq(pipeline.advance)]
        read = pipeline.stage(subtract=subtract, silent=silent | (d >= len(table)), **along)
        return pipeline.stage(
            gaussian=Mux(read.silent, 0, port.data),
            subtract=read.subtract,
            **{name: getattr(read, name) for name in along},
        )
