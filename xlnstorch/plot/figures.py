"""Drawing the data of this package with matplotlib, onto Axes that are given or made.

matplotlib is imported when something is drawn. Made Axes belong to pyplot, so that ``plt.show()`` shows them.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from .errors import ErrorMap, RoundingErrors
from .floats import FLOATS
from .number_line import NumberHistogram, Spacing, Staircase
from .sweep import Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "GREY",
    "colour_of",
    "draw_error_map",
    "draw_number_histogram",
    "draw_precision_sweep",
    "draw_rounding_errors",
    "draw_spacing",
    "draw_staircase",
    "require_matplotlib",
]

# Okabe and Ito's colours, told apart with any colour vision, without the yellow, which is faint on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREY = "#595959"
_DASHES = ("--", "-.", ":")
# With more steps than this the words beside them would overlap.
_MAX_WORDS = 20
_OPERATORS = {"add": "+", "sub": "−", "mul": "×", "div": "÷"}


def require_matplotlib() -> None:
    """Raise ImportError, with the command that installs it, where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError("drawing needs matplotlib, which is not installed: pip install matplotlib") from None


def _axes(ax: Axes | None, size: tuple[float, float] = (7.0, 4.5)) -> Axes:
    require_matplotlib()
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=size, layout="constrained")[1]


def colour_of(index: int) -> str:
    """Return the colour of the line or kind with this number."""
    return _COLOURS[index % len(_COLOURS)]


def _lns_style(index: int) -> dict[str, object]:
    return {"color": colour_of(index), "linewidth": 2.4}


def _float_style(index: int) -> dict[str, object]:
    # Thin and dark, to be seen on top of an LNS line that it coincides with.
    return {"color": "black", "linewidth": 1.0, "linestyle": _DASHES[index % len(_DASHES)]}


def _legend(ax: Axes, **options: object) -> None:
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles, ["\n  ".join(textwrap.wrap(label, 44)) for label in labels], fontsize="small", **options)


def _grid(ax: Axes) -> None:
    ax.grid(True, color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)


def draw_spacing(data: Spacing, ax: Axes | None = None, *, relative: bool = False) -> Axes:
    """Draw the distance to the next larger number against magnitude, both axes logarithmic; return the Axes.

    Parameters
    ----------
    data : Spacing
    ax : Axes
        Where to draw; by default new ones.
    relative : bool
        Divide the distance by the magnitude.
    """
    ax = _axes(ax)
    lns = 0
    for index, line in enumerate(data.lines):
        magnitudes, spacing = line.magnitudes, line.spacing
        if line.steps:
            # Both ends of each step, since between them a relative distance falls.
            magnitudes, spacing = np.repeat(magnitudes, 2)[1:], np.repeat(spacing, 2)[:-1]
        else:
            lns += 1
        style = _float_style(index - lns) if line.steps else _lns_style(index)
        ax.plot(magnitudes, spacing / magnitudes if relative else spacing, label=line.label, **style)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_xlabel("magnitude")
    ax.set_ylabel("distance to the next number" + (" / magnitude" if relative else ""))
    ax.set_title("Spacing of the numbers")
    _grid(ax)
    _legend(ax)
    return ax


def draw_error_map(data: ErrorMap, ax: Axes | None = None, *, limit: float | None = None) -> Axes:
    """Draw the errors over both operands, in units of the last place of the logarithm; return the Axes.

    Results out of range are grey. Errors beyond the colours' ends, infinite ones included, have the end's colour.

    Parameters
    ----------
    data : ErrorMap
    ax : Axes
        Where to draw; by default new ones. The colour bar takes its room from them.
    limit : float
        Ends of the colours, in units; by default the largest finite error, and at least half a unit.
    """
    ax = _axes(ax, (6.0, 5.0))
    import matplotlib

    finite = np.abs(data.error[np.isfinite(data.error)])
    limit = limit or max(0.5, finite.max(initial=0.0))
    colours = matplotlib.colormaps["PuOr_r"].with_extremes(bad="#bdbdbd")
    mesh = ax.pcolormesh(
        _cell_edges(data.a),
        _cell_edges(data.b),
        # pcolormesh would take an infinity for a missing value.
        np.clip(data.error.T, -2 * limit, 2 * limit),
        cmap=colours,
        vmin=-limit,
        vmax=limit,
        rasterized=True,  # a path for each cell would make files that no viewer opens
    )
    beyond = bool((np.abs(data.error) > limit).any())
    bar = ax.figure.colorbar(mesh, ax=ax, extend="both" if beyond else "neither")
    bar.set_label("error [units of the last place of the logarithm]")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_xlabel("a" if data.signs[0] == "+" else "|a|, a negative")
    ax.set_ylabel("b" if data.signs[1] == "+" else "|b|, b negative")
    worst = np.abs(data.error[~np.isnan(data.error)]).max(initial=0.0)
    notes = f"{data.format.adder.name} adder, at most {worst:.3g} units"
    if np.isnan(data.error).any():
        notes += "; grey: out of range"
    ax.set_title(f"Error of a {_OPERATORS[data.operation]} b in {data.format.name}\n{notes}", fontsize="medium")
    ax.set_aspect("equal")
    return ax


def _cell_edges(centres: np.ndarray) -> np.ndarray:
    """Return edges half way, on a logarithmic axis, between neighbours."""
    logs = np.log2(centres)
    inner = (logs[1:] + logs[:-1]) / 2
    return np.exp2([logs[0] - (inner[0] - logs[0]), *inner, logs[-1] + (logs[-1] - inner[-1])])


def draw_staircase(data: Staircase, ax: Axes | None = None) -> Axes:
    """Draw what real numbers are rounded to, with the words where there is room for them; return the Axes."""
    ax = _axes(ax)
    ax.plot(data.interval, data.interval, color=GREY, linewidth=0.8, linestyle=":", label="not rounded")
    for index, stairs in enumerate(data.stairs):
        ax.stairs(
            stairs.values, stairs.edges, baseline=None, color=colour_of(index), linewidth=1.6, label=repr(stairs.format)
        )
        if len(data.stairs) == 1 and len(stairs.words) <= _MAX_WORDS:
            ax.margins(x=0.12)  # room for the last word
            digits = -(-stairs.format.width // 4)
            for word, value, edge in zip(stairs.words.tolist(), stairs.values, stairs.edges[1:], strict=True):
                ax.annotate(
                    f"0x{word:0{digits}x}",
                    (edge, value),
                    xytext=(4, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize="x-small",
                    family="monospace",
                )
    ax.set_xlabel("real number")
    ax.set_ylabel("number that it is rounded to")
    ax.set_title("Rounding to the nearest logarithm")
    _grid(ax)
    _legend(ax, loc="upper left")
    return ax


def draw_number_histogram(data: NumberHistogram, ax: Axes | None = None) -> Axes:
    """Draw how many numbers lie in each bin, on a logarithmic axis of counts; return the Axes."""
    ax = _axes(ax)
    for index, (format, counts) in enumerate(zip(data.formats, data.counts, strict=True)):
        ax.stairs(counts, data.edges, color=colour_of(index), linewidth=1.6, label=repr(format))
        ax.stairs(counts, data.edges, color=colour_of(index), fill=True, alpha=0.15)
    if data.scale == "log":
        ax.set_xscale("log", base=2)
    ax.set_yscale("log", nonpositive="clip")
    ax.set_ylim(0.5, 2 * max(1, data.counts.max()))
    ax.set_xlabel("value")
    ax.set_ylabel("representable numbers in a bin")
    ax.set_title(f"Where the numbers lie ({data.counts.shape[1]:,} bins)")
    _grid(ax)
    _legend(ax)
    return ax


def draw_rounding_errors(data: RoundingErrors, ax: Axes | None = None) -> Axes:
    """Draw the share of samples whose relative error is at most x, for every x; return the Axes."""
    ax = _axes(ax)
    lns = len(data.labels) - sum(label in FLOATS for label in data.labels)
    count = len(data.samples)
    shares = np.arange(1, count + 1) / count
    shown = np.unique(np.rint(np.linspace(0, count - 1, 512)).astype(int))  # as many as an eye can tell apart
    smallest = np.inf
    for index, (label, errors) in enumerate(zip(data.labels, data.errors, strict=True)):
        size = np.sort(np.abs(errors))
        smallest = min(smallest, size[count // 100] or np.inf)
        style = _lns_style(index) if index < lns else _float_style(index - lns)
        ax.plot(size[shown], shares[shown], label=f"{label}, at most {size[-1]:.2g}", **style)
    ax.set_xscale("log")
    if np.isfinite(smallest):
        ax.set_xlim(left=smallest)
    ax.set_xlabel("relative error of rounding")
    ax.set_ylabel("share of samples with no larger error")
    ax.set_title(f"Rounding of {count:,} random numbers")
    _grid(ax)
    _legend(ax)
    return ax


def draw_precision_sweep(data: Sweep, ax: Axes | None = None) -> Axes:
    """Draw the median relative error against fraction bits, shaded up to the largest; return the Axes."""
    ax = _axes(ax)
    for index, line in enumerate(data.lines):
        colour = colour_of(index)
        ax.plot(data.frac_bits, line.median, "o-", color=colour, markersize=4, label=line.label)
        ax.fill_between(data.frac_bits, line.median, line.largest, color=colour, alpha=0.15, linewidth=0)
        ax.plot(data.frac_bits, line.largest, "^", color=colour, markersize=4, label="_nolegend_")
    for index, line in enumerate(data.floats):
        ax.axhline(line.median[0], label=f"{line.label}, median", **_float_style(index))
    ax.set_yscale("log")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel("fraction bits of the logarithm")
    ax.set_ylabel("relative error: median, shaded up to the largest")
    ax.set_title(f"Error of {data.workload} against precision")
    _grid(ax)
    _legend(ax)
    return ax
