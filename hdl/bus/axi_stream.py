"""AXI4-Stream around any unit."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from ..unit import Unit
from .clocking import AXI_CLOCKING, on_axi_clock
from .fields import MemoryLayout
from .slice import RegisterSlice

__all__ = ["AxiStream"]

_LAST = "last"


class AxiStream(wiring.Component):
    """A unit between two AXI4-Stream interfaces, one transfer for each payload.

    ``tdata`` is the payload as a C struct of integers on a little-endian machine, as
    :class:`~hdl.bus.fields.MemoryLayout` says: each field in the fewest of 1, 2, 4, 8 … bytes that hold it, at a
    multiple of its size, and the whole padded to a power of two of bytes. Padding is ignored at the input; at the
    output it is zero, or the sign of a signed field.

    ``tlast`` travels with its payload, so a packet of n payloads gives a packet of n results. A unit that takes several
    payloads for a result says with its operand ``last`` where they end: that field is ``tlast`` then, and not in
    ``tdata``, and a packet gives one result, with ``tlast`` set; or with the result's own ``last``, if it has one.

    All outputs are registers, ``s_axis_tready`` included, so that no path leads through from port to port. Latency is
    the unit's and 2 clocks; one transfer a clock.

    Parameters
    ----------
    unit : Unit
        Without ports of its own beside ``i`` and ``o``; not to be used elsewhere.

    Members
    -------
    aclk, aresetn : ``In(1)``
        Clock, and reset: active low, synchronous. ``s_axis_tready`` and ``m_axis_tvalid`` are low from the first clock
        of a reset on, and what was inside is lost.
    s_axis_tdata, s_axis_tvalid, s_axis_tready, s_axis_tlast
        The operands.
    m_axis_tdata, m_axis_tvalid, m_axis_tready, m_axis_tlast
        The results.

    Raises
    ------
    TypeError
        `unit` is not a Unit.
    """

    bus = "axi-stream"

    def __init__(self, unit: Unit):
        if not isinstance(unit, Unit):
            raise TypeError(f"unit must be a Unit such as Multiply(format=lns16), not {unit!r}")
        self.unit = unit
        operands, results = unit.i.payload.shape(), unit.o.payload.shape()
        self._ends_packets = _LAST in operands.members
        self._says_last = _LAST in results.members
        #: Where the fields lie in ``s_axis_tdata`` and ``m_axis_tdata``.
        self.operands = MemoryLayout(operands, without=_LAST if self._ends_packets else None)
        self.results = MemoryLayout(results, without=_LAST if self._says_last else None)
        super().__init__(
            AXI_CLOCKING
            | {
                "s_axis_tdata": In(8 * self.operands.bytes),
                "s_axis_tvalid": In(1),
                "s_axis_tready": Out(1),
                "s_axis_tlast": In(1),
                "m_axis_tdata": Out(8 * self.results.bytes),
                "m_axis_tvalid": Out(1),
                "m_axis_tready": In(1),
                "m_axis_tlast": Out(1),
            }
        )

    @property
    def latency(self) -> int:
        """Clocks from the transfer of operands to that of the result, while nothing stalls."""
        return self.unit.latency + 2

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        m.submodules.taking = taking = RegisterSlice(_transfer(unit.i.payload.shape()))
        m.submodules.giving = giving = RegisterSlice(_transfer(unit.o.payload.shape()))

        m.d.comb += [
            *self.operands.load(self.s_axis_tdata, taking.i.payload.payload),
            taking.i.payload.last.eq(self.s_axis_tlast),
            taking.i.valid.eq(self.s_axis_tvalid),
            self.s_axis_tready.eq(taking.i.ready),
            unit.i.payload.as_value().eq(taking.o.payload.payload),
            giving.i.payload.payload.eq(unit.o.payload.as_value()),
            *self.results.store(giving.o.payload.payload, self.m_axis_tdata),
            self.m_axis_tlast.eq(giving.o.payload.last),
            self.m_axis_tvalid.eq(giving.o.valid),
            giving.o.ready.eq(self.m_axis_tready),
        ]
        if self._ends_packets:
            m.d.comb += [
                unit.i.payload.last.eq(taking.o.payload.last),
                unit.i.valid.eq(taking.o.valid),
                taking.o.ready.eq(unit.i.ready),
                giving.i.payload.last.eq(unit.o.payload.last if self._says_last else 1),
                giving.i.valid.eq(unit.o.valid),
                unit.o.ready.eq(giving.i.ready),
            ]
        else:
            # One more than the unit holds: the queue still has the bit of a result that leaves when the next comes.
            m.submodules.lasts = lasts = SyncFIFO(width=1, depth=unit.latency + 1)
            m.d.comb += [
                unit.i.valid.eq(taking.o.valid & lasts.w_rdy),
                taking.o.ready.eq(unit.i.ready & lasts.w_rdy),
                lasts.w_en.eq(taking.o.valid & unit.i.ready),
                lasts.w_data.eq(taking.o.payload.last),
                giving.i.payload.last.eq(lasts.r_data),
                giving.i.valid.eq(unit.o.valid),
                unit.o.ready.eq(giving.i.ready),
                lasts.r_en.eq(unit.o.valid & giving.i.ready),
            ]
        return on_axi_clock(m, self.aclk, self.aresetn)


def _transfer(payload: data.Layout) -> data.StructLayout:
    return data.StructLayout({"payload": payload.size, _LAST: 1})
