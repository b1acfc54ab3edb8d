"""The steps from RTLIL to a board's bitstream and back: Yosys as for every unit, nextpnr and packers as Amaranth says.

They run in the processes that :mod:`fpga.runner` starts, each with a source and a job, and return what JSON can hold.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .flow import Device, synthesize
from .netlists import read_chip

__all__ = ["STEPS", "pack", "place_and_route_on_board", "synthesize_for_board", "unpack"]

_USED = re.compile(r"^Info:\s+(\w+):\s+(\d+)/\s*(\d+)\s+\d+%$", flags=re.MULTILINE)


def synthesize_for_board(source: str, device: Device, job: dict) -> dict:
    """Return the netlist of RTLIL, ``netlist``, and how many ``cells`` of each kind it has."""
    netlist = synthesize(source, device, job["log"])
    return {"netlist": netlist.json, "cells": {kind: device.count(kind, netlist.cells) for kind in device.cells}}


def place_and_route_on_board(source: str, device: Device, job: dict) -> dict:
    """Place and route a netlist by the ``arguments`` of nextpnr, with the ``files`` they name, and a ``seed``.

    Returns
    -------
    dict
        ``used``, of each kind of cell how many, of how many; and either ``reason``, why it does not fit, or ``clocks``,
        for each what is achieved and wanted, ``paths``, the critical ones, and ``configuration``, that file.
    """
    # A clock that is too slow is a result, not a failure.
    more = ["--seed", str(job["seed"]), "--report", "report.json", "--timing-allow-fail"]
    with _folder({**job["files"], "top.json": source}) as folder:
        status = _run(device, f"nextpnr_{device.name}", [*job["arguments"], *more])
        log = (folder / job["arguments"][job["arguments"].index("--log") + 1]).read_text()
        used = {kind: [int(count), int(there)] for kind, count, there in _USED.findall(log)}
        if status:
            errors = [line.removeprefix("ERROR: ") for line in log.splitlines() if line.startswith("ERROR: ")]
            if not errors or not used:  # it has not come to counting, so it is not the size
                raise RuntimeError(f"nextpnr-{device.name} stopped with status {status}: {' '.join(errors)}")
            return {"used": used, "reason": errors[0]}
        report = json.loads((folder / "report.json").read_text())
        configuration = (folder / job["configuration"]).read_text()
    return {"used": used, "clocks": report["fmax"], "paths": report["critical_paths"], "configuration": configuration}


def pack(source: str, device: Device, job: dict) -> dict:
    """Return the ``bitstream``, in base 64, that a ``program`` makes of a ``configuration`` by its ``arguments``."""
    with _folder({job["configuration"]: source}) as folder:
        if status := _run(device, job["program"], job["arguments"]):
            raise RuntimeError(f"{job['program']} stopped with status {status}")
        return {"bitstream": base64.b64encode((folder / job["bitstream"]).read_bytes()).decode()}


def unpack(source: str, device: Device, job: dict) -> dict:
    """Return as Verilog, ``chip``, what an iCE40's bitstream, in base 64, does with the ``pins`` of a ``package``."""
    with _folder({}) as folder:
        (folder / "top.bin").write_bytes(base64.b64decode(source))
        if status := _run(device, "iceunpack", ["top.bin", "top.asc"]):
            raise RuntimeError(f"iceunpack stopped with status {status}")
        asc = (folder / "top.asc").read_text()
    return {"chip": read_chip(asc, job["pins"], job["package"])[0]}


#: What a process can be asked for.
STEPS = {
    "synthesize": synthesize_for_board,
    "place and route": place_and_route_on_board,
    "pack": pack,
    "unpack": unpack,
}


@contextlib.contextmanager
def _folder(files: dict[str, str]) -> Iterator[Path]:
    """A folder with some files, which is the current one: YoWASP's programs see that, whatever else they see."""
    with tempfile.TemporaryDirectory(prefix="lns-") as name:
        for file, text in files.items():
            Path(name, file).write_text(text)
        with contextlib.chdir(name):
            yield Path(name)


def _run(device: Device, program: str, arguments: list[str]) -> int:
    status = getattr(importlib.import_module(f"yowasp_nextpnr_{device.name}"), f"run_{program}")(arguments)
    if status == 130:  # it has caught the interrupt
        raise KeyboardInterrupt
    return status
