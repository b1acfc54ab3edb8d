"""Segmented polynomials: a shift finds the segment, a ROM has its coefficients, multipliers evaluate them."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.memory import Memory
from amaranth.utils import bits_for

from xlnstorch.adders import Piecewise
from xlnstorch.adders.segments import Region
from xlnstorch.formats import LNSFormat

from ..pipeline import Pipeline
from .datapath import GaussianDatapath, datapath_of

__all__ = ["PiecewiseDatapath"]


class PiecewiseDatapath(GaussianDatapath):
    """The design of :class:`~xlnstorch.adders.Piecewise` in gates; its docstring has the arithmetic.

    Latency 6 clocks at degree 1, 8 at degree 2: region, shift, ROM, its output register, for each degree a product and
    a difference. 4 where the error allows no segment longer than one distance.
    """

    def __init__(self, format: LNSFormat, *, rom: str = "block"):
        super().__init__(format, rom=rom)
        self.design = format.adder.design(format)
        self.latency = 4 + 2 * self.design.degree * bool(self.design.offset_bits)

    def rows(self) -> tuple[tuple[int, ...], ...]:
        """Return what the ROM holds."""
        return self.design.rows

    def stages(
        self, m: Module, pipeline: Pipeline, *, d: Value, subtract: Value, silent: Value, **along: Value
    ) -> SimpleNamespace:
        design = self.design
        names = [*along, "subtract", "silent"]

        # 1. Find the region. The bits of d above a region's own are the same all over it, so that the exclusive or
        #    with a key turns the segment's number among all segments of its size into the segment's row.
        regions = [region for region in design.regions if region.start >> len(d) == 0]
        widest = max(region.width for region in regions)
        keys = [region.row ^ (region.start >> region.width) for region in regions]
        row_bits = bits_for(len(design.rows) - 1)
        key, shift, known = Signal(row_bits), Signal(range(widest + 1)), Signal()
        with m.Switch(Cat(d, subtract)):
            for region, number in zip(regions, keys, strict=True):
                with m.Case(_pattern(region, len(d))):
                    m.d.comb += [key.eq(number), shift.eq(widest - region.width), known.eq(1)]
        found = pipeline.stage(d=d, key=key, shift=shift, subtract=subtract, silent=silent | ~known, **along)

        # 2. Shift, so that the point between the segment's number and the offset in it comes to the same place.
        shifted = Signal(widest + row_bits)
        m.d.comb += shifted.eq(found.d << found.shift)
        row = found.key ^ shifted[widest:]
        v = shifted[max(0, widest - design.offset_bits) : widest] << max(0, design.offset_bits - widest)
        addressed = pipeline.stage(row=row, v=v, **_carry(found, names))

        # 3. Read the coefficients. 4. A block RAM is slow to its output.
        rows, widths = self.rows(), design.coefficient_bits
        contents = [sum(c << sum(widths[:i]) for i, c in enumerate(row)) for row in rows]
        m.submodules.rom = rom = Memory(
            shape=sum(widths), depth=max(2, len(rows)), init=contents, attrs=self.memory_attributes
        )
        port = rom.read_port()
        m.d.comb += [port.addr.eq(addressed.row), port.en.eq(pipeline.advance)]
        read = pipeline.stage(v=addressed.v, **_carry(addressed, names))
        columns = {f"c{i}": port.data[sum(widths[:i]) :][:width] for i, width in enumerate(widths)}
        if not design.offset_bits:  # a plain table
            gaussian = columns["c0"][design.guard_bits :]
            return pipeline.stage(gaussian=Mux(read.silent, 0, gaussian), **_carry(read, names))
        stage = pipeline.stage(**columns, v=read.v, **_carry(read, names))

        # At degree 2 a product and a difference for the slope at the offset; then the same for the value there.
        if design.degree == 2:
            u = stage.v[design.offset_bits - design.inner_bits :]
            bent = pipeline.stage(bend=stage.c2 * u, **_carry(stage, [*names, "c0", "c1", "v"]))
            slope = (bent.c1 - (bent.bend >> design.inner_bits))[: widths[1]]
            stage = pipeline.stage(c1=slope, **_carry(bent, [*names, "c0", "v"]))
        fallen = pipeline.stage(fall=stage.c1 * stage.v, **_carry(stage, [*names, "c0"]))
        y = (fallen.c0 - (fallen.fall >> design.offset_bits))[: widths[0]]
        return pipeline.stage(gaussian=Mux(fallen.silent, 0, y[design.guard_bits :]), **_carry(fallen, names))


def _pattern(region: Region, bits: int) -> str:
    """Return which distances of so many bits, below a bit that is set for a subtraction, lie in a region."""
    above = bits - region.size
    return f"{region.subtract:d}" + (f"{region.start >> region.size:0{above}b}" if above else "") + "-" * region.size


def _carry(stage: SimpleNamespace, names: list[str]) -> dict[str, Signal]:
    return {name: getattr(stage, name) for name in names}


@datapath_of.register
def _(adder: Piecewise, format: LNSFormat, *, rom: str = "block") -> PiecewiseDatapath:
    return PiecewiseDatapath(format, rom=rom)
