import shlex

import pytest
from lnstesting import exactly

import hdl
from sim import levels
from sim.levels import RTL, Level, Unavailable, get_level
from sim.verify import verify
from xlnstorch import lns8
from xlnstorch.cli import main


class Inverted(Level):
    """Somebody's level: gates with a wrong sign; none of an adder, and what a comparison lacks shows itself late."""

    name = "inverted"
    devices = ("chip", "board")

    def check(self, unit):
        if unit.name == "add":
            raise Unavailable("add has no level inverted: it is too large")

    def source(self, unit):
        return hdl.to_verilog(unit)

    def verilog(self, name, source, poll):
        poll()
        if name == "compare":
            raise Unavailable("compare has no level inverted: of a cell there is no model")
        return source.replace("module top(", "module sound(", 1) + TOP


TOP = """
module top(input clk, rst, i__valid, output i__ready, input [15:0] i__payload,
           output o__valid, input o__ready, output [11:0] o__payload);
    wire [11:0] payload;
    sound sound(.clk(clk), .rst(rst), .i__valid(i__valid), .i__ready(i__ready), .i__payload(i__payload),
                .o__valid(o__valid), .o__ready(o__ready), .o__payload(payload));
    assign o__payload = payload ^ 12'h080;
endmodule
"""


@pytest.fixture
def installed(monkeypatch):
    class Entry:
        name = "inverted"

        def load(self):
            return Inverted

    found = levels.importlib.metadata.entry_points
    monkeypatch.setattr(
        levels.importlib.metadata,
        "entry_points",
        lambda group: [Entry()] if group == "lns.levels" else found(group=group),
    )


def test_the_gates_at_rtl_are_those_of_the_unit():
    level, unit = get_level("rtl"), hdl.Multiply(format=lns8)
    assert (level.name, level.device) == ("rtl", None)
    assert level.verilog("multiply", level.source(unit), lambda: None) == hdl.to_verilog(unit, initial=False)


def test_the_first_device_is_the_default(installed):
    assert get_level("inverted").device == "chip"
    assert get_level("inverted", "board").device == "board"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("gds",), "level must be one of rtl, bitstream, board, route, synth, not 'gds'"),
        (("rtl", "ice40"), "the level rtl is of no device; leave out 'ice40'"),
        (("synth", "xc7"), "device must be ice40 or ecp5, not 'xc7'"),
    ],
)
def test_a_wrong_name_is_refused_with_what_there_is(asked, message, capsys):
    with pytest.raises(ValueError, match=exactly(message)):
        get_level(*asked)
    options = [word for pair in zip(("--level", "--device"), asked, strict=False) for word in pair]
    assert main(["verify", "multiply", *options]) == 2
    assert capsys.readouterr().err == f"lns verify: {message}\n"


def test_a_unit_that_was_asked_for_must_have_the_level(installed):
    for name, reason in (("add", "it is too large"), ("compare", "of a cell there is no model")):
        with pytest.raises(Unavailable, match=exactly(f"{name} has no level inverted: {reason}")):
            verify([name], lns8, stimuli=["corners"], level="inverted")


@pytest.mark.sim
def test_units_that_nobody_asked_for_are_left_out_and_said_to_be(installed, monkeypatch, capsys):
    monkeypatch.setattr(hdl, "UNITS", {name: hdl.UNITS[name] for name in ("add", "multiply", "compare")})
    report = verify([], lns8, stimuli=["corners"], level="inverted", device="board")
    assert report.left_out == [
        "add has no level inverted: it is too large",
        "compare has no level inverted: of a cell there is no model",
    ]
    assert report.to_json()["left_out"] == report.left_out
    (result,) = report.results
    assert (result.unit, result.level, result.device) == ("multiply", "inverted", "board")
    assert result.mismatches == result.vectors  # the gates are those of the level, not of the unit
    command = report.counterexamples[0].command
    assert " --level inverted --device board " in command
    assert main(shlex.split(command)[1:]) == 1
    assert "inverted on board in verilator" in capsys.readouterr().out


def test_if_all_are_left_out_that_is_an_error(installed, monkeypatch):
    monkeypatch.setattr(hdl, "UNITS", {"add": hdl.UNITS["add"]})
    with pytest.raises(Unavailable, match=exactly("add has no level inverted: it is too large")):
        verify([], lns8, stimuli=["corners"], level="inverted")


def test_rtl_needs_no_package_of_levels(monkeypatch):
    monkeypatch.setattr(levels.importlib.metadata, "entry_points", lambda group: [])
    assert isinstance(get_level("rtl"), RTL)
