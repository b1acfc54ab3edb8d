"""Addition and subtraction: a comparison, the Gaussian logarithm of the format's adder, an addition."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data

from xlnstorch.formats import LNSFormat

from .fitting import FITTING_STAGES, fit_in_stages
from .gaussian import datapath_of
from .layouts import classify
from .pipeline import Pipeline, carry
from .unit import Unit

__all__ = ["AddSubtract"]


class AddSubtract(Unit):
    """The sum or the difference of two words, by the format's adder.

    The larger magnitude's logarithm plus ``s(d)`` for equal signs, minus ``t(d)`` for different ones, d being the
    distance of the two logarithms. With the exact adder the result is the nearest logarithm to the sum. ``x - x`` is
    +0.

    Latency 5 clocks and those of the adder's :mod:`hdl.gaussian` datapath, 8 for the exact one; one result a clock.
    Flags: overflow, underflow; with specials invalid. Base-2 formats whose adder has gates.

    Measured at lns16 with the exact adder and registers at the inputs (``benchmarks/cells.py``; Yosys 0.70, nextpnr
    0.11.1, median of 5 seeds): on an ECP5-25k 125 LUT4, 264 registers, a block RAM and 239 MHz; on an iCE40 HX8K 152
    LUT4, 282 registers, 5 block RAMs and 197 MHz. No DSP. With specials it takes 162 LUT4 of an ECP5. ``lns adders``
    measures the others.

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
        return 3 + self._gaussian.latency + FITTING_STAGES

    @classmethod
    def check_format(cls, format: LNSFormat) -> None:
        super().check_format(format)
        datapath_of(format.adder, format)

    def datapath(self, m: Module, pipeline: Pipeline, operands: data.View) -> SimpleNamespace:
        format, log_bits = self.format, self.format.log_bits

        # 1. Compare. A subtraction is the addition of the negated b. Either difference is the distance if it is not
        #    negative; to negate one would be a second carry chain behind the first.
        a, b = operands.a, operands.b
        of_a, of_b = classify(format, a), classify(format, b)
        a_above_b, b_above_a = Signal(signed(log_bits + 1)), Signal(log_bits)
        sign_b = Signal()
        m.d.comb += [
            a_above_b.eq(a.field - b.field),
            b_above_a.eq(b.field - a.field),
            sign_b.eq(b.sign ^ operands.op),
        ]
        special = {}
        if format.specials:
            opposite = of_a.infinite & of_b.infinite & (a.sign ^ sign_b)
            special = {
                "infinite": of_a.infinite | of_b.infinite,
                "nan": of_a.nan | of_b.nan | opposite,
                "invalid": opposite,
            }
        compared = pipeline.stage(
            a=a.field,
            b=b.field,
            a_above_b=a_above_b[:log_bits],
            b_above_a=b_above_a,
            b_larger=a_above_b[-1],
            sign_a=a.sign,
            sign_b=sign_b,
            # A zero's sign means nothing; it is not looked at further on either.
            either_zero=(a.field == 0) | (b.field == 0),
            **special,
        )
        special = carry(compared, special)

        # 2. Swap: the larger magnitude, its sign, and how far below it the other lies.
        swapped = pipeline.stage(
            larger=Mux(compared.b_larger, compared.b, compared.a),
            sign=Mux(compared.b_larger, compared.sign_b, compared.sign_a),
            d=Mux(compared.b_larger, compared.b_above_a, compared.a_above_b),
            subtract=compared.sign_a ^ compared.sign_b,
            # Adding zero changes nothing, whatever its offset from the larger field.
            either_zero=compared.either_zero,
            **special,
        )
        special = carry(swapped, special)

        # 3. The Gaussian logarithm of the distance. Equal fields cancel, or both are empty.
        looked_up = self._gaussian.stages(
            m,
            pipeline,
            d=swapped.d,
            subtract=swapped.subtract,
            silent=swapped.either_zero,
            larger=swapped.larger,
            sign=swapped.sign,
            zero=(swapped.subtract | swapped.either_zero) & (swapped.d == 0),
            **special,
        )
        special = carry(looked_up, special)

        # 4. Add to the larger logarithm or subtract from it, in one carry chain: to subtract, invert and carry one in.
        gaussian, subtract = looked_up.gaussian, looked_up.subtract
        bits = max(log_bits, len(gaussian)) + 2
        addend = Cat(gaussian ^ subtract.replicate(len(gaussian)), subtract.replicate(bits - len(gaussian)))
        total = Signal(signed(1 + bits))
        m.d.comb += total.eq(Cat(Const(1, 1), looked_up.larger) + Cat(subtract, addend))
        added = pipeline.stage(field=total[1:].as_signed(), sign=looked_up.sign, zero=looked_up.zero, **special)
        return fit_in_stages(m, pipeline, format, **vars(added))
