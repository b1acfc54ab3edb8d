"""Negation, the absolute value, and another number's sign: what changes one bit."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from amaranth.hdl import Array, Module, ShapeLike, Signal
from amaranth.lib import data

from .layouts import FlagsLayout, WordLayout, classify
from .pipeline import Pipeline
from .unit import Unit

__all__ = ["Signs"]


class Signs(Unit):
    """A word with another sign: -a, \\|a\\|, or a with the sign of b.

    Exact. Zero and NaN have no sign: as a they stay as they are, as b they count as positive.

    Latency 1 clock, one result a clock. Flags: none is ever raised. Any base-2 format.

    Measured with registers at the inputs (``fpga.flow``; Yosys 0.70, nextpnr 0.11.1, median of 5 seeds):
    lns16 on an ECP5-25k 20 LUT4, 54 registers and 215 MHz, on an iCE40 HX8K 14, 54 and 232; lns32 25, 102 and
    190, and 25, 102 and 193. No block RAM, no DSP.
    """

    name = "signs"
    operations = {"neg": lambda a, b: -a, "abs": lambda a, b: a.abs(), "copysign": torch.copysign}
    latency = 1

    def operands_of(self, operation: str) -> dict[str, ShapeLike]:
        word = WordLayout(self.format)
        return {"a": word, "b": word} if operation == "copysign" else {"a": word}

    def datapath(self, m: Module, pipeline: Pipeline, operands: data.View) -> SimpleNamespace:
        a, b = operands.a, operands.b
        of_a = classify(self.format, a)
        sign = Array([~a.sign, 0, b.sign & b.field.any()])[operands.op]
        word = Signal(WordLayout(self.format))
        m.d.comb += [word.field.eq(a.field), word.sign.eq((sign & ~of_a.zero) | of_a.nan)]
        return pipeline.stage(word=word, flags=Signal(FlagsLayout()))
