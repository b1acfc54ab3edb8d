"""What sends a frame's operands into a unit and takes its results, byte by byte; or tests it at its full rate."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.unit import Unit
from sim.payloads import width

from .protocol import Status, bytes_of
from .selftest import TEST_BITS, next_byte, next_signature, seed_size

__all__ = ["UnitDriver"]


class UnitDriver(wiring.Component):
    """A unit between bytes.

    A run takes its operands from `i`, each payload in whole bytes, the lowest first, and gives results likewise. A test
    takes one payload, makes 65,536 of it, one a clock, and gives a signature of the results; what either is,
    :mod:`~fpga.bridge.selftest` says.

    Parameters
    ----------
    unit : Unit

    Members
    -------
    start : ``In(1)``
        Begin, in this clock, a run or a test.
    left : ``In(8)``
        How many bytes are still to be taken from `i` for it, from the clock after `start` on.
    fresh, test : ``In(1)``
        Whether the unit is reset before; whether it is a test.
    i : ``In(stream.Signature(8))``
    more : ``In(1)``
        Whether more bytes of results are wanted, besides those at `o`. Where there are none, they are zeros.
    o : ``Out(stream.Signature(8))``
    done : ``Out(1)``
        All operands were taken, and the unit has come to rest.
    status : ``Out(3)``
        A :class:`~fpga.bridge.protocol.Status`.
    """

    def __init__(self, unit: Unit):
        self._unit = unit
        ports = {"start": In(1), "left": In(8), "fresh": In(1), "test": In(1), "i": In(stream.Signature(8))}
        super().__init__(
            {**ports, "more": In(1), "o": Out(stream.Signature(8)), "done": Out(1), "status": Out(len(Status))}
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        reset = Signal()
        m.submodules.unit = ResetInserter(reset)(self._unit)
        m.d.comb += reset.eq(self.start & self.fresh)
        testing, missing, surplus, incomplete = Signal(), Signal(), Signal(), Signal()
        m.d.comb += self.status.eq(
            Cat(
                {Status.MISSING: missing, Status.SURPLUS: surplus, Status.INCOMPLETE: incomplete}[bit] for bit in Status
            )
        )
        with m.If(self.start):
            m.d.sync += [testing.eq(self.test), missing.eq(0), surplus.eq(0), incomplete.eq(0)]
        # Whether nothing has happened for so long that nothing will.
        quiet = Signal(range(self._unit.latency + 16))
        rests = Signal()
        m.d.comb += rests.eq(quiet.all())
        busy, moves = self._feed(m, rests, testing, incomplete)
        self._drain(m, rests & ~busy, testing, missing, surplus)
        with m.If(self.start | moves | self._unit.o.valid | ~self._unit.o.ready):
            m.d.sync += quiet.eq(0)
        with m.Elif(~rests):
            m.d.sync += quiet.eq(quiet + 1)
        m.d.comb += self.done.eq(rests & ~busy & ~testing & ~self.o.valid)
        return m

    def _feed(self, m: Module, rests: Signal, testing: Signal, incomplete: Signal) -> tuple[Signal, Signal]:
        """Add what offers operands; return whether there are more of them, and whether they move."""
        unit = self._unit
        size = bytes_of(width(unit.i.payload.shape()))
        # The last bytes that came; of a test, those of its sequence.
        operands = Signal(8 * seed_size(unit))
        place, made = Signal(range(size)), Signal(TEST_BITS)
        moves, busy = Signal(), Signal()
        m.d.comb += unit.i.payload.as_value().eq(operands[-8 * size :])
        if len(unit.operations) > 1:
            op = Signal.like(unit.i.payload.op)
            with m.If(testing & unit.i.valid):
                m.d.comb += unit.i.payload.op.eq(op)
        with m.FSM() as fsm:
            with m.State("idle"):
                m.d.sync += place.eq(0)
                with m.If(self.start):
                    m.next = "fill"
            with m.State("fill"):
                m.d.comb += [self.i.ready.eq(self.left != 0), moves.eq(1)]
                with m.If(self.left == 0):
                    m.next = "idle"
                    m.d.sync += incomplete.eq(~testing & (place != 0))
                    with m.If(testing):
                        m.next = "test"
                with m.Elif(self.i.valid):
                    m.d.sync += [operands.eq(Cat(operands[8:], self.i.payload)), place.eq(place + 1)]
                    with m.If(place == size - 1):
                        m.d.sync += place.eq(0)
                        with m.If(~testing):
                            m.next = "offer"
                if len(unit.operations) > 1:
                    m.d.sync += op.eq(unit.i.payload.op)
            with m.State("offer"):
                m.d.comb += unit.i.valid.eq(1)
                with m.If(unit.i.ready):
                    m.d.comb += moves.eq(1)
                    m.next = "fill"
                with m.Elif(rests):
                    m.next = "skip"
            with m.State("test"):
                m.d.comb += unit.i.valid.eq(1)
                with m.If(unit.i.ready):
                    m.d.comb += moves.eq(1)
                    m.d.sync += [operands.eq(Cat(operands[8:], next_byte(operands))), made.eq(made + 1)]
                    with m.If(made.all()):
                        m.next = "idle"
                with m.Elif(rests):
                    m.d.sync += made.eq(0)
                    m.next = "idle"
            with m.State("skip"):
                m.d.comb += self.i.ready.eq(self.left != 0)
                with m.If(self.left == 0):
                    m.next = "idle"
        m.d.comb += busy.eq(~fsm.ongoing("idle"))
        return busy, moves

    def _drain(self, m: Module, ended: Signal, testing: Signal, missing: Signal, surplus: Signal) -> None:
        """Add what takes results."""
        unit = self._unit
        size = bytes_of(width(unit.o.payload.shape()))
        results, left = Signal(8 * size), Signal(range(size + 1))
        m.d.comb += [unit.o.ready.eq(left == 0), self.o.valid.eq(left != 0), self.o.payload.eq(results)]
        with m.If(left != 0):
            with m.If(self.o.ready):
                m.d.sync += [results.eq(results >> 8), left.eq(left - 1)]
        with m.Elif(testing):
            with m.If(self.start):
                m.d.sync += results.eq(0)
            with m.Elif(unit.o.valid):
                m.d.sync += results.eq(next_signature(results, unit.o.payload.as_value()))
            with m.Elif(ended):
                m.d.sync += [left.eq(size), testing.eq(0)]
        with m.Elif(unit.o.valid & self.more):
            m.d.sync += [results.eq(unit.o.payload), left.eq(size)]
        with m.Elif(unit.o.valid):
            m.d.sync += surplus.eq(1)
        with m.Elif(ended & self.more):
            m.d.sync += [results.eq(0), left.eq(size), missing.eq(1)]
