"""The figure of the design space. matplotlib is imported when it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xlnstorch.plot.figures import GREY, colour_of

from .design_space import Result, area, front
from .flow import Device

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_design_space"]


def draw_design_space(results: Sequence[Result], devices: Sequence[Device] = ()) -> Figure:
    """Draw the largest error against the area on each device, or against ROM bits; return the Figure.

    Points are numbered, and named beside the panels. The Pareto-optimal ones are large; below the staircase through
    them there is nothing. A filled mark has its tables in block RAM, an open one in LUTs, and a
    diamond has none.

    Parameters
    ----------
    results : sequence of Result
        Those without gates, and those that a device cannot hold, are not drawn.
    devices : sequence of Device
        A panel for each.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    panels = list(devices) or [None]
    drawn = [result for result in results if any(_x(result, device) is not None for device in panels)]
    drawn.sort(key=lambda result: (result.quality.max, str(result.point)))
    kinds = list(dict.fromkeys(_kind(result) for result in results))
    styles = [_style(result, kinds, by_rom=bool(devices)) for result in drawn]

    figure = Figure(figsize=(2.5 + 5.5 * len(panels), 5.5), layout="constrained")
    for device, ax in zip(panels, figure.subplots(1, len(panels), squeeze=False)[0], strict=True):
        _draw_panel(ax, drawn, styles, device)
        _label(ax, device)

    names = [str(result.point) if devices and result.rom_bits else result.point.format.adder.name for result in drawn]
    numbers = [
        Line2D(
            [], [], linestyle="none", marker=f"${i}$", markersize=3 + 3 * len(str(i)), color=style["color"], label=name
        )
        for i, (name, style) in enumerate(zip(names, styles, strict=True), 1)
    ]
    if numbers:
        figure.legend(handles=numbers, loc="outside right upper", fontsize="small")
    marks = [Line2D([], [], linestyle="none", marker="o", markersize=11, color=GREY, label="Pareto-optimal")]
    if devices:
        marks += [
            Line2D([], [], linestyle="none", marker="o", color=GREY, label="tables in block RAM"),
            Line2D([], [], linestyle="none", marker="o", color=GREY, markerfacecolor="white", label="tables in LUTs"),
        ]
    marks.append(Line2D([], [], linestyle="none", marker="D", color=GREY, label="no tables"))
    figure.legend(handles=marks, loc="outside lower center", ncols=len(marks), fontsize="small")
    if results:
        figure.suptitle(f"Adders of {results[0].point.format.name}")
    return figure


def _draw_panel(ax: Axes, results: Sequence[Result], styles: Sequence[dict], device: Device | None) -> None:
    optimal = []
    for i, (result, style, best) in enumerate(zip(results, styles, front(results, device), strict=True), 1):
        x, y = _x(result, device), result.quality.max
        if x is None:
            continue
        ax.plot(x, y, markersize=11 if best else 6, zorder=2.5 if best else 2, linestyle="none", **style)
        # Close ones, which differ in their parameters more often than in where their tables are, on different sides.
        above = i // 2 % 2
        ax.annotate(
            str(i),
            (x, y),
            xytext=(0, (8 if best else 5) * (1 if above else -1)),
            textcoords="offset points",
            ha="center",
            va="bottom" if above else "top",
            fontsize="medium" if best else "x-small",
            color="black" if best else GREY,
        )
        if best:
            optimal.append((x, y))
    if device and optimal:
        ax.step(*zip(*sorted(optimal), strict=True), where="post", color=GREY, linewidth=1.0, zorder=1)


def _label(ax: Axes, device: Device | None) -> None:
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    if device is None:
        ax.set_xlabel("ROM [bits]")
        ax.set_xscale("symlog", linthresh=256)
    else:
        equivalents = f"a block RAM counts {device.area(0, 1, 0):.0f}"
        if device.dsps:
            equivalents += f", a DSP {device.area(0, 0, 1):.0f}"
        ax.set_xlabel(f"area [LUT4; {equivalents}]")
        ax.set_xscale("log", base=2)
        ax.set_title(device.title, fontsize="medium")
    ax.set_yscale("log", base=2)
    ax.set_ylabel("largest error [units of the last place]")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())
    ax.margins(x=0.1, y=0.1)
    ax.grid(True, color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)


def _style(result: Result, kinds: Sequence[str], *, by_rom: bool) -> dict[str, str]:
    colour = colour_of(kinds.index(_kind(result)))
    filled = result.point.rom == "block" or not result.rom_bits or not by_rom
    return {
        "marker": "o" if result.rom_bits else "D",
        "color": colour,
        "markerfacecolor": colour if filled else "white",
    }


def _x(result: Result, device: Device | None) -> float | None:
    if device is None:
        return result.rom_bits
    found = result.devices.get(device.name)
    return None if found is None or found.mhz is None else area(result, device)


def _kind(result: Result) -> str:
    return result.point.format.adder.name.partition(":")[0]
