"""The bitstream of a design: the steps to it, what is kept of them, and the folder that a user gets."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from sim.simulators import BuildFailed
from xlnstorch import cache
from xlnstorch.cli import CommandError

from .bridge.protocol import unit_text
from .design import Design
from .runner import Runner
from .timing import Timing

__all__ = ["MANIFEST", "Built", "TimingNotMet", "TooLarge", "build", "check_folder", "write_folder"]

MANIFEST = "manifest.json"
_PATH = "critical_path.txt"


class TooLarge(CommandError):
    """A unit does not fit into the device; the message says by how much."""


class TimingNotMet(BuildFailed):
    """The clock is too fast for the gates; the message has the longest path."""


@dataclasses.dataclass(frozen=True)
class Built:
    """What has been built.

    Attributes
    ----------
    manifest : dict
        What :data:`MANIFEST` has.
    bitstream : bytes
    path : str
        The longest path, in words.
    """

    manifest: dict[str, object]
    bitstream: bytes
    path: str

    @property
    def files(self) -> dict[str, bytes]:
        """The files of the folder, by name."""
        texts = {MANIFEST: json.dumps(self.manifest, indent=1) + "\n", _PATH: self.path}
        return {self.manifest["bitstream"]["file"]: self.bitstream} | {n: text.encode() for n, text in texts.items()}


def build(
    design: Design, progress: Callable[[str], None] = lambda text: None, poll: Callable[[], None] | None = None
) -> Built:
    """Build a design, or find it in the cache by its digest.

    Parameters
    ----------
    design : Design
    progress : callable
        Called with a line of text before and after a step.
    poll : callable, optional
        Called now and then in several threads; what it raises ends the build.

    Raises
    ------
    TooLarge
        The unit does not fit into the device.
    TimingNotMet
        No seed reaches the clock.
    BuildFailed
        A program stopped with an error of its own.
    """
    kept = cache.load("bitstreams", design.digest)
    if kept is None:
        kept = _do_all(design, progress, poll)
        cache.store("bitstreams", design.digest, kept)
    else:
        progress(f"built before: digest {design.digest}")
    timing = Timing(**kept["timing"])
    if not timing.met:
        reached = ", ".join(f"{mhz:.2f} with seed {seed}" for seed, mhz in kept["seeds"].items())
        raise TimingNotMet(
            f"{unit_text(design.unit)} of {design.unit.format.name} does not reach {timing.wanted_mhz:.2f} MHz on the "
            f"{design.board.name} (MHz: {reached}); ask for a lower --clock, or try more --seeds\n{timing.in_words()}"
        )
    bitstream = base64.b64decode(kept["bitstream"])
    manifest = {"schema": 1, **design.describe(), **{name: kept[name] for name in ("cells", "used", "seed", "seeds")}}
    manifest["clock"] = {**manifest["clock"], "reached_mhz": round(timing.reached_mhz, 2)}
    written = {"file": design.bitstream, "bytes": len(bitstream), "sha256": hashlib.sha256(bitstream).hexdigest()}
    return Built({**manifest, "bitstream": written}, bitstream, timing.in_words())


def _do_all(design: Design, progress: Callable[[str], None], poll: Callable[[], None] | None) -> dict:
    """Do all steps; return what is kept of them."""
    # The runner is left first, which ends the processes that the threads wait for.
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool, Runner() as runner:
        # A poll, whatever it does: a signal that another thread is given does not end a wait without one.
        do = functools.partial(_do, runner, design, poll or (lambda: None))
        progress("synthesizing")
        netlist, seconds = do("synthesize", design.rtlil, {"program": None})
        cells = netlist["cells"]
        counts = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in cells.items())
        progress(f"synthesized in {seconds:.0f} s: {counts}")
        routed = _place_and_route(design, netlist["netlist"], functools.partial(pool.submit, do), progress)
        timings = {seed: Timing.of(result["clocks"], result["paths"]) for seed, result in routed.items()}
        # Of seeds that are equally fast the first.
        seed = max(timings, key=lambda seed: timings[seed].reached_mhz)
        program, *arguments = design.pack
        job = {"program": program, "arguments": arguments, "configuration": design.configuration}
        packed, seconds = do("pack", routed[seed]["configuration"], {**job, "bitstream": design.bitstream})
        progress(f"packed in {seconds:.0f} s")
    used = {kind: {"used": count, "of": there} for kind, (count, there) in routed[seed]["used"].items() if count}
    return {
        "cells": cells,
        "used": used,
        "seed": seed,
        "seeds": {str(seed): round(timing.reached_mhz, 2) for seed, timing in timings.items()},
        "timing": dataclasses.asdict(timings[seed]),
        "bitstream": packed["bitstream"],
    }


def _place_and_route(
    design: Design, netlist: str, submit: Callable[..., Future], progress: Callable[[str], None]
) -> dict[int, dict]:
    """Place and route a netlist with each seed; return the results by seed, in order."""
    seeds = design.seeds
    progress(f"placing and routing with seed{f's 1 to {seeds[-1]}' if len(seeds) > 1 else ' 1'}")
    job = {
        "program": "nextpnr",
        "arguments": design.place_and_route[1:],
        "files": design.constraints,
        "configuration": design.configuration,
    }
    running = {submit("place and route", netlist, {**job, "seed": seed}): seed for seed in seeds}
    routed = {}
    while running:
        # A time limit for the same reason.
        for future in wait(running, timeout=0.5, return_when=FIRST_COMPLETED).done:
            result, seconds = future.result()
            if "reason" in result:
                raise _too_large(design, result)
            seed = running.pop(future)
            routed[seed] = result
            mhz = Timing.of(result["clocks"], result["paths"]).reached_mhz
            progress(f"placed and routed with seed {seed} in {seconds:.0f} s: {mhz:.2f} MHz")
    return {seed: routed[seed] for seed in seeds}


def _do(
    runner: Runner, design: Design, poll: Callable[[], None], step: str, source: str, job: dict
) -> tuple[dict, float]:
    """Do a step; return its result and the seconds it took."""
    start = time.perf_counter()
    return runner.step(step, source, design.device, job, poll), time.perf_counter() - start


def _too_large(design: Design, result: dict) -> TooLarge:
    over = [
        f"{used:,} of {there:,} {kind}, {used - there:,} too many"
        for kind, (used, there) in result["used"].items()
        if used > there
    ]
    needs = f"it needs {' and '.join(over)}" if over else f"nextpnr says: {result['reason']}"
    what = f"{unit_text(design.unit)} of {design.unit.format.name}"
    return TooLarge(f"{what} does not fit into the {design.board.name}: {needs}")


# The folder ----------------------------------------------------------------------------------------------------------


def check_folder(folder: Path) -> None:
    """Raise CommandError if a folder cannot be written, or has what is none of ours; leave no trace of having tried."""
    target, text = Path(os.path.realpath(folder)), str(folder)
    if target.is_dir():
        if any(target.iterdir()) and not (target / MANIFEST).is_file():
            raise CommandError(f"output must be a new or empty folder, or one of an earlier bitstream, not {text!r}")
    elif target.exists():
        raise CommandError(f"output must be a folder, not the file {text!r}")
    if not target.parent.is_dir():
        raise CommandError(f"the folder of {text!r} does not exist")
    try:
        os.rmdir(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
    except OSError as error:
        raise CommandError(f"{text!r} cannot be written: {error.strerror}") from None


def write_folder(folder: Path, files: dict[str, bytes]) -> None:
    """Write a folder, which appears, or is replaced, only when all of it is there."""
    check_folder(folder)
    target = Path(os.path.realpath(folder))
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as name:
        new, old = Path(name, "new"), Path(name, "old")
        new.mkdir()
        for file, content in files.items():
            (new / file).write_bytes(content)
        with contextlib.suppress(FileNotFoundError):
            os.rename(target, old)
        try:
            os.rename(new, target)
        except BaseException:
            if old.exists():
                os.rename(old, target)
            raise
