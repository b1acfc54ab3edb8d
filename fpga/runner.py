"""Synthesis, and place and route, in processes of their own: repeatable, side by side, and ended at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sim.processes import end, wait_for
from sim.simulators import BuildFailed
from xlnstorch.cache import cache_folder

from .flow import Device, Implementation
from .netlists import Gates

__all__ = ["DoesNotFit", "Runner"]

_LOG_LINES = 10


class DoesNotFit(Exception):
    """A unit cannot be placed and routed; the message is what nextpnr says."""


class Runner:
    """Starts a process for each unit; leaving the ``with`` block ends those that still run.

    Its methods may be called from several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen] = set()
        self._closed = False

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            for process in self._running:
                end(process)

    def implement(self, rtlil: str, device: Device, seed: int = 1) -> Implementation:
        """Do what :meth:`implement_all` does, with one seed, for a unit as :func:`~fpga.flow.to_rtlil` returns it."""
        return self.implement_all(rtlil, device, (seed,))[0]

    def implement_all(
        self, source: str, device: Device, seeds: Iterable[int], language: str = "rtlil"
    ) -> list[Implementation]:
        """Synthesize a unit, and place and route it with each of the seeds; the same input gives the same clocks.

        Parameters
        ----------
        source : str
            Of the unit, whose top module is ``top``.
        device : Device
            One of :data:`~fpga.flow.DEVICES`.
        seeds : iterable of int
            Of place and route, each 0 to 2**31 - 1.
        language : {"rtlil", "verilog"}
            Of the source.

        Raises
        ------
        BuildFailed
            Yosys or nextpnr stopped with an error of its own. That the unit does not fit into the device is none.
        RuntimeError
            The ``with`` block has been left.
        """
        job = {"device": device.name, "seeds": list(seeds), "language": language}
        return [Implementation(**one) for one in self._do(source, job)]

    def gates(
        self, rtlil: str, device: Device, level: str, seed: int = 1, poll: Callable[[], None] | None = None
    ) -> dict[str, Gates]:
        """Return the gates of a unit at each level up to one.

        Parameters
        ----------
        rtlil : str
            As :func:`~fpga.flow.to_rtlil` returns it.
        device : Device
            One of :data:`~fpga.flow.DEVICES`.
        level : {"synth", "route", "bitstream"}
        seed : int
            Of place and route, 0 to 2**31 - 1.
        poll : callable, optional
            Called now and then; what it raises ends the process.

        Raises
        ------
        DoesNotFit
            The unit cannot be placed and routed.
        BuildFailed
            Yosys, nextpnr or a program of icestorm stopped with an error of its own.
        RuntimeError
            The ``with`` block has been left.
        """
        found = self._do(rtlil, {"device": device.name, "level": level, "seed": seed}, poll)
        if "reason" in found:
            raise DoesNotFit(found["reason"])
        return {level: Gates(**gates) for level, gates in found.items()}

    def step(self, step: str, source: str, device: Device, job: dict, poll: Callable[[], None] | None = None) -> dict:
        """Do one of :data:`~fpga.steps.STEPS`.

        Parameters
        ----------
        step : str
        source : str
            What it is done with: RTLIL, a netlist, or a configuration.
        device : Device
        job : dict
            What else the step is told.
        poll : callable, optional
            As for :meth:`gates`.

        Raises
        ------
        BuildFailed
            Yosys, nextpnr or a packer stopped with an error of its own.
        RuntimeError
            The ``with`` block has been left.
        """
        return self._do(source, {"step": step, "device": device.name, **job}, poll)

    def _do(self, source: str, job: dict, poll: Callable[[], None] | None = None) -> Any:
        """Start a process for a job; return its result."""
        kept = cache_folder() / "fpga"
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept, prefix="implementing-") as name:
            folder = Path(name)
            (folder / "unit").write_text(source)
            (folder / "job.json").write_text(json.dumps({**job, "programs": str(kept / "programs")}))
            status = self._run(folder, poll)
            if status:
                log = (folder / "log").read_text(errors="replace").splitlines()[-_LOG_LINES:]
                raise BuildFailed("\n".join([f"the process for {job['device']} stopped with status {status}:", *log]))
            return json.loads((folder / "result.json").read_text())

    def _run(self, job: Path, poll: Callable[[], None] | None) -> int:
        with (job / "log").open("ab") as log:
            with self._lock:
                if self._closed:
                    raise RuntimeError("the runner is closed")
                process = subprocess.Popen(
                    [sys.executable, "-m", "fpga._child", str(job)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "TMPDIR": str(job)},  # what a killed one leaves goes with the folder
                    start_new_session=True,
                )
                self._running.add(process)
            try:
                return wait_for(process, poll)
            finally:
                with self._lock:
                    self._running.discard(process)
