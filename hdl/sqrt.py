"""The square root: a shift of the logarithm, rounded."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data

from .layouts import FlagsLayout, WordLayout, classify
from .pipeline import Pipeline
from .unit import Unit

__all__ = ["SquareRoot"]


class SquareRoot(Unit):
    """The square root of a word: half the logarithm, rounded half to even.

    The error is at most half a unit of the logarithm, and the result is always in range. The root of a negative number
    is zero, or NaN with specials.

    Latency 1 clock, one result a clock. Flags: invalid. Any base-2 format.

    Measured with registers at the inputs (``fpga.flow``; Yosys 0.70, nextpnr 0.11.1, median of 5 seeds):
    lns16 on an ECP5-25k 26 LUT4, 36 registers and 221 MHz, on an iCE40 HX8K 26, 36 and 177; lns32 48, 68 and
    210, and 47, 68 and 139. No block RAM, no DSP.
    """

    name = "sqrt"
    operations = {"sqrt": lambda a: a.sqrt()}
    latency = 1

    def operands(self) -> dict:
        return {"a": WordLayout(self.format)}

    def datapath(self, m: Module, pipeline: Pipeline, operands: data.View) -> SimpleNamespace:
        a = operands.a
        of_a = classify(self.format, a)

        # In offset binary the inverted top bit is the sign, which a shift to the right repeats.
        floor = Cat(a.field[1:-1], ~a.field[-1], a.field[-1])
        tie_to_even = a.field[0] & floor[0]
        root = Signal(self.format.log_bits)
        m.d.comb += root.eq(floor + tie_to_even)

        invalid = a.sign & ~(of_a.zero | of_a.nan)
        word, flags = Signal(WordLayout(self.format)), Signal(FlagsLayout())
        m.d.comb += [
            flags.invalid.eq(invalid),
            word.field.eq(Mux(of_a.zero | of_a.nan | invalid, 0, root | of_a.infinite.replicate(len(root)))),
        ]
        if self.format.specials:
            m.d.comb += word.sign.eq(invalid | of_a.nan)
        return pipeline.stage(word=word, flags=flags)
