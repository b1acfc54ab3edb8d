"""Addition and subtraction: a comparison, the Gaussian logarithm of the format's adder, an addition."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data

from xlnstorch.formats import LNSFormat

from .gaussian import datapath_of
from .pipeline import Pipeline
from .unit import Unit

__all__ = ["AddSubtract"]


class AddSubtract(Unit):
    """The sum or the difference of two words, by the format's adder.

    The larger magnitude's logarithm plus ``s(d)`` for equal signs, minus ``t(d)`` for different ones, d being the
    distance of the two logarithms. With the exact adder the result is the nearest logarithm to the sum. ``x - x`` is
    +0.

    Latency 4 clocks and those of the adder's :mod:`hdl.gaussian` datapath, 6 for the exact one; one result a clock.
    Flags: overflow, underflow. Base-2 formats whose adder has gates.

    Measured at lns16 with the exact adder (``benchmarks/cells.py``; Yosys 0.70, nextpnr 0.11.1, seed 1): on an iCE40
    HX8K 197 LUT4, 173 registers, 10 block RAMs and 139 MHz; on an ECP5-25k 199 LUT4, 172 registers, 3 block RAMs and
    155 MHz. No DSP. ``lns adders`` measures the others.

    Parameters
    ----------
    format : LNSFormat
    rom : {"block", "luts"}
        Where tables are kept: in block RAM, or in lookup tables.
    """

    name = "add"
    operations = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b}

    def __init__(self, *, format: LNSFormat, rom: str = "block"):
        self.check_format(format)
        self._gaussian = datapath_of(format.adder, format, rom=rom)
        super().__init__(format=format)

    @property
    def latency(self) -> int:
        return 4 + self._gaussian.latency

    @classmethod
    def check_format(cls, format: LNSFormat) -> None:
        super().check_format(format)
        datapath_of(format.adder, format)

    def datapath(self, m: Module, pipeline: Pipeline, operands: data.View) -> SimpleNamespace:
        log_bits = self.format.log_bits

        # 1. Compare. A subtraction is the addition of the negated b.
        a, b = operands.a, operands.b
        difference = Signal(signed(log_bits + 1))
        m.d.comb += difference.eq(a.field - b.field)
        compared = pipeline.stage(
            a=a.field,
            b=b.field,
            difference=difference,
            sign_a=a.sign,
            sign_b=b.sign ^ operands.op,
            # A zero's sign means nothing; it is not looked at further on either.
            either_zero=(a.field == 0) | (b.field == 0),
        )

        # 2. Swap: the larger magnitude, its sign, and how far below it the other lies.
        b_larger = compared.difference < 0
        d = Signal(log_bits)
        m.d.comb += d.eq(Mux(b_larger, -compared.difference, compared.difference))
        swapped = pipeline.stage(
            larger=Mux(b_larger, compared.b, compared.a),
            sign=Mux(b_larger, compared.sign_b, compared.sign_a),
            d=d,
            subtract=compared.sign_a ^ compared.sign_b,
            # Adding zero changes nothing, whatever its offset from the larger field.
            either_zero=compared.either_zero,
        )

        # 3. The Gaussian logarithm of the distance.
        looked_up = self._gaussian.stages(
            m,
            pipeline,
            d=swapped.d,
            subtract=swapped.subtract,
            silent=swapped.either_zero,
            larger=swapped.larger,
            sign=swapped.sign,
            zero=(swapped.larger == 0) | (swapped.subtract & (swapped.d == 0)),
        )

        # 4. Add to or subtract from the larger logarithm.
        field = Signal(signed(max(log_bits, len(looked_up.gaussian)) + 2))
        m.d.comb += field.eq(
            Mux(looked_up.subtract, looked_up.larger - looked_up.gaussian, looked_up.larger + looked_up.gaussian)
        )
        added = pipeline.stage(field=field, sign=looked_up.sign, zero=looked_up.zero)
        return self.fitted(m, pipeline, **vars(added))
