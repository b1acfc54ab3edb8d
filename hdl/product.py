"""Products, quotients and squares from one adder of logarithms."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, ShapeLike, Signal, signed
from amaranth.lib import data

from .fitting import FITTING_STAGES, fit_in_stages
from .layouts import WordLayout, classify
from .pipeline import Pipeline
from .unit import Unit

__all__ = ["Product"]


class Product(Unit):
    """What :class:`~hdl.Multiply`, :class:`~hdl.Divide` and :class:`~hdl.Square` compute, sharing their gates.

    Latency 3 clocks, one result a clock. Flags: overflow, underflow, invalid, zero_divide. Any base-2 format.
    """

    name = "product"
    operations = {"mul": lambda a, b: a * b, "div": lambda a, b: a / b, "square": lambda a, b: a.square()}
    latency = 1 + FITTING_STAGES

    def operands_of(self, operation: str) -> dict[str, ShapeLike]:
        word = WordLayout(self.format)
        return {"a": word} if operation == "square" else {"a": word, "b": word}

    def datapath(self, m: Module, pipeline: Pipeline, operands: data.View) -> SimpleNamespace:
        log_bits, divide, square = self.format.log_bits, operands.op[0], operands.op[1]
        a, b = operands.a, Signal(WordLayout(self.format))
        m.d.comb += b.eq(Mux(square, operands.a, operands.b))
        of_a, of_b = classify(self.format, a), classify(self.format, b)

        # Add the logarithm of b, which is its field with the top bit, then the sign, inverted; or subtract it, which is
        # adding its complement and one, a carry into a bit below the lowest.
        logarithm = Cat(b.field[:-1], ~b.field[-1]).as_signed()
        addend = logarithm ^ divide.replicate(log_bits).as_signed()
        sum_of_logs = Signal(signed(log_bits + 3))
        m.d.comb += sum_of_logs.eq(Cat(1, a.field).as_unsigned() + Cat(divide, addend).as_signed())

        # A division is a multiplication by the reciprocal, of which zero and infinity have changed places.
        zero_b, infinite_b = Mux(divide, of_b.infinite, of_b.zero), Mux(divide, of_b.zero, of_b.infinite)
        zero = of_a.zero | zero_b
        invalid = (of_a.zero & infinite_b) | (of_a.infinite & zero_b)
        added = pipeline.stage(
            field=sum_of_logs[1:].as_signed(),
            sign=a.sign ^ (b.sign & ~of_b.zero),
            zero=zero,
            infinite=(of_a.infinite | infinite_b) & ~zero,
            nan=of_a.nan | of_b.nan | (invalid if self.format.specials else 0),
            invalid=invalid,
            zero_divide=divide & of_b.zero & ~(of_a.zero | of_a.infinite | of_a.nan),
        )
        return fit_in_stages(m, pipeline, self.format, **vars(added))
