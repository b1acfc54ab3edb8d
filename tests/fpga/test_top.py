from fractions import Fraction

import pytest
from amaranth.back import rtlil
from amaranth.sim import Simulator
from amaranth_boards.ice40_hx8k_b_evn import ICE40HX8KBEVNPlatform
from amaranth_boards.icebreaker import ICEBreakerPlatform
from amaranth_boards.ulx3s import ULX3S_25F_Platform

from fpga.clocking import choose_clock
from fpga.top import OnBoard, Top
from hdl import Multiply
from xlnstorch import lns8


def top(clock_hz=Fraction(8_000_000), digest=bytes(16)):
    return Top(Multiply(format=lns8), digest=digest, clock_hz=clock_hz, baud=1_000_000)


def test_the_reset_is_held_for_15_us_after_the_clock_is_locked_and_comes_back_with_its_loss():
    made = top()  # 120 clocks, and two for crossing into the domain

    async def bench(ctx):
        async def clocks_until(value):
            for count in range(1, 1000):
                ctx.set(made.clk, 1)
                await ctx.delay(1e-7)
                ctx.set(made.clk, 0)
                await ctx.delay(1e-7)
                if ctx.get(made.ready) == value:
                    return count
            return None

        ctx.set(made.locked, 0)
        assert await clocks_until(1) is None
        ctx.set(made.locked, 1)
        assert await clocks_until(1) == 122
        assert await clocks_until(0) is None
        ctx.set(made.locked, 0)
        assert await clocks_until(0) == 3
        ctx.set(made.locked, 1)
        assert await clocks_until(1) == 122

    simulator = Simulator(made)
    simulator.add_testbench(bench)
    simulator.run()


def test_the_same_top_is_there_without_a_board():
    text = rtlil.convert(top(), name="top", emit_src=False)
    ports = [line.split()[-1] for line in text.splitlines() if line.startswith("  wire ") and " input " in line]
    assert set(ports) >= {"\\clk", "\\rx"} and "\\locked" not in ports
    assert "SB_" not in text


@pytest.mark.parametrize(
    ("platform", "mhz", "cells"),
    [
        # The iCEBreaker's oscillator is at the pad of the PLL; that of the breakout is not.
        (ICEBreakerPlatform, 24, {"SB_PLL40_PAD", "SB_IO"}),
        (ICEBreakerPlatform, None, {"SB_GB_IO", "SB_IO"}),
        (ICE40HX8KBEVNPlatform, 24, {"SB_PLL40_CORE", "SB_GB_IO", "SB_IO"}),
        (ULX3S_25F_Platform, 50, {"EHXPLLL", "IB", "OBZ"}),
    ],
)
def test_on_a_board_it_has_the_clock_and_the_pins(platform, mhz, cells):
    made = platform()
    clock = choose_clock(made, mhz)
    text = made.prepare(OnBoard(top(clock.frequency), clock), name="top", emit_src=False).files["top.il"]
    types = {line.split()[1].strip("\\") for line in text.splitlines() if line.startswith("  cell \\")}
    assert {name for name in types if name.isupper()} == cells


def test_the_pll_of_an_ecp5_is_told_its_dividers_and_its_loop_filter():
    made = ULX3S_25F_Platform()
    clock = choose_clock(made, 60)
    text = made.prepare(OnBoard(top(clock.frequency), clock), name="top", emit_src=False).files["top.il"]
    start = text.index("cell \\EHXPLLL ")
    # Attributes come before the cell, parameters after it.
    around = [line.strip() for line in text[start - 500 : start + 2000].splitlines()]
    for name, value in {**clock.pll, "CLKOP_CPHASE": 23, "CLKOS_CPHASE": 9}.items():
        assert f"parameter \\{name} {value}" in around, name
    assert 'attribute \\LPF_RESISTOR "8"' in around and 'attribute \\ICP_CURRENT "12"' in around
