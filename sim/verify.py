"""Run units in a simulator on chosen stimulus and compare every result with the golden model, bit for bit."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

import hdl
from xlnstorch import conversions
from xlnstorch.adders import Exact, named_adder
from xlnstorch.catalog import named_format
from xlnstorch.formats import LNSFormat
from xlnstorch.observe import FLAGS

from . import golden, workloads
from .capture import capture
from .results import Counterexample, Report, Result
from .simulators import RESULT, BuildFailed, Simulator, get_simulator
from .stimulus import GENERATED, Vectors, applies, generate

__all__ = ["STIMULI", "verify"]

#: Every stimulus, in the order in which they run.
STIMULI = (*GENERATED, "captured")

LEVEL = "rtl"
# As many as a simulator takes some ten minutes for.
_MAX_VECTORS = 10_000_000


@dataclasses.dataclass(frozen=True)
class _Segment:
    """Vectors of one stimulus with what is expected of them."""

    stimulus: str
    vectors: Vectors
    words: np.ndarray
    flags: np.ndarray
    source: Callable[[int], str] | None = None


def verify(
    units: Sequence[type[hdl.Unit]],
    format: LNSFormat,
    *,
    stimuli: Sequence[str] = STIMULI,
    seed: int = 0,
    vectors: int = 20_000,
    simulator: str = "verilator",
    waves: Path | None = None,
    trace: capture | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Report:
    """Compare units with the golden model.

    Parameters
    ----------
    units : sequence of Unit types
    format : LNSFormat
    stimuli : sequence of str
        From :data:`STIMULI`. ``"captured"`` is every multiplication and addition of one training step of a digits
        classifier, forward, backward and optimizer, with the results that the step itself had.
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
        A unit that cannot have the format, a trace that has nothing for it or is of another format, an unknown stimulus
        or simulator, a seed or a number out of range; before anything is built.
    ToolMissing, BuildFailed
        From the simulator.
    """
    chosen = get_simulator(simulator)
    for stimulus in stimuli:
        if stimulus not in STIMULI:
            raise ValueError(f"stimulus must be one of {', '.join(STIMULI)}, not {stimulus!r}")
    if not units or not stimuli:
        raise ValueError("verify needs at least one unit and one stimulus")
    if not 0 <= seed < 1 << 63:
        raise ValueError(f"seed must be at least 0 and below 2**63, not {seed}")
    if not 2 <= vectors <= _MAX_VECTORS:
        raise ValueError(f"vectors must be between 2 and {_MAX_VECTORS:,}, not {vectors:,}")
    for unit in units:
        unit.check_format(format)
        if not any(applies(stimulus, unit) for stimulus in stimuli):
            raise ValueError(f"the stimulus {stimuli[0]!r} has nothing for {unit.name}")
        if trace is not None and "captured" in stimuli and not any(len(trace[name]) for name in unit.operations):
            raise ValueError(f"the trace has no operation of {unit.name}: {' or '.join(unit.operations)}")
    if trace is not None and trace.format != format:
        raise ValueError(f"the trace must be of {format}, not {trace.format}")
    chosen.check()
    if waves is not None:
        chosen.check_waves(waves)

    own_trace = trace is not None
    if "captured" in stimuli and not own_trace:
        with capture(format) as trace:
            workloads.digits_step(format, seed)
        for unit in units:
            for operation in unit.operations:
                if not len(trace[operation]):
                    raise RuntimeError(
                        f"the training step has no {operation}, so {unit.name} would not be checked on it"
                    )
    runs = [
        _Run(
            unit=unit,
            format=format,
            segments=[
                _segment(stimulus, unit, format, seed, vectors, trace)
                for stimulus in stimuli
                if applies(stimulus, unit)
            ],
            simulator=chosen,
            seed=seed,
            waves=waves if waves is None or len(units) == 1 else waves.with_suffix(f".{unit.name}{waves.suffix}"),
            command=_command(unit, format, stimuli, seed, vectors, simulator, own_trace),
        )
        for unit in units
    ]
    report = Report(seed)
    if trace is not None:
        known = {operation for unit in hdl.UNITS.values() for operation in unit.operations}
        report.not_replayed = {name: count for name, count in trace.counts.items() if name not in known}
    for run, raw in zip(runs, _run_all(runs, progress or (lambda *_: None)), strict=True):
        run.judge(raw, report)
    return report


def _segment(stimulus, unit, format, seed, count, trace) -> _Segment:
    if stimulus != "captured":
        vectors = generate(stimulus, unit, format, seed=seed, count=count)
        return _Segment(stimulus, vectors, *golden.evaluate(unit, format, vectors))
    # The results of the step itself are expected, not those of computing it again.
    records = [trace[operation] for operation in unit.operations]
    ends = np.cumsum([len(record) for record in records])
    vectors = Vectors(
        np.repeat(np.arange(len(records)), [len(record) for record in records]),
        np.concatenate([record.a for record in records]),
        np.concatenate([record.b for record in records]),
    )

    def source(index: int) -> str:
        kind = int(np.searchsorted(ends, index, side="right"))
        return records[kind].source(index - (int(ends[kind - 1]) if kind else 0))

    words = np.concatenate([record.result for record in records])
    return _Segment(stimulus, vectors, words, np.concatenate([record.flags for record in records]), source)


def _command(unit, format, stimuli, seed, vectors, simulator, own_trace) -> str:
    if own_trace or not _can_be_named(format):
        return "the same call of sim.verify.verify: the command line cannot name this format or trace"
    words = ["lns", "verify", unit.name, "--format", format.name]
    if format.adder != Exact():
        words += ["--adder", format.adder.name]
    words += ["--simulator", simulator, "--seed", str(seed), "--vectors", str(vectors)]
    for stimulus in stimuli if tuple(stimuli) != STIMULI else ():
        words += ["--stimulus", stimulus]
    return shlex.join(words)


def _can_be_named(format: LNSFormat) -> bool:
    """Whether a command line can ask for a format: its widths and its adder, but no base and no accumulator."""
    try:
        adder = named_adder(format.adder.name)
    except ValueError:  # another package's
        return False
    return adder == format.adder and dataclasses.replace(format, adder=Exact()) == named_format(format.name)


@dataclasses.dataclass
class _Run:
    """One unit in one simulator with all its stimulus."""

    unit: type[hdl.Unit]
    format: LNSFormat
    segments: list[_Segment]
    simulator: Simulator
    seed: int
    waves: Path | None
    command: str

    @property
    def total(self) -> int:
        return sum(len(segment.vectors) for segment in self.segments)

    def execute(self, verilog: str, latency: int, progress: Callable[[int], None]) -> dict:
        """Build and simulate; return what the bench wrote."""
        build = self.simulator.build(verilog, self.waves.suffix if self.waves else None, lambda: progress(0))
        with tempfile.TemporaryDirectory(prefix="lns-verify-") as name:
            folder = Path(name)
            (folder / "job.json").write_text(json.dumps(self._job(latency)))

            def poll() -> None:
                done = 0
                with contextlib.suppress(OSError, ValueError):  # not there yet, or being written
                    done = int((folder / "progress").read_text())
                progress(done)

            self.simulator.run(
                build, "sim.bench", {"LNS_BENCH_JOB": str(folder / "job.json")}, folder, self.waves, poll
            )
            raw = json.loads((folder / RESULT).read_text())
        asked = [(segment.stimulus, len(segment.vectors)) for segment in self.segments]
        if [(found["name"], found["vectors"]) for found in raw["segments"]] != asked:
            raise BuildFailed(f"the bench was to run {asked}, but reports {raw['segments']}")
        return raw

    def _job(self, latency: int) -> dict:
        width = self.format.width
        payloads, expected = [], []
        for segment in self.segments:
            operands = zip(
                segment.vectors.op.tolist(), segment.vectors.a.tolist(), segment.vectors.b.tolist(), strict=True
            )
            payloads += [a | b << width | op << 2 * width for op, a, b in operands]
            results = zip(segment.words.tolist(), segment.flags.tolist(), strict=True)
            expected += [word | flags << width for word, flags in results]
        return {
            "seed": self.seed,
            "width": 2 * width + (len(self.unit.operations) - 1).bit_length(),
            "latency": latency,
            "payloads": payloads,
            "expected": expected,
            "segments": [[segment.stimulus, len(segment.vectors)] for segment in self.segments],
        }

    def judge(self, raw: dict, report: Report) -> None:
        """Add what the bench found to the report; results that never came count as mismatches."""
        # A unit that stopped leaves the later segments without a time.
        seconds = [*raw["seconds"], *[0.0] * (len(self.segments) - len(raw["seconds"]))]
        start = 0
        for segment, found, spent in zip(self.segments, raw["segments"], seconds, strict=True):
            missing = len(segment.vectors) - found["received"]
            report.results.append(
                Result(
                    unit=self.unit.name,
                    format=self.format.name,
                    adder=self.format.adder.name,
                    level=LEVEL,
                    simulator=self.simulator.name,
                    stimulus=segment.stimulus,
                    vectors=len(segment.vectors),
                    mismatches=found["mismatches"] + missing,
                    seconds=round(spent, 3),
                )
            )
            if found["first"] is not None:
                report.counterexamples.append(self._counterexample(segment, start, found["first"]))
            start += len(segment.vectors)
        report.problems += [f"{self.unit.name}: {problem}; again: {self.command}" for problem in raw["problems"]]

    def _counterexample(self, segment: _Segment, start: int, first: dict) -> Counterexample:
        index, payload, width = first["index"] - start, first["payload"], self.format.width
        a, b = int(segment.vectors.a[index]), int(segment.vectors.b[index])
        expected = int(segment.words[index])
        got = None if payload is None else payload & ((1 << width) - 1)
        return Counterexample(
            unit=self.unit.name,
            format=self.format.name,
            operation=list(self.unit.operations)[int(segment.vectors.op[index])],
            stimulus=segment.stimulus,
            index=index,
            source=segment.source(index) if segment.source else None,
            a=a,
            b=b,
            a_value=_value(self.format, a),
            b_value=_value(self.format, b),
            expected_word=expected,
            expected_value=_value(self.format, expected),
            expected_flags=_flag_names(int(segment.flags[index])),
            got_word=got,
            got_value=None if got is None else _value(self.format, got),
            got_flags=None if payload is None else _flag_names(payload >> width),
            cycle=first["cycle"],
            seed=self.seed,
            command=self.command,
        )


def _value(format: LNSFormat, word: int) -> float:
    return float(conversions.decode(format, torch.tensor(word)))


def _flag_names(bits: int) -> list[str]:
    return [flag for bit, flag in enumerate(FLAGS) if bits >> bit & 1]


def _run_all(runs: list[_Run], progress: Callable[[str, int, int], None]) -> list[dict]:
    """Build and simulate all runs, as many at a time as there are cores."""
    # Verilog first and one by one: pyosys keeps its designs in one place.
    instances = [run.unit(format=run.format) for run in runs]
    verilog = [hdl.to_verilog(instance) for instance in instances]
    stopped = threading.Event()

    def execute(run: _Run, text: str, latency: int) -> dict:
        def advance(done: int) -> None:
            if stopped.is_set():
                raise InterruptedError
            progress(run.unit.name, done, run.total)

        progress(run.unit.name, 0, 0)
        raw = run.execute(text, latency, advance)
        progress(run.unit.name, run.total, run.total)
        return raw

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        futures = [
            pool.submit(execute, run, text, instance.latency)
            for run, text, instance in zip(runs, verilog, instances, strict=True)
        ]
        try:
            return [future.result() for future in futures]
        except BaseException:
            stopped.set()
            for future in futures:
                future.cancel()
            raise
