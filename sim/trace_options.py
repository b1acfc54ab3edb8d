"""The option that names a trace on a command line. What it needs is imported when it is used."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xlnstorch.formats import LNSFormat

    from .traces import Trace

__all__ = ["add_trace_option", "trace_of"]

_FORMAT_OPTIONS = ("format", "adder", "accumulator", "specials")


def add_trace_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--trace`` beside the options of :func:`~xlnstorch.cli.add_format_options`."""
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="what captured replays instead of the training step: a file of lns capture; its format is the default",
    )
    # So that trace_of knows which of them were given.
    parser.set_defaults(**dict.fromkeys(_FORMAT_OPTIONS), format_defaults=_defaults(parser))


def _defaults(parser: argparse.ArgumentParser) -> dict[str, object]:
    return {option: parser.get_default(option) for option in _FORMAT_OPTIONS}


def trace_of(args: argparse.Namespace, format: LNSFormat | None = None) -> Trace | None:
    """Return the trace that is named, None if none is, and fill in the options of the format that were not given.

    They are those of the trace, or else of `format` if there is one.

    Raises
    ------
    ValueError, OSError
        No trace can be read from the file, or what runs is another stimulus.
    """
    trace, defaults = None, args.format_defaults
    if args.trace is not None:
        from .traces import Trace

        if args.stimulus and "captured" not in args.stimulus:
            raise ValueError(f"a trace is for the stimulus captured, not {', '.join(args.stimulus)}")
        trace = Trace.load(args.trace)
        format = trace.format
    if format is not None:
        values = (format.name, format.adder.name, format.accumulator.name, format.specials)
        defaults = dict(zip(_FORMAT_OPTIONS, values, strict=True))
    for option, value in defaults.items():
        if getattr(args, option) is None:
            setattr(args, option, value)
    return trace
