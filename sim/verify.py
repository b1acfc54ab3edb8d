"""Run units in a simulator on chosen stimulus and compare every result with the golden model, bit for bit."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import shlex
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from amaranth.hdl import ShapeLike
from amaranth.lib import stream

import hdl
from xlnstorch.adders import Exact, named_adder
from xlnstorch.catalog import named_format
from xlnstorch.formats import LNSFormat

from . import payloads, workloads
from .capture import capture
from .naming import named_unit
from .results import Counterexample, Field, Report, Result
from .segments import STIMULI, Segment, has_segment, make_segment
from .simulators import RESULT, BuildFailed, Simulator, get_simulator

__all__ = ["STIMULI", "verify"]

LEVEL = "rtl"
# As many as a simulator takes some ten minutes for.
_MAX_VECTORS = 10_000_000


def verify(
    units: Sequence[str | type[hdl.Unit] | hdl.Unit],
    format: LNSFormat,
    *,
    stimuli: Sequence[str] = STIMULI,
    seed: int = 0,
    vectors: int = 5_000,
    simulator: str = "verilator",
    waves: Path | None = None,
    trace: capture | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Report:
    """Compare units with the golden model.

    Parameters
    ----------
    units : sequence of str, Unit types or Units
        What :func:`~sim.naming.named_unit` takes, or types, which are built for the format, or units of it. None stand
        for all of :data:`hdl.UNITS` to which any stimulus means anything.
    format : LNSFormat
    stimuli : sequence of str
        From :data:`STIMULI`; a unit has those that mean anything to it. ``"captured"`` is every LNS operation of one
        training step of a digits classifier, forward, backward and optimizer, with the results that the step itself
        had.
    seed : int
        Of the vectors, the stalls, and the training step; below 2**63.
    vectors : int
        How many vectors each stimulus has that is not exhaustive, 2 to 10 million.
    simulator : str
        A key of :data:`sim.simulators.SIMULATORS`.
    waves : Path
        Where to write waves; with several units the unit's name goes before the suffix.
    trace : capture
        What ``"captured"`` replays instead of the training step: the operations of a ``with capture(format)`` block.
    progress : callable
        Called with a unit's name, what it has done and what it has to do (0 while it is being compiled).

    Raises
    ------
    ValueError
        A unit that cannot have, or has not, the format; one that was asked for, but no stimulus means anything to, or a
        trace has nothing for; a trace of another format, an unknown stimulus or simulator, a seed or a number out of
        range; before anything is built.
    ToolMissing, BuildFailed
        From the simulator.
    """
    chosen = get_simulator(simulator)
    for stimulus in stimuli:
        if stimulus not in STIMULI:
            raise ValueError(f"stimulus must be one of {', '.join(STIMULI)}, not {stimulus!r}")
    if not stimuli:
        raise ValueError("verify needs at least one stimulus")
    if not 0 <= seed < 1 << 63:
        raise ValueError(f"seed must be at least 0 and below 2**63, not {seed}")
    if not 2 <= vectors <= _MAX_VECTORS:
        raise ValueError(f"vectors must be between 2 and {_MAX_VECTORS:,}, not {vectors:,}")
    named = [_named(unit, format) for unit in units or hdl.UNITS.values()]
    own_trace = trace is not None
    if own_trace and trace.format != format:
        raise ValueError(f"the trace must be of {format}, not {trace.format}")
    chosen.check()
    if waves is not None:
        chosen.check_waves(waves)
    if "captured" in stimuli and not own_trace:
        with capture(format) as trace:
            workloads.digits_step(format, seed)
    plan = [(text, unit, [name for name in stimuli if has_segment(name, unit, trace)]) for text, unit in named]
    for _, unit, names in plan if units else ():
        if own_trace and "captured" in stimuli and "captured" not in names:
            raise ValueError(f"the trace has no operation of {unit.name}: {' or '.join(unit.operations)}")
        if not names:
            raise ValueError(f"the stimulus {stimuli[0]!r} has nothing for {unit.name}")
    plan = [(text, unit, names) for text, unit, names in plan if names]
    runs = [
        _Run(
            name=text or unit.name,
            unit=unit,
            make=functools.partial(make_segment, unit=unit, seed=seed, count=vectors, trace=trace),
            stimuli=names,
            simulator=chosen,
            seed=seed,
            waves=_waves_of(waves, text or unit.name, len(plan)),
            command=_command(text, unit, stimuli, seed, vectors, simulator, own_trace),
        )
        for text, unit, names in plan
    ]
    report = Report(seed)
    if trace is not None:
        offered = [unit.operations for unit in hdl.UNITS.values() if isinstance(unit.operations, dict)]
        known = set().union(*offered)  # those that depend on the format convert, which is not captured
        report.not_replayed = {name: count for name, count in trace.counts.items() if name not in known}
    for run, raw in zip(runs, _run_all(runs, progress or (lambda *_: None)), strict=True):
        run.judge(raw, report)
    return report


def _named(unit: str | type[hdl.Unit] | hdl.Unit, format: LNSFormat) -> tuple[str | None, hdl.Unit]:
    """Return what the command line calls a unit, None for one with parameters that only the caller knows, and it."""
    if isinstance(unit, str):
        text, unit = unit, named_unit(unit, format)
    elif isinstance(unit, type):
        text, unit = unit.name, unit(format=format)
    else:
        text = None
    if unit.format != format:
        raise ValueError(f"{unit.name} must be of {format}, not {unit.format}")
    return text, unit


def _waves_of(waves: Path | None, name: str, units: int) -> Path | None:
    return waves.with_suffix(f".{name}{waves.suffix}") if waves is not None and units > 1 else waves


def _command(text: str | None, unit: hdl.Unit, stimuli, seed, vectors, simulator, own_trace) -> str:
    format = unit.format
    if text is None or own_trace or not _can_be_named(format):
        return "the same call of sim.verify.verify: the command line cannot name this unit, format or trace"
    words = ["lns", "verify", text, "--format", format.name]
    if format.adder != Exact():
        words += ["--adder", format.adder.name]
    if format.specials:
        words += ["--specials"]
    words += ["--simulator", simulator, "--seed", str(seed), "--vectors", str(vectors)]
    for stimulus in stimuli if tuple(stimuli) != STIMULI else ():
        words += ["--stimulus", stimulus]
    return shlex.join(words)


def _can_be_named(format: LNSFormat) -> bool:
    """Whether a command line can ask for a format: its widths, its adder and specials, but no base or accumulator."""
    try:
        adder = named_adder(format.adder.name)
    except ValueError:  # another package's
        return False
    plain = dataclasses.replace(format, adder=Exact(), specials=False)
    return adder == format.adder and plain == named_format(format.name)


@dataclasses.dataclass
class _Run:
    """One unit in one simulator with all its stimulus."""

    name: str
    unit: hdl.Unit
    stimuli: list[str]
    make: Callable[[str], Segment]
    simulator: Simulator
    seed: int
    waves: Path | None
    command: str

    @functools.cached_property
    def segments(self) -> list[Segment]:
        return [self.make(stimulus) for stimulus in self.stimuli]

    def build(self, verilog: str, progress: Callable[[int], None]) -> Path:
        """Compile the gates; return the folder."""
        return self.simulator.build(verilog, self.waves.suffix if self.waves else None, lambda: progress(0))

    def simulate(self, build: Path, progress: Callable[[int], None]) -> dict:
        """Run the bench; return what it wrote."""
        with tempfile.TemporaryDirectory(prefix="lns-verify-") as name:
            folder = Path(name)
            (folder / "job.json").write_text(json.dumps(self._job()))

            def poll() -> None:
                done = 0
                with contextlib.suppress(OSError, ValueError):  # not there yet, or being written
                    done = int((folder / "progress").read_text())
                progress(done)

            self.simulator.run(
                build, "sim.bench", {"LNS_BENCH_JOB": str(folder / "job.json")}, folder, self.waves, poll
            )
            raw = json.loads((folder / RESULT).read_text())
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
            job["waits"] += [segment.waits] * len(sent)
            job["expected"] += expected
            job["segments"].append([segment.stimulus, len(expected)])
        width = payloads.width(self.unit.i.payload.shape())
        return {"seed": self.seed, "width": width, "latency": self.unit.latency, **job}

    def _sent(self, segment: Segment) -> list[int]:
        op = {"op": segment.vectors.op} if len(self.unit.operations) > 1 else {}
        return payloads.pack(self.unit.i.payload.shape(), {**segment.vectors.operands, **op})

    def _expected(self, segment: Segment) -> list[int]:
        return payloads.pack(self.unit.o.payload.shape(), segment.expected)

    def judge(self, raw: dict, report: Report) -> None:
        """Add what the bench found to the report; results that never came count as mismatches."""
        # A unit that stopped leaves the later segments without a time.
        seconds = [*raw["seconds"], *[0.0] * (len(self.segments) - len(raw["seconds"]))]
        start = 0
        for segment, found, spent in zip(self.segments, raw["segments"], seconds, strict=True):
            missing = len(segment) - found["received"]
            report.results.append(
                Result(
                    unit=self.name,
                    format=self.unit.format.name,
                    adder=self.unit.format.adder.name,
                    specials=self.unit.format.specials,
                    level=LEVEL,
                    simulator=self.simulator.name,
                    stimulus=segment.stimulus,
                    vectors=len(segment),
                    mismatches=found["mismatches"] + missing,
                    seconds=round(spent, 3),
                )
            )
            if found["first"] is not None:
                report.counterexamples.append(self._counterexample(segment, start, found["first"]))
            start += len(segment)
        report.problems += [f"{self.name}: {problem}; again: {self.command}" for problem in raw["problems"]]

    def _counterexample(self, segment: Segment, start: int, first: dict) -> Counterexample:
        index, payload = first["index"] - start, first["payload"]
        places, sent, results = segment.places(index), self._sent(segment), self.unit.results()
        return Counterexample(
            unit=self.name,
            format=self.unit.format.name,
            operation=list(self.unit.operations)[int(segment.vectors.op[places[-1]])],
            stimulus=segment.stimulus,
            index=index,
            source=segment.source(index) if segment.source else None,
            operands=_fields(self.unit.operands(), self.unit.i, *(sent[place] for place in places)),
            expected=_fields(results, self.unit.o, self._expected(segment)[index]),
            got=None if payload is None else _fields(results, self.unit.o, payload),
            cycle=first["cycle"],
            seed=self.seed,
            command=self.command,
        )


def _fields(layouts: Mapping[str, ShapeLike], port: stream.Interface, *sent: int) -> dict[str, Field]:
    """Return the fields of a payload, or of several as lists."""
    all_bits = [payloads.unpack(port.payload.shape(), payload) for payload in sent]
    fields = {}
    for name, layout in layouts.items():
        bits = [bits[name] for bits in all_bits] if len(all_bits) > 1 else all_bits[0][name]
        fields[name] = Field(payloads.width(payloads.element(layout)), bits, payloads.show(layout, bits))
    return fields


def _run_all(runs: list[_Run], progress: Callable[[str, int, int], None]) -> list[dict]:
    """Build and simulate all runs, as many at a time as there are cores."""
    stopped = threading.Event()

    def advance(run: _Run, total: int, done: int) -> None:
        if stopped.is_set():
            raise InterruptedError
        progress(run.name, done, total)

    def build(run: _Run, verilog: str) -> Path:
        progress(run.name, 0, 0)
        return run.build(verilog, functools.partial(advance, run, 0))

    def simulate(run: _Run, built: Future[Path]) -> dict:
        total = sum(map(len, run.segments))
        raw = run.simulate(built.result(), functools.partial(advance, run, total))
        progress(run.name, total, total)
        return raw

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        futures = []
        try:
            # Verilog, and what the golden model says, in this thread, one by one, while others compile: pyosys keeps
            # its designs in one place, and observers see the arithmetic of all threads.
            builds = []
            for run in runs:
                builds.append(pool.submit(build, run, hdl.to_verilog(run.unit)))
                futures.append(builds[-1])
            for run, built in zip(runs, builds, strict=True):
                run.segments  # noqa: B018
                futures.append(pool.submit(simulate, run, built))
            return [future.result() for future in futures[len(builds) :]]
        except BaseException:
            stopped.set()
            for future in futures:
                future.cancel()
            raise
