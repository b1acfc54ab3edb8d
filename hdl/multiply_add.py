"""Multiplication and addition: one step of a sum of products."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Module, ShapeLike, Signal
from amaranth.lib import data

from xlnstorch import LogAccumulator, lnstensor
from xlnstorch.formats import LNSFormat

from .layouts import FlagsLayout, WordLayout
from .multiply import Multiply
from .pipeline import Pipeline
from .sums import LogSteps
from .unit import Unit

__all__ = ["MultiplyAdd"]


class MultiplyAdd(Unit):
    """The step ``c + a * b`` of a sum: the product, saturated or flushed, and an addition by the format's adder.

    With guard bits, ``c`` and the result are words of the running sum, which has so many more fraction bits
    (:meth:`~xlnstorch.LogAccumulator.running_format`). The product, a word of the format, is widened exactly. The
    rounding at the end of a sum is not part of a step.

    Latency that of :class:`~hdl.Multiply` and that of :class:`~hdl.AddSubtract`; one result a clock. Flags: those of
    both, or-ed. Base-2 formats with a LogAccumulator, of either order, whose adder has gates.

    Measured at lns16 with the exact adder (Yosys 0.70, nextpnr 0.11.1, seed 1) on an ECP5-25k: 164 LUT4, 349 registers,
    a block RAM and 228 MHz. No DSP.

    Parameters
    ----------
    format : LNSFormat
    rom : {"block", "luts"}
        Where the adder's tables are kept.

    Raises
    ------
    ValueError
        The format's accumulator sums in fixed point, so that a step is no addition of words.
    """

    name = "mac"
    operations = {"mac": lambda a, b, c: c + lnstensor(a * b, format=c.format)}

    def __init__(self, *, format: LNSFormat, rom: str = "block"):
        self.check_format(format)
        self._steps = LogSteps(format, rom=rom)
        super().__init__(format=format)

    @property
    def latency(self) -> int:
        return self._steps.product_latency + self._steps.addition_latency

    @classmethod
    def check_format(cls, format: LNSFormat) -> None:
        Multiply.check_format(format)
        if not isinstance(format.accumulator, LogAccumulator):
            raise ValueError(
                f"a multiply-add needs a format with a LogAccumulator, not {format.accumulator!r}; "
                "the dot product (hdl.DotProduct) sums in fixed point"
            )
        LogSteps.check_format(format)

    def operands(self) -> dict[str, ShapeLike]:
        return {**super().operands(), "c": WordLayout(self._steps.wide)}

    def results(self) -> dict[str, ShapeLike]:
        return {"word": WordLayout(self._steps.wide), "flags": FlagsLayout()}

    def datapath(self, m: Module, pipeline: Pipeline, operands: data.View) -> SimpleNamespace:
        waiting = pipeline.branch().delay(self._steps.product_latency, word=operands.c)
        product = self._steps.multiply(m, pipeline, operands.a, operands.b)
        c = Signal(product.shape())
        m.d.comb += c.word.eq(waiting.word)
        pipeline.delay(self._steps.product_latency)
        total = self._steps.add(m, pipeline, c, product)
        pipeline.delay(self._steps.addition_latency)
        return SimpleNamespace(word=total.word, flags=total.flags)
