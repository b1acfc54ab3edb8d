# amaranth: UnusedElaboratable=no
"""The steps that sums of LNS additions are made of: a product, an addition, the last rounding."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Signal, Value, signed
from amaranth.lib import data

from xlnstorch.formats import LNSFormat

from ..add import AddSubtract
from ..fitting import FITTING_STAGES, fit_in_stages
from ..layouts import FlagsLayout, WordLayout, classify
from ..multiply import Multiply
from ..pipeline import Pipeline
from ..unit import Unit

__all__ = ["LogSteps", "beside", "either_flags", "gather", "spoil", "term_layout"]


def term_layout(format: LNSFormat) -> data.StructLayout:
    """Return the layout of a term or a partial sum: a word, and the flags raised on the way to it."""
    return data.StructLayout({"word": WordLayout(format), "flags": FlagsLayout()})


def gather(m: Module, terms: Sequence[data.View]) -> data.View:
    """Return terms as an array of them."""
    array = Signal(data.ArrayLayout(terms[0].shape(), len(terms)))
    m.d.comb += [array[index].eq(term) for index, term in enumerate(terms)]
    return array


def spoil(m: Module, format: LNSFormat, term: data.View, where: Value) -> data.View:
    """Return a term of `format`, but zero, or NaN if the format has it, and invalid where it means nothing."""
    result = Signal(term.shape())
    m.d.comb += result.eq(term)
    with m.If(where):
        m.d.comb += [
            result.word.field.eq(0),
            result.word.sign.eq(int(format.specials)),
            result.flags.invalid.eq(1),
        ]
    return result


def either_flags(m: Module, *raised: data.View) -> data.View:
    """Return the flags that any of several results raised."""
    flags = Signal(FlagsLayout())
    m.d.comb += flags.eq(functools.reduce(operator.or_, (each.as_value() for each in raised)))
    return flags


class LogSteps:
    """Stages for the steps of a sum in a format with a LogAccumulator.

    They are added beside the pipeline, which its owner moves on by their latency.

    Parameters
    ----------
    format : LNSFormat
        Of the operands and of the sum.
    rom : {"block", "luts"}
        Where the adders' tables are kept.

    Attributes
    ----------
    wide : LNSFormat
        Of the terms and the running sum: `format` with the accumulator's guard bits.
    product_latency, addition_latency, rounding_latency : int
        Stages of each step.

    Raises
    ------
    ValueError
        `rom` is not as above, or the additions of the running sum have no gates.
    """

    def __init__(self, format: LNSFormat, *, rom: str = "block"):
        self.check_format(format)
        self.format = format
        self.wide = format.accumulator.running_format(format)
        self._multiplier = Multiply(format=format)
        self._adder = AddSubtract(format=self.wide, rom=rom)
        self.product_latency = self._multiplier.latency
        self.addition_latency = self._adder.latency
        self.rounding_latency = 1 + FITTING_STAGES if format.accumulator.guard_bits else 0

    @staticmethod
    def check_format(format: LNSFormat) -> None:
        """Raise ValueError if the additions of the running sum have no gates."""
        guard_bits = format.accumulator.guard_bits
        try:
            AddSubtract.check_format(format.accumulator.running_format(format))
        except ValueError as error:
            if not guard_bits:
                raise
            raise ValueError(f"with guard_bits={guard_bits} the running sum has no gates: {error}") from error

    def multiply(self, m: Module, pipeline: Pipeline, a: data.View, b: data.View) -> data.View:
        """Add the stages of a product; return it as a term."""
        product = beside(m, pipeline, self._multiplier, a=a, b=b)
        term = Signal(term_layout(self.wide))
        guard_bits = self.format.accumulator.guard_bits
        # The same number, but that an infinity has the largest field.
        below = Cat(classify(self.format, product.word).infinite).replicate(guard_bits)
        m.d.comb += [
            term.word.sign.eq(product.word.sign),
            term.word.field.eq(Cat(below, product.word.field)),
            term.flags.eq(product.flags),
        ]
        return term

    def add(self, m: Module, pipeline: Pipeline, a: data.View, b: data.View) -> data.View:
        """Add the stages of an addition of two terms; return their sum."""
        added = beside(m, pipeline, self._adder, a=a.word, b=b.word, op=Const(0, 1))
        earlier = pipeline.branch().delay(self.addition_latency, flags=either_flags(m, a.flags, b.flags))
        total = Signal(term_layout(self.wide))
        m.d.comb += [total.word.eq(added.word), total.flags.eq(either_flags(m, earlier.flags, added.flags))]
        return total

    def round(self, m: Module, pipeline: Pipeline, total: data.View) -> data.View:
        """Add the stages of the last rounding, half to even, if there are guard bits; return a term of `format`."""
        guard_bits = self.format.accumulator.guard_bits
        if not guard_bits:
            return total
        kept, lost = total.word.field[guard_bits:], total.word.field[:guard_bits]
        up = lost[-1] & (lost[:-1].any() | kept[0])
        kinds = classify(self.wide, total.word)
        field = Signal(signed(self.format.log_bits + 2))
        m.d.comb += field.eq(kept + up)
        branch = pipeline.branch()
        rounded = branch.stage(
            field=field, sign=total.word.sign, zero=kinds.zero, infinite=kinds.infinite, nan=kinds.nan
        )
        fitted = fit_in_stages(m, branch, self.format, **vars(rounded))
        earlier = pipeline.branch().delay(self.rounding_latency, flags=total.flags)
        result = Signal(term_layout(self.format))
        m.d.comb += [result.word.eq(fitted.word), result.flags.eq(either_flags(m, earlier.flags, fitted.flags))]
        return result


def beside(m: Module, pipeline: Pipeline, unit: Unit, **operands: Value | data.View) -> SimpleNamespace:
    """Add a unit's datapath, in a submodule of its own, beside the pipeline; return the unit's results."""
    m.submodules += (inside := Module())
    return unit.datapath(inside, pipeline.branch(inside), SimpleNamespace(**operands))
