"""A UART: eight data bits, no parity, one stop bit."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

__all__ = ["UARTReceiver", "UARTTransmitter", "check_divisor"]

# The sampling of a bit may be off by a clock, and the stop bit, the tenth, must still be met by the middle of a bit.
_LEAST = 4
_TOLERANCE = 0.02


def check_divisor(clock_hz: float, baud: int) -> int:
    """Return the clocks of a bit, or raise ValueError if they are too few, or no whole number to within 2 %."""
    if not isinstance(baud, int) or baud <= 0:
        raise ValueError(f"baud must be a positive integer, not {baud!r}")
    divisor = round(clock_hz / baud)
    if divisor < _LEAST or abs(clock_hz / baud / divisor - 1) > _TOLERANCE:
        raise ValueError(
            f"baud must be at most a fourth of the clock and divide it within 2 %, not {baud:,} of {clock_hz:,.0f} Hz"
        )
    return divisor


class UARTReceiver(wiring.Component):
    """Bytes from a line.

    Parameters
    ----------
    divisor : int
        Clocks of a bit, at least 4.

    Members
    -------
    rx : ``In(1)``
        The line, asynchronous.
    data : ``Out(8)``
    valid : ``Out(1)``
        A byte has come, for one clock.
    broken : ``Out(1)``
        A byte has come whose stop bit was not there, for one clock.
    """

    def __init__(self, divisor: int):
        self._divisor = divisor
        super().__init__({"rx": In(1, init=1), "data": Out(8), "valid": Out(1), "broken": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        line = Signal(init=1)
        m.submodules.line = FFSynchronizer(self.rx, line, init=1)
        timer, left, done = Signal(range(self._divisor)), Signal(range(11)), Signal()
        bits = Signal(9)  # data, and the stop bit
        m.d.sync += [done.eq(0), timer.eq(timer - 1)]
        with m.If(left == 0):
            # To the middle of the start bit.
            m.d.sync += timer.eq(self._divisor // 2 - 1)
            with m.If(~line):
                m.d.sync += left.eq(10)
        with m.Elif(timer == 0):
            m.d.sync += [
                timer.eq(self._divisor - 1),
                bits.eq(Cat(bits[1:], line)),
                left.eq(left - 1),
                done.eq(left == 1),
            ]
            with m.If((left == 10) & line):  # it was no start bit
                m.d.sync += left.eq(0)
        m.d.comb += [self.data.eq(bits), self.valid.eq(done & bits[-1]), self.broken.eq(done & ~bits[-1])]
        return m


class UARTTransmitter(wiring.Component):
    """Bytes to a line, one right behind the other if there are any.

    Parameters
    ----------
    divisor : int
        Clocks of a bit.

    Members
    -------
    i : ``In(stream.Signature(8))``
    tx : ``Out(1)``
        The line.
    """

    def __init__(self, divisor: int):
        self._divisor = divisor
        super().__init__({"i": In(stream.Signature(8)), "tx": Out(1, init=1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        timer, left = Signal(range(self._divisor)), Signal(range(11))
        bits = Signal(9, init=0x1FF)  # the start bit and data; the stop bit is what is filled in
        m.d.comb += [self.tx.eq(bits[0]), self.i.ready.eq((timer == 0) & (left <= 1))]
        with m.If(timer != 0):
            m.d.sync += timer.eq(timer - 1)
        with m.Elif(self.i.ready & self.i.valid):
            m.d.sync += [bits.eq(self.i.payload << 1), left.eq(10), timer.eq(self._divisor - 1)]
        with m.Elif(left > 1):
            m.d.sync += [bits.eq(Cat(bits[1:], 1)), left.eq(left - 1), timer.eq(self._divisor - 1)]
        return m
