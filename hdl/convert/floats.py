"""Conversions between words and floating point."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data

from xlnstorch import LNSTensor, conversions
from xlnstorch.formats import LNSFormat

from ..layouts import FlagsLayout, WordLayout, classify
from ..pipeline import Pipeline, carry
from .antilogarithm import antilogarithm
from .layouts import FLOATS, FloatLayout
from .shifts import Denormalizer, Normalizer
from .words import Converter, WordUnit, least_exponent

__all__ = ["FromFloat", "ToFloat"]


class FromFloat(WordUnit):
    """The word nearest to a floating-point number, subnormal ones included.

    Exact: the logarithm of a float is an integer or irrational, so there are no ties. Both zeros are zero. With
    specials infinities and NaN are these; without them an infinity saturates, with the flag overflow, and NaN is zero,
    with the flag invalid.

    Latency: one clock, those of the normalizer for as many subnormal numbers as the format reaches, those of
    :func:`~hdl.convert.logarithm.logarithm`, and two. One result a clock. Flags: overflow, underflow, invalid.

    Measured of float32 on an ECP5-25k (``fpga.flow``; Yosys 0.70, nextpnr 0.11.1, seed 1): to lns16 170 LUT4, 237
    registers, a block RAM and 159 MHz, latency 8; to lns32 547 LUT4, 1729 registers, 6 block RAMs, 7 DSP and 121 MHz,
    latency 20.

    Parameters
    ----------
    format : LNSFormat
        Base 2, with at most 24 fraction bits.
    dtype : torch.dtype
        Of the operand ``a``: ``float16``, ``bfloat16`` or ``float32``.
    rom : {"block", "luts"}
        Where tables are kept.
    """

    name = "from_float"

    def __init__(self, *, format: LNSFormat, dtype: torch.dtype = torch.float32, rom: str = "block"):
        self.check_format(format)
        self._layout = FloatLayout(dtype)
        self.dtype = dtype
        kind = FLOATS[dtype]
        # One more than to the smallest numbers of the format: those that it leaves lie below them.
        self._normalizer = Normalizer(kind.fraction_bits + 1, max(0, kind.lowest - least_exponent(format) + 1))
        super().__init__(format=format, significand_bits=kind.fraction_bits, rom=rom)

    @property
    def operations(self) -> dict:
        def from_float(a: torch.Tensor) -> dict:
            words, flags = conversions.encode_with_flags(self.format, a)
            return {"word": LNSTensor(words, self.format), "flags": flags}

        return {"from_float": from_float}

    @property
    def latency(self) -> int:
        return 1 + self._normalizer.latency + self.rounding_latency

    def operands(self) -> dict:
        return {"a": self._layout}

    def datapath(self, m: Module, pipeline: Pipeline, operands: data.View) -> SimpleNamespace:
        a, kind, format = operands.a, FLOATS[self.dtype], self.format
        least = least_exponent(format)

        # 1. Unpack. A subnormal number has the exponent of the smallest normal ones, and no leading one.
        normal, full, empty = a.exponent.any(), a.exponent.all(), a.fraction == 0
        above = 1 << format.int_bits
        whole = Signal(range(min(0, kind.lowest - least), max(above, kind.bias + 1 - least) + 1))
        m.d.comb += whole.eq((a.exponent | ~normal) - (kind.bias + least))
        if not format.specials and kind.bias + 1 - least < above:
            with m.If(full):  # an infinity is above the range, whatever the exponent of the dtype
                m.d.comb += whole.eq(above)
        stage = pipeline.stage(
            value=Cat(a.fraction, normal),
            whole=whole,
            sign=a.sign,
            zero=~normal & empty,
            infinite=full & empty,
            nan=full & ~empty,
        )

        # 2. Shift the leading one up, as far as the format has such small numbers.
        stage = self._normalizer.stages(m, pipeline, **vars(stage))

        # 3. The logarithm, and the word.
        special = {"zero": stage.zero, "infinite": stage.infinite, "nan": stage.nan}
        if not format.specials:
            special = {"zero": stage.zero | stage.nan, "invalid": stage.nan}
        return self.rounded(
            m,
            pipeline,
            significand=stage.value[:-1],
            whole=stage.whole - stage.distance,
            sign=stage.sign,
            **special,
        )


class ToFloat(Converter):
    """The floating-point number nearest to a word, half to even, in one rounding.

    As IEEE 754 rounds: above the range infinities, below it subnormal numbers, and zeros that keep the sign. The word
    of zero is +0. With specials infinities are infinities, without a flag, and NaN is the quiet NaN without a sign.

    Latency: those of :func:`~hdl.convert.antilogarithm.antilogarithm`, those of the shift to as many subnormal numbers
    as the format reaches, and two. One result a clock. Flags: overflow where a finite word becomes an infinity,
    underflow where a word that is not zero becomes zero.

    Measured of float32 on an ECP5-25k (``fpga.flow``; Yosys 0.70, nextpnr 0.11.1, seed 1): from lns16 132 LUT4, 137
    registers, a block RAM and 207 MHz, latency 5; from lns32 516 LUT4, 1527 registers, 5 block RAMs, 9 DSP and
    117 MHz, latency 14.

    Parameters
    ----------
    format : LNSFormat
        Base 2, with at most 24 fraction bits.
    dtype : torch.dtype
        Of the result ``float``: ``float16``, ``bfloat16`` or ``float32``.
    rom : {"block", "luts"}
        Where tables are kept.
    """

    name = "to_float"

    def __init__(self, *, format: LNSFormat, dtype: torch.dtype = torch.float32, rom: str = "block"):
        self.check_format(format)
        self._layout = FloatLayout(dtype)
        self.dtype = dtype
        kind = FLOATS[dtype]
        self._antilogarithm = antilogarithm(format, kind.fraction_bits + 1, rom=rom)
        # The significand has a bit more, for rounding. Shifted by its width nothing of it is left.
        bits = kind.fraction_bits + 2
        self._denormalizer = Denormalizer(bits, min(bits, max(0, kind.lowest - least_exponent(format))))
        super().__init__(format=format)

    @property
    def operations(self) -> dict:
        def to_float(a: LNSTensor) -> dict:
            format = self.format
            values = conversions.decode(format, a.words, self.dtype)
            exceptional = format.is_zero(a.words) | format.is_inf(a.words) | format.is_nan(a.words)
            flags = {"overflow": values.isinf() & ~exceptional, "underflow": (values == 0) & ~exceptional}
            return {"float": values, "flags": flags}

        return {"to_float": to_float}

    @property
    def latency(self) -> int:
        return self._antilogarithm.latency + self._denormalizer.latency + 2

    def operands(self) -> dict:
        return {"a": WordLayout(self.format)}

    def results(self) -> dict:
        return {"float": self._layout, "flags": FlagsLayout()}

    def datapath(self, m: Module, pipeline: Pipeline, operands: data.View) -> SimpleNamespace:
        a, kind, format = operands.a, FLOATS[self.dtype], self.format
        f, most = format.frac_bits, self._denormalizer.most
        full = 2 * kind.bias + 1

        # 1. The antilogarithm. The exponent, with the bias of the float, may be anything; at 0 and below, the number is
        #    subnormal.
        offset = least_exponent(format) + kind.bias
        exponent = Signal(range(min(0, offset), max(full, (1 << format.int_bits) + offset) + 1))
        distance = Signal(range(most + 1))
        m.d.comb += exponent.eq(a.field[f:] + offset)
        if most:
            with m.If(exponent < 1):
                m.d.comb += distance.eq(Mux(exponent < 1 - most, most, 1 - exponent))
        stage = self._antilogarithm.stages(
            m,
            pipeline,
            fraction=a.field[:f],
            distance=distance,
            exponent=Mux(exponent < 1, 0, exponent)[: kind.exponent_bits],
            above=exponent >= full,
            inexact=a.field[:f].any(),
            sign=a.sign,
            **vars(classify(format, a)),
        )

        # 2. Subnormal numbers. Only of a power of two all bits are known; no bit that it loses decides a rounding.
        names = ["exponent", "above", "inexact", "sign", "zero", "infinite", "nan"]
        stage = self._denormalizer.stages(
            m,
            pipeline,
            value=stage.significand,
            distance=stage.distance,
            **carry(stage, names),
        )

        # 3. Round, half to even. A carry out of the significand is one for the exponent.
        up = stage.value[0] & (stage.inexact | stage.value[1])
        magnitude = Signal(kind.width - 1)
        m.d.comb += magnitude.eq(Cat(stage.value[1:-1], stage.exponent) + up)
        stage = pipeline.stage(
            magnitude=magnitude, **carry(stage, [name for name in names if name not in ("exponent", "inexact")])
        )

        # 4. What is no number, or not a finite one.
        fraction, exponent = stage.magnitude[: kind.fraction_bits], stage.magnitude[kind.fraction_bits :]
        result, flags = Signal(self._layout), Signal(FlagsLayout())
        finite = ~(stage.zero | stage.infinite | stage.nan)
        above = stage.above | exponent.all()
        m.d.comb += [
            flags.overflow.eq(finite & above),
            flags.underflow.eq(finite & ~above & (stage.magnitude == 0)),
            result.sign.eq(stage.sign & ~stage.zero & ~stage.nan),
            result.exponent.eq(exponent),
            result.fraction.eq(fraction),
        ]
        with m.If(stage.zero):
            m.d.comb += [result.exponent.eq(0), result.fraction.eq(0)]
        with m.Elif(above | stage.infinite | stage.nan):
            m.d.comb += [result.exponent.eq(full), result.fraction.eq(stage.nan << (kind.fraction_bits - 1))]
        return pipeline.stage(float=result, flags=flags)
