"""Segmented polynomials: a shift finds the segment, a ROM has its coefficients, multipliers evaluate them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib.memory import Memory
from amaranth.utils import bits_for

from xlnstorch.adders import Piecewise
from xlnstorch.adders.segments import Polynomials, Region
from xlnstorch.formats import LNSFormat

from ..pipeline import Pipeline
from .datapath import GaussianDatapath, datapath_of

__all__ = ["PiecewiseDatapath"]


class PiecewiseDatapath(GaussianDatapath):
    """The design of :class:`~xlnstorch.adders.Piecewise` in gates; see there for the arithmetic.

    Latency 6 clocks at degree 1, 8 at degree 2: region, shift, ROM, its output register, for each degree a product and
    a difference. One more with a logarithm at the singularity; 4 where no segment is longer than one distance. One
    result a clock. The error is the adder's.

    Measured of :class:`~hdl.AddSubtract` (``lns adders``; Yosys 0.70, nextpnr 0.11.1, seed 1): lns16 with Piecewise()
    on an iCE40 HX8K 334 LUT4, 328 registers, 2 block RAMs and 140 MHz, on an ECP5-25k 298, 328, 1, a DSP and 141 MHz;
    lns32 with Piecewise(2) on an ECP5-25k 1138, 934, 9, 3 DSP and 92 MHz, and with a logarithm 1309, 1544, 4, 6 and
    89 MHz.
    """

    def __init__(self, format: LNSFormat, *, rom: str = "block"):
        super().__init__(format, rom=rom)
        self.design = format.adder.design(format)
        polynomials = self.design.polynomials
        self.latency = 4 + 2 * polynomials.degree * bool(polynomials.offset_bits) + (self.design.fall is not None)

    def polynomials(self) -> Polynomials:
        """Return what the ROM holds, and how it is read."""
        return self.design.polynomials

    def stages(
        self, m: Module, pipeline: Pipeline, *, d: Value, subtract: Value, silent: Value, **along: Value
    ) -> SimpleNamespace:
        polynomials, fall = self.polynomials(), self.design.fall
        names = [*along, "subtract", "silent", *(["near", "lead"] if fall else [])]

        # 1. Find the region. The bits of d above a region's own are the same all over it, so that the exclusive or
        #    with a key turns the segment's number among all segments of its size into the segment's row.
        places = list(self._places(len(d)))
        widest = max(0, *(region.width for region in polynomials.regions))
        row_bits = bits_for(len(polynomials.rows) - 1)
        key, shift = Signal(row_bits), Signal(range(widest + max(place.shift for place in places) + 1))
        known, near, whole = Signal(), Signal(), Signal(signed(6))
        with m.Switch(Cat(d, subtract)):
            for place in places:
                with m.Case(place.pattern):
                    region = place.region
                    m.d.comb += [key.eq(region.row ^ (region.start >> region.width)), known.eq(1)]
                    m.d.comb += shift.eq(widest - region.width + place.shift)
                    if place.near:
                        m.d.comb += [near.eq(1), whole.eq(place.shift - self.design.near)]
        more = {"near": near, "whole": whole} if fall else {}
        found = pipeline.stage(d=d, key=key, shift=shift, subtract=subtract, silent=silent | ~known, **more, **along)

        # 2. Shift, so that the point between the segment's number and the offset in it comes to the same place.
        shifted = Signal(widest + row_bits)
        m.d.comb += shifted.eq(found.d << found.shift)
        n = polynomials.offset_bits
        v = shifted[max(0, widest - n) : widest] << max(0, n - widest)
        evaluations = [_Evaluation(m, pipeline, polynomials, "main", self.memory_attributes)]
        values = evaluations[0].address(found.key ^ shifted[widest:], v)
        if fall:
            low, below = Signal(self.design.top), self.design.frac_bits + 1
            m.d.comb += low.eq(found.d)
            # (whole << frac_bits + 1) + d, to which as many zeros are appended as it lacks guard bits.
            whole = Signal(signed(7))
            m.d.comb += whole.eq(found.whole + low[below:])
            found.lead = Cat(low[:below], Const(0, max(0, below - len(low))), whole)
            evaluations.append(_Evaluation(m, pipeline, fall, "fall", self.memory_attributes))
            values |= evaluations[1].address(*_split(fall, ~low))
        stage = pipeline.stage(**values, **_carry(found, names))

        # 3. to the last but one: read, register, and for each degree a product and a difference.
        for step in zip(*(evaluation.steps() for evaluation in evaluations), strict=True):
            values = {name: value for part in step for name, value in part(stage).items()}
            stage = pipeline.stage(**values, **_carry(stage, names))
        y = evaluations[0].result(stage)
        if fall:
            bits = len(stage.lead) + polynomials.guard_bits
            rest = Signal(signed(bits))
            shortfall = evaluations[1].result(stage) << (polynomials.guard_bits - fall.guard_bits)
            lead = stage.lead.as_signed() << (polynomials.guard_bits - 1)
            m.d.comb += rest.eq(Mux(stage.near, lead - shortfall, 0))
            stage = pipeline.stage(y=y, rest=rest, **_carry(stage, names))
            y = Signal(signed(bits + 1))
            m.d.comb += y.eq(stage.y + stage.rest)
        gaussian = y[polynomials.guard_bits :]
        return pipeline.stage(gaussian=Mux(stage.silent, 0, gaussian), **_carry(stage, [*along, "subtract"]))

    def _places(self, bits: int) -> Iterator[_Place]:
        """Yield where a distance of so many bits may lie."""
        design, top = self.design, self.design.top
        for region in design.polynomials.regions:
            if not (design.fall and region.subtract and region.start < 1 << top):
                if region.start >> bits == 0:
                    yield _Place(region, 0, False, _pattern(region.subtract, region.start, region.size, bits))
                continue
            for shift in range(top):
                start, size = region.start >> shift, max(0, region.size - shift)
                if start << shift == region.start and start >> bits == 0:
                    yield _Place(region, shift, True, _pattern(True, start, size, bits))


@dataclasses.dataclass(frozen=True)
class _Place:
    """Distances that a shift brings into a region, as a pattern of their bits below a bit that tells t from s."""

    region: Region
    shift: int
    near: bool
    pattern: str


def _pattern(subtract: bool, start: int, size: int, bits: int) -> str:
    above = bits - size
    return f"{subtract:d}" + (f"{start >> size:0{above}b}" if above else "") + "-" * size


class _Evaluation:
    """A polynomial on its way through the pipeline: what each of its stages registers, under names with a prefix."""

    def __init__(self, m: Module, pipeline: Pipeline, polynomials: Polynomials, prefix: str, attributes: dict):
        self._polynomials, self._prefix, self._m = polynomials, prefix, m
        self._widths = polynomials.coefficient_bits
        places = [sum(self._widths[:i]) for i in range(len(self._widths))]
        contents = [sum(c << place for c, place in zip(row, places, strict=True)) for row in polynomials.rows]
        rom = Memory(shape=sum(self._widths), depth=max(2, len(contents)), init=contents, attrs=attributes)
        m.submodules[f"rom_{prefix}"] = rom
        self._port = rom.read_port()
        m.d.comb += self._port.en.eq(pipeline.advance)
        self._columns = {
            f"c{i}": self._port.data[place:][:width]
            for i, (place, width) in enumerate(zip(places, self._widths, strict=True))
        }

    def address(self, row: Value, v: Value) -> dict[str, Value]:
        """Return what is registered before the ROM is read."""
        return self._named(row=row, v=v)

    def steps(self) -> list[Callable[[SimpleNamespace], dict[str, Value]]]:
        """Return for each further stage the function from the registers before it to the values that it registers."""
        steps = [self._read]
        if self._polynomials.offset_bits:
            steps.append(self._register)
            if self._polynomials.degree == 2:
                steps += [self._bend, self._slope]
            steps.append(self._fall)
        return steps

    def result(self, stage: SimpleNamespace) -> Value:
        """Return y from the registers of the last step."""
        if not self._polynomials.offset_bits:  # a plain table
            return self._columns["c0"]
        s = self._of(stage)
        return (s.c0 - (s.fall >> self._polynomials.offset_bits))[: self._widths[0]]

    def _read(self, stage):
        s = self._of(stage)
        self._m.d.comb += self._port.addr.eq(s.row)
        return self._named(v=s.v)

    def _register(self, stage):  # a block RAM is slow to its output
        return self._named(**self._columns, v=self._of(stage).v)

    def _bend(self, stage):
        s, polynomials = self._of(stage), self._polynomials
        u = s.v[polynomials.offset_bits - polynomials.inner_bits :]
        return self._named(c0=s.c0, c1=s.c1, bend=s.c2 * u, v=s.v)

    def _slope(self, stage):
        s = self._of(stage)
        return self._named(c0=s.c0, c1=(s.c1 - (s.bend >> self._polynomials.inner_bits))[: self._widths[1]], v=s.v)

    def _fall(self, stage):
        s = self._of(stage)
        return self._named(c0=s.c0, fall=s.c1 * s.v)

    def _named(self, **values: Value) -> dict[str, Value]:
        return {f"{self._prefix}_{name}": value for name, value in values.items()}

    def _of(self, stage: SimpleNamespace) -> SimpleNamespace:
        start = f"{self._prefix}_"
        return SimpleNamespace(
            **{name.removeprefix(start): value for name, value in vars(stage).items() if name.startswith(start)}
        )


def _split(polynomials: Polynomials, argument: Value) -> tuple[Value, Value]:
    """Return the row and v of an argument, where there is one region and it starts at 0."""
    (region,) = polynomials.regions
    n = polynomials.offset_bits
    return argument[region.width :], argument[max(0, region.width - n) : region.width] << max(0, n - region.width)


def _carry(stage: SimpleNamespace, names: list[str]) -> dict[str, Value]:
    return {name: getattr(stage, name) for name in names}


@datapath_of.register
def _(adder: Piecewise, format: LNSFormat, *, rom: str = "block") -> PiecewiseDatapath:
    return PiecewiseDatapath(format, rom=rom)
