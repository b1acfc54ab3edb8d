"""The subcommand ``lns bitstream``. What it needs is imported when it runs."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from xlnstorch.cli import CommandError, add_format_options, format_of, results_console

if TYPE_CHECKING:
    from .bitstream import Built
    from .boards import Board

__all__ = ["Bitstream", "add_build_options"]


class Bitstream:
    """``lns bitstream``: a unit on a board."""

    help = "build the bitstream of a unit, with a bridge to a serial port, for a board"
    description = """Build the bitstream of a unit for a board: the unit, a bridge between it and the board's serial
port, the clock from a PLL, and a reset that waits for it. The output folder has the bitstream,
manifest.json, which says what it is and what it is made from, and the critical path in words. What
was built before is found by its digest.

BOARD is icebreaker, ice40-hx8k, ulx3s-25f or ulx3s-85f, or module:Platform, a class of an Amaranth
platform for an iCE40 or an ECP5 with an oscillator and a UART.

Exit status: 0 done; 2 usage, a unit that does not fit included; 3 a tool is missing; 4 the clock
is not reached, and nothing is written, or a program failed."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument("board", metavar="BOARD", help="such as icebreaker; a wrong name lists all")
        parser.add_argument(
            "--unit",
            default="alu",
            metavar="UNIT",
            help="with parameters after a colon, as in alu:converters=none; a wrong name lists all (default: alu)",
        )
        add_format_options(parser)
        add_build_options(parser)
        parser.add_argument(
            "-o", "--output", type=Path, metavar="DIR", help="the folder to write (default: BOARD-UNIT-FORMAT)"
        )
        parser.add_argument("--load", action="store_true", help="load it into the board, with openFPGALoader")
        parser.add_argument("--json", action="store_true", help="print the manifest instead of a summary")

    def run(self, args: argparse.Namespace) -> int:
        """Check, build, write and load."""
        from sim.naming import named_unit

        from .bitstream import build, check_folder, write_folder
        from .boards import named_board
        from .design import Design
        from .flow import require_tools

        try:
            board = named_board(args.board)
            unit = named_unit(args.unit, format_of(args))
            folder = args.output or Path(_name(args))
            check_folder(folder)
            require_tools([board.device()])
            loader = _loader(board) if args.load else None
            design = Design.of(unit, board, mhz=args.clock, baud=args.baud, seeds=args.seeds)
        except (ValueError, TypeError) as error:
            raise CommandError(str(error)) from error
        built = build(design, progress=_progress)
        write_folder(folder, built.files)
        if args.json:
            sys.stdout.write(json.dumps(built.manifest) + "\n")
        else:
            _print(built, folder)
        if loader is not None:
            _load([*loader, str(folder / built.manifest["bitstream"]["file"])])
        return 0


def add_build_options(parser: argparse.ArgumentParser) -> None:
    """Add the options beside unit and format that change a board's bitstream: ``--clock``, ``--baud``, ``--seeds``."""
    parser.add_argument(
        "--clock",
        type=float,
        metavar="MHZ",
        help="of the gates: the PLL's highest that is not above it (default: the board's)",
    )
    parser.add_argument(
        "--baud", type=int, default=1_000_000, metavar="N", help="of the serial port (default: 1000000)"
    )
    parser.add_argument(
        "--seeds", type=int, default=1, metavar="N", help="place and route N times and keep the fastest (default: 1)"
    )


def _name(args: argparse.Namespace) -> str:
    return re.sub(r"[^0-9A-Za-z_.=+-]", "-", f"{args.board}-{args.unit}-{args.format}")


def _progress(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _print(built: Built, folder: Path) -> None:
    manifest, console = built.manifest, results_console()
    clock = manifest["clock"]
    used = ", ".join(f"{found['used']:,} of {found['of']:,} {kind}" for kind, found in manifest["used"].items())
    rows = {
        "board": manifest["board"],
        "unit": f"{manifest['unit']} of {manifest['format']}, {manifest['adder']} adder",
        "clock": f"{clock['mhz']:.2f} MHz; {clock['reached_mhz']:.2f} MHz are reached, with seed {manifest['seed']}",
        "cells": used,
        "serial port": f"{manifest['baud']:,} baud",
        "digest": manifest["digest"],
        "bitstream": f"{folder / manifest['bitstream']['file']}, {manifest['bitstream']['bytes']:,} bytes",
    }
    for name, text in rows.items():
        console.print(f"{name:11}  {text}", soft_wrap=True, highlight=False, markup=False)


def _loader(board: Board) -> list[str]:
    """Return the command that loads a bitstream, but for its file, or raise if there is none."""
    from sim.simulators import ToolMissing

    if board.loader is None:
        raise ValueError(f"--load is for boards of the catalogue, not {board.name!r}; load the file with your own tool")
    if shutil.which("openFPGALoader") is None:
        raise ToolMissing(
            "--load needs openFPGALoader, which is not on the path; install with: apt-get install openfpgaloader"
        )
    return ["openFPGALoader", "-b", board.loader]


def _load(command: list[str]) -> None:
    from sim.simulators import BuildFailed

    # What it prints goes where messages go.
    status = subprocess.run(command, stdout=sys.stderr, check=False).returncode
    if status:
        raise BuildFailed(f"{' '.join(command)} stopped with status {status}")
