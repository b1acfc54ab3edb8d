"""The bridge: reads requests from a serial line, has the unit do them, and answers."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from hdl.memories import rom_attributes
from hdl.unit import Unit
from sim.payloads import width

from .driver import UnitDriver
from .protocol import (
    CRC,
    DIGEST_BYTES,
    MAX_DATA,
    REPLY,
    START,
    Command,
    ErrorKind,
    Identity,
    bytes_of,
)
from .receiver import FrameReceiver
from .uart import UARTTransmitter, check_divisor

__all__ = ["Bridge"]


class Bridge(wiring.Component):
    """A unit at the end of a serial line.

    Requests are answered one after the other, in their order, as ``docs/board.md`` says; results leave while further
    operands come. Nothing that a line can bring makes it hang: a frame that is not whole is dropped with an error
    reply, and so is one for which the buffer has no room.

    Parameters
    ----------
    unit : Unit
        Not to be used elsewhere. Its payloads have at most 252 bytes.
    digest : bytes, of length 16
        The identity of the build.
    clock_hz : float
        The frequency of the domain ``sync``.
    baud : int
        At most a fourth of it.
    buffer : int
        Bytes of frames that wait, a power of two from 512 on.

    Members
    -------
    rx : ``In(1)``
        The line from the host; asynchronous.
    tx : ``Out(1)``
        The line to the host.

    Attributes
    ----------
    identity : Identity
        What it says of itself.

    Raises
    ------
    TypeError, ValueError
        A parameter is not as above; the message says why.
    """

    def __init__(self, unit: Unit, *, digest: bytes, clock_hz: float, baud: int = 1_000_000, buffer: int = 2048):
        if not isinstance(unit, Unit):
            raise TypeError(f"unit must be a Unit such as Multiply(format=lns16), not {unit!r}")
        if not isinstance(digest, bytes) or len(digest) != DIGEST_BYTES:
            raise ValueError(f"digest must be {DIGEST_BYTES} bytes, not {digest!r}")
        if not isinstance(buffer, int) or not 512 <= buffer <= 32768 or buffer & (buffer - 1):
            raise ValueError(f"buffer must be a power of two from 512 to 32768, not {buffer!r}")
        for end in (unit.i, unit.o):
            if (size := bytes_of(width(end.payload.shape()))) > MAX_DATA:
                raise ValueError(f"payloads of {unit.name} must have at most {MAX_DATA} bytes, not {size}")
        self._divisor = check_divisor(clock_hz, baud)
        self._clock_hz = clock_hz
        self._unit = unit
        self.identity = Identity.of(unit, digest=digest, clock_hz=clock_hz, buffer=buffer)
        self._says = self.identity.to_bytes()
        super().__init__({"rx": In(1, init=1), "tx": Out(1, init=1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.receiver = receiver = FrameReceiver(
            divisor=self._divisor, clock_hz=self._clock_hz, depth=self.identity.buffer
        )
        m.submodules.driver = driver = UnitDriver(self._unit)
        m.submodules.transmitter = transmitter = UARTTransmitter(self._divisor)
        m.submodules.crc = crc = CRC(data_width=8).create()
        m.submodules.says = says = memory.Memory(
            shape=8, depth=len(self._says), init=self._says, attrs=rom_attributes("block")
        )
        m.d.comb += [receiver.rx.eq(self.rx), self.tx.eq(transmitter.tx)]

        came, out = receiver.o, transmitter.i
        # Of the request: bytes of its body that are left, and what it began with. Of a run, bytes of results owed.
        left, command, sequence, owed = Signal(8), Signal(8), Signal(8), Signal(8)
        # Of the reply: the length of its body, which of its first or last bytes is next, and an error, if it is one.
        length, place, error = Signal(8), Signal(2), Signal(range(len(ErrorKind) + 1))
        # A run may be continued in this turn only.
        turn, can_continue = Signal(8), Signal()
        spoken = Signal(range(len(self._says) + 1))
        reader = says.read_port()
        m.d.comb += [reader.addr.eq(spoken), driver.size.eq(left - 1), driver.more.eq(owed != 0)]
        # While it runs nobody else takes what comes.
        m.d.comb += [driver.i.payload.eq(came.payload), driver.i.valid.eq(came.valid), came.ready.eq(driver.i.ready)]
        sent, checked = Signal(), Signal()
        m.d.comb += [sent.eq(out.valid & out.ready), crc.data.eq(out.payload), crc.valid.eq(sent & checked)]

        def refuse(kind: ErrorKind) -> None:
            m.d.sync += error.eq(kind)
            m.next = "skip"

        with m.FSM():
            with m.State("wait"):
                m.d.sync += [place.eq(0), spoken.eq(0), error.eq(0), owed.eq(0), left.eq(came.payload - 2)]
                m.d.comb += crc.start.eq(1)
                with m.If(receiver.error.valid):
                    m.d.comb += receiver.error.ready.eq(1)
                    m.d.sync += [error.eq(receiver.error.payload), length.eq(3), sequence.eq(0)]
                    m.next = "begin"
                with m.Elif(came.valid):
                    m.d.comb += came.ready.eq(1)
                    m.next = "command"
            with m.State("command"):
                m.d.comb += came.ready.eq(1)
                m.d.sync += command.eq(came.payload)
                with m.If(came.valid):
                    m.next = "sequence"
            with m.State("sequence"):
                m.d.comb += came.ready.eq(1)
                m.d.sync += sequence.eq(came.payload)
                with m.If(came.valid):
                    m.next = "decide"
            with m.State("decide"):
                m.d.sync += length.eq(2 + len(self._says))
                with m.Switch(command):
                    with m.Case(Command.IDENTIFY):
                        m.next = "begin"
                        with m.If(left != 0):
                            refuse(ErrorKind.LENGTH)
                    with m.Case(Command.RUN, Command.CONTINUE, Command.TEST):
                        m.next = "run"
                        with m.If(left == 0):
                            refuse(ErrorKind.LENGTH)
                        with m.Elif((command == Command.CONTINUE) & ~(can_continue & (sequence == turn))):
                            refuse(ErrorKind.ORDER)
                    with m.Default():
                        refuse(ErrorKind.COMMAND)
            with m.State("run"):
                m.d.sync += length.eq(came.payload + 3)
                with m.If(came.valid):
                    with m.If(came.payload > MAX_DATA):
                        refuse(ErrorKind.LENGTH)
                    with m.Else():
                        m.d.comb += [came.ready.eq(1), driver.start.eq(1)]
                        m.d.comb += [
                            driver.test.eq(command == Command.TEST),
                            driver.fresh.eq(command != Command.CONTINUE),
                        ]
                        m.d.sync += [owed.eq(came.payload), turn.eq(sequence + 1)]
                        m.d.sync += can_continue.eq(command != Command.TEST)
                        m.next = "begin"
            with m.State("skip"):
                m.d.comb += came.ready.eq(left != 0)
                m.d.sync += length.eq(3)
                with m.If(left == 0):
                    m.next = "begin"
                with m.Elif(came.valid):
                    m.d.sync += left.eq(left - 1)

            # The reply: while it leaves, operands go to the driver.
            with m.State("begin"):
                answers = Mux(error == 0, command[: len(Command).bit_length()], 0) | REPLY
                m.d.comb += [out.valid.eq(1), out.payload.eq(Array([START, length, answers, sequence])[place])]
                m.d.comb += checked.eq(place != 0)
                with m.If(sent):
                    m.d.sync += place.eq(place + 1)
                    with m.If(place == 3):
                        m.next = "body"
            with m.State("body"):
                m.d.comb += checked.eq(1)
                with m.If(error != 0):
                    m.d.comb += [out.valid.eq(1), out.payload.eq(error)]
                    with m.If(sent):
                        m.next = "high"
                with m.Elif(command == Command.IDENTIFY):
                    # The memory is read long before the transmitter is ready for the next byte.
                    m.d.comb += [out.valid.eq(1), out.payload.eq(reader.data)]
                    with m.If(sent):
                        m.d.sync += spoken.eq(spoken + 1)
                        with m.If(spoken == len(self._says) - 1):
                            m.next = "high"
                with m.Elif(owed != 0):
                    m.d.comb += [
                        out.valid.eq(driver.o.valid),
                        out.payload.eq(driver.o.payload),
                        driver.o.ready.eq(out.ready),
                    ]
                    m.d.sync += owed.eq(owed - sent)
                with m.Else():
                    # Bytes of a result beyond those that were asked for go nowhere.
                    m.d.comb += [out.valid.eq(driver.done), out.payload.eq(driver.status), driver.o.ready.eq(1)]
                    with m.If(sent):
                        m.next = "high"
            for state, part, following in (("high", crc.crc[8:], "low"), ("low", crc.crc[:8], "wait")):
                with m.State(state):
                    m.d.comb += [out.valid.eq(1), out.payload.eq(part)]
                    with m.If(sent):
                        m.next = following
        return m
