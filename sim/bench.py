"""The cocotb bench of a stream unit: a driver, a monitor and an in-order scoreboard. It knows payloads, not units.

It runs inside the simulator's process. What to do is in the file that ``$LNS_BENCH_JOB`` names, what happened goes into
``result.json`` beside it; :mod:`sim.verify` writes the one and reads the other.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import deque
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

__all__ = ["Driver", "Monitor", "Scoreboard", "StallPattern"]

PERIOD_NS = 10
# Clocks without any progress after which the unit is taken to hang; stalls are at most a few dozen clocks long.
PATIENCE = 1000


class StallPattern:
    """Whether to stand still in a clock: a seeded mix of none, frequent short and rare long stalls.

    The first `quiet` clocks have no stall, so that latency and throughput can be measured.
    """

    def __init__(self, seed: str, quiet: int):
        self._random = random.Random(seed)
        self._quiet = quiet
        self._chance = 0.0
        self._phase_left = quiet
        self._stall_left = 0

    def stalled(self) -> bool:
        """Return whether to stall in the next clock."""
        if self._stall_left:
            self._stall_left -= 1
            return True
        if not self._phase_left:
            self._phase_left = self._random.randint(40, 400)
            self._chance = self._random.choice((0.0, 0.0, 0.0, 0.02, 0.1, 0.5))
        self._phase_left -= 1
        if self._chance and self._random.random() < self._chance:
            self._stall_left = self._random.choice((0, 0, 0, 1, 3, 20)) if self._chance < 0.5 else 0
            return True
        return False


class Scoreboard:
    """Compares results with what is expected, in order, and keeps the first mismatch of each segment.

    Parameters
    ----------
    expected : list of int
        Payloads in the order of the vectors.
    segments : list of (str, int)
        Name and number of vectors of each group, in order.
    """

    def __init__(self, expected: list[int], segments: list[tuple[str, int]]):
        self._expected = expected
        self.received = 0
        self.problems: list[str] = []
        self.segments = [
            {"name": name, "vectors": count, "mismatches": 0, "received": 0, "first": None} for name, count in segments
        ]
        self._ends, end = [], 0
        for _, count in segments:
            end += count
            self._ends.append(end)
        self._segment = 0

    @property
    def complete(self) -> bool:
        """Whether every expected result has come."""
        return self.received == len(self._expected)

    def receive(self, payload: int | None, cycle: int) -> None:
        """Compare the next result; None stands for one with unknown bits."""
        index = self.received
        if index >= len(self._expected):
            self.problem(f"a result came at cycle {cycle} that nothing was sent for")
            return
        while index >= self._ends[self._segment]:
            self._segment += 1
        segment = self.segments[self._segment]
        segment["received"] += 1
        if payload != self._expected[index]:
            segment["mismatches"] += 1
            if segment["first"] is None:
                segment["first"] = {"index": index, "payload": payload, "cycle": cycle}
        self.received += 1

    def problem(self, text: str) -> None:
        """Note something wrong that is no single result; the first few are kept."""
        if len(self.problems) < 5:
            self.problems.append(text)


class Driver:
    """Offers payloads on a stream, with stalls; a payload stays until it is taken."""

    def __init__(self, dut, payloads: list[int], stalls: StallPattern):
        self._clk, self._rst = dut.clk, dut.rst
        self._payload, self._valid, self._ready = dut.i__payload, dut.i__valid, dut.i__ready
        self._payloads = payloads
        self._stalls = stalls
        self.accepted: list[int] = []  # the cycle in which each of the first payloads was taken
        self.sent = 0

    async def run(self, bench: Bench) -> None:
        """Send all payloads."""
        edge = RisingEdge(self._clk)
        offered = False
        for payload in self._payloads:
            while self._stalls.stalled():
                if offered:
                    self._valid.value = 0
                    offered = False
                await edge
            self._payload.value = payload
            if not offered:
                self._valid.value = 1
                offered = True
            await edge
            while self._ready.value != 1:
                await edge
            self.sent += 1
            if len(self.accepted) < bench.quiet:
                self.accepted.append(bench.cycle)
        self._valid.value = 0


class Monitor:
    """Takes results from a stream, with stalls, and checks the rules of the handshake."""

    def __init__(self, dut, scoreboard: Scoreboard, stalls: StallPattern):
        self._clk = dut.clk
        self._payload, self._valid, self._ready = dut.o__payload, dut.o__valid, dut.o__ready
        self._scoreboard = scoreboard
        self._stalls = stalls
        self.taken: list[int] = []  # the cycle of each of the first results

    async def run(self, bench: Bench) -> None:
        """Take results until the bench ends; this is also what counts clocks."""
        edge = RisingEdge(self._clk)
        ready = False
        waiting: tuple[int, int | None] | None = None
        while True:
            stalled = self._stalls.stalled()
            if ready == stalled:
                ready = not stalled
                self._ready.value = int(ready)
            await edge
            bench.cycle += 1
            valid = self._valid.value
            if not valid.is_resolvable:
                self._scoreboard.problem(f"o.valid is unknown at cycle {bench.cycle}")
                continue
            if valid != 1:
                if waiting is not None:
                    self._scoreboard.problem(f"o.valid fell at cycle {bench.cycle} before its result was taken")
                    waiting = None
                continue
            value = self._payload.value
            payload = value.to_unsigned() if value.is_resolvable else None
            if waiting is not None and waiting[0] != payload:
                self._scoreboard.problem(f"o.payload changed at cycle {bench.cycle} while it waited to be taken")
            waiting = None if ready else (payload,)
            if ready:
                if len(self.taken) < bench.quiet:
                    self.taken.append(bench.cycle)
                bench.progress = bench.cycle
                self._scoreboard.receive(payload, bench.cycle)
                bench.note(self._scoreboard.received)


class Bench:
    """One run: reset, all vectors, and a look for what should not come after them."""

    def __init__(self, job: dict, folder: Path):
        self._job = job
        self._folder = folder
        self.quiet = job["quiet"]
        self.cycle = 0
        self.progress = 0
        self._times = [time.perf_counter()]
        self._ends = deque()
        end = 0
        for _, count in job["segments"]:
            end += count
            self._ends.append(end)

    def note(self, received: int) -> None:
        """Keep the time at which each segment ended, and tell whoever waits outside how far it is."""
        while self._ends and received >= self._ends[0]:
            self._ends.popleft()
            self._times.append(time.perf_counter())
        if received % 1024 == 0:
            Path(self._folder, "progress").write_text(str(received))

    async def run(self, dut) -> dict:
        """Run everything and return the result."""
        job, seed = self._job, self._job["seed"]
        scoreboard = Scoreboard(job["expected"], job["segments"])
        driver = Driver(dut, job["payloads"], StallPattern(f"{seed} driver", self.quiet))
        monitor = Monitor(dut, scoreboard, StallPattern(f"{seed} monitor", self.quiet + job["latency"] + 8))

        Clock(dut.clk, PERIOD_NS, unit="ns").start()
        await self._reset_in_flight(dut, job["payloads"][0], job["latency"])
        self._times = [time.perf_counter()]
        cocotb.start_soon(monitor.run(self))
        cocotb.start_soon(driver.run(self))
        for _ in range(50_000_000):
            await RisingEdge(dut.clk)
            if scoreboard.complete or self.cycle - self.progress > PATIENCE:
                break
        if not scoreboard.complete:
            scoreboard.problem(
                f"the unit stopped: {driver.sent} vectors were taken and {scoreboard.received} results came, "
                f"then nothing for {PATIENCE} clocks up to cycle {self.cycle}"
            )
        for _ in range(4 * job["latency"] + 16):
            await RisingEdge(dut.clk)
        self._check_timing(driver, monitor, scoreboard)
        return {
            "segments": scoreboard.segments,
            "problems": scoreboard.problems,
            "seconds": [after - before for before, after in zip(self._times, self._times[1:], strict=False)],
            "cycles": self.cycle,
        }

    async def _reset_in_flight(self, dut, payload: int, latency: int) -> None:
        """Reset, fill the unit, reset again: nothing of what it held may come out later."""
        edge = RisingEdge(dut.clk)
        dut.rst.value, dut.i__valid.value, dut.i__payload.value, dut.o__ready.value = 1, 0, 0, 0
        for _ in range(3):
            await edge
        dut.rst.value, dut.i__valid.value, dut.i__payload.value = 0, 1, payload
        for _ in range(latency + 2):
            await edge
        dut.rst.value, dut.i__valid.value = 1, 0
        await edge
        dut.rst.value = 0
        await edge

    def _check_timing(self, driver: Driver, monitor: Monitor, scoreboard: Scoreboard) -> None:
        """Hold the stated latency and the rate of one result a clock against the clocks without stalls."""
        latency = self._job["latency"]
        for index, (sent, taken) in enumerate(zip(driver.accepted, monitor.taken, strict=False)):
            if taken - sent != latency:
                scoreboard.problem(
                    f"vector {index} took {taken - sent} clocks without stalls, not the stated {latency}"
                )
                return
        for index, (before, after) in enumerate(zip(monitor.taken, monitor.taken[1:], strict=False)):
            if after - before != 1:
                scoreboard.problem(f"result {index + 1} came {after - before} clocks after the one before, not 1")
                return


@cocotb.test()
async def stream_unit(dut) -> None:
    """Run the job; the verdict is in the result, so that the parent process judges it."""
    job_file = Path(os.environ["LNS_BENCH_JOB"])
    job = json.loads(job_file.read_text())
    result = await Bench(job, job_file.parent).run(dut)
    job_file.with_name("result.json").write_text(json.dumps(result))
