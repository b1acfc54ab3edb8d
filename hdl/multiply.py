"""Multiplication: one addition of logarithms."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data

from .pipeline import Pipeline
from .unit import Unit

__all__ = ["Multiply"]


class Multiply(Unit):
    """The product of two words.

    Exact but for saturation above the range and flush to zero below it; zero times anything is zero.

    Latency 2 clocks, one result a clock. Flags: overflow, underflow. Any base-2 format.

    Measured at lns16 (``benchmarks/cells.py``; Yosys 0.70, nextpnr 0.11.1, seed 1): on an iCE40 HX8K 79 LUT4, 39
    registers and 146 MHz; on an ECP5-25k 115 LUT4, 39 registers and 204 MHz. No block RAM, no DSP.
    """

    name = "multiply"
    operations = {"mul": lambda a, b: a * b}
    latency = 2

    def datapath(self, m: Module, pipeline: Pipeline, operands: data.View) -> SimpleNamespace:
        a, b = operands.a, operands.b
        sum_of_logs = Signal(signed(self.format.log_bits + 2))
        m.d.comb += sum_of_logs.eq(a.field + b.field - self.format.bias)
        added = pipeline.stage(
            field=sum_of_logs,
            sign=self.sign(a, b),
            zero=(a.field == 0) | (b.field == 0),
        )
        return self.fitted(m, pipeline, **vars(added))

    def sign(self, a: data.View, b: data.View):
        """Return the sign of the product."""
        return a.sign ^ b.sign
