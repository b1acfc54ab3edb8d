"""The subcommand ``lns capture``. What it needs is imported when it runs."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from xlnstorch.cli import CommandError, add_format_options, format_of, results_console
from xlnstorch.files import check_writable

if TYPE_CHECKING:
    from .traces import Trace

__all__ = ["Capture"]


class Capture:
    """``lns capture``: run a Python script and write every LNS operation that it computes to a file."""

    help = "run a Python script and write every LNS operation that it computes to a file, for lns verify --trace"
    description = """Run a Python script as python does, and write every LNS operation of one format that it
computes, in the forward and the backward pass, with operands, result and flags, to a .npz file,
which

  lns verify [UNIT ...] --stimulus captured --trace FILE

replays through the gates. Options of lns capture stand before SCRIPT, those of the script after it.
What the script prints goes to standard error. If it fails, nothing is written.

Exit status: 0 written; 1 the script failed; 2 usage, a script that computes nothing in the format
included."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.usage = "lns capture -o FILE [options] SCRIPT [ARGUMENT ...]"
        parser.add_argument("script", type=Path, metavar="SCRIPT", help="a Python file")
        parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT", help="of the script")
        parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the .npz file to write (required)")
        add_format_options(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")

    def run(self, args: argparse.Namespace) -> int:
        """Run the script, save the trace, print how many operations of each kind are in it."""
        from .trace_files import SUFFIXES
        from .traces import capture

        if args.output is None:
            raise CommandError("-o FILE is missing before SCRIPT; what stands after it are the script's own arguments")
        try:
            format = format_of(args)
        except (ValueError, TypeError) as error:
            raise CommandError(str(error)) from error
        check_writable(args.output, SUFFIXES)
        if not args.script.is_file():
            raise CommandError(f"the script {str(args.script)!r} does not exist or is no file")
        with capture(format) as trace, _progress(trace):
            failure = _run_script(args.script, args.arguments)
        if failure is not None:
            sys.stderr.write(f"{failure}lns capture: the script {str(args.script)!r} failed; nothing is written\n")
            return 1
        if not trace.counts:
            others = ", ".join(f"{count:,} of {other}" for other, count in trace.others.items())
            raise CommandError(
                f"the script {str(args.script)!r} computed no operation of {format}"
                f"{f', but {others}' if others else ''}; nothing is written"
            )
        try:
            trace.save(args.output)
        except ValueError as error:
            raise CommandError(str(error)) from error
        _print_summary(trace, args.json)
        return 0


def _run_script(script: Path, arguments: Sequence[str]) -> str | None:
    """Run a script as ``python SCRIPT ARGUMENT …`` does; return None, or what Python prints of its failure."""
    argv, path, name = sys.argv, sys.path, str(script)
    sys.argv, sys.path = [name, *arguments], [str(script.resolve().parent), *path]
    try:
        with contextlib.redirect_stdout(sys.stderr):
            runpy.run_path(name, run_name="__main__")
    except SystemExit as error:
        if error.code in (None, 0):
            return None
        return f"{error.code}\n" if isinstance(error.code, str) else f"exit status {error.code}\n"
    except Exception as error:  # whatever a script may raise
        return "".join(traceback.format_exception(type(error), error, _of_script(error.__traceback__, name)))
    finally:
        sys.argv, sys.path = argv, path
    return None


def _of_script(frames: TracebackType | None, name: str) -> TracebackType | None:
    """Return a traceback from the frame on in which the script begins."""
    while frames is not None and frames.tb_frame.f_code.co_filename != name:
        frames = frames.tb_next
    return frames


@contextlib.contextmanager
def _progress(trace: Trace) -> Iterator[None]:
    """Show on standard error, if that is a terminal, how many operations there are and for how long it has taken."""
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, SpinnerColumn, TimeElapsedColumn
    from rich.text import Text

    class Operations(ProgressColumn):
        def render(self, task: object) -> Text:
            return Text(f"{len(trace):,} operations")

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with Progress(SpinnerColumn(), Operations(), TimeElapsedColumn(), console=console, transient=True) as bars:
        bars.add_task("", total=None)
        yield


def _print_summary(trace: Trace, as_json: bool) -> None:
    size = os.path.getsize(trace.path)
    format = trace.format
    if as_json:
        found = {
            "schema": 1,
            "trace": str(trace.path),
            "bytes": size,
            "format": format.name,
            "adder": format.adder.name,
            "accumulator": format.accumulator.name,
            "specials": format.specials,
            "versions": trace.versions,
            "operations": len(trace),
            "counts": dict(trace.counts),
            "sources": {name: sorted(set(trace[name].sources)) for name in trace.names},
            "others": {str(other): count for other, count in trace.others.items()},
        }
        sys.stdout.write(json.dumps(found) + "\n")
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operation")
    table.add_column("count", justify="right")
    table.add_column("of")
    for name, count in trace.counts.most_common():
        table.add_row(name, f"{count:,}", ", ".join(sorted(set(trace[name].sources))) or "a sum, without operands")
    console = results_console()
    console.print(table)
    console.print(
        f"\nwrote {len(trace):,} operations of {format} in {size:,} bytes to {str(trace.path)!r}",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )
