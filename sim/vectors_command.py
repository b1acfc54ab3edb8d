"""The subcommand ``lns vectors``. What it needs is imported when it runs."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from xlnstorch.cli import CommandError, add_format_options, format_of
from xlnstorch.files import check_writable

__all__ = ["Vectors"]


class Vectors:
    """``lns vectors``: operands and expected results for somebody else's bench."""

    help = "write operands and the results that the golden model expects, for benches of your own"
    description = """Write vectors of a unit, the payloads of its streams as `lns verilog` names their fields: operands,
and the result and flags that the golden model expects of them, bit for bit. The suffix says how:

.npz   arrays of NumPy, one a field, with metadata
.csv   a line of names, then 0x numbers
.hex   for $readmemh: a number a vector, operands below, result above; a comment says where each field is
.txt   as TestFloat writes test cases: operands, result and flags in hexadecimal, without names

Exit status: 0 done; 2 usage."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument("unit", metavar="UNIT", help="as for lns verify: add, dot:lanes=2; a wrong name lists all")
        add_format_options(parser)
        parser.add_argument(
            "--stimulus",
            action="append",
            metavar="NAME",
            help="as for lns verify, may be repeated (default: all that are generated), or exhaustive: all operands",
        )
        parser.add_argument(
            "-n",
            "--vectors",
            type=int,
            default=1000,
            metavar="N",
            help="vectors of each stimulus that is not exhaustive (default: 1000)",
        )
        parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the vectors (default: 0)")
        parser.add_argument(
            "-o", "--output", type=Path, required=True, metavar="FILE", help="a .npz, .csv, .hex or .txt file"
        )
        parser.add_argument("--json", action="store_true", help="print what was written as one JSON object")

    def run(self, args: argparse.Namespace) -> int:
        """Write the file."""
        from .naming import named_unit
        from .vectors import KINDS, make_vectors

        check_writable(args.output, list(KINDS))
        try:
            unit = named_unit(args.unit, format_of(args))
            stimuli = list(dict.fromkeys(args.stimulus)) if args.stimulus else None
            vectors = make_vectors(unit, args.unit, stimuli=stimuli, seed=args.seed, count=args.vectors)
            vectors.write(args.output)
        except (ValueError, TypeError) as error:
            raise CommandError(str(error)) from error
        found = vectors.description()
        if args.json:
            sys.stdout.write(json.dumps({"file": str(args.output), **found}) + "\n")
        else:
            parts = ", ".join(f"{count:,} {name}" for name, count in found["stimuli"].items())
            sys.stdout.write(f"{args.output}: {found['vectors']:,} vectors of {args.unit}: {parts}\n")
        return 0
