"""``lns board``: a simulated board in a process of its own, and what is said of one."""

import json
import os
import signal
import subprocess
import sys

import pytest
from amaranth.hdl import Cat

import hdl
from fpga import SimulatedBoard
from fpga.bridge.selftest import TEST_BITS
from xlnstorch import lns8
from xlnstorch.cli import main


@pytest.mark.sim
def test_a_simulated_board_serves_until_it_is_interrupted(capsys):
    command = [sys.executable, "-m", "xlnstorch.cli", "board", "--simulate", "relu", "--format", "lns8", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        said = json.loads(process.stdout.readline())
        assert (said["unit"], said["format"], said["schema"]) == ("relu", "lns8", 1)
        assert main(["board", said["port"], "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found == {**said, "self_test": {"relu": True, "relu_grad": True}, "passed": True}
    finally:
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "lns board: interrupted\n"


@pytest.mark.sim
def test_what_is_said_of_a_board(capsys):
    with SimulatedBoard(hdl.Relu(format=lns8), digest=bytes(range(16))) as board:
        assert main(["board", board.port]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert {name: text.strip() for name, text in lines} == {
        "port": board.port,
        "unit": "relu of lns8 (exact adder)",
        "clock": "4 MHz",
        "build": "000102030405060708090a0b0c0d0e0f",
        "self-test": f"passed (2 × {1 << TEST_BITS:,} operands)",
    }


class Wrong(hdl.Relu):
    """A unit whose results have the other sign."""

    def datapath(self, m, pipeline, operands):
        results = super().datapath(m, pipeline, operands)
        results.word = Cat(results.word.field, ~results.word.sign)
        return results


@pytest.mark.sim
def test_a_board_that_is_wrong(capsys):
    with SimulatedBoard(Wrong(format=lns8)) as board:
        assert main(["board", board.port]) == 1
    assert "failed: relu, relu_grad (2 × 65,536 operands)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give the serial port of a board, or --simulate UNIT"),
        (["/dev/ttyNONE", "--simulate", "add"], "give the serial port of a board, or --simulate UNIT"),
        (["/dev/ttyNONE"], "port must be a serial port such as /dev/ttyUSB1, but '/dev/ttyNONE' does not exist"),
        (["/dev/ttyNONE", "--seed", "-1"], "seed must be at least 0, not -1"),
        (["--simulate", "dot:lanes=0"], None),
        (["--simulate", "add", "--baud", "0"], "baud must be a positive integer, not 0"),
        (["--simulate", "dot:lanes=64"], "payloads of dot must have at most 252 bytes, not 258"),
    ],
)
def test_what_cannot_be(arguments, message, capsys):
    assert main(["board", *arguments]) == 2
    errors = capsys.readouterr().err
    assert errors == f"lns board: {message}\n" or (message is None and errors.count("\n") == 1)
