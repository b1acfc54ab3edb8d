"""The subcommand ``lns adders``. What it needs is imported when it runs."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from xlnstorch.cli import CommandError, results_console
from xlnstorch.files import check_writable

if TYPE_CHECKING:
    from rich.console import Console

    from .design_space import Result
    from .flow import Device

__all__ = ["Adders"]

_PLOTS = (".png", ".svg", ".pdf")


class Adders:
    """``lns adders``: what each adder's errors are, and what it takes on FPGAs."""

    help = "compare the adders of a format: their errors, and cells and clock on FPGAs"
    description = """Compare the adders of a format: the errors of their Gaussian logarithms over all distances, and the
cells and the clock of the unit that adds and subtracts, after synthesis and place and route. What
is known from an earlier run, an interrupted one too, is not done again.

Exit status: 0 done; 2 usage; 3 a tool is missing; 4 synthesis or place and route failed."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument(
            "--format", default="lns16", metavar="NAME", help="a catalogue name or int_bits,frac_bits (default: lns16)"
        )
        parser.add_argument(
            "--adder",
            action="append",
            metavar="NAME",
            dest="adders",
            help="such as exact or mitchell:corrections=2; may be repeated (default: all that are worth comparing)",
        )
        parser.add_argument("--rom", metavar="WHERE", help="tables in block RAM (block) or LUTs (luts) (default: both)")
        parser.add_argument(
            "--device",
            action="append",
            metavar="NAME",
            dest="devices",
            help="ice40 (HX8K) or ecp5 (25k, speed grade 6); may be repeated (default: both)",
        )
        parser.add_argument("--no-synthesis", action="store_true", help="only errors, ROM bits and multipliers")
        parser.add_argument("--seed", type=int, default=1, metavar="N", help="of place and route (default: 1)")
        parser.add_argument("--jobs", type=int, metavar="N", help="processes side by side (default: one for each core)")
        parser.add_argument("--plot", metavar="FILE", help="draw error against area, or ROM bits: .png, .svg or .pdf")
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
        parser.add_argument("--force", action="store_true", help="do again what is known")

    def run(self, args: argparse.Namespace) -> int:
        """Explore and report."""
        if args.plot is not None:
            _check_plot(args.plot)

        from xlnstorch.adders import named_adder
        from xlnstorch.catalog import named_format

        from .design_space import ROMS, explore, points_of

        devices = _devices(args)
        try:
            adders = None if args.adders is None else list(map(named_adder, args.adders))
            rom = ROMS[0] if args.no_synthesis and args.rom is None else args.rom
            points = points_of(named_format(args.format), adders, rom)
            jobs = (os.cpu_count() or 1) if args.jobs is None else args.jobs
            with _progress_bar() as progress:
                results = explore(points, devices, seed=args.seed, jobs=jobs, force=args.force, progress=progress)
        except (ValueError, TypeError) as error:
            raise CommandError(str(error)) from error
        if args.plot is not None:
            from xlnstorch.plot.output import write_figure

            from .figures import draw_design_space

            write_figure(draw_design_space(results, devices), args.plot)
        if args.json:
            sys.stdout.write(json.dumps(_to_json(results, devices, args)) + "\n")
        else:
            _print(results, devices, args.seed, results_console())
        return 0


def _check_plot(file: str) -> None:
    from sim.simulators import ToolMissing
    from xlnstorch.plot.figures import require_matplotlib

    try:
        require_matplotlib()
    except ImportError as error:
        raise ToolMissing(str(error)) from None
    check_writable(file, _PLOTS)


def _devices(args: argparse.Namespace) -> list[Device]:
    from .flow import DEVICES

    if args.no_synthesis:
        if args.devices:
            raise CommandError("give --device or --no-synthesis, not both")
        return []
    for name in args.devices or ():
        if name not in DEVICES:
            raise CommandError(f"device must be one of {', '.join(DEVICES)}, not {name!r}")
    return [DEVICES[name] for name in dict.fromkeys(args.devices or DEVICES)]


@contextlib.contextmanager
def _progress_bar() -> Iterator[Callable[[int, int, str], None] | None]:
    """A bar on standard error, and a line above it for each finished step, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task("starting", total=None)

        def progress(done: int, total: int, text: str) -> None:
            if done > bars.tasks[0].completed:
                bars.console.print(text, markup=False, highlight=False)
                text = "synthesis, place and route"
            bars.update(task, description=text, completed=done, total=total)

        yield progress


# Results -----------------------------------------------------------------------------------------------------------


def _to_json(results: Sequence[Result], devices: Sequence[Device], args: argparse.Namespace) -> dict[str, object]:
    from .design_space import area, front
    from .flow import tool_versions

    fronts = {device.name: front(results, device) for device in devices}
    rows = []
    for i, (result, best) in enumerate(zip(results, front(results), strict=True)):
        quality = result.quality and dataclasses.asdict(result.quality)
        rows.append(
            {
                "adder": result.point.format.adder.name,
                "rom": result.point.rom if result.rom_bits != 0 else None,
                "rom_bits": result.rom_bits,
                "multipliers": result.multipliers,
                "latency": result.latency,
                "errors": quality and {"max": result.quality.max, "mean": result.quality.mean, **quality},
                "front": best,
                "reason": result.reason,
                "devices": {
                    device.name: {
                        **dataclasses.asdict(result.devices[device.name]),
                        "area": area(result, device),
                        "front": fronts[device.name][i],
                    }
                    for device in devices
                    if device.name in result.devices
                },
            }
        )
    versions = {name: version for device in devices for name, version in tool_versions(device).items()}
    return {"schema": 1, "format": args.format, "seed": args.seed, "tools": versions, "adders": rows}


def _print(results: Sequence[Result], devices: Sequence[Device], seed: int, console: Console) -> None:
    """Print a table of errors, ROM and multipliers, one of cells and clock for each device, and what columns mean."""
    # What an adder needs before synthesis is the same wherever its tables are kept: the first of each.
    _print_table(list({result.point.format: result for result in results[::-1]}.values())[::-1], None, console)
    built = [result for result in results if not result.reason]
    for device in devices if built else ():
        _print_table(built, device, console)
    lines = [
        "max, mean: error of s(d) and t(d) over all d, in units of the last place; rounded: share of nearest integers",
        "clocks: latency of the unit that adds and subtracts",
        "*: no other has a lower max, ROM or multipliers (width times width) at no more of the other two"
        + "; with a device, a lower max at no more area, or less area at no larger max" * bool(devices),
    ]
    if devices:
        rams = " or ".join(f"{device.area(0, 1, 0):.0f} ({device.name})" for device in devices)
        dsps = " or ".join(f"{device.area(0, 0, 1):.0f} ({device.name})" for device in devices if device.dsps)
        lines += [
            f"area: LUT4, a block RAM counted as {rams}{' and a DSP as ' * bool(dsps)}{dsps}: the device's LUT4 for "
            "each of them",
            f"MHz: between registers, with seed {seed}; another seed may change it by 10 or 20 %",
        ]
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)


def _print_table(results: Sequence[Result], device: Device | None, console: Console) -> None:
    from rich.table import Table

    from .design_space import area, front

    table = Table(box=None, pad_edge=False, header_style="bold")
    cells = ("LUT4", "registers", "block RAM", "DSP", "area", "MHz") if device else ("ROM bits", "multipliers")
    for title in ("", "adder", "rom") if device else ("", "adder"):
        table.add_column(title, no_wrap=True)
    for title in ("max", "mean", "rounded", "clocks", *cells):
        table.add_column(title, justify="right")
    notes = []

    def order(row: tuple[Result, bool]) -> tuple[float, float]:
        quality, size = row[0].quality, area(row[0], device) if device else row[0].rom_bits
        return (float("inf") if quality is None else quality.max, float("inf") if size is None else size)

    for result, best in sorted(zip(results, front(results, device), strict=True), key=order):
        name, rom = result.point.format.adder.name, result.point.rom if result.rom_bits != 0 else "none"
        row = ["*" if best else "", name, *([rom] if device else [])]
        if result.quality is None:
            table.add_row(*row, *["-"] * (4 + len(cells)))
            notes.append(f"{name}: {result.reason}")
            continue
        row += [f"{result.quality.max:.2f}", f"{result.quality.mean:.2f}", f"{result.quality.rounded:.1%}"]
        row.append(str(result.latency))
        if device is None:
            row += [f"{result.rom_bits:,}", " ".join(f"{a}×{b}" for a, b in result.multipliers) or "none"]
        else:
            found = result.devices[device.name]
            numbers = (found.luts, found.registers, found.block_rams, found.dsps, area(result, device), found.mhz)
            row += ["-" if number is None else f"{number:,.0f}" for number in numbers]
            if found.reason:
                notes.append(f"{name}, {rom}: {found.reason}")
        table.add_row(*row)
    if device:
        console.print(f"{device.name}: {device.title}", highlight=False)
    console.print(table)
    for note in notes:
        console.print(note, soft_wrap=True, highlight=False, markup=False)
    console.print()
