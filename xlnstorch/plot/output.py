"""Writing figures: whole, or not at all."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..cli import CommandError
from ..files import check_writable, replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["check_output", "write_figure"]

# What matplotlib would write of the moment or its own version, so that equal plots are equal files.
_METADATA = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def _kind(output: str) -> str:
    return "png" if output == "-" else Path(output).suffix.lower().removeprefix(".")


def check_output(output: str) -> None:
    """Raise CommandError or OSError unless a figure can be written to `output`, a file, or ``-``, standard output."""
    if output == "-":
        if sys.stdout.isatty():
            raise CommandError("standard output is a terminal; redirect it, or name a file")
        return
    check_writable(output, [f".{kind}" for kind in _METADATA])


def write_figure(figure: Figure, output: str) -> None:
    """Write a figure; a file appears, or is replaced, only when all of it is there.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    import matplotlib

    kind, image = _kind(output), io.BytesIO()
    # The salt makes the names inside an SVG depend on nothing else.
    with matplotlib.rc_context({"svg.hashsalt": "lns plot"}):
        figure.savefig(image, format=kind, dpi=150, metadata=_METADATA[kind])
    if output == "-":
        sys.stdout.buffer.write(image.getvalue())
        return
    with replacing(output) as file:
        file.write_bytes(image.getvalue())
