"""Sums of LNS additions in a balanced tree: within a beat at once, and over beats as its levels fill up."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.memory import Memory

from xlnstorch import LogAccumulator
from xlnstorch.formats import LNSFormat

from ..pipeline import Pipeline, carry
from .datapath import SumDatapath, power_of_two_between, sum_datapath_of
from .sequential import SequentialSum
from .steps import LogSteps, gather, spoil

__all__ = ["TreeSum"]

_DEFAULT_BEATS, _MAX_BEATS = 16, 1 << 16
_PAIRING_LATENCY = 2  # a read of the memory, and a register behind it


class TreeSum(SumDatapath):
    """A tree of adders over the lanes; then for each level over beats one adder, and a memory where sums wait for
    their neighbours.

    The first of two sums of a channel waits, the second one is added to it, and an odd last one moves up a level. All
    is feed-forward, so beats follow each other in whatever channels. `lanes` must be a power of two, so that a beat is
    a tree of its own: a last beat filled up with zeros leaves it the same, since adding zero changes nothing. The sum
    of a vector of more than `beats` beats, 16 by default, is zero, or NaN, and invalid; others do not suffer.
    """

    spacing = 1

    def _set_up(self, beats: int | None) -> None:
        if self.lanes & (self.lanes - 1):
            raise ValueError(f"lanes of a tree must be a power of two, not {self.lanes}")
        self.beats = power_of_two_between("beats", _DEFAULT_BEATS if beats is None else beats, _MAX_BEATS)
        self._levels = self.beats.bit_length() - 1
        self._steps = steps = LogSteps(self.format, rom=self.rom)
        within = (self.lanes.bit_length() - 1) * steps.addition_latency
        over = self._levels * (_PAIRING_LATENCY + steps.addition_latency)
        self.latency = self.lead + steps.product_latency + within + over + steps.rounding_latency + 1

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
        level = [[steps.multiply(m, pipeline, a, b) for a, b in row] for row in rows]
        control = pipeline.delay(self.lead + steps.product_latency, channel=channel, last=last, when=when)
        while len(level[0]) > 1:
            level = [[steps.add(m, pipeline, *pair) for pair in zip(row[::2], row[1::2], strict=True)] for row in level]
            control = pipeline.delay(steps.addition_latency, **vars(control))
        sums = gather(m, [total for (total,) in level])
        for _ in range(self._levels):
            control, sums = self._pair(m, pipeline, control, sums)
        sums = gather(m, [steps.round(m, pipeline, sums[row]) for row in range(len(rows))])
        control = pipeline.delay(steps.rounding_latency, **vars(control))

        # A vector of which another sum has got here was too long.
        several = Signal(self.channels)
        beyond = several.bit_select(control.channel, 1)
        with m.If(pipeline.advance & pipeline.valid & control.when):
            m.d.sync += several.bit_select(control.channel, 1).eq(~control.last)
        checked = gather(m, [spoil(m, self.format, sums[row], beyond) for row in range(len(rows))])
        stage = pipeline.stage(sums=checked, channel=control.channel, when=control.when & control.last)
        return SimpleNamespace(**vars(stage), accept=1)

    def _pair(
        self, m: Module, pipeline: Pipeline, control: SimpleNamespace, sums: data.View
    ) -> tuple[SimpleNamespace, data.View]:
        """Add a level over beats: of two sums of a channel the first one waits in a memory for the second one."""
        steps, layout = self._steps, sums.shape()
        m.submodules += (memory := Memory(shape=layout, depth=self.channels, init=[]))
        read, write = memory.read_port(), memory.write_port()
        occupied = Signal(self.channels)
        second = occupied.bit_select(control.channel, 1)
        waits = ~second & ~control.last
        here = pipeline.advance & pipeline.valid & control.when
        with m.If(here):
            m.d.sync += occupied.bit_select(control.channel, 1).eq(waits)
        m.d.comb += [
            write.addr.eq(control.channel),
            write.data.eq(sums),
            write.en.eq(here & waits),
            read.addr.eq(control.channel),
            read.en.eq(pipeline.advance),
        ]
        moving = {"channel": control.channel, "last": control.last, "when": control.when & ~waits}
        stage = pipeline.stage(**moving, second=second, sums=sums)
        first = Signal(layout)
        m.d.comb += first.as_value().eq(Mux(stage.second, read.data.as_value(), 0))
        stage = pipeline.stage(**vars(stage), first=first)
        total = gather(m, [steps.add(m, pipeline, stage.first[row], stage.sums[row]) for row in range(layout.length)])
        moving = carry(stage, moving)
        return pipeline.delay(steps.addition_latency, **moving), total


@sum_datapath_of.register
def _(accumulator: LogAccumulator, format: LNSFormat, **parameters) -> SumDatapath:
    return (TreeSum if accumulator.order == "tree" else SequentialSum)(format, **parameters)
