"""Conversions between words and fixed point."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data

from xlnstorch import LNSTensor, conversions
from xlnstorch.checks import as_integer
from xlnstorch.formats import LNSFormat

from ..layouts import FlagsLayout, WordLayout, classify
from ..pipeline import Pipeline, carry
from .antilogarithm import antilogarithm
from .layouts import FixedLayout
from .logarithm import MAX_TABLED_FRAC_BITS
from .shifts import Denormalizer, Normalizer
from .words import Converter, WordUnit, least_exponent

__all__ = ["FromFixed", "ToFixed"]


_MAX_WIDTH = 32  # of formats without full tables


def _layout(format: LNSFormat, width: int | None, frac_bits: int | None, signed: bool) -> FixedLayout:
    width = as_integer("width", min(format.width, _MAX_WIDTH) if width is None else width)
    layout = FixedLayout(width, width // 2 if frac_bits is None else frac_bits, signed)
    if width > _MAX_WIDTH and format.frac_bits > MAX_TABLED_FRAC_BITS:
        raise ValueError(
            f"width must be at most {_MAX_WIDTH} for {format}, which has over {MAX_TABLED_FRAC_BITS} fraction bits, "
            f"not {width}"
        )
    return layout


class _Fixed:
    """What a unit says of the fixed-point numbers in its `_layout`."""

    _layout: FixedLayout

    @property
    def width(self) -> int:
        """Bits of the fixed-point number, the sign included."""
        return self._layout.width

    @property
    def frac_bits(self) -> int:
        """How many of them lie behind the binary point."""
        return self._layout.frac_bits

    @property
    def signed(self) -> bool:
        """Whether it is in two's complement."""
        return self._layout.signed


class FromFixed(_Fixed, WordUnit):
    """The word nearest to a fixed-point number, ``a / 2**frac_bits``.

    Exact: the logarithm of a rational number is an integer or irrational, so there are no ties.

    Latency: one clock, those of the normalizer, one for two bits of the bits' number, those of
    :func:`~hdl.convert.logarithm.logarithm`, and two. One result a clock. Flags: overflow, underflow.

    Measured with a word's width on an ECP5-25k (``fpga.flow``; Yosys 0.70, nextpnr 0.11.1, seed 1): to lns16 229 LUT4,
    187 registers, a block RAM and 173 MHz, latency 9; to lns32 802 LUT4, 2358 registers, 7 block RAMs, 9 DSP and
    115 MHz, latency 27.

    Parameters
    ----------
    format : LNSFormat
        Base 2, with at most 24 fraction bits.
    width : int, optional
        Bits of the operand ``a``, the sign included: 1 to 64, or 63 without a sign; 1 to 32 where the format has over
        12 fraction bits. By default those of a word, but at most 32.
    frac_bits : int, optional
        How many of them lie behind the binary point, -256 to 256. By default half.
    signed : bool
        Whether it is in two's complement.
    rom : {"block", "luts"}
        Where tables are kept.
    """

    name = "from_fixed"

    def __init__(
        self,
        *,
        format: LNSFormat,
        width: int | None = None,
        frac_bits: int | None = None,
        signed: bool = True,
        rom: str = "block",
    ):
        self.check_format(format)
        self._layout = _layout(format, width, frac_bits, signed)
        self._normalizer = Normalizer(self._layout.width)
        super().__init__(format=format, significand_bits=max(0, self._layout.magnitude_bits - 1), rom=rom)

    @property
    def operations(self) -> dict:
        def from_fixed(a: torch.Tensor) -> dict:
            words, flags = conversions.encode_fixed_with_flags(self.format, a, self._layout.frac_bits)
            return {"word": LNSTensor(words, self.format), "flags": flags}

        return {"from_fixed": from_fixed}

    @property
    def latency(self) -> int:
        return 1 + self._normalizer.latency + self.rounding_latency

    def operands(self) -> dict:
        return {"a": self._layout}

    def datapath(self, m: Module, pipeline: Pipeline, operands: data.View) -> SimpleNamespace:
        layout, integer = self._layout, operands.a.integer

        # 1. Sign and magnitude, which fits as many bits without a sign.
        magnitude = Signal(layout.width)
        m.d.comb += magnitude.eq(Mux(integer < 0, -integer, integer))
        stage = pipeline.stage(value=magnitude, sign=integer < 0)

        # 2. Shift the leading one up.
        stage = self._normalizer.stages(m, pipeline, **vars(stage))

        # 3. The logarithm, and the word. The lowest bit of a normalized magnitude of a signed number is always clear:
        #    it is one only for the most negative number, which needs no shift.
        bits = self._logarithm.bits
        largest = layout.width - 1 - layout.frac_bits - least_exponent(self.format)
        whole = Signal(range(min(0, largest - layout.width), max(0, largest) + 1))
        m.d.comb += whole.eq(largest - stage.distance)
        return self.rounded(
            m,
            pipeline,
            significand=stage.value[:-1][layout.width - 1 - bits :],
            whole=whole,
            sign=stage.sign,
            zero=~stage.found,
        )


class ToFixed(_Fixed, Converter):
    """The fixed-point number nearest to a word, ``fixed / 2**frac_bits``, half to even.

    What is beyond the range is the nearest end of it, which without a sign is zero for negative numbers. NaN is zero.

    Latency: those of :func:`~hdl.convert.antilogarithm.antilogarithm`, those of a shift, one for two bits of the
    distance, and three. One result a clock. Flags: overflow where the nearest integer is out of range, underflow where
    a word that is not zero becomes zero by rounding, invalid for NaN.

    Measured with a word's width on an ECP5-25k (``fpga.flow``; Yosys 0.70, nextpnr 0.11.1, seed 1): from lns16 176
    LUT4, 150 registers, a block RAM and 232 MHz, latency 8; from lns32 883 LUT4, 2085 registers, 6 block RAMs, 12 DSP
    and 114 MHz, latency 18.

    Parameters
    ----------
    format : LNSFormat
        Base 2, with at most 24 fraction bits.
    width : int, optional
        Bits of the result ``fixed``, the sign included: 1 to 64, or 63 without a sign; 1 to 32 where the format has
        over 12 fraction bits. By default those of a word, but at most 32.
    frac_bits : int, optional
        How many of them lie behind the binary point, -256 to 256. By default half.
    signed : bool
        Whether it is in two's complement.
    rom : {"block", "luts"}
        Where tables are kept.
    """

    name = "to_fixed"

    def __init__(
        self,
        *,
        format: LNSFormat,
        width: int | None = None,
        frac_bits: int | None = None,
        signed: bool = True,
        rom: str = "block",
    ):
        self.check_format(format)
        self._layout = _layout(format, width, frac_bits, signed)
        width = self._layout.width
        self._antilogarithm = antilogarithm(format, width, rom=rom)
        # The significand has a bit more than the integer, for rounding. A number of half a unit is shifted by `width`;
        # and by one more, nothing of it is left.
        reach = width - 1 - (least_exponent(format) + self._layout.frac_bits)
        self._denormalizer = Denormalizer(width + 1, min(width + 1, max(0, reach)))
        super().__init__(format=format)

    @property
    def operations(self) -> dict:
        def to_fixed(a: LNSTensor) -> dict:
            layout = self._layout
            fixed, flags = conversions.decode_fixed(self.format, a.words, layout.frac_bits, layout.width, layout.signed)
            return {"fixed": fixed, "flags": flags}

        return {"to_fixed": to_fixed}

    @property
    def latency(self) -> int:
        return self._antilogarithm.latency + self._denormalizer.latency + 3

    def operands(self) -> dict:
        return {"a": WordLayout(self.format)}

    def results(self) -> dict:
        return {"fixed": self._layout, "flags": FlagsLayout()}

    def datapath(self, m: Module, pipeline: Pipeline, operands: data.View) -> SimpleNamespace:
        a, layout, format = operands.a, self._layout, self.format
        f, width, most = format.frac_bits, layout.width, self._denormalizer.most

        # 1. The antilogarithm, and how far its integer is to be shifted down from the highest bit.
        highest = width - 1 - layout.frac_bits - least_exponent(format)
        down = Signal(range(min(-1, highest - (1 << format.int_bits)), max(most, highest) + 1))
        distance = Signal(range(most + 1))
        m.d.comb += [
            down.eq(highest - a.field[f:]),
            distance.eq(Mux(down < 0, 0, Mux(down > most, most, down))),
        ]
        special = classify(format, a)
        stage = self._antilogarithm.stages(
            m,
            pipeline,
            fraction=a.field[:f],
            distance=distance,
            inexact=a.field[:f].any(),
            above=(down < 0) | special.infinite,
            sign=a.sign,
            zero=special.zero,
            nan=special.nan,
        )

        # 2. Shift it to its place. Only of a power of two all bits are known; no bit that it loses decides a rounding.
        names = ["above", "inexact", "sign", "zero", "nan"]
        stage = self._denormalizer.stages(
            m,
            pipeline,
            value=stage.significand,
            distance=stage.distance,
            **carry(stage, names),
        )

        # 3. Round, half to even.
        up = stage.value[0] & (stage.inexact | stage.value[1])
        integer = Signal(width + 1)
        m.d.comb += integer.eq(stage.value[1:] + up)
        kept = carry(stage, [name for name in names if name != "inexact"])
        stage = pipeline.stage(integer=integer, **kept)

        # 4. The ends of the range.
        number = ~(stage.zero | stage.nan)
        negative = stage.sign & number
        top, rest = stage.integer[layout.magnitude_bits :].any(), stage.integer[: layout.magnitude_bits].any()
        if layout.signed:
            overflow = stage.above | stage.integer[-1] | (top & (rest | ~negative))
            end = Mux(negative, 1 << (width - 1), (1 << (width - 1)) - 1)
        else:
            overflow = stage.above | top | (negative & rest)
            end = Mux(negative, 0, (1 << width) - 1)
        flags = Signal(FlagsLayout())
        m.d.comb += [
            flags.overflow.eq(number & overflow),
            flags.underflow.eq(number & ~stage.above & ~stage.integer.any()),
            flags.invalid.eq(stage.nan),
        ]
        magnitude = Signal(width)
        m.d.comb += magnitude.eq(Mux(number, Mux(overflow, end, stage.integer), 0))
        stage = pipeline.stage(magnitude=magnitude, negative=negative, flags=flags)

        # 5. The sign.
        fixed = Signal(layout)
        m.d.comb += fixed.integer.eq(Mux(stage.negative, -stage.magnitude, stage.magnitude))
        return pipeline.stage(fixed=fixed, flags=stage.flags)
