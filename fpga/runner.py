"""Synthesis, and place and route, in processes of their own: repeatable, side by side, and ended at once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path

from sim.simulators import BuildFailed
from xlnstorch.cache import cache_folder

from .flow import Device, Implementation

__all__ = ["Runner"]

_LOG_LINES = 10


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
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.killpg(process.pid, signal.SIGKILL)

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
        folder = cache_folder() / "fpga"
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix="implementing-") as job:
            Path(job, "unit").write_text(source)
            programs = str(folder / "programs")
            what = {"device": device.name, "seeds": list(seeds), "language": language, "programs": programs}
            Path(job, "job.json").write_text(json.dumps(what))
            status = self._run(Path(job))
            if status:
                log = Path(job, "log").read_text(errors="replace").splitlines()[-_LOG_LINES:]
                raise BuildFailed("\n".join([f"the process for {device.name} stopped with status {status}:", *log]))
            return [Implementation(**one) for one in json.loads(Path(job, "result.json").read_text())]

    def _run(self, job: Path) -> int:
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
            status = process.wait()
            with self._lock:
                self._running.discard(process)
        return status
