"""The bridge: reads requests from a serial line, has the unit do them, and answers."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
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

# Command, sequence number, and the kind of error.
_ERROR_LENGTH = 3


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
        m.d.comb += [receiver.rx.eq(self.rx), self.tx.eq(transmitter.tx)]
        # While a unit runs nobody else takes what comes.
        came = receiver.o
        m.d.comb += [driver.i.payload.eq(came.payload), driver.i.valid.eq(came.valid), came.ready.eq(driver.i.ready)]
        now = SimpleNamespace(
            # Of the request: how much of its body is left, and how it began; of a run, the bytes of results it is owed.
            left=Signal(8, name="left"),
            command=Signal(8, name="command"),
            sequence=Signal(8, name="sequence"),
            owed=Signal(8, name="owed"),
            # Of the reply: the length of its body, and the error that it is, if it is one.
            length=Signal(8, name="length"),
            error=Signal(range(len(ErrorKind) + 1), name="error"),
        )
        with m.FSM():
            self._add_request(m, now, receiver, driver)
            self._add_reply(m, now, driver, transmitter.i)
        return m

    def _add_request(self, m: Module, now: SimpleNamespace, receiver: FrameReceiver, driver: UnitDriver) -> None:
        """Add the states in which a request is read, from "wait" on; "begin" follows."""
        came = receiver.o
        # A run may be continued in this turn only.
        turn, can_continue = Signal(8), Signal()
        m.d.comb += [
            driver.left.eq(now.left),
            driver.test.eq(now.command == Command.TEST),
            driver.fresh.eq(now.command != Command.CONTINUE),
        ]

        m.d.sync += now.left.eq(now.left - (came.valid & came.ready))

        def refuse(kind: ErrorKind) -> None:
            m.d.sync += now.error.eq(kind)
            m.next = "skip"

        with m.State("wait"):
            m.d.sync += [now.error.eq(0), now.owed.eq(0), now.left.eq(came.payload)]
            with m.If(receiver.error.valid):
                m.d.comb += receiver.error.ready.eq(1)
                m.d.sync += [now.error.eq(receiver.error.payload), now.length.eq(_ERROR_LENGTH), now.sequence.eq(0)]
                m.next = "begin"
            with m.Elif(came.valid):
                m.d.comb += came.ready.eq(1)
                m.next = "command"
        for state, register, following in (("command", now.command, "sequence"), ("sequence", now.sequence, "decide")):
            with m.State(state):
                m.d.comb += came.ready.eq(1)
                m.d.sync += register.eq(came.payload)
                with m.If(came.valid):
                    m.next = following
        with m.State("decide"):
            m.d.sync += now.length.eq(2 + len(self._says))
            with m.Switch(now.command):
                with m.Case(Command.IDENTIFY):
                    m.next = "begin"
                    with m.If(now.left != 0):
                        refuse(ErrorKind.LENGTH)
                with m.Case(Command.RUN, Command.CONTINUE, Command.TEST):
                    m.next = "run"
                    with m.If(now.left == 0):
                        refuse(ErrorKind.LENGTH)
                    with m.Elif((now.command == Command.CONTINUE) & ~(can_continue & (now.sequence == turn))):
                        refuse(ErrorKind.ORDER)
                with m.Default():
                    refuse(ErrorKind.COMMAND)
        with m.State("run"):
            m.d.sync += now.length.eq(came.payload + 3)
            with m.If(came.valid & (came.payload > MAX_DATA)):
                refuse(ErrorKind.LENGTH)
            with m.Elif(came.valid):
                m.d.comb += [came.ready.eq(1), driver.start.eq(1)]
                m.d.sync += [now.owed.eq(came.payload), turn.eq(now.sequence + 1), can_continue.eq(~driver.test)]
                m.next = "begin"
        with m.State("skip"):
            m.d.comb += came.ready.eq(now.left != 0)
            m.d.sync += now.length.eq(_ERROR_LENGTH)
            with m.If(now.left == 0):
                m.next = "begin"

    def _add_reply(self, m: Module, now: SimpleNamespace, driver: UnitDriver, out: stream.Interface) -> None:
        """Add the states in which a reply is sent, from "begin" on, while operands go to the driver; "wait" follows."""
        m.submodules.crc = crc = CRC(data_width=8).create()
        rom = rom_attributes("block")
        m.submodules.says = says = memory.Memory(shape=8, depth=len(self._says), init=self._says, attrs=rom)
        reader = says.read_port()
        # Which byte before the payload is next, and which of the identity.
        place, spoken = Signal(2), Signal(range(len(self._says)))
        sent, checked = Signal(), Signal()
        m.d.comb += [sent.eq(out.valid & out.ready), crc.data.eq(out.payload), crc.valid.eq(sent & checked)]
        m.d.comb += [reader.addr.eq(spoken), driver.more.eq(now.owed != 0)]

        with m.State("begin"):
            command = Mux(now.error == 0, now.command[: len(Command).bit_length()], 0) | REPLY
            m.d.comb += out.payload.eq(Array([START, now.length, command, now.sequence])[place])
            m.d.comb += [out.valid.eq(1), checked.eq(place != 0), crc.start.eq(place == 0)]
            with m.If(sent):
                m.d.sync += place.eq(place + 1)
                with m.If(place == 3):
                    m.next = "body"
        with m.State("body"):
            m.d.comb += checked.eq(1)
            last = Signal()
            with m.If(now.error != 0):
                m.d.comb += [out.valid.eq(1), out.payload.eq(now.error), last.eq(1)]
            with m.Elif(now.command == Command.IDENTIFY):
                # The memory is read long before the transmitter is ready for the next byte.
                m.d.comb += [out.valid.eq(1), out.payload.eq(reader.data), last.eq(spoken == len(self._says) - 1)]
                m.d.sync += spoken.eq(spoken + sent)
            with m.Elif(now.owed != 0):
                m.d.comb += [out.valid.eq(driver.o.valid), out.payload.eq(driver.o.payload)]
                m.d.comb += driver.o.ready.eq(out.ready)
                m.d.sync += now.owed.eq(now.owed - sent)
            with m.Else():
                # Bytes of a result beyond those that were asked for go nowhere.
                m.d.comb += [out.valid.eq(driver.done), out.payload.eq(driver.status), driver.o.ready.eq(1)]
                m.d.comb += last.eq(1)
            with m.If(sent & last):
                m.next = "high"
        for state, part, following in (("high", crc.crc[8:], "low"), ("low", crc.crc[:8], "wait")):
            with m.State(state):
                m.d.comb += [out.valid.eq(1), out.payload.eq(part)]
                m.d.sync += spoken.eq(0)
                with m.If(sent):
                    m.next = following
