"""Payloads of the units' streams, laid out from the format."""

from __future__ import annotations

from amaranth.hdl import unsigned
from amaranth.lib import data

from xlnstorch.formats import LNSFormat
from xlnstorch.observe import FLAGS

__all__ = ["FlagsLayout", "WordLayout", "fit"]


class WordLayout(data.StructLayout):
    """The word of a format as an Amaranth layout: ``field``, and ``sign`` above it."""

    def __init__(self, format: LNSFormat):
        super().__init__({"field": unsigned(format.log_bits), "sign": unsigned(1)})


class FlagsLayout(data.StructLayout):
    """One bit for each status flag, in the order of :data:`xlnstorch.observe.FLAGS`."""

    def __init__(self):
        super().__init__({flag: unsigned(1) for flag in FLAGS})


def fit(m, format: LNSFormat, *, sign, field, zero, result, flags):
    """Drive a result word and its flags from a field of any range: saturate above, flush below.

    Parameters
    ----------
    m : amaranth.hdl.Module
    format : LNSFormat
    sign : Value, 1 bit
        Of the result, if it is not zero.
    field : Value, signed
        The field before the range check.
    zero : Value, 1 bit
        The result is exactly zero, whatever `field` says.
    result : View of WordLayout
    flags : View of FlagsLayout
    """
    above = field > format.max_field
    below = field < 1
    m.d.comb += [flags.overflow.eq(~zero & above), flags.underflow.eq(~zero & below)]
    with m.If(zero | below):
        m.d.comb += [result.sign.eq(0), result.field.eq(0)]
    with m.Else():
        m.d.comb += result.sign.eq(sign)
        with m.If(above):
            m.d.comb += result.field.eq(format.max_field)
        with m.Else():
            m.d.comb += result.field.eq(field[: format.log_bits])
