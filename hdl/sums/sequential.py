"""Sums of LNS additions from left to right: a chain of adders, and a memory of running sums."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.memory import Memory

from ..pipeline import Pipeline
from .datapath import SumDatapath, power_of_two_between
from .steps import LogSteps, gather, term_layout

__all__ = ["SequentialSum"]

_READ_LATENCY = 2  # of the memory: a block RAM is slow to its output, so that a register follows
_MAX_BEATS = 1 << 20  # that of sums with a limit


class SequentialSum(SumDatapath):
    """An adder for each lane, behind each other: the running sum comes in at the first, and leaves the last one.

    A channel's running sum is in a memory between its beats. A beat whose channel has one on its way is not accepted,
    so `spacing` is the latency of all adders, and of the product, during which the memory is read. Vectors have any
    length, whatever `beats` is.
    """

    def _set_up(self, beats: int | None) -> None:
        if beats is not None:
            power_of_two_between("beats", beats, _MAX_BEATS)
        self.beats = None
        self._steps = steps = LogSteps(self.format, rom=self.rom)
        # The product and the running sum meet at the first adder; a product takes longer than a read.
        self._meeting = self.lead + steps.product_latency
        chain = self._meeting + self.lanes * steps.addition_latency
        self.spacing = chain + 1
        self.latency = chain + steps.rounding_latency

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
        steps = self._steps

        # 1. Note of each channel whether its running sum is on its way.
        away = Signal(self.channels)
        accept = ~away.bit_select(channel, 1)
        with m.If(pipeline.advance & pipeline.valid & when):
            m.d.sync += away.bit_select(channel, 1).eq(~last)
        first = self._begin(m, pipeline, channel=channel, last=last, when=when)
        control = SimpleNamespace(channel=channel, last=last, when=when, first=first)

        # 2. The products, and the running sums so far; the first term is added to zero, which changes nothing.
        products = [[steps.multiply(m, pipeline, a, b) for a, b in row] for row in rows]
        control = pipeline.delay(self._meeting - _READ_LATENCY, **vars(control))
        layout = data.ArrayLayout(term_layout(steps.wide), len(rows))
        m.submodules += (memory := Memory(shape=layout, depth=self.channels, init=[]))
        read, write = memory.read_port(), memory.write_port()
        m.d.comb += [read.addr.eq(control.channel), read.en.eq(pipeline.advance)]
        control = pipeline.stage(**vars(control))
        before = Signal(layout)
        m.d.comb += before.as_value().eq(Mux(control.first, 0, read.data.as_value()))
        control = pipeline.stage(**vars(control), sums=before)

        # 3. One addition after the other.
        sums = [control.sums[row] for row in range(len(rows))]
        del control.sums
        for lane in range(self.lanes):
            terms = gather(m, [row[lane] for row in products])
            waiting = pipeline.branch().delay(lane * steps.addition_latency, terms=terms)
            sums = [steps.add(m, pipeline, total, waiting.terms[row]) for row, total in enumerate(sums)]
            control = pipeline.delay(steps.addition_latency, **vars(control))

        # 4. Back to the memory, or out.
        kept = pipeline.advance & pipeline.valid & control.when & ~control.last
        m.d.comb += [write.addr.eq(control.channel), write.en.eq(kept), write.data.eq(gather(m, sums))]
        with m.If(kept):
            m.d.sync += away.bit_select(control.channel, 1).eq(0)
        sums = gather(m, [steps.round(m, pipeline, total) for total in sums])
        control = pipeline.delay(steps.rounding_latency, **vars(control))
        return SimpleNamespace(sums=sums, channel=control.channel, when=control.when & control.last, accept=accept)
