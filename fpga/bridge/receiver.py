"""Frames from a line: what is whole waits in a buffer, what is not is said once."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .protocol import CRC, MAX_BODY, START, ErrorKind
from .uart import UARTReceiver

__all__ = ["FrameBuffer", "FrameReceiver"]

# A frame of which no more bytes come for so many seconds, or up to twice as many, is cut. A USB adapter may make bytes
# of a host wait for some 16 ms.
_TIMEOUT = 0.03
_CRC_BYTES = 2


class FrameBuffer(wiring.Component):
    """A ring of bytes in block RAM: those written can be read once they are committed, and taken back until then.

    Parameters
    ----------
    depth : int
        A power of two; holds one byte less.

    Members
    -------
    data, write : ``In(8)``, ``In(1)``
        A byte to add; not while it is full.
    full : ``Out(1)``
    commit, revert : ``In(1)``
        Let what was added be read, or take it back; not in a clock with `write`.
    o : ``Out(stream.Signature(8))``
        The bytes committed, one a clock.
    """

    def __init__(self, depth: int):
        self._depth = depth
        ports = {"data": In(8), "write": In(1), "full": Out(1), "commit": In(1), "revert": In(1)}
        super().__init__({**ports, "o": Out(stream.Signature(8))})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.memory = ring = memory.Memory(shape=8, depth=self._depth, init=[], attrs={"ram_style": "block"})
        writer, reader = ring.write_port(), ring.read_port()
        start, end, committed, following = (Signal(range(self._depth)) for _ in range(4))
        m.d.comb += [
            writer.addr.eq(end),
            writer.data.eq(self.data),
            writer.en.eq(self.write),
            self.full.eq((end + 1)[: len(end)] == start),
            # The byte that is offered next is read one clock earlier.
            following.eq(start + (self.o.valid & self.o.ready)),
            reader.addr.eq(following),
            self.o.payload.eq(reader.data),
        ]
        m.d.sync += [start.eq(following), self.o.valid.eq(following != committed)]
        with m.If(self.write):
            m.d.sync += end.eq(end + 1)
        with m.Elif(self.commit):
            m.d.sync += committed.eq(end)
        with m.Elif(self.revert):
            m.d.sync += end.eq(committed)
        return m


class FrameReceiver(wiring.Component):
    """A line's frames, each as the length of its body and the body, and errors.

    After an error it looks for the next start byte. A frame of which no byte comes for 30 to 60 ms is cut.

    Parameters
    ----------
    divisor : int
        Clocks of a bit.
    clock_hz : float
    depth : int
        Of the buffer.

    Members
    -------
    rx : ``In(1)``
        The line, asynchronous.
    o : ``Out(stream.Signature(8))``
        Bytes of whole frames, with their lengths.
    error : ``Out(stream.Signature(...))``
        The first ErrorKind since the last one was taken.
    """

    def __init__(self, *, divisor: int, clock_hz: float, depth: int):
        self._divisor, self._depth = divisor, depth
        self._patience = ceil_log2(round(clock_hz * _TIMEOUT))
        errors = stream.Signature(range(len(ErrorKind) + 1))
        super().__init__({"rx": In(1, init=1), "o": Out(stream.Signature(8)), "error": Out(errors)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.uart = uart = UARTReceiver(self._divisor)
        m.submodules.buffer = buffer = FrameBuffer(self._depth)
        m.submodules.crc = crc = CRC(data_width=8).create()
        m.d.comb += [uart.rx.eq(self.rx), crc.data.eq(uart.data), buffer.data.eq(uart.data)]
        m.d.comb += [
            self.o.payload.eq(buffer.o.payload),
            self.o.valid.eq(buffer.o.valid),
            buffer.o.ready.eq(self.o.ready),
        ]

        left, idle = Signal(range(MAX_BODY + _CRC_BYTES + 1)), Signal(self._patience + 1)
        overrun, said = Signal(), Signal()
        error = Signal(range(len(ErrorKind) + 1))
        m.d.sync += idle.eq(Mux(uart.valid, 0, idle + 1))
        silent = idle[-1]

        def give_up():
            with m.If(uart.broken | silent):
                m.d.comb += [error.eq(Mux(uart.broken, ErrorKind.GARBAGE, ErrorKind.CUT)), buffer.revert.eq(1)]
                m.next = "start"

        with m.FSM():
            with m.State("start"):
                m.d.comb += crc.start.eq(1)
                m.d.sync += overrun.eq(0)
                with m.If(uart.valid & (uart.data == START)):
                    m.d.sync += said.eq(0)
                    m.next = "length"
                with m.Elif(uart.valid | uart.broken):  # of garbage, however long, one error
                    m.d.sync += said.eq(1)
                    m.d.comb += error.eq(Mux(said, 0, ErrorKind.GARBAGE))
                with m.Elif(silent):
                    m.d.sync += said.eq(0)
            with m.State("length"):
                m.d.comb += crc.valid.eq(uart.valid)
                m.d.sync += left.eq(uart.data + _CRC_BYTES)
                with m.If(uart.valid):
                    m.next = "rest"
                    with m.If(uart.data < 2):
                        m.d.comb += error.eq(ErrorKind.LENGTH)
                        m.next = "start"
                    with m.Elif(buffer.full):
                        m.d.sync += overrun.eq(1)
                    with m.Else():
                        m.d.comb += buffer.write.eq(1)
                give_up()
            with m.State("rest"):
                m.d.comb += crc.valid.eq(uart.valid)
                with m.If(uart.valid):
                    m.d.sync += left.eq(left - 1)
                    with m.If(left == 1):
                        m.next = "end"
                    with m.If(left > _CRC_BYTES):
                        m.d.comb += buffer.write.eq(~buffer.full)
                        m.d.sync += overrun.eq(overrun | buffer.full)
                give_up()
            with m.State("end"):
                m.next = "start"
                with m.If(~crc.match_detected):
                    m.d.comb += error.eq(ErrorKind.CRC)
                with m.Elif(overrun):
                    m.d.comb += error.eq(ErrorKind.OVERRUN)
                with m.Else():
                    m.d.comb += buffer.commit.eq(1)
                m.d.comb += buffer.revert.eq(~buffer.commit)

        with m.If(self.error.valid & self.error.ready):
            m.d.sync += self.error.valid.eq(0)
        with m.If((error != 0) & ~self.error.valid):
            m.d.sync += [self.error.valid.eq(1), self.error.payload.eq(error)]
        return m
