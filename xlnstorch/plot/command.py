"""The subcommand ``lns plot``. What it needs is imported when it runs."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterator

from ..cli import CommandError

__all__ = ["Plot"]

# Without a bar for what is over before one could read it.
_BAR_AFTER = 1.0


class MatplotlibMissing(CommandError):
    """matplotlib is not installed; the message has the command that installs it."""

    exit_code = 3


class Plot:
    """``lns plot``: what formats can represent, and how wrong their arithmetic is."""

    help = "plot the numbers of formats, and the errors of their arithmetic"
    description = """Plot what formats can represent, and how wrong their arithmetic is, to a PNG, SVG or PDF file, or
print the numbers that would be drawn. `lns plot KIND --help` lists the options of a kind.

Exit status: 0 done; 2 usage; 3 matplotlib is missing."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add a parser for each kind, with the options that it has."""
        kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)

        def kind(name: str, help: str, default: str, points: str | None, *, beside: bool = False, seed: bool = False):
            sub = kinds.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
            sub.add_argument(
                "--format",
                action="append",
                metavar="NAME",
                dest="formats",
                help=f"a catalogue name or int_bits,frac_bits; may be repeated (default: {default})",
            )
            sub.set_defaults(default_format=default)
            if beside:
                sub.add_argument(
                    "--beside",
                    action="append",
                    default=[],
                    metavar="NAME",
                    help="bfloat16, float16 or float32, to compare with; may be repeated",
                )
            sub.add_argument("--interval", type=float, nargs=2, metavar=("A", "B"), help="of the numbers, from A to B")
            if points:
                sub.add_argument("--points", type=int, metavar="N", help=points)
            if seed:
                sub.add_argument("--seed", type=int, default=0, metavar="N", help="of the random choice (default: 0)")
            sub.add_argument(
                "-o",
                "--output",
                metavar="FILE",
                help="where to draw: .png, .svg or .pdf, or - for a PNG on standard output",
            )
            sub.add_argument("--json", action="store_true", help="print the numbers drawn as one JSON object")
            return sub

        sub = kind(
            "spacing",
            "distance between neighbouring numbers against magnitude",
            "lns16",
            "numbers on the line of a format (default: 500)",
            beside=True,
        )
        sub.add_argument("--relative", action="store_true", help="divide the distance by the magnitude")
        sub = kind(
            "heatmap",
            "error of an operation over pairs of operands",
            "lns16",
            "operands on each axis (default: 256)",
            seed=True,
        )
        sub.add_argument("--op", default="add", metavar="NAME", help="add (default), sub, mul or div")
        sub.add_argument(
            "--signs", default="++", metavar="SIGNS", help="of the operands, written --signs=-+ (default: ++)"
        )
        kind("staircase", "the number, and word, that each real number is rounded to", "lns8", None)
        sub = kind("distribution", "how many numbers lie where", "lns16", "bins (default: 64)")
        sub.add_argument("--scale", default="linear", metavar="NAME", help="of the bins: linear (default) or log")
        kind(
            "rounding",
            "distribution of the relative error of rounding random numbers",
            "lns16",
            "random numbers (default: 10000)",
            beside=True,
            seed=True,
        )
        sub = kind(
            "sweep",
            "relative error of a computation against fraction bits",
            "lns16",
            "random results (default: 1000)",
            beside=True,
            seed=True,
        )
        sub.add_argument("--op", default="dot", metavar="NAME", help="add, sub, mul, div or dot (default)")
        sub.add_argument("--length", type=int, default=64, metavar="N", help="of a dot product (default: 64)")
        sub.add_argument(
            "--frac-bits",
            type=int,
            nargs=2,
            default=(2, 16),
            metavar=("A", "B"),
            help="fraction bits, from A to B (default: 2 16)",
        )

    def run(self, args: argparse.Namespace) -> int:
        """Compute, then draw or print."""
        from .figures import require_matplotlib
        from .output import check_output, write_figure

        if args.output is None and not args.json:
            raise CommandError("give -o FILE to draw, --json to print the numbers, or both")
        if args.output == "-" and args.json:
            raise CommandError("standard output cannot take both the image of -o - and the numbers of --json")
        if args.output is not None:
            try:
                require_matplotlib()
            except ImportError as error:
                raise MatplotlibMissing(str(error)) from None
            check_output(args.output)
        try:
            with _progress_bar(args.kind) as progress:
                panels = _compute(args, progress)
        except (ValueError, TypeError) as error:
            raise CommandError(str(error)) from error
        if args.output is not None:
            write_figure(_draw(args, panels), args.output)
        if args.json:
            sys.stdout.write(json.dumps({"schema": 1, "kind": args.kind, **_to_json(panels)}, allow_nan=False) + "\n")
        return 0


def _compute(args: argparse.Namespace, progress: Callable[[int, int], None] | None) -> list[object]:
    """Return the data of each panel: one, but for heat maps, which have one for each format."""
    from . import errors, number_line, sweep
    from .checks import as_formats

    formats = as_formats(args.formats or [args.default_format])
    options = {} if args.interval is None else {"interval": tuple(args.interval)}

    def points(name: str) -> None:
        if args.points is not None:
            options[name] = args.points

    match args.kind:
        case "spacing":
            points("points")
            return [number_line.spacing(formats, beside=args.beside, **options)]
        case "heatmap":
            points("points")
            options |= {"signs": args.signs, "seed": args.seed, "progress": progress}
            return [errors.error_map(format, args.op, **options) for format in formats]
        case "staircase":
            return [number_line.staircase(formats, **options)]
        case "distribution":
            points("bins")
            return [number_line.number_histogram(formats, scale=args.scale, **options)]
        case "rounding":
            points("samples")
            options |= {"beside": args.beside, "seed": args.seed, "progress": progress}
            return [errors.rounding_errors(formats, **options)]
        case "sweep":
            points("samples")
            first, last = args.frac_bits
            options |= {"beside": args.beside, "seed": args.seed, "progress": progress, "length": args.length}
            return [sweep.precision_sweep(args.op, formats, frac_bits=range(first, last + 1), **options)]


def _draw(args: argparse.Namespace, panels: list):
    """Return a figure, outside of pyplot and so of its windows."""
    import numpy as np
    from matplotlib.figure import Figure

    from . import figures

    size = (5.5 * len(panels), 5.0) if args.kind == "heatmap" else (7.0, 4.5)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    match args.kind:
        case "spacing":
            figures.draw_spacing(panels[0], axes[0], relative=args.relative)
        case "heatmap":
            # One scale of colours, so that panels can be compared.
            finite = [np.abs(data.error[np.isfinite(data.error)]).max(initial=0.5) for data in panels]
            for data, ax in zip(panels, axes, strict=True):
                figures.draw_error_map(data, ax, limit=max(finite))
        case "staircase":
            figures.draw_staircase(panels[0], axes[0])
        case "distribution":
            figures.draw_number_histogram(panels[0], axes[0])
        case "rounding":
            figures.draw_rounding_errors(panels[0], axes[0])
        case "sweep":
            figures.draw_precision_sweep(panels[0], axes[0])
    return figure


def _to_json(panels: list) -> dict[str, object]:
    """Return the fields of the one panel, or ``panels``."""
    plain = [_plain(data) for data in panels]
    return {"panels": plain} if type(panels[0]).__name__ == "ErrorMap" else plain[0]


def _plain(value: object) -> object:
    """Return what JSON can hold: NaN as null, infinities as the strings "inf" and "-inf"."""
    import numpy as np

    from ..formats import LNSFormat

    if isinstance(value, LNSFormat):
        described = {name: getattr(value, name) for name in ("name", "int_bits", "frac_bits", "specials", "base")}
        return {**described, "adder": repr(value.adder), "accumulator": repr(value.accumulator)}
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        return value.tolist() if np.isfinite(value).all() else [_plain(item) for item in value]
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None if np.isnan(value) else str(float(value))
    return value.item() if isinstance(value, np.generic) else value


@contextlib.contextmanager
def _progress_bar(kind: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on standard error, if that is a terminal, for work that takes more than a second."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bars = Progress(*columns, console=console, transient=True)
    task = bars.add_task(f"{kind}: computing", total=None)
    started = time.monotonic()

    def progress(done: int, total: int) -> None:
        if not bars.live.is_started and time.monotonic() - started > _BAR_AFTER:
            bars.start()
        bars.update(task, completed=done, total=total)

    try:
        yield progress
    finally:
        bars.stop()
