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
    patience: int = 4000,
):
    """Send payloads and return what came out, as (clock, payload) pairs, with the clocks at which each was taken in.

    `valid` and `ready` say for each clock whether the two ends move, `reset` whether it ends in a reset, in which
    nothing is offered. It ends after `idle` clocks without a result when all were taken, and fails after `patience`
    clocks in which none is taken, or results still come that nothing was sent for.
    """
    payloads, resetting = list(payloads), Signal()
    sent, received = [], []

    async def drive(ctx):
        index = clock = quiet = waited = 0
        while quiet < idle:
            if waited == patience:
                pytest.fail(
                    f"{index} of {len(payloads)} payloads were taken and {len(received)} results came, and for "
                    f"{patience} clocks nothing was taken"
                )
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
            waited = 0 if accepted else waited + 1
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
