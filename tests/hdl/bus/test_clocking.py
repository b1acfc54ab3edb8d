import pytest
from amaranth.hdl import ClockSignal, Module, Signal
from amaranth.sim import Simulator

from hdl import Multiply
from hdl.bus import BUSES
from xlnstorch import lns8


@pytest.mark.parametrize(("bus", "ready"), [("axi-stream", "s_axis_tready"), ("axi-lite", "s_axi_awready")])
def test_several_may_be_in_a_design_that_has_a_clock_domain_sync_too(bus, ready):
    m, count = Module(), Signal(4)
    m.d.sync += count.eq(count + 1)
    m.submodules += (running := BUSES[bus](Multiply(format=lns8))), (held := BUSES[bus](Multiply(format=lns8)))
    m.d.comb += [running.aclk.eq(ClockSignal()), held.aclk.eq(ClockSignal()), running.aresetn.eq(1)]

    async def look(ctx):
        await ctx.tick().repeat(5)
        assert (ctx.get(count), ctx.get(getattr(running, ready)), ctx.get(getattr(held, ready))) == (5, 1, 0)

    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(look)
    simulator.run()
