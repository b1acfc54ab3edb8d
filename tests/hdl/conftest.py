"""Drives units in Amaranth's own simulator: no other tool, so these tests run everywhere."""

from collections.abc import Iterable

import pytest
from amaranth.hdl import Elaboratable, ResetInserter, Signal
from amaranth.sim import Simulator


def _run(
    unit: Elaboratable,
    payloads: Iterable,
    *,
    valid=lambda clock: True,
    ready=lambda clock: True,
    reset=lambda clock: False,
    idle: int = 40,
):
    """Send payloads and return what came out, as (clock, payload) pairs, with the clocks at which each was taken in.

    `valid` and `ready` say for each clock whether the two ends move, `reset` whether it ends in a reset, in which
    nothing is offered. It ends after `idle` clocks without a result.
    """
    payloads, resetting = list(payloads), Signal()
    sent, received = [], []

    async def drive(ctx):
        index = clock = 0
        quiet = 0
        while quiet < idle:
            ctx.set(resetting, reset(clock))
            offering = index < len(payloads) and valid(clock) and not reset(clock)
            taking = ready(clock)
            ctx.set(unit.i.valid, offering)
            if offering:
                ctx.set(unit.i.payload.as_value(), payloads[index])
            ctx.set(unit.o.ready, taking)
            accepted = offering and ctx.get(unit.i.ready)
            if taking and ctx.get(unit.o.valid):
                received.append((clock, ctx.get(unit.o.payload.as_value())))
                quiet = 0
            if accepted:
                sent.append(clock)
                index += 1
            quiet = quiet + 1 if index == len(payloads) else 0
            await ctx.tick()
            clock += 1

    simulator = Simulator(ResetInserter(resetting)(unit))
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)
    simulator.run()
    return sent, received


@pytest.fixture
def run_unit():
    return _run
