"""The process that implements one unit, makes gates of it, or does a step of a bitstream: see fpga.runner.

It is started as ``python -m fpga._child FOLDER``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .flow import CONFIGURATION, DEVICES, ROUTED, Device, implement, place_and_route, synthesize, tool_versions
from .netlists import after_routing, after_synthesis, pack_and_unpack, read_back
from .steps import STEPS


def main() -> None:
    """Do what ``job.json`` in the folder says, and write ``result.json``."""
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text())
    do = _step if "step" in job else _gates if "level" in job else _implement
    result = do((folder / "unit").read_text(), DEVICES[job["device"]], job, folder)
    (folder / "result.json").write_text(json.dumps(result))


def _implement(source: str, device: Device, job: dict, folder: Path) -> list[dict]:
    with _compiled(_programs(job, device.name, device)):
        found = implement(source, device, job["seeds"], str(folder / "log"), job["language"])
    return [dataclasses.asdict(one) for one in found]


def _gates(source: str, device: Device, job: dict, folder: Path) -> dict:
    """Return the gates of each level up to the one that is wanted, or why there are none."""
    netlist = synthesize(source, device, str(folder / "log"))
    found = {"synth": after_synthesis(netlist.json)}
    if job["level"] in ("route", "bitstream"):
        with _compiled(_programs(job, device.name, device)):
            clock = place_and_route(netlist, device, job["seed"], keep=folder)
        if not (folder / ROUTED).is_file():
            return {"reason": clock.reason}
        routed = (folder / ROUTED).read_text()
        found["route"] = after_routing(routed)
    if job["level"] == "bitstream":
        with _compiled(_programs(job, "icepack", device)):
            configuration = pack_and_unpack((folder / CONFIGURATION).read_text())
        found["bitstream"] = read_back(configuration, routed)
    return {level: dataclasses.asdict(gates) for level, gates in found.items()}


def _step(source: str, device: Device, job: dict, folder: Path) -> dict:
    # A folder with both icepack and iceunpack is that of _gates.
    kept = {"nextpnr": device.name, None: None}.get(job["program"], f"only-{job['program']}")
    with _compiled(_programs(job, kept, device)) if kept else contextlib.nullcontext():
        return STEPS[job["step"]](source, device, {**job, "log": str(folder / "log")})


def _programs(job: dict, name: str, device: Device) -> Path:
    """Return where a program of a device's package is kept as YoWASP has compiled it."""
    versions = (tool_versions(device)[f"yowasp-nextpnr-{device.name}"], importlib.metadata.version("wasmtime"))
    return Path(job["programs"], "-".join((name, *versions)))


@contextlib.contextmanager
def _compiled(kept: Path) -> Iterator[None]:
    """Let YoWASP find a program compiled in the folder `kept`, or keep there what it compiles.

    YoWASP itself writes over a file that another process may have mapped. Here a folder appears with all that is in it.
    """
    if kept.is_dir():
        os.environ["YOWASP_CACHE_DIR"] = str(kept)
        yield
        return
    with tempfile.TemporaryDirectory() as aside:  # in the job's folder, which is on the same disk
        os.environ["YOWASP_CACHE_DIR"] = aside
        yield
        kept.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # another process was first
            os.rename(aside, kept)
        os.makedirs(aside, exist_ok=True)  # for TemporaryDirectory to remove


if __name__ == "__main__":
    main()
