"""What an AxiLite does in which clock: what its FIFOs hold and what enters them, and what is done at the same time."""

import pytest
from amaranth.hdl import ClockSignal, Module
from amaranth.sim import Simulator

from hdl import Multiply
from hdl.bus import AxiLite
from xlnstorch import LNSFormat, lns8

OKAY, SLVERR = 0, 2
ONE, LARGEST = lns8.bias, lns8.max_field
OVERFLOW, PUSH_FULL, POP_EMPTY = 1, 1, 2  # of FLAGS, and of ERRORS


class Bus:
    """Both ends of AXI4-Lite at an AxiLite: requests in consecutive clocks, and every answer is taken at once."""

    def __init__(self, ctx, top):
        self.ctx, self.top, self.clock = ctx, top, 0
        self.answers = {"b": [], "r": []}
        #: The clocks in which the unit takes operands, in which a result enters its FIFO, and in which irq is high.
        self.taken, self.entered, self.irq = [], [], []
        for port in (top.aresetn, top.s_axi_bready, top.s_axi_rready):
            ctx.set(port, 1)

    async def tick(self, count=1):
        ctx, top = self.ctx, self.top
        for _ in range(count):
            if ctx.get(top.s_axi_bvalid):
                self.answers["b"].append((self.clock, ctx.get(top.s_axi_bresp)))
            if ctx.get(top.s_axi_rvalid):
                self.answers["r"].append((self.clock, ctx.get(top.s_axi_rresp), ctx.get(top.s_axi_rdata)))
            for clocks, stream in ((self.taken, top.unit.i), (self.entered, top.unit.o)):
                if ctx.get(stream.valid) and ctx.get(stream.ready):
                    clocks.append(self.clock)
            if ctx.get(top.irq):
                self.irq.append(self.clock)
            await ctx.tick()
            self.clock += 1
            assert self.clock < 3000, "it stands still"

    async def _request(self, channels, answer, requests):
        ctx, top = self.ctx, self.top
        before, valid = len(self.answers[answer]), [getattr(top, f"s_axi_{channel}valid") for channel in channels]
        for ports in requests:
            for name, value in ports.items():
                ctx.set(getattr(top, f"s_axi_{name}"), value)
            for port in valid:
                ctx.set(port, 1)
            while not all(ctx.get(getattr(top, f"s_axi_{channel}ready")) for channel in channels):
                await self.tick()
            await self.tick()
        for port in valid:
            ctx.set(port, 0)
        while len(self.answers[answer]) < before + len(requests):
            await self.tick()
        return self.answers[answer][before:]

    async def write(self, *pairs, strobes=15):
        """Write values to registers, a pair of name and value each; return the responses.

        The last write is done in the clock before that in which its response comes, :attr:`done`.
        """
        offsets = [(self.top.map.registers[name].offset, value) for name, value in pairs]
        requests = [{"awaddr": offset, "wdata": value, "wstrb": strobes} for offset, value in offsets]
        answers = await self._request(("aw", "w"), "b", requests)
        self.done = answers[-1][0] - 1
        return [response for _, response in answers]

    async def read(self, name):
        """Return the response and what a register holds."""
        ((_, *answer),) = await self._request(("ar",), "r", [{"araddr": self.top.map.registers[name].offset}])
        return tuple(answer)


def run(top, script):
    """Run a script, a coroutine function of a Bus."""
    m = Module()
    m.submodules.top = top
    m.d.comb += top.aclk.eq(ClockSignal())

    async def drive(ctx):
        await script(Bus(ctx, top))

    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)
    simulator.run()


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_each_fifo_holds_as_many_payloads_as_depth_says_and_not_one_more(depth):
    top = AxiLite(Multiply(format=lns8), depth=depth)

    async def script(bus):
        await bus.write(("IN_A", ONE), ("IN_B", ONE + 1))
        # A push each clock, many more than there is room for, and nobody reads.
        responses = await bus.write(*[("PUSH", 0)] * 40)
        accepted = responses.count(OKAY)
        assert responses[:depth] == [OKAY] * depth
        assert responses[-9:] == [SLVERR] * 9
        await bus.tick(20)
        assert await bus.read("LEVELS") == (OKAY, depth | depth << 16)
        assert await bus.read("STATUS") == (OKAY, 0b1010)
        assert len(bus.entered) == depth
        assert 1 <= accepted - 2 * depth <= top.unit.latency  # those inside the unit
        assert await bus.read("ERRORS") == (OKAY, PUSH_FULL)
        # What leaves makes room for one.
        assert await bus.read("OUT_WORD") == (OKAY, ONE + 1)
        await bus.tick(20)
        assert await bus.write(("IN_B", ONE + 2), ("PUSH", 0), ("PUSH", 0)) == [OKAY, OKAY, SLVERR]
        await bus.tick(20)
        assert await bus.read("LEVELS") == (OKAY, depth | depth << 16)
        # All that was accepted comes, and nothing else.
        found = [await bus.read("OUT_WORD") for _ in range(accepted + 1)]
        assert found == [(OKAY, ONE + 1)] * (accepted - 1) + [(OKAY, ONE + 2), (SLVERR, 0)]
        assert await bus.read("ERRORS") == (OKAY, PUSH_FULL | POP_EMPTY)

    run(top, script)


def test_a_flag_is_set_when_its_result_enters_the_fifo_and_not_while_it_waits():
    top = AxiLite(Multiply(format=lns8), depth=2)

    async def script(bus):
        await bus.write(("IN_A", LARGEST), ("IN_B", ONE), ("PUSH", 0), ("PUSH", 0), ("IN_B", LARGEST), ("PUSH", 0))
        await bus.tick(20)
        assert bus.ctx.get(top.unit.o.valid)
        assert await bus.read("LEVELS") == (OKAY, 2 << 16)
        assert await bus.read("FLAGS") == (OKAY, 0)
        assert await bus.read("OUT_WORD") == (OKAY, LARGEST)
        await bus.tick(20)
        assert await bus.read("LEVELS") == (OKAY, 2 << 16)
        assert await bus.read("FLAGS") == (OKAY, OVERFLOW)
        # In the FIFO it sets nothing any more, nor when it leaves.
        await bus.write(("FLAGS", OVERFLOW))
        assert [await bus.read("OUT_WORD") for _ in range(2)] == [(OKAY, LARGEST)] * 2
        assert await bus.read("OUT_FLAGS") == (OKAY, OVERFLOW)
        assert await bus.read("FLAGS") == (OKAY, 0)

    run(top, script)


async def at_every_clock(bus, name, value):
    """Push an overflow, and so many clocks later write to a register, for all numbers of clocks that matter.

    After each, yield whether the result entered its FIFO before, with or after the write, or never.
    """
    await bus.write(("IN_A", LARGEST), ("IN_B", LARGEST))
    for wait in range(bus.top.unit.latency + 9):
        bus.entered.clear()
        await bus.write(("PUSH", 0))
        await bus.tick(wait)
        await bus.write((name, value))
        await bus.tick(20)
        (entered,) = bus.entered or [None]
        yield "never" if entered is None else ("with", "before", "after")[(entered < bus.done) - (entered > bus.done)]
        await bus.write(("CONTROL", 1), ("FLAGS", OVERFLOW))
        assert await bus.read("FLAGS") == (OKAY, 0)


def test_a_result_that_clear_drops_leaves_no_flag_and_one_that_entered_before_does():
    async def script(bus):
        found = set()
        async for order in at_every_clock(bus, "CONTROL", 1):
            found.add((order, await bus.read("FLAGS"), await bus.read("LEVELS")))
        flags = {"before": OVERFLOW, "with": 0, "never": 0}
        assert found == {(order, (OKAY, flag), (OKAY, 0)) for order, flag in flags.items()}

    run(AxiLite(Multiply(format=lns8), depth=2), script)


def test_a_flag_that_is_set_in_the_clock_in_which_it_is_cleared_stays_set():
    async def script(bus):
        found = set()
        async for order in at_every_clock(bus, "FLAGS", OVERFLOW):
            found.add((order, await bus.read("FLAGS"), await bus.read("LEVELS")))
        flags = {"before": 0, "with": OVERFLOW, "after": OVERFLOW}
        assert found == {(order, (OKAY, flag), (OKAY, 1 << 16)) for order, flag in flags.items()}

    run(AxiLite(Multiply(format=lns8), depth=2), script)


def test_a_refused_read_leaves_the_rest_of_the_result_last_taken():
    async def script(bus):
        await bus.write(("IN_A", LARGEST), ("IN_B", LARGEST), ("PUSH", 0), ("IN_A", ONE), ("PUSH", 0))
        await bus.tick(20)
        assert await bus.read("OUT_WORD") == (OKAY, LARGEST)
        await bus.write(("CONTROL", 1))
        assert await bus.read("OUT_WORD") == (SLVERR, 0)
        assert await bus.read("OUT_FLAGS") == (OKAY, OVERFLOW)

    run(AxiLite(Multiply(format=lns8)), script)


def test_the_interrupt_of_the_operand_fifo_is_low_as_long_as_anything_is_in_it():
    async def script(bus):
        await bus.write(("IRQ_ENABLE", 2), ("IN_A", ONE))
        await bus.tick(5)
        await bus.write(("PUSH", 0))
        await bus.tick(20)
        low = set(range(bus.irq[0], bus.clock)) - set(bus.irq)
        # It is a register, so all of it a clock later.
        assert low == set(range(bus.done + 2, bus.taken[0] + 2))

    run(AxiLite(Multiply(format=lns8)), script)


def test_what_is_done_when_a_register_is_written_is_done_with_the_byte_of_the_bit():
    async def script(bus):
        await bus.write(("IN_A", LARGEST), ("IN_B", LARGEST), ("PUSH", 0))
        await bus.tick(20)
        assert [await bus.read("OUT_WORD") for _ in range(2)] == [(OKAY, LARGEST), (SLVERR, 0)]
        for _ in range(2 * 2 + 1):  # the unit holds one, as it stands still when a result waits
            await bus.write(("PUSH", 0))
            await bus.tick(20)
        state = [("FLAGS", OVERFLOW), ("ERRORS", POP_EMPTY), ("LEVELS", 2 | 2 << 16)]
        assert [(name, (await bus.read(name))[1]) for name, _ in state] == state
        # All ones, but not in byte 0: nothing happens, and nothing is refused.
        names = ("FLAGS", "ERRORS", "CONTROL", "PUSH")
        assert await bus.write(*[(name, 0xFFFFFFFF) for name in names], strobes=14) == [OKAY] * 4
        await bus.tick(20)
        assert [(name, (await bus.read(name))[1]) for name, _ in state] == state
        assert await bus.write(("CONTROL", 0xFFFFFFFE)) == [OKAY]
        assert await bus.read("LEVELS") == (OKAY, 2 | 2 << 16)

    run(AxiLite(Multiply(format=lns8), depth=2), script)


def test_a_field_wider_than_a_register_is_in_several():
    format = LNSFormat(8, 40)
    a, b = format.bias + 0x12_3456_789A, format.bias + 0x01_0203_0405
    product = format.bias + 0x13_3659_7C9F | 1 << format.log_bits

    async def script(bus):
        sent = {"IN_A_0": a & 0xFFFFFFFF, "IN_A_1": a >> 32, "IN_B_0": b & 0xFFFFFFFF, "IN_B_1": b >> 32 | 1 << 16}
        await bus.write(*sent.items(), ("PUSH", 0))
        await bus.tick(20)
        assert {name: (await bus.read(name))[1] for name in sent} == sent
        names = ("OUT_WORD_0", "OUT_WORD_1", "OUT_FLAGS")
        assert [(await bus.read(name))[1] for name in names] == [product & 0xFFFFFFFF, product >> 32, 0]

    run(AxiLite(Multiply(format=format)), script)


def test_the_deepest_fifos_have_levels_of_16_bits():
    top = AxiLite(Multiply(format=lns8), depth=65535)

    async def script(bus):
        await bus.write(("IN_A", ONE), ("IN_B", ONE), ("PUSH", 0), ("PUSH", 0), ("PUSH", 0))
        await bus.tick(20)
        assert await bus.read("DEPTH") == (OKAY, 65535)
        assert await bus.read("LEVELS") == (OKAY, 3 << 16)
        assert await bus.read("OUT_WORD") == (OKAY, ONE)

    run(top, script)
