"""Cells of each unit after synthesis, and the clock after place and route, on both devices of :mod:`fpga.flow`.

    python benchmarks/cells.py [--format lns16] [--adder exact] [--json]

nextpnr's seed is 1. ``lns adders`` compares adders with each other.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from rich.console import Console
from rich.table import Table

import hdl
from fpga.flow import DEVICES, require_tools, to_rtlil
from fpga.runner import Runner
from xlnstorch import named_format
from xlnstorch.adders import named_adder
from xlnstorch.cli import CommandError


def measure(format_name: str, adder_name: str) -> list[dict]:
    """Return a row for each unit and device."""
    try:
        format = dataclasses.replace(named_format(format_name), adder=named_adder(adder_name))
        units = [unit(format=format) for unit in hdl.UNITS.values()]
    except ValueError as error:
        raise CommandError(str(error)) from None
    require_tools(DEVICES.values())
    rows = []
    with Runner() as runner:
        for unit in units:
            rtlil = to_rtlil(unit)
            for device in DEVICES.values():
                found = runner.implement(rtlil, device)
                if found.reason:
                    sys.stderr.write(f"{unit.name}, {device.name}: {found.reason}\n")
                rows.append(
                    {
                        "unit": unit.name,
                        "format": format.name,
                        "adder": format.adder.name,
                        "device": device.name,
                        "luts": found.luts,
                        "registers": found.registers,
                        "rams": found.block_rams,
                        "dsps": found.dsps,
                        "mhz": found.mhz,
                    }
                )
    return rows


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", default="lns16")
    parser.add_argument("--adder", default="exact")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        rows = measure(args.format, args.adder)
    except CommandError as error:
        sys.stderr.write(f"cells.py: {error}\n")
        return error.exit_code
    if args.json:
        print(json.dumps({"schema": 1, "cells": rows}))
        return 0
    table = Table(box=None, pad_edge=False)
    for title in rows[0]:
        table.add_column(title)
    for row in rows:
        table.add_row(*(("-" if v is None else f"{v:.0f}" if isinstance(v, float) else str(v)) for v in row.values()))
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
