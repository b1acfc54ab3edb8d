"""Run in a simulator by test_axi_stream.py: cocotbext-axi's source and sink at the two ends of an AxiStream.

What to send is in the file that ``$LNS_BUS_JOB`` names; what came goes into ``result.json`` beside it.
"""

import itertools
import json
import os
import random
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiStreamBus, AxiStreamSink, AxiStreamSource

# Whether to pause, clock by clock.
PAUSES = {
    "never": lambda rng: None,
    "cycle": lambda rng: itertools.cycle([1, 1, 1, 0]),
    "random": lambda rng: iter(lambda: rng.random() < 0.5, None),
    "rare": lambda rng: itertools.chain.from_iterable([0] * rng.randint(1, 60) + [1] * 40 for _ in itertools.count()),
}


class Watch:
    """Checks the handshakes at both ends in every clock, and notes when transfers were made."""

    def __init__(self, dut):
        self.dut = dut
        self.problems = []
        self.cycle = 0
        self.transfers = {"s_axis": [], "m_axis": []}

    async def run(self):
        held, in_reset = None, False
        while True:
            await RisingEdge(self.dut.aclk)
            self.cycle += 1
            outputs = [self.dut.s_axis_tready.value, self.dut.m_axis_tvalid.value]
            if not all(value.is_resolvable for value in outputs):
                self.problems.append(f"tready or tvalid is unknown at clock {self.cycle}")
                continue
            if self.dut.aresetn.value == 0:
                # The clock edge that ends the first clock of a reset is the one that sees it.
                if in_reset and any(value == 1 for value in outputs):
                    self.problems.append(f"tready or tvalid is set in a reset, at clock {self.cycle}")
                held, in_reset = None, True
                continue
            in_reset = False
            now = None
            if self.dut.m_axis_tvalid.value == 1:
                now = (str(self.dut.m_axis_tdata.value), str(self.dut.m_axis_tlast.value))
                if set("".join(now)) - set("01"):
                    self.problems.append(f"tdata or tlast is unknown at clock {self.cycle}")
            if held is not None and held != now:
                self.problems.append(f"tvalid, tdata or tlast changed at clock {self.cycle} before it was taken")
            held = now if self.dut.m_axis_tready.value == 0 else None
            for end, cycles in self.transfers.items():
                if getattr(self.dut, f"{end}_tvalid").value == 1 and getattr(self.dut, f"{end}_tready").value == 1:
                    cycles.append(self.cycle)


async def clocks(dut, count):
    for _ in range(count):
        await RisingEdge(dut.aclk)


async def reset(dut, count=3):
    dut.aresetn.value = 0
    await clocks(dut, count)
    dut.aresetn.value = 1
    await RisingEdge(dut.aclk)


async def matrix_point(dut, ends, watch, rng, idle, backpressure, packets):
    """Send all packets and return what comes back, with the clocks of the transfers."""
    source, sink = ends
    source.set_pause_generator(PAUSES[idle](rng))
    sink.set_pause_generator(PAUSES[backpressure](rng))
    for cycles in watch.transfers.values():
        cycles.clear()
    for packet in packets:
        await source.send(bytes.fromhex(packet))
    received = []
    for _ in range(5_000):
        await RisingEdge(dut.aclk)
        while not sink.empty():
            received.append(sink.recv_nowait().tdata.hex())
        if len(received) >= len(packets):
            break
    source.set_pause_generator(None)
    sink.set_pause_generator(None)
    source.pause = sink.pause = False
    await clocks(dut, 60)
    while not sink.empty():
        received.append(sink.recv_nowait().tdata.hex())
    return {"idle": idle, "backpressure": backpressure, "received": received, "clocks": dict(watch.transfers)}


async def reset_in_flight(dut, ends, rng, packets):
    """Fill the unit, the sink moving or not, reset it, and send one packet more: return all that came, each time."""
    source, sink = ends
    attempts = []
    for taking in (True, False):
        for filled in (1, 3, 7, 20, rng.randint(4, 40)):
            sink.pause = not taking
            for packet in packets[:-1]:
                await source.send(bytes.fromhex(packet))
            await clocks(dut, filled)
            dut.aresetn.value = 0
            await clocks(dut, 1)
            source.clear()
            await clocks(dut, rng.randint(0, 3))
            dut.aresetn.value = 1
            before = []
            while not sink.empty():
                before.append(sink.recv_nowait().tdata.hex())
            sink.pause = False
            await source.send(bytes.fromhex(packets[-1]))
            await clocks(dut, 150)
            after = []
            while not sink.empty():
                after.append(sink.recv_nowait().tdata.hex())
            attempts.append({"before": before, "after": after})
    return attempts


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def axi_stream(dut):
    job_file = Path(os.environ["LNS_BUS_JOB"])
    job = json.loads(job_file.read_text())
    rng = random.Random(job["seed"])
    dut.aresetn.value = 0
    Clock(dut.aclk, 10, unit="ns").start()
    source = AxiStreamSource(AxiStreamBus.from_prefix(dut, "s_axis"), dut.aclk, dut.aresetn, reset_active_level=False)
    sink = AxiStreamSink(AxiStreamBus.from_prefix(dut, "m_axis"), dut.aclk, dut.aresetn, reset_active_level=False)
    for end in (source, sink):
        end.log.setLevel("WARNING")
    watch = Watch(dut)
    await clocks(dut, 3)
    cocotb.start_soon(watch.run())
    await reset(dut)
    points = []
    for idle in PAUSES:
        for backpressure in PAUSES:
            point = await matrix_point(dut, (source, sink), watch, rng, idle, backpressure, job["packets"])
            points.append(json.loads(json.dumps(point)))
    attempts = await reset_in_flight(dut, (source, sink), rng, job["packets"])
    result = {"points": points, "resets": attempts, "problems": watch.problems, "clocks": watch.cycle}
    job_file.with_name("result.json").write_text(json.dumps(result))
