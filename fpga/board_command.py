"""The subcommand ``lns board``. What it needs is imported when it runs."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from typing import TYPE_CHECKING

from xlnstorch.cli import CommandError, add_format_options, format_of, results_console

if TYPE_CHECKING:
    from .bridge import Identity

__all__ = ["BoardCommand"]


class BoardCommand:
    """``lns board``: what is at a serial port, or a simulated board there."""

    help = "ask a board at a serial port what it is, and let it test itself; or simulate one at a pseudo-terminal"
    description = """Ask the board at a serial port for its unit, format and build, and let it test itself: of each
operation it runs 65,536 operands at its full clock, and the golden model must give the same
signature of the results.

--simulate UNIT instead makes a board without a board: the whole gates of one, bridge and pins
included, in Verilator, whose serial port is a pseudo-terminal. It prints the terminal's path,
for use as a port in another shell, and ends with Ctrl-C.

Exit status: 0 all as it should be; 1 the self-test failed; 2 usage, or nothing answers at the
port; 3 a tool is missing; 4 a build failed."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument("port", nargs="?", metavar="PORT", help="such as /dev/ttyUSB1")
        parser.add_argument(
            "--simulate", metavar="UNIT", help="such as add, or dot:lanes=2: be a board with this unit instead"
        )
        parser.add_argument("--baud", type=int, default=1_000_000, metavar="N", help="of the port (default: 1000000)")
        parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the self-test (default: 0)")
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
        add_format_options(parser.add_argument_group("of --simulate"))

    def run(self, args: argparse.Namespace) -> int:
        """Do either."""
        if (args.port is None) == (args.simulate is None):
            raise CommandError("give the serial port of a board, or --simulate UNIT")
        if args.seed < 0:
            raise CommandError(f"seed must be at least 0, not {args.seed}")
        try:
            return self._simulate(args) if args.simulate else self._test(args)
        except (ValueError, TypeError) as error:
            raise CommandError(str(error)) from error

    def _simulate(self, args: argparse.Namespace) -> int:
        from sim.naming import named_unit

        from .simulated_board import SimulatedBoard

        with SimulatedBoard(named_unit(args.simulate, format_of(args)), baud=args.baud) as board:
            said = {"schema": 1, "port": board.port, **_to_json(board.identity)}
            sys.stdout.write(json.dumps(said) + "\n" if args.json else f"{board.port}\n")
            sys.stdout.flush()
            while True:
                time.sleep(3600)

    def _test(self, args: argparse.Namespace) -> int:
        from sim.sequences import is_sequential

        from .host import connect

        with connect(args.port, baud=args.baud) as board:
            tested = {} if is_sequential(board.unit) else board.self_test(args.seed)
        passed = all(tested.values())
        if args.json:
            found = {"schema": 1, "port": args.port, **_to_json(board.identity), "self_test": tested, "passed": passed}
            sys.stdout.write(json.dumps(found) + "\n")
        else:
            self._print(args.port, board.identity, tested)
        return 0 if passed else 1

    @staticmethod
    def _print(port: str, identity: Identity, tested: dict[str, bool]) -> None:
        from rich.table import Table

        from .bridge.selftest import TEST_BITS

        wrong = ", ".join(name for name, passed in tested.items() if not passed)
        verdict = f"failed: {wrong}" if wrong else "passed" if tested else "none: the unit sums several operands"
        table = Table(box=None, pad_edge=False, show_header=False)
        rows = {
            "port": port,
            "unit": str(identity),
            "clock": f"{identity.clock_hz / 1e6:g} MHz",
            "build": identity.digest.hex(),
            "self-test": verdict + (f" ({len(tested)} × {1 << TEST_BITS:,} operands)" if tested else ""),
        }
        for name, text in rows.items():
            table.add_row(name, text)
        results_console().print(table, highlight=False)


def _to_json(identity: Identity) -> dict[str, object]:
    return {**dataclasses.asdict(identity), "digest": identity.digest.hex()}
