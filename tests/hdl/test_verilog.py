import collections
import dataclasses
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from hdl import UNITS, Multiply, to_verilog
from hdl.bus import BUSES
from hdl.description import describe, write_header
from hdl.verilog import VERILATOR_WARNINGS
from sim.simulators import SIMULATORS
from xlnstorch import Mitchell, Piecewise, lns8, lns16, lns32

# Units with a part for each lane and row are as small as still shows it.
SMALL = {
    "alu": {"converters": ("float16",)},
    "dot": {"lanes": 2},
    "matvec": {"rows": 2, "lanes": 2, "columns": 4},
}


def make(name, format):
    return UNITS[name](format=format, **SMALL.get(name, {}))


FORMATS = {
    "lns8": lns8,
    "lns16-specials": dataclasses.replace(lns16, specials=True),
    "lns16-piecewise": dataclasses.replace(lns16, adder=Piecewise()),
    "lns32-mitchell": dataclasses.replace(lns32, adder=Mitchell()),
}


@pytest.mark.parametrize("name", UNITS)
def test_the_text_is_the_same_each_time_and_holds_no_path(name):
    first, second = (to_verilog(make(name, lns16)) for _ in range(2))
    assert first == second
    assert ".py" not in first
    assert "/tmp" not in first
    assert re.search(r"/\w+/\w+", first) is None


@pytest.mark.parametrize("name", UNITS)
def test_ports_are_named_after_the_streams(name):
    text = to_verilog(make(name, lns8), name="lns_unit")
    ports = text[text.index("module lns_unit(") :].split("(", 1)[1].split(")", 1)[0].split(", ")
    streams = [f"{stream}__{part}" for stream in "io" for part in ("payload", "valid", "ready")]
    assert sorted(ports) == sorted(["clk", "rst", *streams])


def test_formats_and_units_give_different_text():
    texts = {to_verilog(make(name, format)) for name in UNITS for format in (lns8, lns16)}
    assert len(texts) == 2 * len(UNITS)


def test_a_temporary_folder_with_a_space_in_its_path(tmp_path, monkeypatch):
    (tmp_path / "with space").mkdir()
    expected = to_verilog(Multiply(format=lns8))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "with space"))
    assert to_verilog(Multiply(format=lns8)) == expected


# What other tools read ---------------------------------------------------------------------------------------------


def tops(name):
    """Return units in several formats, and one with each bus."""
    yield from (make(name, format) for format in FORMATS.values())
    yield from (bus(make(name, FORMATS["lns16-specials"])) for bus in BUSES.values())


def verilator(file):
    """Return what Verilator warns of in a file, by name."""
    command = ["verilator", "--lint-only", "-Wall", "--language", "1364-2001", str(file)]
    done = subprocess.run(
        command, env=SIMULATORS["verilator"].environment(), capture_output=True, text=True, check=False
    )
    found = collections.Counter(re.findall(r"%(?:Warning|Error)-?(\w*)", done.stderr))
    assert (done.returncode == 0) == (not found), done.stderr
    return {name: count for name, count in found.items() if name}


def icarus(file):
    command = ["iverilog", "-g2001", "-Wall", "-t", "null", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def yosys_ports(file, name):
    """Return name, direction and width of each port as Yosys reads them."""
    from pyosys import libyosys

    design = libyosys.Design()
    for command in (f'read_verilog "{file}"', f"hierarchy -check -top {name}"):
        design.run_pass(f"tee -q -o /dev/null {command}")
    wires = [wire for wire in design.top_module().wires_.values() if wire.port_input or wire.port_output]
    return {(w.name.str()[1:], "input" if w.port_input else "output", w.width) for w in wires}


@pytest.mark.sim
@pytest.mark.parametrize("name", UNITS)
def test_icarus_verilator_and_yosys_read_the_file_and_find_the_ports_of_the_description(name, tmp_path):
    file = tmp_path / "adder.v"
    for top in tops(name):
        description = describe(top, "lns_unit", {})
        file.write_text(f"{write_header(description)}{to_verilog(top, 'lns_unit')}/* verilator lint_restore */\n")
        assert verilator(file) == {}
        if shutil.which("iverilog"):
            assert icarus(file) == (0, "")
        ports = {(port["name"], port["direction"], port["width"]) for port in description["ports"]}
        assert yosys_ports(file, "lns_unit") == ports


@pytest.mark.sim
def test_every_warning_that_is_silenced_occurs_and_no_other_does(tmp_path):
    file = tmp_path / "adder.v"
    found = set()
    for name in UNITS:
        for format in ("lns16-specials", "lns16-piecewise"):
            file.write_text(to_verilog(make(name, FORMATS[format]), "lns_unit"))
            found |= set(verilator(file))
    assert found == set(VERILATOR_WARNINGS)


@pytest.mark.sim
def test_what_follows_the_file_is_not_silenced(tmp_path):
    file, unit = tmp_path / "adder.v", Multiply(format=lns8)
    follows = "module other(input [3:0] a, output [1:0] b);\n  assign b = a;\nendmodule\n"
    text = f"{write_header(describe(unit, 'lns_unit', {}))}{to_verilog(unit, 'lns_unit')}"
    file.write_text(f"{text}/* verilator lint_restore */\n{follows}")
    assert set(verilator(file)) == {"MULTITOP", "UNUSEDSIGNAL", "WIDTHTRUNC"}


def test_the_page_has_every_warning_with_its_reason():
    page = (Path(__file__).parents[2] / "docs" / "verilog.md").read_text()
    rows = [f"| {name} | {reason} |" for name, reason in VERILATOR_WARNINGS.items()]
    assert [row for row in rows if row not in page] == []
