"""The rectifier, and the gate that its backward pass puts on a gradient."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from amaranth.hdl import Module, Mux, ShapeLike, Signal
from amaranth.lib import data

from .layouts import FlagsLayout, WordLayout, classify
from .pipeline import Pipeline
from .unit import Unit

__all__ = ["Relu"]


class Relu(Unit):
    """What is positive, else zero: a itself, or the gradient b where a is.

    Exact. As in PyTorch, relu of NaN is NaN, and where a is NaN the gradient passes.

    Latency 1 clock, one result a clock. Flags: none is ever raised. Any base-2 format.

    Measured with registers at the inputs (``fpga.flow``; Yosys 0.70, nextpnr 0.11.1, median of 5 seeds):
    lns16 on an ECP5-25k 28 LUT4, 53 registers and 208 MHz, on an iCE40 HX8K 28, 53 and 202; lns32 62, 101 and
    169, and 56, 101 and 174. No block RAM, no DSP.
    """

    name = "relu"
    operations = {
        "relu": lambda a, b: torch.relu(a),
        "relu_grad": lambda a, b: torch.ops.aten.threshold_backward(b, a, 0),
    }
    latency = 1

    def operands_of(self, operation: str) -> dict[str, ShapeLike]:
        word = WordLayout(self.format)
        return {"a": word} if operation == "relu" else {"a": word, "b": word}

    def datapath(self, m: Module, pipeline: Pipeline, operands: data.View) -> SimpleNamespace:
        a, b = operands.a, operands.b
        of_a, of_b = classify(self.format, a), classify(self.format, b)
        passes = Signal()
        m.d.comb += passes.eq((~a.sign & ~of_a.zero) | of_a.nan)
        word = Signal(WordLayout(self.format))
        m.d.comb += [
            word.field.eq(Mux(passes, Mux(operands.op, b.field, a.field), 0)),
            word.sign.eq(passes & Mux(operands.op, b.sign & ~of_b.zero, of_a.nan)),
        ]
        return pipeline.stage(word=word, flags=Signal(FlagsLayout()))
