"""Levels: what the Verilog under the bench is made from. Here is that of the unit itself; packages add others.

An entry point of the group ``lns.levels`` names a subclass of :class:`Level`; those of :mod:`fpga.levels` are netlists
and the bitstream.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import hdl
from xlnstorch.cli import CommandError
from xlnstorch.formats import LNSFormat

if TYPE_CHECKING:
    from .runs import Run

__all__ = ["RTL", "Level", "Unavailable", "get_level"]


class Unavailable(CommandError):
    """A unit has no gates at a level; the message says why."""


class Level:
    """What is verified of a unit, as Verilog.

    Parameters
    ----------
    device : str, optional
        What it is made for, one of `devices`; the first by default.

    Attributes
    ----------
    name : str
        What the command line calls the level.
    devices : tuple of str
        What it can be made for; empty where there is no such choice.
    impossible : dict
        What it cannot be made for, and why.
    device : str or None
        The one it is made for.
    options : tuple of str
        What else it is made with, by keyword: texts, of the same names on the command line.
    run : type of Run, optional
        What runs the vectors instead of a simulator, where the gates are there already.
    units : tuple of str
        Those that are verified if none is named, where they are not all.
    format : LNSFormat or None
        Of the gates that are there already.
    vectors : int
        How many a stimulus has on the command line by default.
    stimuli : tuple of str
        Which there are by default, where they are not all.

    Raises
    ------
    ValueError
        The level does not exist for the device.
    """

    name: ClassVar[str]
    devices: ClassVar[tuple[str, ...]] = ()
    impossible: ClassVar[dict[str, str]] = {}
    options: ClassVar[tuple[str, ...]] = ()
    run: ClassVar[type[Run] | None] = None
    device: str | None
    units: tuple[str, ...] = ()
    format: LNSFormat | None = None
    vectors: ClassVar[int] = 5_000
    stimuli: ClassVar[tuple[str, ...]] = ()

    def __init__(self, device: str | None = None):
        if device in self.impossible:
            raise ValueError(f"there is no level {self.name} on {device}: {self.impossible[device]}")
        if device is not None and not self.devices:
            raise ValueError(f"the level {self.name} is of no device; leave out {device!r}")
        if device is not None and device not in self.devices:
            raise ValueError(f"device must be {' or '.join(self.devices)}, not {device!r}")
        self.device = device or next(iter(self.devices), None)

    @property
    def arguments(self) -> tuple[str, ...]:
        """What a command line needs beside the name to ask for the level again."""
        return ("--device", self.device) if self.device else ()

    def close(self) -> None:
        """Give back what it holds."""

    def check(self, unit: hdl.Unit) -> None:
        """Raise ToolMissing, or Unavailable, as far as it can be known before anything is built.

        Of somebody else's Verilog there is the level rtl only.
        """
        if unit.sources:
            raise Unavailable(f"{unit.name} is somebody else's Verilog, which has the level rtl only, not {self.name}")

    def source(self, unit: hdl.Unit) -> str:
        """Return what the gates are made from; called in the main thread, for one unit after the other."""
        raise NotImplementedError

    def verilog(self, name: str, source: str, poll: Callable[[], None]) -> str:
        """Return the gates, with the module ``top`` and the ports of :func:`hdl.to_verilog`.

        Called in several threads.

        Parameters
        ----------
        name : str
            Of the unit, for messages.
        source : str
            What :meth:`source` has returned.
        poll : callable
            Called now and then; may raise, to give up.

        Raises
        ------
        BuildFailed, Unavailable
        """
        raise NotImplementedError


class RTL(Level):
    """The unit itself, whose registers start with anything: what it does must not depend on it after a reset."""

    name = "rtl"

    def check(self, unit: hdl.Unit) -> None:
        pass  # each unit is there

    def source(self, unit: hdl.Unit) -> str:
        return hdl.to_verilog(unit, initial=False)

    def verilog(self, name: str, source: str, poll: Callable[[], None]) -> str:
        return source


def get_level(name: str, device: str | None = None, **options: object) -> Level:
    """Return a level by its name, for a device and with options, None standing for the default.

    A ValueError says which levels there are, or which option the level does not have.
    """
    entries = {entry.name: entry for entry in importlib.metadata.entry_points(group="lns.levels")}
    if name != RTL.name and name not in entries:
        raise ValueError(f"level must be one of {', '.join([RTL.name, *sorted(entries)])}, not {name!r}")
    kind = RTL if name == RTL.name else entries[name].load()
    given = {key: value for key, value in options.items() if value is not None}
    for key, value in given.items():
        if key not in kind.options:
            raise ValueError(f"the level {name} has no {key}; leave out {value!r}")
    return kind(device, **given)
