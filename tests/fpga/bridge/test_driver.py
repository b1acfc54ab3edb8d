"""The driver in Amaranth's simulator, with units that do what units should not: it always comes to an end."""

from types import SimpleNamespace

import pytest
from amaranth.hdl import Module, Signal, unsigned
from amaranth.sim import Simulator

import hdl
from fpga.bridge import Status
from fpga.bridge.driver import UnitDriver
from fpga.bridge.selftest import expected_signature
from xlnstorch import lns8


class Doubtful(hdl.Unit):
    """A unit of bytes with a fault of the handshake: ``stuck``, ``silent``, ``doubled`` or ``stalling``; or none."""

    name = "doubtful"
    operations = {"not": lambda a: {"result": ~a & 0xFF}}
    latency = 1
    fault = None

    def operands(self):
        return {"a": unsigned(8)}

    def results(self):
        return {"result": unsigned(8)}

    def datapath(self, m, pipeline, operands):
        return pipeline.stage(result=~operands.a)

    def elaborate(self, platform):
        m = Module()
        if self.fault is None:
            return super().elaborate(platform)
        held, count, clocks = Signal(8), Signal(2), Signal(3)
        m.d.comb += [self.o.payload.result.eq(~held), self.o.valid.eq(count != 0)]
        m.d.sync += clocks.eq(clocks + 1)
        ready = {"stuck": 0, "silent": 1, "doubled": count == 0, "stalling": (count == 0) & (clocks == 0)}[self.fault]
        m.d.comb += self.i.ready.eq(ready)
        with m.If(self.i.ready & self.i.valid):
            m.d.sync += [held.eq(self.i.payload.a), count.eq({"silent": 0, "doubled": 2}.get(self.fault, 1))]
        with m.Elif(self.o.valid & self.o.ready):
            m.d.sync += count.eq(count - 1)
        return m


def made(fault):
    unit = Doubtful(format=lns8)
    unit.fault = fault
    return unit


def driven(unit, data, wanted, test=False, limit=200_000):
    """Return the bytes that a driver gives for some, and the status, and see that it comes to rest."""
    dut, found = UnitDriver(unit), SimpleNamespace(bytes=b"", status=None)
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)

    async def bench(ctx):
        await ctx.tick().repeat(3)
        for name, value in (("start", 1), ("fresh", 1), ("test", test), ("more", wanted > 0)):
            ctx.set(getattr(dut, name), value)
        await ctx.tick()
        ctx.set(dut.start, 0)
        place = 0
        for _ in range(limit):
            ctx.set(dut.left, len(data) - place)
            ctx.set(dut.i.valid, place < len(data))
            ctx.set(dut.i.payload, data[place] if place < len(data) else 0)
            ctx.set(dut.o.ready, 1)
            ctx.set(dut.more, len(found.bytes) < wanted)
            taken, given, byte = ctx.get(dut.i.ready & dut.i.valid), ctx.get(dut.o.valid), ctx.get(dut.o.payload)
            if ctx.get(dut.done) and len(found.bytes) >= wanted:
                found.status = Status(ctx.get(dut.status))
                break
            place += taken
            found.bytes += bytes([byte] if given else [])
            await ctx.tick()
        assert place == len(data)

    simulator.add_testbench(bench)
    simulator.run()
    return found.bytes, found.status


OPERANDS = bytes(range(10, 20))
RESULTS = bytes(~byte & 0xFF for byte in OPERANDS)


@pytest.mark.parametrize(
    ("fault", "results", "status"),
    [
        (None, RESULTS, Status(0)),
        ("stalling", RESULTS, Status(0)),
        ("stuck", bytes(10), Status.MISSING),
        ("silent", bytes(10), Status.MISSING),
        ("doubled", bytes(byte for byte in RESULTS[:5] for _ in "12"), Status.SURPLUS),
    ],
)
def test_a_run_comes_to_an_end(fault, results, status):
    assert driven(made(fault), OPERANDS, 10) == (results, status)


class Slow(Doubtful):
    """A unit of which the results take longer than all operands."""

    latency = 300

    def datapath(self, m, pipeline, operands):
        return pipeline.delay(300, result=~operands.a)


def test_results_may_take_their_time():
    assert driven(Slow(format=lns8), OPERANDS, 10) == (RESULTS, Status(0))


def test_fewer_and_more_results_than_there_are():
    assert driven(made(None), OPERANDS, 8) == (RESULTS[:8], Status.SURPLUS)
    assert driven(made(None), OPERANDS, 12) == (RESULTS + bytes(2), Status.MISSING)
    assert driven(made(None), b"", 0) == (b"", Status(0))


def test_a_payload_that_is_not_whole():
    unit = hdl.Multiply(format=lns8)
    one = bytes([0x40, 0x40])
    results, status = driven(unit, one + b"\x40", 2)
    assert (results, status) == (driven(hdl.Multiply(format=lns8), one, 2)[0], Status.INCOMPLETE)


def test_a_test_of_a_unit_that_takes_nothing_comes_to_an_end():
    assert driven(made("stuck"), bytes([1, 2, 3, 4]), 1, test=True) == (bytes(1), Status(0))


@pytest.mark.slow
def test_a_test_is_65_536_payloads():
    seed = bytes([1, 2, 3, 4])
    assert driven(made(None), seed, 1, test=True) == (expected_signature(made(None), seed), Status(0))
