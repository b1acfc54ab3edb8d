"""The UART in Amaranth's simulator: both halves, rates that are off, and what is no byte."""

import numpy as np
import pytest
from amaranth.sim import Simulator
from lnstesting import exactly

from fpga.bridge.uart import UARTReceiver, UARTTransmitter, check_divisor

DATA = [0x00, 0xFF, 0x55, 0xA5, 0x01, 0x80, *np.random.default_rng(0).bytes(20)]


def received(levels, divisor):
    """Return the bytes, None for a broken one, that a receiver makes of the level of its line in each clock."""
    dut, found = UARTReceiver(divisor), []
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)

    async def bench(ctx):
        for level in [*levels, *[1] * 20 * divisor]:
            ctx.set(dut.rx, level)
            if ctx.get(dut.valid):
                found.append(ctx.get(dut.data))
            elif ctx.get(dut.broken):
                found.append(None)
            await ctx.tick()

    simulator.add_testbench(bench)
    simulator.run()
    return found


def line(data, clocks, stop=1):
    """Return the level in each clock while bytes are sent, back to back, with so many clocks a bit."""
    bits = [bit for byte in data for bit in (0, *(byte >> place & 1 for place in range(8)), stop)]
    return [bits[int(clock / clocks)] for clock in range(int(len(bits) * clocks))]


@pytest.mark.parametrize("divisor", [4, 5, 12, 25])
@pytest.mark.parametrize("rate", [0.98, 1, 1.02])
def test_bytes_are_received(divisor, rate):
    assert received(line(DATA, divisor * rate), divisor) == DATA


def test_what_is_no_byte():
    assert received([0] * 3 + [1] * 50 + line([7], 12), 12) == [7]  # a short pulse
    assert received(line([7], 12, stop=0) + [1] * 120 + line([8], 12), 12) == [None, 8]
    assert received([0] * 300 + [1] * 200 + line([9], 12), 12)[-1] == 9  # a break


@pytest.mark.parametrize("divisor", [4, 12])
def test_bytes_are_sent_back_to_back(divisor):
    dut, levels = UARTTransmitter(divisor), []
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)

    async def watch(ctx):
        async for *_, level in ctx.tick().sample(dut.tx):
            levels.append(level)

    async def bench(ctx):
        await ctx.tick().repeat(7)
        ctx.set(dut.i.valid, 1)
        for byte in DATA:
            ctx.set(dut.i.payload, byte)
            await ctx.tick().until(dut.i.ready)
        ctx.set(dut.i.valid, 0)
        await ctx.tick().repeat(20 * divisor)

    simulator.add_testbench(watch, background=True)
    simulator.add_testbench(bench)
    simulator.run()
    start = levels.index(0)
    assert levels[start : start + 10 * divisor * len(DATA)] == line(DATA, divisor)
    assert set(levels[:start]) == set(levels[start + 10 * divisor * len(DATA) :]) == {1}


def test_the_clocks_of_a_bit():
    assert [check_divisor(12e6, 1_000_000), check_divisor(25e6, 5_000_000), check_divisor(48e6, 115_200)] == [
        12,
        5,
        417,
    ]


@pytest.mark.parametrize(
    ("baud", "message"),
    [
        (
            1_900_000,
            "baud must be at most a fourth of the clock and divide it within 2 %, not 1,900,000 of 10,000,000 Hz",
        ),
        (0, "baud must be a positive integer, not 0"),
        (9600.0, "baud must be a positive integer, not 9600.0"),
        (
            3_000_001,
            "baud must be at most a fourth of the clock and divide it within 2 %, not 3,000,001 of 10,000,000 Hz",
        ),
    ],
)
def test_a_baud_that_cannot_be(baud, message):
    with pytest.raises(ValueError, match=exactly(message)):
        check_divisor(10e6, baud)
