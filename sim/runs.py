"""One unit with its stimulus: how it runs, in a simulator or in this process, and what is made of what came out."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
from amaranth.hdl import ShapeLike
from amaranth.lib import stream

import hdl

from . import payloads
from .batch import Batch, Outcome
from .coverage import Coverage, read_code
from .exhaustive import Found, Space, verify_space
from .levels import RTL, Level
from .results import Counterexample, Field, Report, Result
from .segments import Segment
from .simulators import COVERAGE, RESULT, BuildFailed, Simulator

__all__ = ["BatchRun", "BenchRun", "ExhaustiveRun", "Run"]

# So many payloads at a time: a quarter of a second or so, after which an interrupt is heeded.
_PART = 1 << 20


@dataclasses.dataclass(kw_only=True)
class Run:
    """One unit: gates, stimulus, and what is expected.

    The methods are called in this order; :meth:`build` and :meth:`simulate` may be called in other threads, and call
    `progress` with the number of vectors that are done, which may raise.
    """

    #: What the results say they came by.
    runner: ClassVar[str]
    #: Whether it uses all cores by itself.
    alone: ClassVar[bool] = False

    name: str
    unit: hdl.Unit
    simulator: Simulator
    seed: int
    command: str
    level: Level = dataclasses.field(default_factory=RTL)

    def prepare(self) -> int:
        """Make the vectors; return how many results there will be."""
        raise NotImplementedError

    def build(self, verilog: str, progress: Callable[[int], None]) -> object:
        """Compile the gates; return them."""
        raise NotImplementedError

    def simulate(self, gates: object, progress: Callable[[int], None]) -> object:
        """Run the vectors; return what was found."""
        raise NotImplementedError

    def judge(self, raw: object, report: Report) -> None:
        """Add what was found to the report."""
        raise NotImplementedError

    def row(self, **values: object) -> Result:
        """Return a row of the report."""
        format = self.unit.format
        return Result(
            unit=self.name,
            format=format.name,
            adder=format.adder.name,
            accumulator=format.accumulator.name,
            specials=format.specials,
            level=self.level.name,
            device=self.level.device,
            simulator=self.simulator.name,
            runner=self.runner,
            **values,
        )

    def problems(self, sentences: list[str]) -> list[str]:
        """Return sentences for the report."""
        return [f"{self.name}: {sentence}; again: {self.command}" for sentence in sentences]

    def counterexample(
        self, op: int, sent: list[int], expected: int, got: int | None, **values: object
    ) -> Counterexample:
        """Return a counterexample from the payloads that were sent, the one expected, and the one that came."""
        results = self.unit.results()
        return Counterexample(
            unit=self.name,
            format=self.unit.format.name,
            operation=list(self.unit.operations)[op],
            operands=_fields(self.unit.operands(), self.unit.i, *sent),
            expected=_fields(results, self.unit.o, expected),
            got=None if got is None else _fields(results, self.unit.o, got),
            seed=self.seed,
            command=self.command,
            **values,
        )


@dataclasses.dataclass(kw_only=True)
class BenchRun(Run):
    """In a simulator, driven by the cocotb bench: random stalls, resets, latency, unknown bits, waves."""

    runner = "cocotb"

    stimuli: list[str]
    make: Callable[[str], Segment]
    waves: Path | None = None
    coverage: bool = False
    code_coverage: bool = False
    exit_first: bool = False

    @functools.cached_property
    def segments(self) -> list[Segment]:
        """The vectors of each stimulus."""
        return [self.make(stimulus) for stimulus in self.stimuli]

    def prepare(self) -> int:
        return sum(map(len, self.segments))

    def build(self, verilog: str, progress: Callable[[int], None]) -> Path:
        suffix = self.waves.suffix if self.waves else None
        return self.simulator.build(verilog, suffix, lambda: progress(0), self.code_coverage)

    def simulate(self, gates: Path, progress: Callable[[int], None]) -> dict:
        with tempfile.TemporaryDirectory(prefix="lns-verify-") as name:
            folder = Path(name)
            (folder / "job.json").write_text(json.dumps(self._job()))

            def poll() -> None:
                done = 0
                with contextlib.suppress(OSError, ValueError):  # not there yet, or being written
                    done = int((folder / "progress").read_text())
                progress(done)

            self.simulator.run(
                gates, "sim.bench", {"LNS_BENCH_JOB": str(folder / "job.json")}, folder, self.waves, poll, self.seed
            )
            raw = json.loads((folder / RESULT).read_text())
            if self.code_coverage:
                raw["code"] = read_code(folder / COVERAGE)
        asked = [(segment.stimulus, len(segment)) for segment in self.segments]
        if [(found["name"], found["results"]) for found in raw["segments"]] != asked:
            raise BuildFailed(f"the bench was to run {asked}, but reports {raw['segments']}")
        return raw

    def _job(self) -> dict:
        job = {name: [] for name in ("payloads", "completes", "waits", "expected", "segments")}
        for segment in self.segments:
            sent, expected = self._sent(segment), self._expected(segment)
            job["payloads"] += sent
            job["completes"] += segment.completes.tolist()
            job["waits"] += [segment.waits or not self.unit.steady] * len(sent)
            job["expected"] += expected
            job["segments"].append([segment.stimulus, len(expected)])
        width = payloads.width(self.unit.i.payload.shape())
        timing = {"latency": self.unit.latency, "steady": self.unit.steady}
        options = {"coverage": self.coverage, "exit_first": self.exit_first}
        return {"seed": self.seed, "width": width, **options, **timing, **job}

    def _sent(self, segment: Segment) -> list[int]:
        return payloads.pack(self.unit.i.payload.shape(), segment.vectors.fields(self.unit))

    def _expected(self, segment: Segment) -> list[int]:
        return payloads.pack(self.unit.o.payload.shape(), segment.expected)

    def judge(self, raw: dict, report: Report) -> None:
        # Results that never came count as mismatches, unless the run was cut short at the first failure. What was not
        # reached has no time.
        seconds = [*raw["seconds"], *[0.0] * (len(self.segments) - len(raw["seconds"]))]
        start = 0
        for segment, found, spent in zip(self.segments, raw["segments"], seconds, strict=True):
            vectors = found["received"] if raw["cut"] else len(segment)
            if vectors or not raw["cut"]:
                mismatches = found["mismatches"] + vectors - found["received"]
                row = self.row(
                    stimulus=segment.stimulus, vectors=vectors, mismatches=mismatches, seconds=round(spent, 3)
                )
                report.results.append(row)
            if (first := found["first"]) is not None:
                report.counterexamples.append(self._counterexample(segment, first["index"] - start, first))
            start += len(segment)
        report.problems += self.problems(raw["problems"])
        if self.coverage:
            report.coverage.append(self._covered(raw["clocks"]))
        if "code" in raw:
            report.code_coverage[self.name] = raw["code"]

    def _covered(self, clocks: Mapping[str, int]) -> Coverage:
        covered = Coverage.of(self.name, self.unit)
        for segment in self.segments:
            covered.add(self.unit, segment)
        covered.add_stalls(clocks, known=self.unit.steady and not any(segment.waits for segment in self.segments))
        return covered

    def _counterexample(self, segment: Segment, index: int, first: dict) -> Counterexample:
        places = segment.places(index)
        sent = {name: column[places] for name, column in segment.vectors.fields(self.unit).items()}
        expected = {name: column[[index]] for name, column in segment.expected.items()}
        return self.counterexample(
            int(segment.vectors.op[places[-1]]),
            payloads.pack(self.unit.i.payload.shape(), sent),
            *payloads.pack(self.unit.o.payload.shape(), expected),
            first["payload"],
            stimulus=segment.stimulus,
            index=index,
            source=segment.source(index) if segment.source else None,
            cycle=first["cycle"],
        )


class BatchRun(BenchRun):
    """The same vectors in this process, millions a second; checked are the results, and that they come."""

    runner = "batch"

    def build(self, verilog: str, progress: Callable[[int], None]) -> Batch:
        count = sum(len(segment.vectors) for segment in self.segments)
        return Batch(self.unit, verilog, expected=count, poll=lambda: progress(0))

    def simulate(self, gates: Batch, progress: Callable[[int], None]) -> dict:
        raw = {
            "segments": [{"received": 0, "mismatches": 0, "first": None} for _ in self.segments],
            "seconds": [0.0] * len(self.segments),
            "problems": [],
            "clocks": Counter(),
            "cut": False,
        }
        start = 0
        with gates:
            for number, segment in enumerate(self.segments):
                if not self._simulate_segment(gates, number, start, raw, progress):
                    never = len(segment) - raw["segments"][number]["received"]
                    raw["problems"].append(f"it stopped in {segment.stimulus}: {never} results never came")
                    break
                start += len(segment)
                if self.exit_first and (raw["problems"] or raw["segments"][number]["first"]):
                    raw["cut"] = True
                    break
        return raw

    def _simulate_segment(
        self, gates: Batch, number: int, start: int, raw: dict, progress: Callable[[int], None]
    ) -> bool:
        """Run a segment, whose results begin at `start`, and note what is found; return whether all of them came."""
        segment, found = self.segments[number], raw["segments"][number]
        # In parts, for each payload takes many times the memory of its words; those of a sequence belong together.
        step = len(segment.vectors) if segment.vectors.sequence else _PART
        for place in range(0, len(segment.vectors), step):
            part = slice(place, place + step)
            sent = {name: column[part] for name, column in segment.vectors.fields(self.unit).items()}
            wanted = {name: column[part] for name, column in segment.expected.items()}
            rows = payloads.to_rows(self.unit.i.payload.shape(), sent, len(segment.vectors.op[part]))
            expected = payloads.to_rows(
                self.unit.o.payload.shape(), wanted, len(segment) if segment.vectors.sequence else len(rows)
            )
            begin = time.perf_counter()
            outcome = self._send(gates, rows, number, len(expected), lambda done, of=start + place: progress(of + done))
            raw["seconds"][number] += time.perf_counter() - begin
            wrong = np.flatnonzero(outcome.wrong(expected) & outcome.came)
            if len(wrong) and found["first"] is None:
                found["first"] = {
                    "index": start + place + int(wrong[0]),
                    "payload": payloads.integer(outcome.rows[wrong[0]]),
                    "cycle": None,
                }
            found["received"] += int(outcome.came.sum())
            found["mismatches"] += len(wrong)
            raw["problems"] += outcome.problems
            raw["clocks"].update(outcome.ends)
            if not outcome.came.all():
                return False
            progress(start + place + len(expected))
        return True

    def _send(
        self, gates: Batch, rows: np.ndarray, number: int, wanted: int, progress: Callable[[int], None]
    ) -> Outcome:
        """Send payloads of a segment; return what came."""
        stalls = self.seed * 64 + number + 1
        return gates.run(rows, wanted, stalls=stalls, drain=True, count_ends=self.coverage)


class ExhaustiveRun(Run):
    """All operands that there are, in this process, on all cores."""

    runner = "batch"
    alone = True
    stimulus: ClassVar[str] = "exhaustive"

    def prepare(self) -> int:
        self.total = len(Space(self.unit))
        return self.total

    def build(self, verilog: str, progress: Callable[[int], None]) -> str:
        return verilog

    def simulate(self, gates: str, progress: Callable[[int], None]) -> Found:
        return verify_space(self.unit, gates, progress=lambda done, total: progress(done))

    def judge(self, raw: Found, report: Report) -> None:
        report.results.append(
            self.row(
                stimulus=self.stimulus,
                vectors=raw.vectors,
                earlier=raw.earlier,
                mismatches=raw.mismatches,
                seconds=round(raw.seconds, 3),
            )
        )
        if raw.first is not None:
            index, vectors, expected, got = raw.first
            sent = payloads.pack(self.unit.i.payload.shape(), vectors.fields(self.unit))
            place = {"stimulus": self.stimulus, "index": index, "source": None, "cycle": None}
            report.counterexamples.append(self.counterexample(int(vectors.op[0]), sent, expected, got, **place))
        if raw.vectors < self.total:
            raw.problems.append(f"it ended at the first mismatch, after {raw.vectors:,} of {self.total:,} vectors")
        report.problems += self.problems(raw.problems)


def _fields(layouts: Mapping[str, ShapeLike], port: stream.Interface, *sent: int) -> dict[str, Field]:
    """Return the fields of a payload, or of several as lists."""
    all_bits = [payloads.unpack(port.payload.shape(), payload) for payload in sent]
    fields = {}
    for name, layout in layouts.items():
        bits = [bits[name] for bits in all_bits] if len(all_bits) > 1 else all_bits[0][name]
        fields[name] = Field(payloads.width(payloads.element(layout)), bits, payloads.show(layout, bits))
    return fields
