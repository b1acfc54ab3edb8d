"""The longest path that nextpnr reports, in words."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence

__all__ = ["Timing"]

# Where Yosys begins to call a net or a cell by those around it.
_GENERATED = re.compile(r"_(?:SB|TRELLIS|LUT4|CCU2C|PFUMX|L6MUX21|DP16KD|MULT18X18D)_?.*")
_CARRIES = ("COUT", "FCO")


@dataclasses.dataclass(frozen=True)
class Timing:
    """The clock that is furthest from what it should be.

    Attributes
    ----------
    clock : str
        The net.
    reached_mhz, wanted_mhz : float
    path : list of dict
        Its longest path, as nextpnr reports it.
    """

    clock: str
    reached_mhz: float
    wanted_mhz: float
    path: list[dict]

    @classmethod
    def of(cls, clocks: Mapping[str, Mapping[str, float]], paths: Sequence[Mapping]) -> Timing:
        """Return that of nextpnr's report, of which these are ``fmax`` and ``critical_paths``."""
        clock = min(clocks, key=lambda name: clocks[name]["achieved"] / clocks[name]["constraint"])
        edge = f"posedge {clock}"
        path = next((path["path"] for path in paths if path["from"] == path["to"] == edge), [])
        return cls(clock, clocks[clock]["achieved"], clocks[clock]["constraint"], path)

    @property
    def met(self) -> bool:
        """Whether the clock is fast enough."""
        return self.reached_mhz >= self.wanted_mhz

    def in_words(self) -> str:
        """Return the path as text: a line of summary, and one for each cell, net and carry chain on it.

        A name ends in … where Yosys has made up the rest.
        """
        total = sum(step["delay"] for step in self.path)
        lines = [
            f"the longest path of the clock {_name(self.clock)} takes {total:.2f} ns, which allows "
            f"{self.reached_mhz:.2f} MHz; {self.wanted_mhz:.2f} MHz are {'met' if self.met else 'not met'}"
        ]
        for carries, group in itertools.groupby(self.path, key=_is_carry):
            steps = list(group)
            cells = sum(step["type"] == "logic" for step in steps)
            if carries and cells > 1:
                text = f"along the carries of {cells} cells, from {_cell(steps[0]['from'])}"
                lines.append(f"{sum(step['delay'] for step in steps):7.2f} ns  {text}")
            else:
                lines += [f"{step['delay']:7.2f} ns  {_words(step)}" for step in steps]
        return "\n".join(lines) + "\n"


def _is_carry(step: Mapping) -> bool:
    """Whether a step ends at a carry, or leads on from one without a way through the fabric."""
    return step["to"]["port"] in _CARRIES or (step["type"] == "routing" and step["to"]["port"] in ("CIN", "FCI"))


def _words(step: Mapping) -> str:
    source, target = step["from"], step["to"]
    if step["type"] == "clk-to-q":
        return f"from the clock to {source['port']} of {_cell(source)}"
    if step["type"] == "routing":
        return f"along the net {_name(step['net'])} to {_place(target)}"
    if step["type"] == "setup":
        return f"at {target['port']} of {_cell(target)}, before the next clock"
    return f"through {_cell(source)}, {source['port']} to {target['port']}"


def _cell(end: Mapping) -> str:
    return f"{_name(end['cell'])} at {_place(end)}"


def _name(name: str) -> str:
    return _GENERATED.sub("…", name.removeprefix("$glbnet$"))


def _place(end: Mapping) -> str:
    return "X{}/Y{}".format(*end["loc"])
