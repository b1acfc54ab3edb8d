"""``lns verify --level board`` at a pseudo-terminal: what passes, and gates that are wrong on few operands."""

import dataclasses
import functools
import json

import pytest
from lnstesting import Off, exactly

import hdl
from fpga import SimulatedBoard, connect
from hdl.gaussian import datapath_of
from sim.levels import get_level
from sim.naming import named_unit
from sim.verify import verify
from xlnstorch import lns8, lns12
from xlnstorch.cli import main

FEW = ["--vectors", "500", "--stimulus", "random", "--stimulus", "near-cancelling"]


class Wrong(hdl.AddSubtract):
    """An adder that is off by one where the operands are of nearly equal magnitude, and does not say so."""

    def __init__(self, *, format):
        super().__init__(format=format)
        adder = Off(below=20)
        self._gaussian = datapath_of(adder, dataclasses.replace(format, adder=adder), rom="block")


class Forgetful(hdl.AddSubtract):
    """An adder that gives no result that is zero."""

    def datapath(self, m, pipeline, operands):
        results = super().datapath(m, pipeline, operands)
        results.when = results.word.field != 0
        return results


@functools.cache
def simulated(unit):
    """Return the port of a board that stays there for all tests."""
    made = unit(format=lns12) if isinstance(unit, type) else named_unit(unit, lns12)
    board = SimulatedBoard(made)
    simulated.boards.append(board)
    return board.port


simulated.boards = []


def verify_board(unit, *arguments):
    return main(["verify", "--level", "board", "--port", simulated(unit), *arguments])


@pytest.mark.sim
def test_a_board_passes(capsys):
    port = simulated("add")
    assert verify_board("add", *FEW, "--json") == 0
    rows = {row["stimulus"]: row for row in json.loads(capsys.readouterr().out)["results"]}
    # The unit and the format are those of the board.
    vectors = {"random": 500, "near-cancelling": 500, "self-test": 2}
    assert {name: row["vectors"] for name, row in rows.items()} == vectors
    columns = ("unit", "format", "level", "device", "simulator", "runner")
    assert [rows["random"][name] for name in columns] == ["add", "lns12", "board", port, None, "board"]
    assert all(row["seconds"] > 0 for row in rows.values())
    # And may be named.
    assert verify_board("add", "add", "--format", "lns12", "--baud", "1000000", *FEW) == 0
    verdict = f"passed: 1,002 results equal the golden model bit for bit (exact adder, board on {port}, seed 0)"
    assert capsys.readouterr().out.splitlines()[-1] == verdict


@pytest.mark.sim
def test_sums_of_several_payloads(capsys):
    assert verify_board("dot:lanes=2", *FEW, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["stimulus"]: row["mismatches"] for row in found["results"]} == {"random": 0, "near-cancelling": 0}
    assert {row["unit"] for row in found["results"]} == {"dot:lanes=2,channels=32"}


@pytest.mark.sim
def test_wrong_gates_are_found(capsys):
    assert verify_board(Wrong, *FEW, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    first, port = found["counterexamples"][0], simulated(Wrong)
    options = f"--seed 0 --vectors 500 --level board --port {port} --stimulus random --stimulus near-cancelling"
    assert first["command"] == f"lns verify add --format lns12 {options}"
    (a, b) = (first["operands"][name]["bits"] & 0x7FF for name in "ab")
    assert abs(a - b) < 20
    problem = "add: the board's own test, at its full rate, gives other results than the golden model for add"
    assert found["problems"] == [f"{problem}, sub; again: {first['command']}"]
    with connect(port) as board:
        assert not board.self_test(seed=3)["add"]


@pytest.mark.sim
def test_results_that_do_not_come_are_told(capsys):
    assert verify_board(Forgetful, "--stimulus", "corners", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert [row["stimulus"] for row in found["results"]] == ["corners", "self-test"]
    assert found["results"][0]["mismatches"] > 0
    assert any("results never came" in problem for problem in found["problems"])


@pytest.mark.sim
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["multiply"], "the board at PORT has add of lns12 (exact adder), not multiply of lns12 (exact adder)"),
        (["--format", "lns8"], "the board at PORT has add of lns12 (exact adder), not add of lns8 (exact adder)"),
        (["--waves", "x.vcd"], "the level board runs vectors in a way of its own, which cannot have waves"),
        (
            ["--code-coverage"],
            "the level board runs vectors in a way of its own, which cannot have a count of lines and toggles",
        ),
        (["--coverage"], "the level board runs vectors in a way of its own, which cannot have coverage"),
        (["--runner", "batch"], "the level board runs vectors in a way of its own, which cannot have the runner batch"),
        (
            ["--stimulus", "exhaustive"],
            "the level board runs vectors in a way of its own, which cannot have the stimulus exhaustive",
        ),
        (["--device", "ice40"], "the level board is of no device; leave out 'ice40'"),
    ],
)
def test_what_it_is_not(arguments, message, capsys):
    assert verify_board("add", *arguments) == 2
    port = simulated("add")
    assert capsys.readouterr().err == f"lns verify: {message.replace('PORT', repr(port))}\n"
    assert verify_board("add", "--stimulus", "random", "--vectors", "2") == 0  # the port was given back


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--level", "board"], "the level board needs the serial port of one, such as --port /dev/ttyUSB1"),
        (["--port", "/dev/x"], "the level rtl has no port; leave out '/dev/x'"),
        (["--level", "synth", "--baud", "9600"], "the level synth has no baud; leave out 9600"),
        (
            ["--level", "board", "--port", "/dev/ttyNONE"],
            "port must be a serial port such as /dev/ttyUSB1, but '/dev/ttyNONE' does not exist",
        ),
        (["--level", "board", "--port", "/dev/ttyNONE", "--baud", "0"], "baud must be a positive integer, not 0"),
    ],
)
def test_what_cannot_be(arguments, message, capsys):
    assert main(["verify", *arguments]) == 2
    assert capsys.readouterr().err == f"lns verify: {message}\n"


@pytest.mark.sim
def test_from_python():
    level = get_level("board", port=simulated("add"))
    report = verify([], level.format, level=level, stimuli=["random"], vectors=100)
    level.close()
    assert report.passed and [row.stimulus for row in report.results] == ["random", "self-test"]
    with pytest.raises(
        ValueError, match=exactly("the level board needs the serial port of one, such as --port /dev/ttyUSB1")
    ):
        verify([], lns8, level="board")
