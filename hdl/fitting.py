"""The range check of a computed logarithm as two stages of a pipeline, with registers that clear and set."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Module, Mux, Signal, Value

from xlnstorch.formats import LNSFormat

from .layouts import FlagsLayout, WordLayout, range_of
from .pipeline import Pipeline

__all__ = ["FITTING_STAGES", "fit_in_stages"]

#: How many stages :func:`fit_in_stages` adds.
FITTING_STAGES = 2


def fit_in_stages(
    m: Module,
    pipeline: Pipeline,
    format: LNSFormat,
    *,
    sign: Value,
    field: Value,
    zero: Value,
    infinite: Value | int = 0,
    nan: Value | int = 0,
    invalid: Value | int = 0,
    zero_divide: Value | int = 0,
) -> SimpleNamespace:
    """Do what :func:`~hdl.layouts.fit` does, with its parameters; return ``word`` and ``flags``, two stages further on.

    No bit of the field takes a LUT: the registers of the first stage are cleared where nothing is left, those of the
    second are set where the field is above the range. A field that is empty between them has been flushed, unless the
    result is known to be zero or NaN.
    """
    infinite, nan = Value.cast(infinite), Value.cast(nan)
    field, negative, beyond = range_of(m, format, field)
    known = Value.cast(zero) | nan
    cleared = pipeline.stage(
        field=Mux(known | (negative & ~infinite), 0, field),
        sign=sign,
        known=known,
        nan=nan,
        largest=(beyond | infinite) & ~known,
        overflow=beyond & ~infinite & ~known,
        invalid=invalid,
        zero_divide=zero_divide,
    )
    nothing = ~(cleared.field.any() | cleared.largest)
    flags = Signal(FlagsLayout())
    m.d.comb += [
        flags.overflow.eq(cleared.overflow),
        flags.underflow.eq(nothing & ~cleared.known),
        flags.invalid.eq(cleared.invalid),
        flags.zero_divide.eq(cleared.zero_divide),
    ]
    # A register of an ECP5 that can be set must start as it is set, one of an iCE40 starts at 0. Nobody looks at what
    # this one starts with, which the attribute tells fpga.flow.
    largest = Signal(format.log_bits, init=format.max_field, reset_less=True, attrs={"any_init": 1})
    with m.If(pipeline.advance):
        m.d.sync += largest.eq(Mux(cleared.largest, format.max_field, cleared.field))
    last = pipeline.stage(sign=(cleared.sign & ~nothing) | cleared.nan, flags=flags)
    word = Signal(WordLayout(format))
    m.d.comb += [word.field.eq(largest), word.sign.eq(last.sign)]
    return SimpleNamespace(word=word, flags=last.flags)
