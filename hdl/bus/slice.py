"""A register slice: cuts every path between two ends of a stream, at full rate."""

from __future__ import annotations

from amaranth.hdl import Module, ShapeLike, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["RegisterSlice"]


class RegisterSlice(wiring.Component):
    """A queue of two payloads whose outputs, ``i.ready`` included, are registers.

    One payload a clock; each comes out one clock after it was taken, or later if it is not asked for. A reset empties
    it; ``i.ready`` is low in a reset and in the clock after it.

    Parameters
    ----------
    shape : ShapeLike
        Of the payload.

    Members
    -------
    i : ``In(stream.Signature(shape))``
    o : ``Out(stream.Signature(shape))``
    """

    def __init__(self, shape: ShapeLike):
        self._shape = shape
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform) -> Module:
        m = Module()
        front = Signal(self._shape, reset_less=True)
        spare = Signal(self._shape, reset_less=True)
        front_valid, spare_valid, ready = Signal(), Signal(), Signal()
        m.d.comb += [self.i.ready.eq(ready), self.o.valid.eq(front_valid), self.o.payload.eq(front)]
        taken, leaves = Signal(), Signal()
        m.d.comb += [taken.eq(self.i.valid & ready), leaves.eq(self.o.ready | ~front_valid)]
        with m.If(leaves):
            # The spare register is full only while nothing is taken, so the two never compete.
            with m.If(spare_valid):
                m.d.sync += front.eq(spare)
            with m.Else():
                m.d.sync += front.eq(self.i.payload)
            m.d.sync += [front_valid.eq(spare_valid | taken), spare_valid.eq(0), ready.eq(1)]
        with m.Else():
            with m.If(~spare_valid):
                m.d.sync += [spare.eq(self.i.payload), spare_valid.eq(taken)]
            m.d.sync += ready.eq(~(spare_valid | taken))
        return m
