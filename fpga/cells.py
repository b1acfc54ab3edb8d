"""What the cells of a netlist do: models of them that simulators read, from Yosys, and nothing of our own.

There are models of all cells that a unit becomes on an iCE40. Of an ECP5's block RAM and multiplier, DP16KD and
MULT18X18D, Yosys knows only the ports (its issue 1358): there the levels end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["PULLED_UP", "missing_models", "models"]

# Below the folder ``share`` of Yosys.
_FILES: Mapping[str, tuple[str, ...]] = {
    "ice40": ("ice40/cells_sim.v",),
    "ecp5": ("ecp5/cells_sim.v", "ecp5/common_sim.vh", "ecp5/ccu2c_sim.vh"),
}
#: For each type of cell that place and route leaves with unconnected inputs, those that read 1 then; others read 0.
PULLED_UP: Mapping[str, frozenset[str]] = {
    "ICESTORM_LC": frozenset({"CEN"}),
    "ICESTORM_RAM": frozenset({"RCLKE", "WCLKE"}),
    "TRELLIS_COMB": frozenset("ABCD"),
    "TRELLIS_FF": frozenset(),
}
_MODULE = re.compile(r"^(?P<attributes>(?:\(\*[^\n]*\n)*)(?P<text>module (?P<name>\w+)\b.*?^endmodule)", re.M | re.S)
# A type of cell, then its parameters or its name.
_INSTANCE = re.compile(r"^\s*([A-Z]\w+) (?:#\(|\w+ ?\()", re.M)
# How models read unconnected inputs. Verilator takes a port that is compared with z for one that several may drive.
_PULL = re.compile(r"\((\w+) === 1'bz\) \? 1'b[01] : \1\b")
# What is not Verilog: default values of ports, and errors where a generate block ends in a case that never is.
_NOT_VERILOG = re.compile(r" `ICE40_DEFAULT_ASSIGNMENT_(?:0|1|V\([^)]*\))|\$error\(.*\);")


def models(device: str, types: Iterable[str]) -> str:
    """Return the models of types of cells, and of what these are made of, as Verilog.

    No model sets an unconnected input: the netlist must.

    Raises
    ------
    LookupError
        One has no model; :func:`missing_models` says which.
    """
    modules, wanted, found = _modules(device), sorted(types), {}
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = modules[name]
            wanted += [inner for inner in _INSTANCE.findall(modules[name]) if inner in modules]
    return "\n\n".join(found.values()) + "\n"


def missing_models(device: str, types: Iterable[str]) -> list[str]:
    """Return those of the types of cells that there is no model of, in order."""
    return sorted(set(types) - _modules(device).keys())


def _modules(device: str) -> dict[str, str]:
    import pyosys

    share = Path(pyosys.__file__).parent / "share"
    text = "".join((share / file).read_text() for file in _FILES[device])
    # As it is, this declares a second wire of the name, and no carry leaves the cell (Yosys 0.70).
    text = text.replace("wire FCO =", "assign FCO =").replace("`SB_DFF_INIT", "initial Q = 0;")
    text = _NOT_VERILOG.sub("", _PULL.sub(r"\1", text))
    found = _MODULE.finditer(text)
    return {module["name"]: module["text"] for module in found if "blackbox" not in module["attributes"]}
