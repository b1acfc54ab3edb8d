"""Squaring: a shift of the logarithm."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Const, Module, Signal, signed
from amaranth.lib import data

from .fitting import FITTING_STAGES, fit_in_stages
from .layouts import WordLayout, classify
from .pipeline import Pipeline
from .unit import Unit

__all__ = ["Square"]


class Square(Unit):
    """The square of a word.

    Exact but for saturation above the range and flush to zero below it.

    Latency 2 clocks, one result a clock. Flags: overflow, underflow. Any base-2 format.

    Measured with registers at the inputs (``fpga.flow``; Yosys 0.70, nextpnr 0.11.1, median of 5 seeds):
    lns16 on an ECP5-25k 15 LUT4, 53 registers and 270 MHz, on an iCE40 HX8K 15, 53 and 210; lns32 34, 101 and
    238, and 26, 101 and 222. No block RAM, no DSP.
    """

    name = "square"
    operations = {"square": lambda a: a.square()}
    latency = FITTING_STAGES

    def operands(self) -> dict:
        return {"a": WordLayout(self.format)}

    def datapath(self, m: Module, pipeline: Pipeline, operands: data.View) -> SimpleNamespace:
        a = operands.a
        field = Signal(signed(self.format.log_bits + 2))
        m.d.comb += field.eq((a.field << 1) - self.format.bias)
        return fit_in_stages(m, pipeline, self.format, field=field, sign=Const(0, 1), **vars(classify(self.format, a)))
