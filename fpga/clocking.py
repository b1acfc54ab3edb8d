"""The clock of the gates on a board: dividers of a PLL, and the PLL itself with its pin.

Frequencies are in Hz and exact, as fractions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from fractions import Fraction

from amaranth.build import Platform
from amaranth.hdl import Const, Elaboratable, Instance, Module, Signal
from amaranth.lib import io

__all__ = ["Clock", "Clocking", "choose_clock"]

_MHZ = 1_000_000
# The pins beside a PLL, by die and package, from icestorm's database. A clock that comes in there must go in by the pad
# of the PLL, because the output of the PLL takes that pin's way into the fabric.
_PADS = {
    "1k": {"cb132": "P7", "tq144": "49", "vq100": "33", "cm121": "J5", "cm81": "H4", "qn84": "A14"},
    "5k": {"sg48": "35", "uwg30": "B3"},
    "8k": {"bg121": "L5 B6", "cb132": "P7 A6", "cm121": "L5 B6", "cm225": "N7 D8", "ct256": "R9 F7", "tq144": "49 129"},
    "u4k": {"sg48": "35"},
}
_DIES = {"1K": "1k", "4K": "8k", "8K": "8k", "3K": "5k", "5K": "5k"}


@dataclasses.dataclass(frozen=True)
class Clock:
    """How a clock is made of an oscillator's.

    Attributes
    ----------
    oscillator, frequency : Fraction
        What comes in, and what the gates get.
    pll : dict of str to int, or None
        The PLL's parameters; None if the gates get the oscillator's clock itself.
    """

    oscillator: Fraction
    frequency: Fraction
    pll: dict[str, int] | None = None


def choose_clock(platform: Platform, mhz: float | None = None) -> Clock:
    """Return how a platform makes a clock: the highest that is not above the one asked for.

    Parameters
    ----------
    platform : Platform
        Of an iCE40 or an ECP5.
    mhz : float, optional
        By default the clock of the oscillator, without the PLL; likewise if it is just that.

    Raises
    ------
    ValueError
        The PLL cannot make a clock within its range that is as low, or as high.
    """
    oscillator = Fraction(platform.default_clk_frequency)
    if mhz is None or mhz * _MHZ == oscillator:
        return Clock(oscillator, oscillator)
    kind, divide = ("ECP5", _ecp5_dividers) if platform.family == "ecp5" else ("iCE40", _ice40_dividers)
    low, high = (limit * _MHZ for limit in _OUTPUT[kind])
    found = [choice for choice in divide(oscillator) if low <= choice[0] <= high]
    lowest, wanted = float(min((choice[0] for choice in found), default=high)), round(mhz * _MHZ, 3)
    if not lowest <= wanted <= high:
        raise ValueError(
            f"clock must be {lowest / _MHZ:g} to {high / _MHZ:g} MHz, the range of the {kind}'s PLL, or the "
            f"oscillator's {float(oscillator / _MHZ):g} MHz, not {mhz:g}"
        )
    # Of several ways to the same clock, the one with the fastest phase detector has the least jitter.
    frequency, _, parameters = max((c for c in found if c[0] <= wanted), key=lambda choice: choice[:2])
    return Clock(oscillator, frequency, parameters)


# What the PLL of each family can put out, in MHz: the data sheets' (iCE40 LP/HX and UltraPlus, ECP5).
_OUTPUT = {"iCE40": (16.0, 275.0), "ECP5": (3.125, 400.0)}


def _ice40_dividers(oscillator: Fraction) -> Iterator[tuple[Fraction, tuple, dict[str, int]]]:
    """Yield each output, the merit of the way to it, and the parameters: Lattice's FPGA-TN-02052, simple feedback."""
    for reference in range(16):
        detector = oscillator / (reference + 1)
        if not 10 * _MHZ <= detector <= 133 * _MHZ:
            continue
        # The loop filter's range, by the frequency of the phase detector.
        limits = (17, 26, 44, 66, 101)
        filter_range = 1 + sum(detector >= limit * _MHZ for limit in limits)
        for feedback in range(128):
            oscillation = detector * (feedback + 1)
            if not 533 * _MHZ <= oscillation <= 1066 * _MHZ:
                continue
            for output in range(1, 7):
                parameters = {"DIVR": reference, "DIVF": feedback, "DIVQ": output, "FILTER_RANGE": filter_range}
                yield oscillation / (1 << output), (detector, -output), parameters


def _ecp5_dividers(oscillator: Fraction) -> Iterator[tuple[Fraction, tuple, dict[str, int]]]:
    """Yield likewise: the loop goes through the output CLKOP, at the phase detector's frequency; CLKOS is the clock."""
    for reference in range(1, 129):
        detector = oscillator / reference
        if not 10 * _MHZ <= detector <= 400 * _MHZ:
            continue
        for loop in range(1, 129):
            oscillation = detector * loop
            if not 400 * _MHZ <= oscillation <= 800 * _MHZ:
                continue
            for output in range(1, 129):
                parameters = {"CLKI_DIV": reference, "CLKFB_DIV": 1, "CLKOP_DIV": loop, "CLKOS_DIV": output}
                yield oscillation / output, (detector, -loop), parameters


class Clocking(Elaboratable):
    """A platform's oscillator, and the PLL that a :class:`Clock` asks for.

    Attributes
    ----------
    clk : Signal
        The clock of the gates.
    locked : Signal
        Whether it has its frequency; asynchronous to all clocks.
    """

    def __init__(self, clock: Clock):
        self.clock = clock
        self.clk, self.locked = Signal(name="clk"), Signal(name="locked")

    def elaborate(self, platform: Platform) -> Module:
        m = Module()
        pin = platform.request(platform.default_clk, dir="-")
        if self.clock.pll is not None and platform.family != "ecp5" and _is_pad(platform, pin):
            self._add_ice40(m, "SB_PLL40_PAD", io_PACKAGEPIN=pin.io)
            return m
        m.submodules.pin = buffer = io.Buffer("i", pin)
        if self.clock.pll is None:
            m.d.comb += [self.clk.eq(buffer.i), self.locked.eq(1)]
        elif platform.family == "ecp5":
            self._add_ecp5(m, buffer.i)
        else:
            self._add_ice40(m, "SB_PLL40_CORE", i_REFERENCECLK=buffer.i)
        return m

    def _add_ice40(self, m: Module, cell: str, **reference) -> None:
        widths = {"DIVR": 4, "DIVF": 7, "DIVQ": 3, "FILTER_RANGE": 3}
        m.submodules.pll = Instance(
            cell,
            p_FEEDBACK_PATH="SIMPLE",
            **{f"p_{name}": Const(value, widths[name]) for name, value in self.clock.pll.items()},
            **reference,
            i_RESETB=Const(1),
            i_BYPASS=Const(0),
            o_PLLOUTGLOBAL=self.clk,
            o_LOCK=self.locked,
        )

    def _add_ecp5(self, m: Module, reference: Signal) -> None:
        feedback = Signal()
        m.submodules.pll = Instance(
            "EHXPLLL",
            p_FEEDBK_PATH="CLKOP",
            p_CLKOS_ENABLE="ENABLED",
            **{f"p_{name}": value for name, value in self.clock.pll.items()},
            # The phase of an output is 0 if its counter starts one below its divider.
            p_CLKOP_CPHASE=self.clock.pll["CLKOP_DIV"] - 1,
            p_CLKOS_CPHASE=self.clock.pll["CLKOS_DIV"] - 1,
            # The loop filter as Project Trellis's ecppll sets it for all frequencies.
            a_ICP_CURRENT="12",
            a_LPF_RESISTOR="8",
            a_MFG_ENABLE_FILTEROPAMP="1",
            a_MFG_GMCREF_SEL="2",
            i_CLKI=reference,
            i_CLKFB=feedback,
            **{f"i_{name}": Const(0) for name in ("RST", "STDBY", "PLLWAKESYNC", "PHASESEL0", "PHASESEL1")},
            **{f"i_{name}": Const(1) for name in ("PHASEDIR", "PHASESTEP", "PHASELOADREG")},
            i_ENCLKOP=Const(0),
            i_ENCLKOS=Const(0),
            o_CLKOP=feedback,
            o_CLKOS=self.clk,
            o_LOCK=self.locked,
        )


def _is_pad(platform: Platform, pin: io.SingleEndedPort) -> bool:
    die = "u4k" if platform.family == "iCE5" else _DIES.get(platform.device[-2:])
    return pin.io.metadata[0].name in _PADS.get(die, {}).get(platform.package.lower(), "").split()
