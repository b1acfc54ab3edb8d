"""The options that name somebody else's unit on a command line. What they need is imported when it is used."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xlnstorch.formats import LNSFormat

    from .foreign import ForeignUnit

__all__ = ["add_dut_options", "dut_of"]


def add_dut_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--dut``, ``--top``, ``--ports``, ``--golden``, ``--include`` and ``--define``."""
    group = parser.add_argument_group(
        "somebody else's unit", "Verilog instead of a UNIT; docs/verification.md describes the map of its ports"
    )
    group.add_argument(
        "--dut", action="append", type=Path, metavar="FILE", help="Verilog; may be repeated if there are several files"
    )
    group.add_argument("--top", metavar="NAME", help="its module")
    group.add_argument("--ports", type=Path, metavar="MAP.json", help="which port is what")
    group.add_argument(
        "--golden",
        metavar="EXPRESSION",
        help="what the result must equal, of the operands in the map, as in 'a * b'; one that begins with - as "
        "--golden='-a'",
    )
    group.add_argument(
        "--include", action="append", type=Path, metavar="FOLDER", help="where included files are; may be repeated"
    )
    group.add_argument("--define", action="append", metavar="NAME[=VALUE]", help="a macro; may be repeated")


def dut_of(args: argparse.Namespace, format: LNSFormat) -> ForeignUnit | None:
    """Return the unit that these options name, None if they name none.

    Raises
    ------
    ValueError
        Some of them are missing, or what :meth:`ForeignUnit.from_files` refuses.
    """
    given = {f"--{name}": getattr(args, name) for name in ("dut", "top", "ports", "golden", "include", "define")}
    if not any(given.values()):
        return None
    if missing := [option for option in ("--dut", "--top", "--ports", "--golden") if not given[option]]:
        raise ValueError(f"somebody else's unit needs --dut, --top, --ports and --golden; {missing[0]} is missing")
    from .foreign import ForeignUnit

    macros = dict(text.partition("=")[::2] for text in args.define or ())
    return ForeignUnit.from_files(
        args.dut,
        top=args.top,
        ports=args.ports,
        golden=args.golden,
        format=format,
        include=args.include or (),
        define=macros,
    )
