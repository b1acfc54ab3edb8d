"""The subcommand ``lns formats``."""

from __future__ import annotations

import argparse
import json
import sys

from .cli import results_console

__all__ = ["Formats"]


class Formats:
    """``lns formats``: the catalogue, with ranges and steps."""

    help = "list the named word formats with their ranges and steps"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")

    def run(self, args: argparse.Namespace) -> int:
        """Print the catalogue."""
        from rich.table import Table

        from .catalog import CATALOG

        rows = []
        for name, format in CATALOG.items():
            low, high = format.scale.exp_exact(1 - format.bias), format.scale.exp_exact(format.max_field - format.bias)
            rows.append(
                {
                    "name": name,
                    "width": format.width,
                    "int_bits": format.int_bits,
                    "frac_bits": format.frac_bits,
                    "smallest": low,
                    "largest": high,
                    "step": format.scale.exp_exact(1) - 1.0,
                    "bytes": format.dtype.itemsize,
                }
            )
        if args.json:
            sys.stdout.write(json.dumps({"schema": 1, "formats": rows}) + "\n")
            return 0
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("format")
        for title in ("bits", "int", "frac", "smallest", "largest", "step", "bytes"):
            table.add_column(title, justify="right")
        for row in rows:
            table.add_row(
                row["name"],
                *(str(row[key]) for key in ("width", "int_bits", "frac_bits")),
                f"{row['smallest']:.3g}",
                f"{row['largest']:.3g}",
                f"{row['step']:.2e}",
                str(row["bytes"]),
            )
        results_console().print(table)
        return 0
