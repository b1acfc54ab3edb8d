"""Division: one subtraction of logarithms."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Signal, signed
from amaranth.lib import data

from .fitting import FITTING_STAGES, fit_in_stages
from .layouts import classify
from .pipeline import Pipeline
from .unit import Unit

__all__ = ["Divide"]


class Divide(Unit):
    """The quotient of two words, a / b.

    Exact but for saturation above the range and flush to zero below it. A number over zero saturates with the number's
    sign, and zero over zero is zero; with specials they are infinite and NaN.

    Latency 3 clocks, one result a clock. Flags: overflow, underflow, invalid, zero_divide. Any base-2 format.

    Measured with registers at the inputs (``fpga.flow``; Yosys 0.70, nextpnr 0.11.1, median of 5 seeds):
    lns16 on an ECP5-25k 43 LUT4, 99 registers and 250 MHz, on an iCE40 HX8K 57, 99 and 208; lns32 91, 179 and
    200, and 105, 179 and 138. No block RAM, no DSP.
    """

    name = "divide"
    operations = {"div": lambda a, b: a / b}
    latency = 1 + FITTING_STAGES

    def datapath(self, m: Module, pipeline: Pipeline, operands: data.View) -> SimpleNamespace:
        a, b = operands.a, operands.b
        of_a, of_b = classify(self.format, a), classify(self.format, b)
        difference = Signal(signed(self.format.log_bits + 1))
        m.d.comb += difference.eq(a.field - b.field)
        zero = of_a.zero | of_b.infinite
        invalid = (of_a.zero & of_b.zero) | (of_a.infinite & of_b.infinite)
        subtracted = pipeline.stage(
            difference=difference,
            sign=a.sign ^ (b.sign & ~of_b.zero),
            zero=zero,
            infinite=(of_a.infinite | of_b.zero) & ~zero,
            nan=of_a.nan | of_b.nan | (invalid if self.format.specials else 0),
            invalid=invalid,
            zero_divide=of_b.zero & ~(of_a.zero | of_a.infinite | of_a.nan),
        )
        # The bias is the weight of the bit below the sign: adding it needs no carries.
        lower, upper, sign = subtracted.difference[:-2], subtracted.difference[-2], subtracted.difference[-1]
        subtracted.field = Cat(lower, ~upper, upper ^ sign, sign & ~upper).as_signed()
        del subtracted.difference
        return fit_in_stages(m, pipeline, self.format, **vars(subtracted))
