"""Plots of what a format can represent and how wrong its arithmetic is.

The numbers are apart from the drawing: a function of this package returns a frozen dataclass of NumPy arrays, and a
``draw_…`` function puts it onto matplotlib Axes. Only drawing imports matplotlib. The command is ``lns plot``.

Examples
--------
>>> from xlnstorch import plot
>>> data = plot.spacing(["lns8", "lns16"], beside=["bfloat16"])
>>> [line.label for line in data.lines]
['lns8', 'lns16', 'bfloat16']
"""

from .errors import ErrorMap, RoundingErrors, error_map, rounding_errors
from .figures import (
    draw_error_map,
    draw_number_histogram,
    draw_precision_sweep,
    draw_rounding_errors,
    draw_spacing,
    draw_staircase,
)
from .number_line import (
    NumberHistogram,
    Spacing,
    SpacingLine,
    Staircase,
    Stairs,
    number_histogram,
    spacing,
    staircase,
)
from .sweep import Sweep, SweepLine, precision_sweep

__all__ = [
    "ErrorMap",
    "NumberHistogram",
    "RoundingErrors",
    "Spacing",
    "SpacingLine",
    "Staircase",
    "Stairs",
    "Sweep",
    "SweepLine",
    "draw_error_map",
    "draw_number_histogram",
    "draw_precision_sweep",
    "draw_rounding_errors",
    "draw_spacing",
    "draw_staircase",
    "error_map",
    "number_histogram",
    "precision_sweep",
    "rounding_errors",
    "spacing",
    "staircase",
]
