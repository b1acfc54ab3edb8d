"""Runs the benches of this folder: cocotbext-axi at the ports of a unit with a bus, in a simulator."""

import json
import os
import shutil
from pathlib import Path

import pytest

from sim.simulators import SIMULATORS


def _run(verilog, bench, job, simulator, folder):
    """Return what a bench found; `job` is what it is told."""
    if simulator == "icarus" and shutil.which("iverilog") is None:
        pytest.skip("Icarus Verilog is not installed")
    build = SIMULATORS[simulator].build(verilog)
    (folder / "job.json").write_text(json.dumps(job))
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    SIMULATORS[simulator].run(build, bench, {"LNS_BUS_JOB": str(folder / "job.json"), "PYTHONPATH": path}, folder)
    return json.loads((folder / "result.json").read_text())


@pytest.fixture
def run_bench(tmp_path):
    return lambda verilog, bench, job, simulator: _run(verilog, bench, job, simulator, tmp_path)
