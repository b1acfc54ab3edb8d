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
from concurrent.futures import ThreadPoolExecutor, as_completed
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
        Called with a sentence after each step.
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
        do = functools.partial(_do, runner, design, poll)
        netlist, seconds = do("synthesize", design.rtlil, {"program": None})
        cells = netlist["cells"]
        progress(f"synthesized in {seconds:.0f} s: {', '.join(f'{n} {kind}' for kind, n in cells.items())}")
        job = {
            "program": "nextpnr",
            "arguments": design.place_and_route[1:],
            "files": design.constraints,
            "configuration": design.configuration,
        }
        started = {
            pool.submit(do, "place and route", netlist["netlist"], {**job, "seed": seed}): seed for seed in design.seeds
        }
        routed = {}
        for future in as_completed(started):
            result, seconds = future.result()
            if "reason" in result:
                raise _too_large(design, result)
            timing = Timing.of(result["clocks"], result["paths"])
            routed[started[future]] = result, timing
            progress(f"placed and routed with seed {started[future]} in {seconds:.0f} s: {timing.reached_mhz:.2f} MHz")
        # The lowest seed of those that are equally fast, whichever came first.
        seed = max(sorted(routed), key=lambda seed: routed[seed][1].reached_mhz / routed[seed][1].wanted_mhz)
        result, timing = routed[seed]
        program, *arguments = design.pack
        job = {"program": program, "arguments": arguments, "bitstream": design.bitstream}
        packed, seconds = do("pack", result["configuration"], {**job, "configuration": design.configuration})
    progress(f"packed in {seconds:.0f} s")
    return {
        "cells": cells,
        "used": {kind: {"used": used, "of": there} for kind, (used, there) in result["used"].items() if used},
        "seed": seed,
        "seeds": {str(each): round(routed[each][1].reached_mhz, 2) for each in sorted(routed)},
        "timing": dataclasses.asdict(timing),
        "bitstream": packed["bitstream"],
    }


def _do(
    runner: Runner, design: Design, poll: Callable[[], None] | None, step: str, source: str, job: dict
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
