"""Multiplication: one addition of logarithms."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Cat, Module
from amaranth.lib import data

from .fitting import FITTING_STAGES, fit_in_stages
from .layouts import classify
from .pipeline import Pipeline
from .unit import Unit

__all__ = ["Multiply"]


class Multiply(Unit):
    """The product of two words.

    Exact but for saturation above the range and flush to zero below it; zero times anything is zero. With specials,
    zero times infinity is NaN, and infinity times anything else infinite.

    Latency 3 clocks, one result a clock. Flags: overflow, underflow; with specials invalid. Any base-2 format.

    Measured with registers at the inputs (``benchmarks/cells.py``; Yosys 0.70, nextpnr 0.11.1, median of 5 seeds):
    lns16 on an ECP5-25k 38 LUT4, 92 registers and 252 MHz, on an iCE40 HX8K 37, 92 and 201; lns32 73, 172 and 208, and
    70, 172 and 130. No block RAM, no DSP. With specials lns16 takes 71 LUT4 of an ECP5.
    """

    name = "multiply"
    operations = {"mul": lambda a, b: a * b}
    latency = 1 + FITTING_STAGES

    def datapath(self, m: Module, pipeline: Pipeline, operands: data.View) -> SimpleNamespace:
        a, b = operands.a, operands.b
        of_a, of_b = classify(self.format, a), classify(self.format, b)
        nan, zero, infinite = of_a.nan | of_b.nan, of_a.zero | of_b.zero, of_a.infinite | of_b.infinite
        added = pipeline.stage(
            total=a.field + b.field,
            sign=a.sign ^ b.sign,
            zero=zero,
            infinite=infinite & ~zero,
            nan=nan | (zero & infinite),
            invalid=zero & infinite & ~nan,
        )
        # The bias is the weight of the last but one bit, so that a product is in range where one of the two upper bits
        # is set and the other is not; without the bias, the upper one of them is the field's.
        lower, carry, upper = added.total[:-2], added.total[-2], added.total[-1]
        added.field = Cat(lower, upper, upper & carry, ~(upper | carry)).as_signed()
        del added.total
        return fit_in_stages(m, pipeline, self.format, **vars(added))
