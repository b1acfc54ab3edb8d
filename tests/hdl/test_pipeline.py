import pytest
from amaranth.hdl import Module, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from lnstesting import exactly

from hdl.pipeline import Pipeline


class Delay(wiring.Component):
    """Three stages that change nothing."""

    i: In(stream.Signature(unsigned(8)))
    o: Out(stream.Signature(unsigned(8)))

    def elaborate(self, platform):
        m = Module()
        pipeline = Pipeline(m, self.i, self.o)
        value = self.i.payload
        for _ in range(3):
            value = pipeline.stage(value=value).value
        pipeline.finish(value)
        assert pipeline.depth == 3
        return m


@pytest.mark.parametrize("period", [1, 2, 3, 7])
def test_payloads_come_out_in_order_whoever_stalls(period):
    unit, received = Delay(), []

    async def drive(ctx):
        index = 0
        for clock in range(400):
            offering, taking = index < 50 and clock % 3 != 1, clock % period == 0
            ctx.set(unit.i.valid, offering)
            ctx.set(unit.i.payload, index)
            ctx.set(unit.o.ready, taking)
            if taking and ctx.get(unit.o.valid):
                received.append(ctx.get(unit.o.payload))
            if offering and ctx.get(unit.i.ready):
                index += 1
            await ctx.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)
    simulator.run()
    assert received == list(range(50))


def test_valid_does_not_wait_for_ready_and_a_waiting_payload_stays():
    unit = Delay()

    async def drive(ctx):
        ctx.set(unit.o.ready, 0)
        ctx.set(unit.i.valid, 1)
        for clock in range(12):
            ctx.set(unit.i.payload, clock)
            await ctx.tick()
            if clock >= 2:
                assert ctx.get(unit.o.valid) == 1
                assert ctx.get(unit.o.payload) == 0
                assert ctx.get(unit.i.ready) == 0

    simulator = Simulator(unit)
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)
    simulator.run()


def test_a_reset_empties_the_pipeline():
    from amaranth.hdl import ResetInserter, Signal

    unit, reset = Delay(), Signal()

    async def drive(ctx):
        ctx.set(unit.o.ready, 0)
        ctx.set(unit.i.valid, 1)
        for _ in range(5):
            await ctx.tick()
        assert ctx.get(unit.o.valid) == 1
        ctx.set(unit.i.valid, 0)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        ctx.set(unit.o.ready, 1)
        for _ in range(6):
            assert ctx.get(unit.o.valid) == 0
            await ctx.tick()

    simulator = Simulator(ResetInserter(reset)(unit))
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)
    simulator.run()


class Stuck(wiring.Component):
    """Takes nothing, or what it gives has no end."""

    i: In(stream.Signature(data.StructLayout({"value": 8})))
    o: Out(stream.Signature(data.StructLayout({"value": 8})))

    def __init__(self, *, endless):
        super().__init__()
        self.endless = endless

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [self.i.ready.eq(self.endless), self.o.valid.eq(self.endless)]
        m.d.sync += self.o.payload.eq(self.i.payload)
        return m


@pytest.mark.parametrize("endless, taken, results", [(False, 0, 0), (True, 3, 103)])
def test_a_unit_that_hangs_or_never_stops_fails_its_test(endless, taken, results, run_unit):
    message = f"{taken} of 3 payloads were taken and {results} results came, and for 100 clocks nothing was taken"
    with pytest.raises(pytest.fail.Exception, match=exactly(message)):
        run_unit(Stuck(endless=endless), [1, 2, 3], patience=100)
