"""Run units in a simulator on chosen stimulus and compare every result with the golden model, bit for bit."""

from __future__ import annotations

import dataclasses
import functools
import os
import shlex
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import hdl
from xlnstorch.accumulators import LogAccumulator, named_accumulator
from xlnstorch.adders import Exact, named_adder
from xlnstorch.catalog import named_format
from xlnstorch.formats import LNSFormat

from . import workloads
from .exhaustive import Space
from .levels import Level, Unavailable, get_level
from .naming import named_unit
from .results import Report
from .runs import BatchRun, BenchRun, ExhaustiveRun, Run
from .segments import STIMULI, has_segment, make_segment
from .sequences import is_sequential
from .simulators import get_simulator
from .steps import check_steps, make_steps
from .traces import Trace, capture

__all__ = ["EXHAUSTIVE", "RUNNERS", "STIMULI", "verify"]

EXHAUSTIVE = ExhaustiveRun.stimulus
RUNNERS = {runner.runner: runner for runner in (BenchRun, BatchRun)}

# As many as a simulator takes some ten minutes for.
_MAX_VECTORS = 10_000_000


def verify(
    units: Sequence[str | type[hdl.Unit] | hdl.Unit],
    format: LNSFormat,
    *,
    stimuli: Sequence[str] = STIMULI,
    seed: int = 0,
    vectors: int = 5_000,
    level: str | Level = "rtl",
    device: str | None = None,
    simulator: str = "verilator",
    runner: str = "cocotb",
    waves: Path | None = None,
    trace: Trace | None = None,
    coverage: bool = False,
    code_coverage: bool = False,
    exit_first: bool = False,
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
        had. And ``"exhaustive"``: all operands that there are, :class:`~sim.exhaustive.Space`, by
        :func:`~sim.exhaustive.verify_space`, whatever the `runner`; of units that sum all steps, :mod:`sim.steps`.
    seed : int
        Of the vectors, the stalls, and the training step; below 2**63.
    vectors : int
        How many vectors each stimulus has that is not exhaustive, 2 to 10 million.
    level : str or Level
        What the gates are: ``"rtl"``, the unit itself, or another that :func:`~sim.levels.get_level` knows, such as
        ``"synth"``, ``"route"`` or ``"bitstream"``; or what it has returned, as it must be where the level has options.
        Units that have none, and were not asked for, are left out.
    device : str, optional
        What the level is made for, such as ``"ice40"``, its first one by default.
    simulator : str
        A key of :data:`sim.simulators.SIMULATORS`.
    runner : {"cocotb", "batch"}
        What drives the gates: the bench with random stalls, resets and a clock count, or, with Verilator only, a loop
        in C++ that compares millions of results a second, and nothing but these.
    waves : Path
        Where to write waves; with several units the unit's name goes before the suffix.
    trace : Trace
        What ``"captured"`` replays instead of the training step: the operations of a ``with sim.capture(format)``
        block. The commands that show a failure again name its file, if it is in one.
    coverage : bool
        Whether the report has :class:`~sim.coverage.Coverage`.
    code_coverage : bool
        Whether it has the lines and toggles of the Verilog that were hit; with Verilator and its bench only.
    exit_first : bool
        Whether the run of a unit ends at its first mismatch or problem; then it has rows of what was compared only.
    progress : callable
        Called with a unit's name, what it has done and what it has to do (0 while it is being compiled).

    Raises
    ------
    ValueError
        A unit that cannot have, or has not, the format; one that was asked for, but no stimulus means anything to, or a
        trace has nothing for, or whose operands are too many for ``"exhaustive"``; a trace of another format, an
        unknown stimulus, simulator or runner, a seed or a number out of range; before anything is built.
    ToolMissing, BuildFailed
        From the simulator, and what makes the gates of the level.
    Unavailable
        A unit that was asked for, or each, has no gates at the level.
    """
    chosen, made = get_simulator(simulator), level if isinstance(level, Level) else get_level(level, device)
    units = units or made.units
    for stimulus in stimuli:
        if stimulus not in (*STIMULI, EXHAUSTIVE):
            raise ValueError(f"stimulus must be one of {', '.join((*STIMULI, EXHAUSTIVE))}, not {stimulus!r}")
    if not stimuli:
        raise ValueError("verify needs at least one stimulus")
    if runner not in RUNNERS:
        raise ValueError(f"runner must be one of {', '.join(RUNNERS)}, not {runner!r}")
    if not 0 <= seed < 1 << 63:
        raise ValueError(f"seed must be at least 0 and below 2**63, not {seed}")
    if not 2 <= vectors <= _MAX_VECTORS:
        raise ValueError(f"vectors must be between 2 and {_MAX_VECTORS:,}, not {vectors:,}")
    batch = "the runner batch" if runner == "batch" else "the stimulus exhaustive" if EXHAUSTIVE in stimuli else None
    if batch and simulator != "verilator":
        raise ValueError(f"{batch} needs the simulator verilator, not {simulator}")
    if batch and waves is not None:
        raise ValueError(f"{batch} writes no waves; leave out {str(waves)!r}")
    if coverage and EXHAUSTIVE in stimuli:
        raise ValueError("the stimulus exhaustive is all operands, of which no coverage is counted")
    if code_coverage and (batch or simulator != "verilator"):
        raise ValueError(f"lines and toggles are counted by the bench in verilator, not by {batch or simulator}")
    simulated = {"waves": waves, "a count of lines and toggles": code_coverage, "coverage": coverage, str(batch): batch}
    if made.run and (given := [what for what, value in simulated.items() if value]):
        raise ValueError(f"the level {made.name} runs vectors in a way of its own, which cannot have {given[0]}")
    named = [_named(unit, format) for unit in units or hdl.UNITS.values()]
    own_trace = trace is not None
    if own_trace and trace.format != format:
        raise ValueError(f"the trace must be of {format}, not {trace.format}")
    if made.run is None:
        chosen.check()
    report = Report(seed)
    named = [(text, unit) for text, unit in named if _available(made, unit, None if units else report.left_out)]
    if waves is not None:
        chosen.check_waves(waves)
    if "captured" in stimuli and not own_trace:
        with capture(format) as trace:
            workloads.digits_step(format, seed)
    plan = [(text, unit, [name for name in stimuli if _applies(name, unit, trace, units)]) for text, unit in named]
    for _, unit, names in plan if units else ():
        if own_trace and "captured" in stimuli and "captured" not in names:
            raise ValueError(f"the trace has no operation of {unit.name}: {' or '.join(unit.operations)}")
        if not names:
            raise ValueError(f"the stimulus {stimuli[0]!r} has nothing for {unit.name}")
    plan = [(text, unit, names) for text, unit, names in plan if names]
    options = ["--simulator", simulator] if made.run is None else []
    options += ["--seed", str(seed), "--vectors", str(vectors)]
    options += ["--level", made.name, *made.arguments] if made.name != "rtl" else []
    options += ["--runner", runner] if runner != "cocotb" else []
    options += [word for name in stimuli for word in ("--stimulus", name)] if tuple(stimuli) != STIMULI else []
    options += ["--trace", str(trace.path)] if own_trace and trace.path is not None else []
    runs = []
    for text, unit, names in plan:
        given = {"name": text or unit.name, "unit": unit, "level": made, "simulator": chosen, "seed": seed}
        words = [text] if text else getattr(unit, "arguments", ())
        given["command"] = _command(() if own_trace and trace.path is None else words, unit.format, options)
        if others := [name for name in names if name != EXHAUSTIVE]:
            make = functools.partial(make_segment, unit=unit, seed=seed, count=vectors, trace=trace)
            where = _waves_of(waves, text or unit.name, len(plan))
            more = {"coverage": coverage, "code_coverage": code_coverage, "exit_first": exit_first}
            runs.append((made.run or RUNNERS[runner])(**given, stimuli=others, make=make, waves=where, **more))
        if EXHAUSTIVE in names and is_sequential(unit):
            runs.append(BatchRun(**given, stimuli=[EXHAUSTIVE], make=functools.partial(make_steps, unit=unit)))
        elif EXHAUSTIVE in names:
            runs.append(ExhaustiveRun(**given))
    if trace is not None:
        offered = [unit.operations for unit in hdl.UNITS.values() if isinstance(unit.operations, dict)]
        known = set().union(*offered)  # those that depend on the format convert, which is not captured
        report.not_replayed = {name: count for name, count in trace.counts.items() if name not in known}
    found = _run_all(runs, progress or (lambda *_: None), None if units else report.left_out)
    if not found and report.left_out:
        raise Unavailable(report.left_out[0])
    for run, raw in found:
        run.judge(raw, report)
    return report


def _available(level: Level, unit: hdl.Unit, left_out: list[str] | None) -> bool:
    """Whether a unit may have gates at a level; if not, the reason is added to `left_out`, or raised."""
    try:
        level.check(unit)
    except Unavailable as error:
        if left_out is None:
            raise
        left_out.append(str(error))
        return False
    return True


def _applies(stimulus: str, unit: hdl.Unit, trace: Trace | None, asked: Sequence) -> bool:
    """Whether a unit has a stimulus; a ValueError says why all operands of one that was asked for cannot be tried."""
    if stimulus != EXHAUSTIVE:
        return has_segment(stimulus, unit, trace)
    try:
        (check_steps if is_sequential(unit) else Space)(unit)
    except ValueError:
        if asked:
            raise
        return False
    return True


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


def _command(unit: Sequence[str], format: LNSFormat, options: list[str]) -> str:
    """Return the command line that does this again for the unit of some words; none stand for one without a name."""
    if not unit or not _can_be_named(format):
        return "the same call of sim.verify.verify: the command line cannot name this unit, format or trace"
    words = ["lns", "verify", *unit, "--format", format.name]
    if format.adder != Exact():
        words += ["--adder", format.adder.name]
    if format.accumulator != LogAccumulator():
        words += ["--accumulator", format.accumulator.name]
    if format.specials:
        words += ["--specials"]
    return shlex.join(words + options)


def _can_be_named(format: LNSFormat) -> bool:
    """Whether a command line can ask for a format: its widths, adder, accumulator and specials, but no base."""
    try:
        named = named_adder(format.adder.name), named_accumulator(format.accumulator.name)
    except ValueError:  # another package's
        return False
    plain = dataclasses.replace(format, adder=Exact(), accumulator=LogAccumulator(), specials=False)
    return named == (format.adder, format.accumulator) and plain == named_format(format.name)


def _run_all(
    runs: list[Run], progress: Callable[[str, int, int], None], left_out: list[str] | None
) -> list[tuple[Run, object]]:
    """Build and simulate all runs, as many at a time as there are cores; then, one by one, those that use all cores.

    Return what each has found. Where there turn out to be no gates at the level, the reason is added to `left_out`, or
    raised.
    """
    stopped = threading.Event()

    def advance(run: Run, total: int, done: int) -> None:
        if stopped.is_set():
            raise InterruptedError
        progress(run.name, done, total)

    def build(run: Run, source: str) -> object:
        progress(run.name, 0, 0)
        poll = functools.partial(advance, run, 0)
        return run.build(run.level.verilog(run.name, source, functools.partial(poll, 0)), poll)

    def simulate(run: Run, built: Future, total: int) -> object:
        raw = run.simulate(built.result(), functools.partial(advance, run, total))
        progress(run.name, total, total)
        return raw

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        futures = []
        try:
            # What gates are made of, and what the golden model says, in this thread, one by one, while others compile:
            # pyosys keeps its designs in one place.
            builds = []
            for run in runs:
                builds.append(pool.submit(build, run, run.level.source(run.unit)))
                futures.append(builds[-1])
            totals, results = [], []
            for run, built in zip(runs, builds, strict=True):
                totals.append(run.prepare())
                results.append(None if run.alone else pool.submit(simulate, run, built, totals[-1]))
                futures += results[-1:] if results[-1] else []
            unfinished = set(futures)
            while unfinished:  # an error shows itself at once
                # A time limit, since a signal that another thread is given does not end the wait.
                finished, unfinished = wait(unfinished, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in finished:
                    if left_out is None or not isinstance(future.exception(), Unavailable):
                        future.result()
            found = []
            for run, built, total, result in zip(runs, builds, totals, results, strict=True):
                if error := built.exception():
                    left_out += [str(error)] if str(error) not in left_out else []
                elif run.alone:
                    found.append((run, simulate(run, built, total)))
                else:
                    found.append((run, result.result()))
            return found
        except BaseException:
            stopped.set()
            for future in futures:
                future.cancel()
            raise
