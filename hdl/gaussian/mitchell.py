"""Gaussian logarithms by shifts and adds: the gates of :class:`~xlnstorch.adders.Mitchell`."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.utils import ceil_log2

from xlnstorch.adders import Mitchell
from xlnstorch.formats import LNSFormat

from ..pipeline import Pipeline, carry
from .datapath import GaussianDatapath, datapath_of

__all__ = ["MitchellDatapath"]


class MitchellDatapath(GaussianDatapath):
    """Shifts and adds: a shift of x up to its leading one near the singularity, a shift of the result down to its place
    elsewhere, and between them the adders that both share.

    Latency 4 clocks, 1 more with corrections, and 1 more to round where a format has less than 12 fraction bits. No
    memory and no multiplier.

    Measured of :class:`~hdl.AddSubtract` with Mitchell() (``lns adders``; Yosys 0.70, nextpnr 0.11.1, seed 1): lns16 on
    an iCE40 HX8K 420 LUT4, 428 registers and 151 MHz, on an ECP5-25k 440, 436 and 181 MHz; lns32 932, 767 and 116 MHz,
    and 896, 769 and 132 MHz. With one correction lns16 takes 6 % fewer LUT4 on an iCE40, with none 36 %.
    """

    def __init__(self, format: LNSFormat, *, rom: str = "block"):
        super().__init__(format, rom=rom)
        self._adder = format.adder
        self._bits = self._adder.working_bits(format.frac_bits)
        self._guard = self._bits - format.frac_bits

    @property
    def latency(self) -> int:
        return 4 + (self._adder.corrections > 0) + (self._guard > 0)

    def stages(
        self, m: Module, pipeline: Pipeline, *, d: Value, subtract: Value, silent: Value, **along: Value
    ) -> SimpleNamespace:
        bits, frac_bits = self._bits, self.format.frac_bits
        one = 1 << bits

        def stage(before: SimpleNamespace, **values: Value) -> SimpleNamespace:
            handed_on = carry(before, ("subtract", "silent", *along))
            return pipeline.stage(**{**handed_on, **values})

        # 1. What the argument p is the difference of; near the singularity, the upper half of the shift of x.
        fraction, whole = Cat(Const(0, self._guard), d[:frac_bits]), d[frac_bits:]
        minuend, subtrahend = self._argument(m, fraction, whole, subtract)
        steps = [1 << n for n in reversed(range(ceil_log2(max(1, frac_bits))))]
        half = len(steps) // 2
        normal, zeros = _normalize(m, fraction, steps[:half])
        constant = Mux(fraction[-1], *self._adder.constants(bits))
        first = stage(
            SimpleNamespace(subtract=subtract, silent=silent, **along),
            minuend=minuend,
            subtrahend=subtrahend,
            near=subtract & (whole == 0),
            normal=normal,
            zeros=zeros,
            above=one + constant + (fraction >> 1),
        )

        # 2. The argument, or what follows the leading one of x; either is the r that the Mitchell step is made of.
        p = Signal(len(minuend))
        m.d.comb += p.eq(first.minuend - first.subtrahend)
        normal, zeros = _normalize(m, first.normal, steps[half:])
        shift_bits = min((frac_bits + 2).bit_length(), len(whole))
        shift, beyond = p[bits : bits + shift_bits], p[bits + shift_bits :]
        second = stage(
            first,
            r=Mux(first.near, normal << 1, p)[:bits],
            shift=shift,
            near=first.near,
            above=first.above,
            zeros=Cat(zeros, first.zeros),
            silent=first.silent | (~first.near & beyond.any()),
        )

        # 3. The step: a line that falls from 2, or from k + C + x/2; and the triangles that bend it.
        line = Signal(bits + 1 + max(1, len(steps)))
        m.d.comb += line.eq(Mux(second.near, second.above + (second.zeros << bits), 2 * one) - second.r)
        third = stage(second, value=line, waves=self._waves(second.r), shift=second.shift, near=second.near)
        if self._adder.corrections:
            bent = Signal(len(line))
            m.d.comb += bent.eq(third.value - ((third.waves + (third.waves << 1)) >> 5))
            third = stage(third, value=bent, shift=third.shift, near=third.near)

        # 4. Down to its place, and rounded if there is anything below the last one.
        placed = Mux(third.near, third.value, (third.value >> 1) >> third.shift)
        fourth = stage(third, gaussian=Mux(third.silent, 0, placed))
        if self._guard:
            fourth = stage(fourth, gaussian=fourth.gaussian[self._guard :] + fourth.gaussian[self._guard - 1])
        return fourth

    def _argument(self, m: Module, fraction: Value, whole: Value, subtract: Value) -> tuple[Value, Value]:
        """Return what p is the difference of; no more than one adder deep, so that another fits behind a register."""
        bits = self._bits
        if not self._adder.corrections:
            return Cat(fraction, whole), subtract << bits
        minuend = Signal(len(fraction) + len(whole))
        m.d.comb += minuend.eq(Cat(fraction, whole) - Mux(subtract, 31 << (bits - 6), 0))
        # Mitchell's 2**-x, less one unit: its fraction falls as that of x rises.
        power = Signal(bits)
        with m.Switch(whole):
            for n in range(min(4, 1 << len(whole))):
                with m.Case(n):
                    m.d.comb += power.eq(Cat(~fraction, Const(1, 1)) >> (n + 1))
            with m.Default():
                m.d.comb += power.eq((1 << (bits - 4)) - 1)
        return minuend, Mux(subtract, power, ~power[1:])

    def _waves(self, r: Value) -> Value:
        """Return the triangles, in units of 3/32."""
        if not self._adder.corrections:
            return Const(0)
        waves = _triangle(r) << 1
        return waves + _triangle(r[:-1]) if self._adder.corrections == 2 else waves


@datapath_of.register
def _(adder: Mitchell, format: LNSFormat, *, rom: str = "block") -> MitchellDatapath:
    return MitchellDatapath(format, rom=rom)


def _triangle(r: Value) -> Value:
    return r[:-1] ^ r[-1].replicate(len(r) - 1)


def _normalize(m: Module, value: Value, steps: Sequence[int]) -> tuple[Value, Value]:
    """Shift a value up by each step that leaves no one behind; return it, and the sum of these steps over the last."""
    taken = []
    for step in steps:
        shifts = Signal()
        shifted = Signal(len(value))
        m.d.comb += [shifts.eq(value[-step:] == 0), shifted.eq(Mux(shifts, value << step, value))]
        value = shifted
        taken.insert(0, shifts)
    return value, Cat(*taken)
