"""Payloads of the units' streams, laid out from the format, and what their bits are as tensors."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace

import numpy as np
import torch
from amaranth.hdl import Cat, Const, Module, Signal, Value, signed, unsigned
from amaranth.lib import data

from xlnstorch import from_words
from xlnstorch.formats import LNSFormat
from xlnstorch.observe import FLAGS

__all__ = ["PADDING", "FlagsLayout", "WordLayout", "classify", "fit", "range_of"]

#: The field that holds nothing, above what some operations have in a field as wide as that of others.
PADDING = "above"


class WordLayout(data.StructLayout):
    """The word of a format as an Amaranth layout: ``field``, and ``sign`` above it."""

    meaning = "word"  # in descriptions of Verilog, as of every layout of this kind

    def __init__(self, format: LNSFormat):
        super().__init__({"field": unsigned(format.log_bits), "sign": unsigned(1)})
        self.word_format = format  # "format" is taken: it tells how a simulator shows a value

    def tensor(self, integers: np.ndarray) -> torch.Tensor:
        """Return words, as the non-negative integers on the wires (int64), as an LNSTensor."""
        return from_words(torch.from_numpy(integers), self.word_format)

    def integers(self, tensor: torch.Tensor) -> np.ndarray:
        """Return an LNSTensor's words as the non-negative integers on the wires, in int64."""
        return self.word_format.to_unsigned(tensor.words).numpy()


class FlagsLayout(data.StructLayout):
    """One bit for each status flag, in the order of :data:`xlnstorch.observe.FLAGS`.

    Parameters
    ----------
    names : collection of str
        The flags that a unit has, by default all; the others are zero, whatever the golden model says.
    """

    meaning = "flags"

    def __init__(self, names: Collection[str] = FLAGS):
        super().__init__({flag: unsigned(1) for flag in FLAGS})
        self.mask = sum(1 << FLAGS.index(name) for name in names)


def classify(format: LNSFormat, word: data.View) -> SimpleNamespace:
    """Return what a word is: ``zero``, ``infinite`` and ``nan``, 1 bit each; the last two only where there are such.

    The sign of a zero or a NaN means nothing.
    """
    empty = word.field == 0
    if not format.specials:
        return SimpleNamespace(zero=empty, infinite=Const(0), nan=Const(0))
    return SimpleNamespace(zero=empty & ~word.sign, infinite=word.field.all(), nan=empty & word.sign)


def fit(
    m: Module,
    format: LNSFormat,
    *,
    sign: Value,
    field: Value,
    zero: Value,
    result: data.View,
    flags: data.View,
    infinite: Value | int = 0,
    nan: Value | int = 0,
    invalid: Value | int = 0,
    zero_divide: Value | int = 0,
) -> None:
    """Drive a result word and its flags from a field of any range: saturate above, flush below.

    Parameters
    ----------
    m : amaranth.hdl.Module
    format : LNSFormat
        What saturates in a format with specials is infinite.
    sign : Value, 1 bit
        Of the result, if it is neither zero nor NaN.
    field : Value, signed
        The field before the range check.
    zero : Value, 1 bit
        The result is exactly zero, whatever `field` says.
    result : View of WordLayout
    flags : View of FlagsLayout
    infinite : Value, 1 bit
        The result is the largest field, without an overflow, whatever `field` says; not together with `zero`.
    nan : Value, 1 bit
        The result is NaN, whatever the others say; only in formats with specials.
    invalid, zero_divide : Value, 1 bit
        Flags to raise.
    """
    infinite, nan = Value.cast(infinite), Value.cast(nan)  # the inverse of an int would be negative
    kept, negative, beyond = range_of(m, format, field)
    below = negative | (~beyond & ~kept.any())
    given = zero | infinite | nan
    largest = infinite | beyond
    nothing = zero | nan | (below & ~infinite)
    m.d.comb += [
        flags.overflow.eq(~given & beyond),
        flags.underflow.eq(~given & below),
        flags.invalid.eq(invalid),
        flags.zero_divide.eq(zero_divide),
        result.sign.eq((sign & ~nothing) | nan),
        # One LUT a bit.
        result.field.eq((kept | Cat(largest).replicate(len(kept))) & ~Cat(nothing).replicate(len(kept))),
    ]


def range_of(m: Module, format: LNSFormat, field: Value) -> tuple[Value, Value, Value]:
    """Return a signed field's lower ``log_bits`` bits, whether it is negative, and whether it is above the range.

    The bits above and the sign decide; a comparison would be a carry chain.
    """
    bits = format.log_bits
    wide = Signal(signed(max(bits + 1, len(Value.cast(field)))))
    m.d.comb += wide.eq(field)
    kept, above = wide[:bits], wide[bits:-1].any()
    if format.specials:
        above |= kept.all()
    return kept, wide[-1], ~wide[-1] & above
