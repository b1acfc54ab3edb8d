"""The ``lns`` command: finds the subcommands that installed packages contribute and runs one.

A subcommand is a class named by an entry point of the group ``lns.commands``. It has ``help`` (one line), optionally
``description``, and two methods: ``configure(parser)`` adds arguments, ``run(args)`` does the work and returns the exit
status. Results go to standard output, progress and messages to standard error.

Exit status: 0 pass, 1 a check failed, 2 usage (a file that cannot be read or written included), 3 a tool is missing,
4 a build failed, 130 interrupted, 141 the reader of the results has gone.
"""

from __future__ import annotations

import _thread
import argparse
import contextlib
import dataclasses
import importlib.metadata
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from rich.console import Console

    from .formats import LNSFormat

__all__ = ["Command", "CommandError", "add_format_options", "format_of", "main", "results_console"]


class CommandError(Exception):
    """Why a command cannot go on, in a sentence for its user; ends the process with `exit_code`."""

    exit_code: ClassVar[int] = 2


class Command(Protocol):
    """What an entry point of ``lns.commands`` must name."""

    help: str

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the subcommand."""

    def run(self, args: argparse.Namespace) -> int:
        """Do the work; return the exit status."""


def results_console() -> Console:
    """Return where results are printed: as wide as the terminal, and wide enough for any table where there is none."""
    from rich.console import Console

    class Results(Console):
        def on_broken_pipe(self) -> None:
            raise  # rich would exit with 1, which here means that a check failed

    console = Results()
    return console if console.is_terminal else Results(width=200)


def add_format_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a format of gates: ``--format``, ``--adder``, ``--accumulator``, ``--specials``."""
    parser.add_argument(
        "--format", default="lns16", metavar="NAME", help="a catalogue name or int_bits,frac_bits (default: lns16)"
    )
    parser.add_argument(
        "--adder",
        default="exact",
        metavar="NAME",
        help="exact, piecewise or mitchell, with parameters after a colon, as in piecewise:degree=2,error=0.5 "
        "(default: exact)",
    )
    parser.add_argument(
        "--accumulator",
        default="log",
        metavar="NAME",
        help="of units that sum: log or linear, with parameters after a colon, as in log:order=tree,guard_bits=2 "
        "(default: log)",
    )
    parser.add_argument("--specials", action="store_true", help="a format with infinities and NaN")


def format_of(args: argparse.Namespace) -> LNSFormat:
    """Return the format that these options name; a ValueError says what they accept."""
    from .accumulators import named_accumulator
    from .adders import named_adder
    from .catalog import named_format

    return dataclasses.replace(
        named_format(args.format),
        adder=named_adder(args.adder),
        accumulator=named_accumulator(args.accumulator),
        specials=args.specials,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lns", description="Logarithmic number system arithmetic, in PyTorch and in gates, compared bit for bit."
    )
    parser.add_argument("--version", action="version", version=f"lns {importlib.metadata.version('lns-coverify')}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for entry in sorted(importlib.metadata.entry_points(group="lns.commands"), key=lambda entry: entry.name):
        try:
            command = entry.load()()
        except Exception as error:  # somebody else's package: the other commands must go on working
            sys.stderr.write(f"lns: the command {entry.name!r} of {entry.value} cannot be loaded: {error}\n")
            continue
        subparser = subparsers.add_parser(
            entry.name,
            help=command.help,
            description=getattr(command, "description", command.help),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.configure(subparser)
        subparser.set_defaults(_run=command.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (that of the process by default) and return the exit status."""
    args = _parser().parse_args(argv)
    with _signals_interrupt():
        return _run(args)


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Make termination an interrupt, so that child processes and half-written files are cleaned up.

    One that comes while a finalizer runs, which Python would print and forget, comes again.
    """
    handlers, unraisable_hook = {}, sys.unraisablehook

    def interrupt_again(unraisable: sys.UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            # From another thread and a moment later: what is raised in this function is forgotten as well.
            threading.Timer(0.01, _thread.interrupt_main).start()
        else:
            unraisable_hook(unraisable)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
                handlers[number] = signal.signal(number, _interrupt)
    sys.unraisablehook = interrupt_again
    try:
        yield
    finally:
        sys.unraisablehook = unraisable_hook
        for number, handler in reversed(handlers.items()):
            signal.signal(number, handler)


def _run(args: argparse.Namespace) -> int:
    try:
        status = args._run(args)
        sys.stdout.flush()
        return status
    except CommandError as error:
        sys.stderr.write(f"lns {args.command}: {error}\n")
        return error.exit_code
    except BrokenPipeError:
        # Whoever read the results has left, which a shell knows as 128 + SIGPIPE. Nothing more can be flushed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        sys.stderr.write(f"lns {args.command}: {error}\n")
        return 2
    except KeyboardInterrupt:
        # The process is about to end: that something was left unfinished, half a unit say, is no news.
        warnings.simplefilter("ignore")
        sys.stderr.write(f"lns {args.command}: interrupted\n")
        return 130


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    # Subcommands raise the CommandError of this module by its proper name, of which __main__ has another one.
    from xlnstorch.cli import main as run

    sys.exit(run())
