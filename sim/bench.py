"""The cocotb bench of a stream unit: a driver, a monitor and an in-order scoreboard. It knows payloads, not units.

It runs inside the simulator's process. What to do is in the file that ``$LNS_BENCH_JOB`` names, what happened goes into
``result.json`` beside it; :mod:`sim.verify` writes the one and reads the other.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

__all__ = ["Bench", "Driver", "Monitor", "Scoreboard", "StallPattern", "Watcher"]

PERIOD_NS = 10
# Clocks without any progress after which the unit is taken to hang; stalls are at most 151 clocks long.
PATIENCE = 1000


# Every 2048 clocks, and at the start, nothing stalls for a while. In the first clocks of each such quiet the driver
# offers nothing and the monitor takes all there is, so that a unit with a buffer is empty when the measuring begins.
_DRAIN = 48
_MEASURED = 64


def draining(cycle: int, latency: int) -> bool:
    """Whether the unit is given time to empty itself."""
    return cycle % 2048 < latency + _DRAIN


def quiet(cycle: int, latency: int) -> bool:
    """Whether neither end stalls at random in a clock."""
    return cycle % 2048 < 2 * latency + _DRAIN + _MEASURED


def settled(cycle: int, latency: int) -> bool:
    """Whether the quiet has lasted long enough that a payload must be taken in every clock."""
    return 2 * latency + _DRAIN + 2 <= cycle % 2048 < 2 * latency + _DRAIN + _MEASURED


class StallPattern:
    """Whether to stand still in a clock: a seeded mix of none, frequent short and rare long stalls."""

    def __init__(self, seed: str, latency: int):
        self._random = random.Random(seed)
        self._latency = latency
        self._chance = 0.0
        self._phase_left = 0
        self._stall_left = 0

    def stalled(self, cycle: int) -> bool:
        """Return whether to stall in this clock; to be asked once for each."""
        if quiet(cycle, self._latency):
            self._stall_left = 0
            return False
        if self._stall_left:
            self._stall_left -= 1
            return True
        if not self._phase_left:
            self._phase_left = self._random.randint(40, 400)
            self._chance = self._random.choice((0.0, 0.0, 0.0, 0.02, 0.1, 0.5))
        self._phase_left -= 1
        if self._chance and self._random.random() < self._chance:
            self._stall_left = self._random.choice((0, 0, 0, 1, 3, 20)) if self._chance < 0.5 else 0
            if self._random.random() < 0.01:
                self._stall_left = 150
            return True
        return False


class Scoreboard:
    """Compares results with what is expected, in order, and keeps the first mismatch of each segment.

    Parameters
    ----------
    expected : list of int
        Payloads in order.
    segments : list of (str, int)
        Name and number of results of each group, in order.
    """

    def __init__(self, expected: list[int], segments: list[tuple[str, int]]):
        self._expected = expected
        self.received = 0
        self.problems: list[str] = []
        self.segments = [
            {"name": name, "results": count, "mismatches": 0, "received": 0, "first": None} for name, count in segments
        ]
        self._ends = list(itertools.accumulate(count for _, count in segments))
        self._segment = 0

    @property
    def complete(self) -> bool:
        """Whether every expected result has come."""
        return self.received == len(self._expected)

    @property
    def failed(self) -> bool:
        """Whether anything was wrong so far."""
        return bool(self.problems) or any(segment["first"] for segment in self.segments)

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
    """Offers payloads on a stream, with stalls, and checks that they are taken at the full rate.

    A payload stays until it is taken, and where none is offered there is noise.
    """

    def __init__(self, dut, job: dict, scoreboard: Scoreboard, stalls: StallPattern):
        self._clk = dut.clk
        self._payload, self._valid, self._ready = dut.i__payload, dut.i__valid, dut.i__ready
        self._payloads, self._completes, self._waits = job["payloads"], job["completes"], job["waits"]
        self._width = job["width"]
        self._scoreboard = scoreboard
        self._stalls = stalls
        self._latency = job["latency"]
        self._noise = random.Random(f"{job['seed']} noise")
        self.sent = 0
        self.in_flight: deque[int] = deque()  # the cycles in which those payloads were taken that bring a result

    @property
    def finished(self) -> bool:
        """Whether all payloads were taken."""
        return self.sent == len(self._payloads)

    async def run(self) -> None:
        """Send all payloads."""
        edge = RisingEdge(self._clk)
        cycle = 0
        offered = False
        for payload, completes, waits in zip(self._payloads, self._completes, self._waits, strict=True):
            while self._stalls.stalled(cycle) or draining(cycle, self._latency):
                if offered:
                    self._valid.value = 0
                    offered = False
                self._payload.value = self._noise.getrandbits(self._width)
                await edge
                cycle += 1
            self._payload.value = payload
            if not offered:
                self._valid.value = 1
                offered = True
            await edge
            cycle += 1
            while self._ready.value != 1:
                if not waits and settled(cycle, self._latency):
                    self._scoreboard.problem(
                        f"nothing was taken at cycle {cycle}, though nothing had stalled for a while"
                    )
                await edge
                cycle += 1
            self.sent += 1
            if completes:
                self.in_flight.append(cycle)
        self._valid.value = 0
        self._payload.value = self._noise.getrandbits(self._width)


class Monitor:
    """Takes results from a stream, with stalls, and checks the handshake, the latency and the rate."""

    def __init__(
        self, dut, driver: Driver, scoreboard: Scoreboard, stalls: StallPattern, latency: int, steady: bool = True
    ):
        self._clk = dut.clk
        self._payload, self._valid, self._ready = dut.o__payload, dut.o__valid, dut.o__ready
        self._driver = driver
        self._scoreboard = scoreboard
        self._stalls = stalls
        self._latency = latency
        self._steady = steady
        self.cycle = 0
        self.last = 0  # the cycle of the last result

    async def run(self, progress: Callable[[int], None]) -> None:
        """Take results for ever, telling `progress` their number."""
        edge = RisingEdge(self._clk)
        scoreboard = self._scoreboard
        ready = False
        waiting: tuple[int | None] | None = None
        while True:
            stalled = self._stalls.stalled(self.cycle)
            if ready == stalled:
                ready = not stalled
                self._ready.value = int(ready)
            await edge
            self.cycle += 1
            valid = self._valid.value
            if not valid.is_resolvable:
                scoreboard.problem(f"o.valid is unknown at cycle {self.cycle}")
                continue
            if valid != 1:
                if waiting is not None:
                    scoreboard.problem(f"o.valid fell at cycle {self.cycle} before its result was taken")
                    waiting = None
                continue
            value = self._payload.value
            payload = value.to_unsigned() if value.is_resolvable else None
            if waiting is not None and waiting[0] != payload:
                scoreboard.problem(f"o.payload changed at cycle {self.cycle} while it waited to be taken")
            waiting = None if ready else (payload,)
            if ready:
                self.last = self.cycle
                self._check_latency()
                scoreboard.receive(payload, self.cycle)
                progress(scoreboard.received)

    def _check_latency(self) -> None:
        if not self._driver.in_flight:
            return  # nothing was sent for this result, which the scoreboard says
        taken = self.cycle - self._driver.in_flight.popleft()
        # What comes in the drained part of a quiet was sent after the unit had emptied itself.
        undisturbed = quiet(self.cycle, self._latency) and not draining(self.cycle, self._latency)
        if undisturbed and (taken != self._latency if self._steady else taken > self._latency):
            stated = f"the stated {self._latency}" if self._steady else f"at most the stated {self._latency}"
            self._scoreboard.problem(
                f"the result at cycle {self.cycle} took {taken} clocks without stalls, not {stated}"
            )


class Watcher:
    """Counts what clocks look like at the two ends: see :data:`sim.batch.ENDS`."""

    def __init__(self, dut):
        self._dut = dut
        self.clocks: Counter[str] = Counter()

    async def run(self) -> None:
        """Count for ever."""
        dut, edge = self._dut, RisingEdge(self._dut.clk)
        while True:
            await edge
            given = ("taken" if dut.i__ready.value == 1 else "refused") if dut.i__valid.value == 1 else "idle"
            got = ("taken" if dut.o__ready.value == 1 else "waits") if dut.o__valid.value == 1 else "nothing"
            self.clocks[f"{given}, {got}"] += 1


class Bench:
    """One run: resets, all vectors, and a look for what should not come after them."""

    def __init__(self, job: dict, folder: Path):
        self._job = job
        self._folder = folder
        self._times: list[float] = []
        self._ends = deque(itertools.accumulate(count for _, count in job["segments"]))

    def _note(self, received: int) -> None:
        """Keep the time at which each segment ended, and tell whoever waits outside how far it is."""
        while self._ends and received >= self._ends[0]:
            self._ends.popleft()
            self._times.append(time.perf_counter())
        if received % 1024 == 0:
            Path(self._folder, "progress").write_text(str(received))

    async def run(self, dut) -> dict:
        """Run everything and return the result."""
        job, seed, latency = self._job, self._job["seed"], self._job["latency"]
        scoreboard = Scoreboard(job["expected"], job["segments"])
        driver_stalls, monitor_stalls = (StallPattern(f"{seed} {end}", latency) for end in ("driver", "monitor"))
        driver = Driver(dut, job, scoreboard, driver_stalls)
        monitor = Monitor(dut, driver, scoreboard, monitor_stalls, latency, job.get("steady", True))

        Clock(dut.clk, PERIOD_NS, unit="ns").start()
        await self._reset_in_flight(dut, scoreboard)
        self._times = [time.perf_counter()]
        self._note(0)  # segments without vectors
        cocotb.start_soon(monitor.run(self._note))
        cocotb.start_soon(driver.run())
        watcher = Watcher(dut)
        if job.get("coverage"):
            cocotb.start_soon(watcher.run())
        edge = RisingEdge(dut.clk)
        cut = False
        while not scoreboard.complete and not cut and monitor.cycle - monitor.last <= PATIENCE:
            await edge
            cut = job.get("exit_first", False) and scoreboard.failed
        if not scoreboard.complete and not cut:
            scoreboard.problem(
                f"the unit stopped: {driver.sent} payloads were taken and {scoreboard.received} results came, "
                f"then nothing for {PATIENCE} clocks up to cycle {monitor.cycle}"
            )
        for _ in range(0 if cut else 4 * latency + 200):  # longer than any stall of the monitor
            await edge
        return {
            "cut": cut,
            "segments": scoreboard.segments,
            "problems": scoreboard.problems,
            "seconds": [after - before for before, after in itertools.pairwise(self._times)],
            "cycles": monitor.cycle,
            "clocks": watcher.clocks,
        }

    async def _reset_in_flight(self, dut, scoreboard: Scoreboard) -> None:
        """Fill the unit and reset it, in several ways: nothing of what it held may come out.

        The unit is filled to different depths, its output taken or not, its input offering or not during the reset.
        With the output not taken, a result must show itself all the same: valid may not wait for ready.
        """
        edge = RisingEdge(dut.clk)
        latency = self._job["latency"]
        payloads = itertools.cycle(zip(self._job["payloads"], self._job["completes"], strict=True))
        dut.rst.value, dut.i__valid.value, dut.i__payload.value, dut.o__ready.value = 1, 0, 0, 0
        for _ in range(3):
            await edge
        for ready, offering, depth in itertools.product((0, 1), (0, 1), (0, latency - 1, latency + 2)):
            dut.rst.value, dut.i__valid.value, dut.o__ready.value = 0, 1, ready
            brings = await self._fill(dut, payloads, depth)
            if brings and not ready and depth > latency:
                await ReadOnly()
                if dut.o__valid.value != 1:
                    scoreboard.problem("o.valid stayed low while o.ready was low: it must not wait for it")
                await edge
            dut.rst.value, dut.i__valid.value = 1, offering
            await edge
            dut.rst.value, dut.i__valid.value, dut.o__ready.value = 0, 0, 1
            for _ in range(latency + 4):
                await edge
                if dut.o__valid.value != 0:
                    scoreboard.problem("a result that was in flight came out after a reset")

    async def _fill(self, dut, payloads: Iterator[tuple[int, int]], depth: int) -> bool:
        """Offer payloads up to one that brings a result, and for `depth` clocks more; whether it was taken."""
        edge = RisingEdge(dut.clk)
        for payload, completes in itertools.islice(payloads, PATIENCE):
            dut.i__payload.value = payload
            await edge
            if completes:
                break
        brings = dut.i__ready.value == 1
        for payload, _ in itertools.islice(payloads, depth):
            dut.i__payload.value = payload
            await edge
        return brings


@cocotb.test()
async def stream_unit(dut) -> None:
    """Run the job; the verdict is in the result, so that the parent process judges it."""
    job_file = Path(os.environ["LNS_BENCH_JOB"])
    job = json.loads(job_file.read_text())
    result = await Bench(job, job_file.parent).run(dut)
    job_file.with_name("result.json").write_text(json.dumps(result))
