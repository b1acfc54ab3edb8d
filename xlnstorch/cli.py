"""The ``lns`` command: finds the subcommands that installed packages contribute and runs one.

A subcommand is a class named by an entry point of the group ``lns.commands``. It has ``help`` (one line), optionally
``description``, and two methods: ``configure(parser)`` adds arguments, ``run(args)`` does the work and returns the exit
status. Results go to standard output, progress and messages to standard error.

Exit status: 0 pass, 1 a check failed, 2 usage, 3 a tool is missing, 4 a build failed, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Sequence
from typing import ClassVar, Protocol

__all__ = ["Command", "CommandError", "main"]


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lns", description="Logarithmic number system arithmetic, in PyTorch and in gates, compared bit for bit."
    )
    parser.add_argument("--version", action="version", version=f"lns {importlib.metadata.version('lns-coverify')}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for entry in sorted(importlib.metadata.entry_points(group="lns.commands"), key=lambda entry: entry.name):
        command = entry.load()()
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
    try:
        return args._run(args)
    except CommandError as error:
        sys.stderr.write(f"lns {args.command}: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write(f"lns {args.command}: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
