"""Segmented polynomials: where a distance lies, and the polynomials there."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed

from xlnstorch.adders import Piecewise
from xlnstorch.adders.segments import Polynomials
from xlnstorch.formats import LNSFormat

from ..pipeline import Pipeline, carry
from .datapath import GaussianDatapath, datapath_of
from .polynomials import Evaluation
from .regions import Regions

__all__ = ["PiecewiseDatapath"]


class PiecewiseDatapath(GaussianDatapath):
    """The design of :class:`~xlnstorch.adders.Piecewise` in gates; see there for the arithmetic.

    Latency 3 to 5 clocks to the row (:class:`~hdl.gaussian.regions.Regions`), 4 at degree 1 or 6 at degree 2 to the
    operands of the last difference (:class:`~hdl.gaussian.polynomials.Evaluation`), one more where a product is made in
    two parts, and one for that difference; with a logarithm at the singularity another one. 5 where no segment is
    longer than one distance. One result a clock. The error is the adder's.

    Measured of :class:`~hdl.AddSubtract` (Yosys 0.70, nextpnr 0.11.1, median of seeds 1 to 5): lns32 with Piecewise(2)
    on an ECP5-25k 476 LUT4, 1340 registers, 9 block RAMs, 3 DSP and 141 MHz, with a logarithm 665, 2081, 5, 5 and
    141 MHz; lns16 with Piecewise() on an ECP5-25k 195, 412, 1, a DSP and 151 MHz, on an iCE40 HX8K 276 LUT4, 430
    registers, 2 block RAMs and 162 MHz. On the ECP5 what limits the clock is a DSP between two registers: 3.9 ns, and
    3 ns of wires.
    """

    def __init__(self, format: LNSFormat, *, rom: str = "block"):
        super().__init__(format, rom=rom)
        self.design = design = format.adder.design(format)
        self._regions = Regions(design, format.log_bits, rom, self.memory_attributes)
        self._split = any(p.splits_slope for p in (design.polynomials, design.fall) if p)
        evaluation = Evaluation.depth(design.polynomials, self._split)
        self.latency = self._regions.depth + 1 + evaluation + (design.fall is not None) + 1

    def polynomials(self) -> Polynomials:
        """Return what the ROM holds, and how it is read."""
        return self.design.polynomials

    def stages(
        self, m: Module, pipeline: Pipeline, *, d: Value, subtract: Value, silent: Value, **along: Value
    ) -> SimpleNamespace:
        polynomials, fall = self.polynomials(), self.design.fall
        found = self._regions.stages(m, pipeline, d=d, subtract=subtract, silent=silent, **along)
        attributes, names = self.memory_attributes, [*along, "subtract", "silent"]
        evaluations = [Evaluation(m, pipeline, polynomials, "main", attributes, self._split)]
        values = evaluations[0].address(found.row, found.v)
        if fall:
            low, below = found.low, self.design.frac_bits + 1
            # (whole << frac_bits + 1) + d, to which as many zeros are appended as it lacks guard bits.
            whole = Signal(signed(7))
            m.d.comb += whole.eq(found.whole + low[below:])
            values["lead"] = Cat(low[:below], Const(0, max(0, below - len(low))), whole)
            evaluations.append(Evaluation(m, pipeline, fall, "fall", attributes, self._split))
            values |= evaluations[1].address(*_split(fall, ~low))
            names += ["near", "lead"]
        stage = pipeline.stage(**carry(found, [name for name in names if name not in values]), **values)

        for step in zip(*(evaluation.steps() for evaluation in evaluations), strict=True):
            values = {name: value for part in step for name, value in part(stage).items()}
            stage = pipeline.stage(**values, **carry(stage, names))
        y = evaluations[0].result(stage)
        if fall:
            bits = len(stage.lead) + polynomials.guard_bits
            rest = Signal(signed(bits))
            shortfall = evaluations[1].result(stage) << (polynomials.guard_bits - fall.guard_bits)
            lead = stage.lead.as_signed() << (polynomials.guard_bits - 1)
            m.d.comb += rest.eq(Mux(stage.near, lead - shortfall, 0))
            stage = pipeline.stage(y=y, rest=rest, **carry(stage, names))
            y = Signal(signed(bits + 1))
            m.d.comb += y.eq(stage.y + stage.rest)
        gaussian = y[polynomials.guard_bits :]
        return pipeline.stage(gaussian=Mux(stage.silent, 0, gaussian), **carry(stage, [*along, "subtract"]))


def _split(polynomials: Polynomials, argument: Value) -> tuple[Value, Value]:
    """Return the row and v of an argument, where there is one region and it starts at 0."""
    (region,) = polynomials.regions
    n = polynomials.offset_bits
    return argument[region.width :], argument[max(0, region.width - n) : region.width] << max(0, n - region.width)


@datapath_of.register
def _(adder: Piecewise, format: LNSFormat, *, rom: str = "block") -> PiecewiseDatapath:
    return PiecewiseDatapath(format, rom=rom)
