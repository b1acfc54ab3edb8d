"""Units at the levels that an FPGA adds, netlists and the bitstream, and that the bench finds one wrong bit in each."""

import re
import shutil

import pytest
from lnstesting import exactly

from fpga import levels, netlists
from fpga.flow import CONFIGURATION, DEVICES, ROUTED, place_and_route, synthesize
from fpga.runner import DoesNotFit, Runner
from hdl import AddSubtract, DotProduct, Multiply
from sim.levels import Unavailable, get_level
from sim.simulators import BuildFailed, ToolMissing
from sim.verify import verify
from xlnstorch import lns8, lns16
from xlnstorch.cli import main

needs_icestorm = pytest.mark.skipif(
    shutil.which("icebox_vlog") is None, reason="icestorm is not installed (apt-get install fpga-icestorm)"
)
needs_icarus = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="Icarus Verilog is not installed (apt-get install iverilog)"
)
LEVELS = [
    ("synth", "ice40"),
    ("route", "ice40"),
    pytest.param("bitstream", "ice40", marks=needs_icestorm),
    ("synth", "ecp5"),
    ("route", "ecp5"),
]


def verified(unit, level, device="ice40", simulator="verilator"):
    return verify(
        [unit], lns8, stimuli=["random", "saturation"], vectors=300, level=level, device=device, simulator=simulator
    )


@pytest.mark.synth
@pytest.mark.sim
@pytest.mark.parametrize(("level", "device"), LEVELS)
@pytest.mark.parametrize(
    ("unit", "simulator"), [("add", "verilator"), pytest.param("multiply", "icarus", marks=needs_icarus)]
)
def test_the_gates_equal_the_golden_model(unit, level, device, simulator):
    # An ECP5's block RAM has no model, so its tables are in lookup tables here.
    report = verified("add:rom=luts" if (unit, device) == ("add", "ecp5") else unit, level, device, simulator)
    assert report.passed, (report.problems, report.counterexamples)
    assert {(result.level, result.device, result.vectors) for result in report.results} == {(level, device, 300)}


# One wrong bit -----------------------------------------------------------------------------------------------------


def clear_a_bit_of_a_table(text, before):
    """Clear the lowest bit that is set in the first number, after `before`, that has one."""
    for number in re.finditer(before + r"([0-9a-fx]+)", text):
        if digits := re.search(r"[1-9a-f]0*$", number[1].replace("x", "0")):
            place = number.start(1) + digits.start()
            digit = int(text[place], 16)
            return f"{text[:place]}{digit & (digit - 1):x}{text[place + 1 :]}"
    raise AssertionError(f"nothing is set after {before}")


def substitute_once(text, old, new):
    assert old in text
    return text.replace(old, new, 1)


FAULTS = {
    "a word of a block RAM after synthesis": (
        *("add", "synth", "ice40"),
        lambda text: clear_a_bit_of_a_table(text, r"\.INIT_\w\(256'[bh]"),
    ),
    "a word of a block RAM after place and route": (
        *("add", "route", "ice40"),
        lambda text: clear_a_bit_of_a_table(text, r"\.INIT_\w\(256'[bh]"),
    ),
    # The lookup table before a register that only passes one of its inputs on.
    "a lookup table after place and route": (
        *("multiply", "route", "ice40"),
        lambda text: substitute_once(text, ".LUT_INIT(16'h0002)", ".LUT_INIT(16'h0000)"),
    ),
    # Half of a sum: of A alone it is 1.
    "an adder of an ECP5": (
        *("multiply", "synth", "ecp5"),
        lambda text: substitute_once(text, ".INIT0(16'h96aa)", ".INIT0(16'h94aa)"),
    ),
}


@pytest.mark.synth
@pytest.mark.sim
@pytest.mark.parametrize(("unit", "level", "device", "plant"), FAULTS.values(), ids=FAULTS)
def test_the_bench_finds_one_wrong_bit(unit, level, device, plant, monkeypatch):
    sound = levels._OnDevice._gates

    def wrong(*args):
        gates = sound(*args)
        return netlists.Gates(plant(gates.verilog), gates.cells)

    monkeypatch.setattr(levels._OnDevice, "_gates", wrong)
    report = verified(unit, level, device)
    assert sum(result.mismatches for result in report.results) > 0


@pytest.mark.synth
@pytest.mark.sim
@needs_icestorm
def test_the_bench_finds_one_wrong_bit_of_the_bitstream(tmp_path, monkeypatch):
    device = DEVICES["ice40"]
    place_and_route(synthesize(AddSubtract(format=lns8), device), device, keep=tmp_path)
    configuration = (tmp_path / CONFIGURATION).read_text()
    wrong = clear_a_bit_of_a_table(configuration, r"(?<=\n)(?=[0-9a-f]{64}\n)")
    gates = netlists.read_back(netlists.pack_and_unpack(wrong), (tmp_path / ROUTED).read_text())
    monkeypatch.setattr(levels.Bitstream, "_gates", lambda *_: gates)
    report = verified("add", "bitstream")
    assert sum(result.mismatches for result in report.results) > 0


# Making them -------------------------------------------------------------------------------------------------------


def source(level, unit):
    return level.source(unit), lambda: None


@pytest.mark.synth
def test_what_was_made_once_is_found_again(tmp_path, monkeypatch):
    monkeypatch.setenv("LNS_CACHE", str(tmp_path))
    unit = Multiply(format=lns8)
    routed = get_level("route", "ecp5")
    text = routed.verilog("multiply", *source(routed, unit))
    monkeypatch.setattr(Runner, "gates", lambda *_: pytest.fail("made again"))
    assert routed.verilog("multiply", *source(routed, unit)) == text
    assert "module top(" in text and "module TRELLIS_COMB(" in text
    synthesized = get_level("synth", "ecp5")
    assert "CCU2C" in synthesized.verilog("multiply", *source(synthesized, unit))  # made on the way
    monkeypatch.setattr(levels, "_SEED", 2)
    with pytest.raises(pytest.fail.Exception, match="made again"):
        routed.verilog("multiply", *source(routed, unit))


def test_a_level_is_kept_by_all_that_it_is_made_from(monkeypatch):
    synth = get_level("synth", "ice40")
    seen = {synth._digest("synth", "unit"), synth._digest("route", "unit"), synth._digest("synth", "another")}
    seen.add(get_level("synth", "ecp5")._digest("synth", "unit"))
    monkeypatch.setattr(levels, "tool_versions", lambda device: {"pyosys": "0.1"})
    seen.add(synth._digest("synth", "unit"))
    assert len(seen) == 5


# What cannot be ----------------------------------------------------------------------------------------------------


def test_more_ports_than_pins_are_refused_before_anything_is_made(monkeypatch):
    monkeypatch.setattr(Runner, "gates", lambda *_: pytest.fail("made"))
    unit = DotProduct(format=lns16, lanes=8)
    for device, has in (("ice40", "iCE40 HX8K has 206"), ("ecp5", "ECP5-25k, speed grade 6 has 197")):
        with pytest.raises(Unavailable) as caught:
            verify([unit], lns16, level="route", device=device)
        assert str(caught.value) == f"dot has no level route on {device}: it needs 297 pins, and the {has}"
    get_level("synth", "ice40").check(unit)  # before there are pins


@pytest.mark.parametrize(
    ("failure", "kind", "message"),
    [
        (
            DoesNotFit("no BELs"),
            Unavailable,
            "add has no level route on ecp5: it does not fit: no BELs",
        ),
        (BuildFailed("it stopped"), BuildFailed, "add: it stopped"),
    ],
)
def test_what_goes_wrong_is_told_with_the_name_of_the_unit(failure, kind, message, monkeypatch, tmp_path):
    monkeypatch.setenv("LNS_CACHE", str(tmp_path))

    def fail(*_):
        raise failure

    monkeypatch.setattr(Runner, "gates", fail)
    with pytest.raises(kind, match=exactly(message)):
        get_level("route", "ecp5").verilog("add", "", lambda: None)


@pytest.mark.synth
def test_where_models_end_the_level_ends(capsys, monkeypatch):
    monkeypatch.setattr("sim.simulators.Simulator.build", lambda *args, **_: pytest.fail("built"))
    assert main(["verify", "add", "--format", "lns8", "--level", "synth", "--device", "ecp5"]) == 2
    assert capsys.readouterr().err == (
        "lns verify: add has no level synth on ecp5: its netlist has DP16KD, of which Yosys has no simulation model\n"
    )


def test_there_is_no_bitstream_of_an_ecp5(capsys):
    assert main(["verify", "multiply", "--level", "bitstream", "--device", "ecp5"]) == 2
    assert capsys.readouterr().err == (
        "lns verify: there is no level bitstream on ecp5: no public program turns a bitstream of an ECP5 back into a "
        "netlist; its last level is route\n"
    )


def test_without_icestorm_there_is_no_bitstream(capsys, monkeypatch):
    monkeypatch.setattr(levels.shutil, "which", lambda name: None)
    with pytest.raises(ToolMissing) as caught:
        get_level("bitstream").check(Multiply(format=lns8))
    assert str(caught.value) == (
        "the level bitstream needs icebox_vlog, which is not on the path; install with: apt-get install fpga-icestorm"
    )
    get_level("route").check(Multiply(format=lns8))
