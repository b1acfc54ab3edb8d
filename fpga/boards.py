"""Boards: which there are, and the platforms of amaranth-boards, or of anybody, that know their pins."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Mapping

from amaranth.build import Platform, ResourceError

from sim.simulators import ToolMissing

from .flow import DEVICES, Device

__all__ = ["BOARDS", "Board", "named_board"]

# Family and toolchain of a platform, and which of DEVICES has the same cells and programs.
_FAMILIES = {("iCE40", "IceStorm"): "ice40", ("iCE5", "IceStorm"): "ice40", ("ecp5", "Trellis"): "ecp5"}


@dataclasses.dataclass(frozen=True)
class Board:
    """A board with an FPGA of a family that the flow knows, an oscillator, and a UART.

    Attributes
    ----------
    name, title : str
        What the command line and people call it.
    platform : str
        Its class of an Amaranth platform, as ``module:Class``.
    clock_mhz : float or None
        The clock of the gates by default; None for that of the oscillator.
    loader : str or None
        What openFPGALoader calls it.
    """

    name: str
    title: str
    platform: str
    clock_mhz: float | None = None
    loader: str | None = None

    def make_platform(self) -> Platform:
        """Return a new platform, which can build one design.

        Raises
        ------
        ValueError
            There is no such class, or it is of another family, or has no oscillator at a pin or no UART.
        """
        module, _, name = self.platform.partition(":")
        try:
            made = getattr(importlib.import_module(module), name)()
        except (ImportError, AttributeError, TypeError) as error:
            raise ValueError(f"there is no platform {self.platform!r}: {error}") from None
        if not isinstance(made, Platform) or _family(made) not in _FAMILIES:
            raise ValueError(
                f"platform must be Amaranth's for an iCE40 with IceStorm or an ECP5 with Trellis, not {self.platform!r}"
            )
        for resource, wanted, fits in (
            (made.default_clk, "an oscillator at a pin", lambda found: found.clock is not None),
            ("uart", "a UART", lambda found: {"rx", "tx"} <= {getattr(each, "name", None) for each in found.ios}),
        ):
            with contextlib.suppress(ResourceError):
                if fits(made.lookup(resource)):
                    continue
            raise ValueError(
                f"platform must have {wanted}, which {self.platform!r} has not as its resource {resource!r}"
            )
        return made

    def device(self) -> Device:
        """Return the device of its family, by which Yosys and the cells are known."""
        return DEVICES[_FAMILIES[_family(self.make_platform())]]

    def versions(self) -> dict[str, str]:
        """Return the versions of Amaranth, and of the package that has the platform if it is in one."""
        packages = _packages().get(self.platform.partition(":")[0].partition(".")[0], [])
        return {name: importlib.metadata.version(name) for name in ("amaranth", *packages)}


@functools.cache
def _packages() -> Mapping[str, list[str]]:
    """Return which packages have a module, for all that are installed; that takes a moment."""
    return importlib.metadata.packages_distributions()


def _family(platform: Platform) -> tuple[str | None, str | None]:
    return getattr(platform, "family", None), getattr(platform, "toolchain", None)


#: The boards by name. Their clocks are what the ALU of lns16 reaches with a fifth to spare, see docs/bitstreams.md.
BOARDS: dict[str, Board] = {
    board.name: board
    for board in (
        Board(
            name="icebreaker",
            title="iCEBreaker (iCE40 UP5K)",
            platform="amaranth_boards.icebreaker:ICEBreakerPlatform",
            clock_mhz=24.0,
            loader="ice40_generic",
        ),
        Board(
            name="ice40-hx8k",
            title="iCE40-HX8K breakout board",
            platform="amaranth_boards.ice40_hx8k_b_evn:ICE40HX8KBEVNPlatform",
            clock_mhz=60.0,
            loader="ice40_generic",
        ),
        Board(
            name="ulx3s-25f",
            title="ULX3S (ECP5-25k)",
            platform="amaranth_boards.ulx3s:ULX3S_25F_Platform",
            clock_mhz=50.0,
            loader="ulx3s",
        ),
        Board(
            name="ulx3s-85f",
            title="ULX3S (ECP5-85k)",
            platform="amaranth_boards.ulx3s:ULX3S_85F_Platform",
            clock_mhz=50.0,
            loader="ulx3s",
        ),
    )
}


def named_board(text: str) -> Board:
    """Return the board that a command line names: a key of :data:`BOARDS`, or ``module:Platform``.

    Raises
    ------
    ValueError
        There is none, or :meth:`Board.make_platform` refuses its platform.
    ToolMissing
        amaranth-boards is not installed.
    """
    if text in BOARDS and importlib.util.find_spec("amaranth_boards") is None:
        raise ToolMissing("amaranth-boards is not installed; install with: pip install amaranth-boards")
    if text not in BOARDS and ":" not in text:
        raise ValueError(f"board must be one of {', '.join(BOARDS)}, or module:Platform, not {text!r}")
    board = BOARDS.get(text) or Board(text, text, text)
    board.make_platform()
    return board
