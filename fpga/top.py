"""What is configured into an FPGA: a bridge with its unit, held in reset at first; on a board with clock and pins."""

from __future__ import annotations

from fractions import Fraction

from amaranth.build import Platform
from amaranth.hdl import ClockDomain, Elaboratable, Module, ResetSignal, Signal
from amaranth.lib import io, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

from hdl import Unit

from .bridge import Bridge
from .clocking import Clock, Clocking

__all__ = ["OnBoard", "Top"]

# Block RAMs of an iCE40 return zeros for some 3 µs after configuration (icestorm's issue 76), by a clock of their own;
# five times that, as Amaranth's platform does it.
_HELD = Fraction(15, 1_000_000)


class Top(wiring.Component):
    """A bridge with its unit, of no platform: what a simulation has of a board.

    Everything is in the domain ``sync``, in reset until the clock has been locked for 15 µs.

    Parameters
    ----------
    unit : Unit
    digest : bytes, of length 16
        The identity of the build.
    clock_hz : Fraction
        The frequency of ``clk``.
    baud : int

    Members
    -------
    clk : ``In(1)``
    rx, tx : ``In(1)``, ``Out(1)``
        Serial lines, from the board's side.

    Attributes
    ----------
    locked : Signal
        Whether ``clk`` has its frequency, asynchronous. Always, if nobody drives it.
    ready : Signal
        Whether the reset is over.
    """

    def __init__(self, unit: Unit, *, digest: bytes, clock_hz: Fraction, baud: int):
        super().__init__({"clk": In(1), "rx": In(1, init=1), "tx": Out(1, init=1)})
        self.locked = Signal(init=1)
        self.ready = Signal()
        self.bridge = Bridge(unit, digest=digest, clock_hz=float(clock_hz), baud=baud)
        self.held_clocks = -(-clock_hz * _HELD // 1)

    def elaborate(self, platform: Platform | None) -> Module:
        m = Module()
        sync, held = ClockDomain("sync"), ClockDomain("held", reset_less=True, local=True)
        m.domains += [sync, held]
        m.d.comb += [sync.clk.eq(self.clk), held.clk.eq(self.clk)]
        locked = Signal()
        clocks = Signal(range(self.held_clocks))
        m.submodules.locked = FFSynchronizer(self.locked, locked, o_domain="held")
        with m.If(~locked):
            m.d.held += [clocks.eq(0), self.ready.eq(0)]
        with m.Elif(clocks == self.held_clocks - 1):
            m.d.held += self.ready.eq(1)
        with m.Else():
            m.d.held += clocks.eq(clocks + 1)
        m.d.comb += ResetSignal().eq(~self.ready)
        m.submodules.bridge = self.bridge
        m.d.comb += [self.bridge.rx.eq(self.rx), self.tx.eq(self.bridge.tx)]
        return m


class OnBoard(Elaboratable):
    """A top on a platform: its oscillator, a PLL, and the pins of its UART.

    Parameters
    ----------
    top : Top
        For the frequency of `clock`.
    clock : Clock
    """

    def __init__(self, top: Top, clock: Clock):
        self._top, self._clock = top, clock

    def elaborate(self, platform: Platform) -> Module:
        m = Module()
        m.submodules.top = self._top
        m.submodules.clocking = clocking = Clocking(self._clock)
        pins = platform.request("uart", dir="-")
        m.submodules.rx = rx = io.Buffer("i", pins.rx)
        m.submodules.tx = tx = io.Buffer("o", pins.tx)
        m.d.comb += [
            self._top.clk.eq(clocking.clk),
            self._top.locked.eq(clocking.locked),
            self._top.rx.eq(rx.i),
            tx.o.eq(self._top.tx),
        ]
        return m
