"""Cells and clocks of LNS units, and of the floating-point ones of equal word size that one would take instead.

    python benchmarks/cells.py [--unit multiply] [--format lns16] [--device ecp5] [--seeds 1-5] [--json] [--check]

All of them go through :mod:`fpga.flow` in the same way, once through Yosys and with each seed through nextpnr; the
clock is the median. The floating-point units are Zubax ZKF's (``pip install zkf``), with as many exponent bits as the
LNS format has integer bits: the layouts of bfloat16 and binary32 for lns16 and lns32. ``short`` and ``long`` are their
two pipeline settings, without and with all of their optional stages inside.

Every unit has registers at both ends, and all of them are counted. Those at ZKF's ends are its own, and so are those at
the outputs of the LNS units; at the inputs these have none, so they are wrapped in some. The LNS units have an output
that may stall, and flags, which ZKF's have not; ZKF's have infinities. Either adder subtracts, by an opcode or a sign.

What was found is kept (``$LNS_CACHE``), so that a second run is quick. With ``--check`` it is compared with the
baseline of the same versions of the tools, in ``benchmarks/baselines``. Exit status: 0 done; 1 something is worse than
there; 2 usage; 3 a tool is missing; 4 a build failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from amaranth.hdl import Module
from amaranth.lib import wiring
from rich.table import Table

import hdl
from fpga import flow, output_registers
from fpga.flow import DEVICES, Device, Implementation, require_tools, to_rtlil, tool_versions
from fpga.runner import Runner
from sim.simulators import BuildFailed, ToolMissing
from xlnstorch import LNSFormat, cache, named_format
from xlnstorch.adders import named_adder
from xlnstorch.cli import CommandError, results_console

BASELINES = Path(__file__).parent / "baselines"
UNITS = {"multiply": hdl.Multiply, "add": hdl.AddSubtract, "mac": hdl.MultiplyAdd}
FORMATS = ("lns16", "lns32")
#: The adder of each format; of any other, the exact one.
ADDERS = {"lns32": "piecewise:degree=2"}
SEEDS = (1, 2, 3, 4, 5)

#: How much worse than the baseline something may be: another name of a signal changes a clock by so much.
LUTS_TOLERANCE, CLOCK_TOLERANCE = 0.02, 0.1

#: What the LNS units are meant to reach on the ECP5: at most so many LUT4, DSPs and block RAMs, and at least the clock.
TARGETS = {
    ("multiply", "lns16"): (45, 0, 0, 200),
    ("add", "lns16"): (160, 0, 2, 196),
    ("mac", "lns16"): (283, 0, None, 142),
    ("multiply", "lns32"): (80, 0, 0, 160),
    ("add", "lns32"): (600, 4, 10, 130),
}


@dataclasses.dataclass(frozen=True)
class Design:
    """A unit as source text whose top module is ``top``; `name` is the adder, or ZKF and its pipeline setting."""

    unit: str
    format: str
    name: str
    source: str
    language: str


class Registered(wiring.Component):
    """A unit with registers at its inputs."""

    def __init__(self, unit: hdl.Unit):
        self._unit = unit
        super().__init__({name: unit.signature.members[name] for name in ("i", "o")})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.unit = unit = self._unit
        m.d.sync += [
            unit.i.payload.eq(self.i.payload),
            unit.i.valid.eq(self.i.valid),
            unit.o.ready.eq(self.o.ready),
            self.i.ready.eq(unit.i.ready),
        ]
        m.d.comb += [self.o.payload.eq(unit.o.payload), self.o.valid.eq(unit.o.valid)]
        return m


# Floating point ----------------------------------------------------------------------------------------------------

_STAGES = {"multiply": ("PRODUCT", "PACK"), "add": ("DECODE", "ALIGN", "NORMALIZE", "PACK")}
_MULTIPLY_STAGES = {"short": 3, "long": 5}  # with its input and output

_TOP = """
module top(input wire clk, input wire rst, input wire in_valid, input wire [{top}:0] a, input wire [{top}:0] b,
           {c}output wire out_valid, output wire [{top}:0] y);
{body}endmodule
"""
_MULTIPLY = """  zkf_mul #({parameters}) multiply (
    .clk(clk), .rst(rst), .in_valid(in_valid), .a(a), .b(b), .out_valid({valid}), .y({y}));
"""
_ADD = """  zkf_add #({parameters}) add (
    .clk(clk), .rst(rst), .in_valid({valid}), .a({a}), .b({b}), .out_valid(out_valid), .y(y));
"""
_MAC = """  wire product_valid;
  wire [{top}:0] product, waiting;
  zkf_pipe #(.W({width}), .N({stages})) pipe (
    .clk(clk), .rst(1'b0), .in_valid(1'b0), .in(c), .out_valid(), .out(waiting));
"""


def float_source(unit: str, exponent_bits: int, significand_bits: int, setting: str) -> str:
    """Return Verilog of a unit of ZKF's between registers.

    Parameters
    ----------
    unit : {"multiply", "add", "mac"}
        The last is a multiplier in front of an adder, with one register between the two.
    exponent_bits, significand_bits : int
        Of the format; the latter counts the hidden bit.
    setting : {"short", "long"}
        Which of the two pipelines.
    """
    import zkf

    def parameters(kind: str, ends: tuple[str, ...]) -> str:
        on = [*ends, *(_STAGES[kind] if setting == "long" else ())]
        values = {"WEXP": exponent_bits, "WMAN": significand_bits, **{f"STAGE_{stage}": 1 for stage in on}}
        return ", ".join(f".{name}({value})" for name, value in values.items())

    width = exponent_bits + significand_bits
    both = ("INPUT", "OUTPUT")
    if unit == "multiply":
        body = _MULTIPLY.format(parameters=parameters("multiply", both), valid="out_valid", y="y")
    elif unit == "add":
        body = _ADD.format(parameters=parameters("add", both), valid="in_valid", a="a", b="b")
    else:
        body = _MAC.format(top=width - 1, width=width, stages=_MULTIPLY_STAGES[setting])
        body += _MULTIPLY.format(parameters=parameters("multiply", both), valid="product_valid", y="product")
        body += _ADD.format(parameters=parameters("add", ("OUTPUT",)), valid="product_valid", a="waiting", b="product")
    c = f"input wire [{width - 1}:0] c, " if unit == "mac" else ""
    return zkf.get_rtl_bundle() + _TOP.format(top=width - 1, c=c, body=body)


# Measuring ---------------------------------------------------------------------------------------------------------


def designs(unit: str, format: LNSFormat) -> Iterator[Design]:
    """Yield the LNS unit and ZKF's two, as far as there are any."""
    name = format.name
    source = to_rtlil(Registered(UNITS[unit](format=format)))
    yield Design(unit, name, "" if unit == "multiply" else format.adder.name, source, "rtlil")
    exponent_bits, significand_bits = format.int_bits, format.width - format.int_bits
    if exponent_bits >= 2 and significand_bits >= 4:
        for setting in _MULTIPLY_STAGES:
            yield Design(
                unit, name, f"zkf {setting}", float_source(unit, exponent_bits, significand_bits, setting), "verilog"
            )


def implement(design: Design, device: Device, seeds: Sequence[int], runner: Runner) -> list[Implementation]:
    """Return what a design takes on a device with each seed, measured now or earlier."""
    sources = [Path(module.__file__).read_text() for module in (flow, output_registers)]
    parts = [design.source, design.language, dataclasses.asdict(device), list(seeds), tool_versions(device), sources]
    kind, key = "fpga/cells", cache.digest(parts)
    found = cache.load(kind, key)
    if found is None:
        found = [dataclasses.asdict(one) for one in runner.implement_all(design.source, device, seeds, design.language)]
        cache.store(kind, key, found)
    return [Implementation(**one) for one in found]


def row(design: Design, device: Device, seeds: Sequence[int], found: Sequence[Implementation]) -> dict:
    """Return what was found, as one object; without a clock where a seed has none."""
    clocks = [one.mhz for one in found]
    return {
        "unit": design.unit,
        "format": design.format,
        "design": design.name,
        "device": device.name,
        **{kind: getattr(found[0], kind) for kind in ("luts", "registers", "block_rams", "dsps")},
        "mhz": None if None in clocks else round(statistics.median(clocks), 1),
        "clocks": {str(seed): clock and round(clock, 1) for seed, clock in zip(seeds, clocks, strict=True)},
        "reason": next((one.reason for one in found if one.reason), None),
    }


def measure(
    units: Iterable[str], formats: Iterable[LNSFormat], devices: Sequence[Device], seeds: Sequence[int]
) -> list[dict]:
    """Return a row for each design and device; says on standard error what is finished."""
    require_tools(devices)
    if importlib.util.find_spec("zkf") is None:
        raise ToolMissing("zkf is not installed; install with: pip install zkf")
    try:
        todo = [design for format in formats for unit in units for design in designs(unit, format)]
    except ValueError as error:
        raise CommandError(str(error)) from None

    def one(design: Design, device: Device) -> dict:
        result = row(design, device, seeds, implement(design, device, seeds, runner))
        sys.stderr.write(f"{_title(result)}: {result['reason'] or '{luts} LUT4, {mhz:.0f} MHz'.format(**result)}\n")
        return result

    with ThreadPoolExecutor(os.cpu_count()) as pool, Runner() as runner:
        futures = [pool.submit(one, design, device) for design in todo for device in devices]
        return [future.result() for future in futures]


# Comparing ---------------------------------------------------------------------------------------------------------


def baseline_file(device: Device) -> Path:
    """Return the file of the baseline of a device, by the versions of its tools."""
    return BASELINES / ("_".join(f"{name}-{version}" for name, version in tool_versions(device).items()) + ".json")


def read_baseline(device: Device) -> list[dict]:
    """Return the rows of a device's baseline.

    Raises
    ------
    CommandError
        There is none for the versions of the tools that are installed.
    """
    file = baseline_file(device)
    if not file.exists():
        raise CommandError(f"there is no baseline {file.name}; make one with --write-baselines")
    return json.loads(file.read_text())["cells"]


def _write_baseline(device: Device, found: Sequence[dict]) -> None:
    """Replace the rows of what was found, and keep the others."""
    file = baseline_file(device)
    rows = {_title(row): row for row in [*(read_baseline(device) if file.exists() else []), *found]}
    text = json.dumps({"tools": tool_versions(device), "cells": list(rows.values())}, indent=1)
    file.parent.mkdir(exist_ok=True)
    file.write_text(text + "\n")


def worse(found: Sequence[dict], baseline: Sequence[dict]) -> list[str]:
    """Return a sentence for everything that is worse than in the baseline, beyond the tolerances, or not there.

    Clocks are compared as medians over the seeds that both have.
    """
    before = {_title(row): row for row in baseline}
    sentences = []
    for row in found:
        title = _title(row)
        if title not in before:
            sentences.append(f"{title}: not in the baseline")
            continue
        old = before[title]
        for kind, tolerance in (("luts", LUTS_TOLERANCE), ("block_rams", 0), ("dsps", 0)):
            if row[kind] is None or row[kind] > old[kind] * (1 + tolerance):
                sentences.append(f"{title}: {row[kind]} {kind}, {old[kind]} in the baseline")
        if old["mhz"] is None:  # it had no clock before either
            continue
        seeds = [seed for seed in row["clocks"] if seed in old["clocks"]]
        if not seeds or None in row["clocks"].values():
            sentences.append(f"{title}: no clock to compare ({row['reason'] or 'other seeds'})")
            continue
        new_clock, old_clock = (statistics.median(r["clocks"][seed] for seed in seeds) for r in (row, old))
        if new_clock < old_clock * (1 - CLOCK_TOLERANCE):
            sentences.append(f"{title}: {new_clock:.1f} MHz, {old_clock:.1f} in the baseline")
    return sentences


def _title(row: dict) -> str:
    return " ".join(filter(None, (row["format"], row["unit"], row["design"], "on", row["device"])))


def targets(found: Sequence[dict]) -> list[dict]:
    """Return for each target among the rows what was to be reached, and whether it was."""
    rows = []
    for row in found:
        target = TARGETS.get((row["unit"], row["format"]))
        if target is None or row["device"] != "ecp5" or row["design"].startswith("zkf"):
            continue
        limits = dict(zip(("luts", "dsps", "block_rams", "mhz"), target, strict=True))
        missed = [k for k, most in limits.items() if k != "mhz" and most is not None and not (row[k] or 0) <= most]
        missed += ["mhz"] * ((row["mhz"] or 0) < limits["mhz"])
        rows.append({"unit": row["unit"], "format": row["format"], **limits, "missed": missed})
    return rows


# Command line ------------------------------------------------------------------------------------------------------


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds of ``3``, ``1,4`` or ``1-5``."""
    seeds = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            seeds += range(int(first), int(last or first) + 1)
    except ValueError:
        seeds = []
    if not seeds or not all(0 <= seed < 1 << 31 for seed in seeds):
        raise CommandError(f"seeds must be such as 3, 1,4 or 1-5, not {text!r}")
    return tuple(dict.fromkeys(seeds))


def _format(name: str, adder: str | None) -> LNSFormat:
    try:
        format = named_format(name)
        adder = adder or ADDERS.get(format.name)
        return dataclasses.replace(format, adder=named_adder(adder)) if adder else format
    except ValueError as error:
        raise CommandError(str(error)) from None


def _chosen(kind: str, names: Sequence[str] | None, known: Iterable[str]) -> list[str]:
    known = list(known)
    for name in names or ():
        if name not in known:
            raise CommandError(f"{kind} must be one of {', '.join(known)}, not {name!r}")
    return list(dict.fromkeys(names or known))


def _print(found: Sequence[dict]) -> None:
    table = Table(box=None, pad_edge=False)
    for title in ("format", "unit", "", "device", "LUT4", "registers", "block RAM", "DSP", "MHz"):
        table.add_column(title, justify="left" if title in ("format", "unit", "", "device") else "right")
    keys = ("format", "unit", "design", "device", "luts", "registers", "block_rams", "dsps")
    for row in found:
        clock = "-" if row["mhz"] is None else f"{row['mhz']:.0f}"
        table.add_row(*("-" if row[key] is None else str(row[key]) for key in keys), clock)
    console = results_console()
    console.print(table)
    for target in targets(found):
        wanted = [f"≤ {target['luts']} LUT4", f"≤ {target['dsps']} DSP", f"≥ {target['mhz']} MHz"]
        if target["block_rams"] is not None:
            wanted.insert(2, f"≤ {target['block_rams']} block RAM")
        verdict = f"missed: {', '.join(target['missed'])}" if target["missed"] else "reached"
        console.print(f"target of {target['format']} {target['unit']}: {', '.join(wanted)}: {verdict}", soft_wrap=True)


def run(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--unit", action="append", help=f"{', '.join(UNITS)}; may be repeated (default: all)")
    parser.add_argument("--format", action="append", help=f"may be repeated (default: {' and '.join(FORMATS)})")
    parser.add_argument("--adder", help="of the LNS units (default: exact, of lns32 piecewise:degree=2)")
    parser.add_argument("--device", action="append", help=f"{', '.join(DEVICES)}; may be repeated (default: all)")
    parser.add_argument("--seeds", default="1-5", help="of place and route (default: 1-5)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--check", action="store_true", help="compare with the baselines; exit 1 if anything is worse")
    parser.add_argument("--write-baselines", action="store_true", help="keep what is found as the baselines")
    args = parser.parse_args(arguments)
    units = _chosen("unit", args.unit, UNITS)
    formats = [_format(name, args.adder) for name in args.format or FORMATS]
    devices = [DEVICES[name] for name in _chosen("device", args.device, DEVICES)]
    known = [row for device in devices if args.check for row in read_baseline(device)]
    found = measure(units, formats, devices, parse_seeds(args.seeds))
    if args.json:
        versions = {name: version for device in devices for name, version in tool_versions(device).items()}
        print(json.dumps({"schema": 1, "tools": versions, "cells": found, "targets": targets(found)}))
    else:
        _print(found)
    if args.write_baselines:
        for device in devices:
            _write_baseline(device, [row for row in found if row["device"] == device.name])
    sentences = worse(found, known) if args.check else []
    sys.stderr.write("".join(f"worse: {sentence}\n" for sentence in sentences))
    return 1 if sentences else 0


def main() -> int:
    """Run, and tell a user's errors from the program's."""
    try:
        return run()
    except (CommandError, ToolMissing, BuildFailed) as error:
        sys.stderr.write(f"cells.py: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
