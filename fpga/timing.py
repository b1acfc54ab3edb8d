"""The longest path that nextpnr reports, in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

__all__ = ["Timing"]


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
        """Return the path as text: a line of summary, and one for each cell and each net on it."""
        total = sum(step["delay"] for step in self.path)
        lines = [
            f"the longest path of the clock {self.clock} takes {total:.2f} ns, which allows "
            f"{self.reached_mhz:.2f} MHz; {self.wanted_mhz:.2f} MHz are {'met' if self.met else 'not met'}"
        ]
        return "\n".join([*lines, *(f"{step['delay']:7.2f} ns  {_words(step)}" for step in self.path)]) + "\n"


def _words(step: Mapping) -> str:
    source, target = step["from"], step["to"]
    if step["type"] == "clk-to-q":
        return f"from the clock to {source['port']} of {_cell(source)}"
    if step["type"] == "routing":
        return f"along the net {step['net']}, {_place(source)} to {_place(target)}"
    if step["type"] == "setup":
        return f"at {target['port']} of {_cell(target)}, before the next clock"
    return f"through {_cell(source)}, {source['port']} to {target['port']}"


def _cell(end: Mapping) -> str:
    return f"{end['cell']} at {_place(end)}"


def _place(end: Mapping) -> str:
    return "X{}/Y{}".format(*end["loc"])
