# amaranth: UnusedElaboratable=no
"""Sums in fixed point: antilogarithms, a wide register in limbs, and the logarithm of what is in it."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal, Value, signed, unsigned
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.utils import bits_for

from xlnstorch import LinearAccumulator
from xlnstorch.formats import LNSFormat

from ..convert import Normalizer, antilogarithm, logarithm
from ..convert.logarithm import MAX_TABLED_FRAC_BITS
from ..fitting import FITTING_STAGES, fit_in_stages
from ..layouts import FlagsLayout, classify
from ..multiply import Multiply
from ..pipeline import Pipeline
from .datapath import SumDatapath, power_of_two_between, sum_datapath_of
from .steps import beside, either_flags, gather, spoil, term_layout

__all__ = ["LinearSum"]

_LIMB = 32  # bits of the register that are added in one clock
_DEFAULT_BEATS, _MAX_BEATS = 1024, 1 << 20
_FINE_BITS = 5  # of a place within a limb
_SHIFT_LATENCY = 2
_MAGNITUDE_LATENCY = 2

# What is kept of a vector beside the register: whether there were NaN, +Inf and -Inf, and flags.
_ASIDE = data.StructLayout({"flags": FlagsLayout(), "nan": 1, "up": 1, "down": 1})


class LinearSum(SumDatapath):
    """A term is shifted to its place, and added to a register that loses nothing; the sum becomes a word at the end.

    The register is in limbs of 32 bits. Each takes its part of a beat one clock after the limb below, whose carry it
    takes too, so that beats follow each other in whatever channels. The register has the bits that the sum of
    ``lanes * beats`` terms needs (:meth:`~xlnstorch.LinearAccumulator.register_bits`); the sum of a vector of more than
    `beats` beats, 1024 by default, is zero, or NaN, and invalid.
    """

    spacing = 1

    def _set_up(self, beats: int | None) -> None:
        format, accumulator = self.format, self.format.accumulator
        self.beats = power_of_two_between("beats", _DEFAULT_BEATS if beats is None else beats, _MAX_BEATS)
        self._frac_bits = accumulator.register_frac_bits(format)
        self._bits = max(3, accumulator.register_bits(format, self.lanes * self.beats))
        self._limbs = -(-self._bits // _LIMB)
        # Where the lowest bit of a term can lie: limbs below the register are counted, what lies in them is cut off.
        lowest = self._frac_bits - accumulator.antilogarithm_bits(format) - (1 << (format.int_bits - 1))
        self._below = max(0, -(lowest // _LIMB))
        self._lowest = lowest + self._below * _LIMB
        self._multiplier = Multiply(format=format)
        self._antilogarithm = antilogarithm(format, accumulator.antilogarithm_bits(format), nearest=True, rom=self.rom)
        self._normalizer = Normalizer(self._bits - 1)
        try:
            self._logarithm = logarithm(format, self._bits - 2, rom=self.rom)
        except ValueError as error:
            raise ValueError(
                f"sums in fixed point have gates for at most {MAX_TABLED_FRAC_BITS} fraction bits with a register of "
                f"{self._bits} bits, not for the {format.frac_bits} of {format}"
            ) from error
        self._adding = 1 + (self.lanes - 1).bit_length()
        self._arrival = self.lead + self._multiplier.latency
        self._end = self._arrival + self._antilogarithm.latency + _SHIFT_LATENCY + self._adding + self._limbs
        conversion = _MAGNITUDE_LATENCY + self._normalizer.latency + self._logarithm.latency + 1 + FITTING_STAGES
        self.latency = self._end + conversion + 1

    def stages(
        self,
        m: Module,
        pipeline: Pipeline,
        rows: Sequence[Sequence[tuple[data.View, data.View]]],
        *,
        channel: Value,
        last: Value,
        when: Value,
    ) -> SimpleNamespace:
        # 1. Which beat of its vector it is.
        first = self._begin(m, pipeline, channel=channel, last=last, when=when)
        control = SimpleNamespace(channel=channel, last=last, when=when, first=first)
        before, count = self._state(m, pipeline, control, (self.beats + 1).bit_length())
        m.d.comb += count.eq(before + (before <= self.beats))
        control.too_long = count > self.beats

        # 2. The products. Their flags, infinities and NaN do not go into the register.
        products = [[beside(m, pipeline, self._multiplier, a=a, b=b) for a, b in row] for row in rows]
        control = pipeline.delay(self._arrival, **vars(control))
        before, control.aside = self._state(m, pipeline, control, data.ArrayLayout(_ASIDE, len(rows)))
        for index, row in enumerate(products):
            m.d.comb += control.aside[index].eq(before[index].as_value() | _set_aside(m, self.format, row))

        # 3. Fixed point, and a limb a clock.
        terms = [[self._place(m, pipeline, product.word) for product in row] for row in products]
        control = pipeline.delay(self._antilogarithm.latency + _SHIFT_LATENCY + self._adding, **vars(control))
        control = self._accumulate(m, pipeline, control, terms)

        # 4. The sums as words.
        sums = [
            self._convert(m, pipeline, control.register[row], control.aside[row], control.too_long)
            for row in range(len(rows))
        ]
        control = pipeline.delay(self.latency - self._end, channel=control.channel, when=control.when & control.last)
        return SimpleNamespace(sums=gather(m, sums), channel=control.channel, when=control.when, accept=1)

    def _state(
        self, m: Module, pipeline: Pipeline, control: SimpleNamespace, shape: ShapeLike
    ) -> tuple[Value | data.View, Signal | data.View]:
        """Return what a channel holds, zero at the first beat of a vector, and what is to be driven with the next."""
        m.submodules += (memory := Memory(shape=shape, depth=self.channels, init=[]))
        read, write = memory.read_port(domain="comb"), memory.write_port()
        before, after = Signal(shape), Signal(shape)
        m.d.comb += [
            read.addr.eq(control.channel),
            Value.cast(before).eq(Mux(control.first, 0, Value.cast(read.data))),
            write.addr.eq(control.channel),
            write.data.eq(after),
            write.en.eq(pipeline.advance & pipeline.valid & control.when),
        ]
        return before, after

    def _place(self, m: Module, pipeline: Pipeline, word: data.View) -> data.View:
        """Add the stages from a word to its significand, shifted to its place in a limb, and the limb's number."""
        format = self.format
        kinds = classify(format, word)
        place = Signal(max(_FINE_BITS + 1, bits_for((1 << format.int_bits) - 1 + self._lowest)))
        m.d.comb += place.eq(word.field[format.frac_bits :] + self._lowest)
        branch = pipeline.branch()
        stage = self._antilogarithm.stages(
            m,
            branch,
            fraction=word.field[: format.frac_bits],
            place=place,
            negative=word.sign,
            empty=kinds.zero | kinds.infinite | kinds.nan,
        )
        half = _FINE_BITS // 2
        stage = branch.stage(
            value=stage.significand << stage.place[:half],
            place=stage.place[half:],
            negative=stage.negative,
            empty=stage.empty,
        )
        value = Signal(len(stage.value) + _LIMB)
        m.d.comb += value.eq(Mux(stage.empty, 0, stage.value << (stage.place[: _FINE_BITS - half] << half)))
        term = Signal(
            data.StructLayout({"value": len(value), "limb": len(stage.place) - _FINE_BITS + half, "negative": 1})
        )
        m.d.comb += [
            term.value.eq(value),
            term.limb.eq(stage.place[_FINE_BITS - half :]),
            term.negative.eq(stage.negative),
        ]
        return branch.stage(term=term).term

    def _accumulate(
        self, m: Module, pipeline: Pipeline, control: SimpleNamespace, rows: list[list[data.View]]
    ) -> SimpleNamespace:
        """Add the stages that add terms to the register, a limb in each; return also ``register``, for each row."""
        waiting = pipeline.branch()
        terms = gather(m, [gather(m, row) for row in rows])
        carries, registers = [Const(0)] * len(rows), [Cat()] * len(rows)
        for limb in range(self._limbs):
            width = min(_LIMB, self._bits - limb * _LIMB)
            before, after = self._state(m, pipeline, control, data.ArrayLayout(unsigned(width), len(rows)))
            carry_bits = self.lanes.bit_length() + 2
            for row in range(len(rows)):
                total = Signal(signed(_LIMB + carry_bits))
                part = self._part(
                    pipeline.branch(), [terms[row][lane] for lane in range(self.lanes)], limb + self._below
                )
                m.d.comb += [total.eq(before[row] + part + carries[row]), after[row].eq(total)]
                carries[row] = total[_LIMB:].as_signed()
                registers[row] = Cat(registers[row], after[row])
            stage = pipeline.stage(
                **vars(control),
                **{f"carry_{row}": carry for row, carry in enumerate(carries)},
                **{f"register_{row}": register for row, register in enumerate(registers)},
            )
            carries = [vars(stage).pop(f"carry_{row}") for row in range(len(rows))]
            registers = [vars(stage).pop(f"register_{row}") for row in range(len(rows))]
            control, terms = stage, waiting.stage(terms=terms).terms
        return SimpleNamespace(**vars(control), register=registers)

    def _part(self, branch: Pipeline, terms: list[data.View], limb: int) -> Value:
        """Add the stages that add up what the terms have in one limb."""
        parts = []
        for term in terms:
            pieces = [term.value[start : start + _LIMB] for start in range(0, len(term.value), _LIMB)]
            # No more than one of them is in this limb.
            magnitude = Cat(
                functools.reduce(
                    operator.or_,
                    (
                        Mux(term.limb == limb - index, piece, 0)
                        for index, piece in enumerate(pieces)
                        if 0 <= limb - index < 1 << len(term.limb)
                    ),
                    Const(0, _LIMB),
                )
            )
            parts.append(Mux(term.negative, -magnitude, magnitude))
        parts = list(vars(branch.stage(**{f"part_{i}": part for i, part in enumerate(parts)})).values())
        while len(parts) > 1:
            sums = [sum(parts[i : i + 2]) for i in range(0, len(parts), 2)]
            parts = list(vars(branch.stage(**{f"part_{i}": part for i, part in enumerate(sums)})).values())
        return parts[0]

    def _convert(self, m: Module, pipeline: Pipeline, register: Value, aside: data.View, too_long: Value) -> data.View:
        """Add the stages from the register to the nearest word."""
        format, branch = self.format, pipeline.branch()
        # The magnitude, limb by limb: to negate one is to invert it, and to add one if all below are zero.
        limbs = [register[start : start + _LIMB] for start in range(0, self._bits, _LIMB)]
        stage = branch.stage(register=register, negative=register[-1], some=Cat(limb.any() for limb in limbs))
        magnitude = []
        for index in range(self._limbs):
            limb = stage.register[index * _LIMB : (index + 1) * _LIMB]
            turned = Signal(len(limb))
            m.d.comb += turned.eq(Mux(stage.negative, ~limb, limb) + (stage.negative & ~stage.some[:index].any()))
            magnitude.append(turned)
        stage = branch.stage(magnitude=Cat(*magnitude)[:-1], negative=stage.negative)
        stage = self._normalizer.stages(m, branch, value=stage.magnitude, negative=stage.negative)
        stage = self._logarithm.stages(
            m,
            branch,
            significand=stage.value[:-1],
            distance=stage.distance,
            negative=stage.negative,
            zero=~stage.found,
        )
        # The highest bit of the register stands for this power of two.
        highest = self._bits - 2 - self._frac_bits
        reach = max(abs(highest) + self._bits, 1 << format.int_bits)
        field = Signal(signed(bits_for(reach) + 2 + format.frac_bits))
        whole = Signal(signed(bits_for(reach) + 2))
        m.d.comb += [
            whole.eq((highest + (1 << (format.int_bits - 1))) - stage.distance),
            field.eq((whole << format.frac_bits) + stage.log),
        ]
        stage = branch.stage(field=field, negative=stage.negative, zero=stage.zero)

        kept = pipeline.branch().delay(branch.depth, aside=aside, too_long=too_long)
        nan, up, down = kept.aside.nan, kept.aside.up, kept.aside.down
        fitted = fit_in_stages(
            m,
            branch,
            format,
            field=stage.field,
            sign=Mux(up | down, down, stage.negative),
            zero=stage.zero & ~up & ~down,
            infinite=(up | down) & ~nan & ~(up & down),
            nan=nan | (up & down),
            invalid=up & down & ~nan,
        )
        kept = pipeline.branch().delay(branch.depth, flags=aside.flags, too_long=too_long)
        result = Signal(term_layout(format))
        m.d.comb += [result.word.eq(fitted.word), result.flags.eq(either_flags(m, fitted.flags, kept.flags))]
        return branch.stage(result=spoil(m, format, result, kept.too_long)).result


def _set_aside(m: Module, format: LNSFormat, products: list[SimpleNamespace]) -> Value:
    """Return what of products does not go into the register."""
    aside = Signal(_ASIDE)
    kinds = [classify(format, product.word) for product in products]
    infinite = Cat(kind.infinite for kind in kinds)
    negative = Cat(product.word.sign for product in products)
    m.d.comb += [
        aside.flags.eq(either_flags(m, *(product.flags for product in products))),
        aside.nan.eq(Cat(kind.nan for kind in kinds).any()),
        aside.up.eq((infinite & ~negative).any()),
        aside.down.eq((infinite & negative).any()),
    ]
    return aside.as_value()


@sum_datapath_of.register
def _(accumulator: LinearAccumulator, format: LNSFormat, **parameters) -> SumDatapath:
    return LinearSum(format, **parameters)
