"""What a board's bitstream is made from, complete and checked before anything is built, and its digest."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
from pathlib import Path

import hdl
from xlnstorch import cache

from . import _child, flow, output_registers, steps
from .boards import Board
from .bridge.protocol import DIGEST_BYTES, unit_text
from .clocking import Clock, choose_clock
from .flow import Device, tool_versions
from .top import OnBoard, Top

__all__ = ["BAUD", "Design"]

#: What both ends of the line do by default.
BAUD = 1_000_000
_MAX_SEEDS = 100


@dataclasses.dataclass(frozen=True)
class Design:
    """A unit with its bridge on a board, and how it is to be built.

    Attributes
    ----------
    unit : Unit
    board : Board
    clock : Clock
        Of the gates.
    asked_mhz : float or None
        The clock that was asked for.
    baud : int
    seeds : range
        Of place and route; the fastest is kept.
    digest : str
        32 hexadecimal digits of all that the bitstream is made from; what the gates say that they are.
    rtlil : str
        The gates.
    constraints : dict of str to str
        Pins and clock of the board, a file of nextpnr's by name.
    place_and_route, pack : list of str
        Command lines, as Amaranth's build plan of the platform has them.
    """

    unit: hdl.Unit
    board: Board
    clock: Clock
    asked_mhz: float | None
    baud: int
    seeds: range
    digest: str
    rtlil: str
    constraints: dict[str, str]
    place_and_route: list[str]
    pack: list[str]

    @classmethod
    def of(cls, unit: hdl.Unit, board: Board, *, mhz: float | None = None, baud: int = BAUD, seeds: int = 1) -> Design:
        """Return a design.

        Parameters
        ----------
        unit : Unit
        board : Board
        mhz : float, optional
            The clock; by default the board's.
        baud : int
        seeds : int
            How many are tried: 1 to so many.

        Raises
        ------
        ValueError
            The platform, the clock, the baud or the number of seeds cannot be; the message says what can.
        """
        if not 1 <= seeds <= _MAX_SEEDS:
            raise ValueError(f"seeds must be 1 to {_MAX_SEEDS}, not {seeds}")
        asked = board.clock_mhz if mhz is None else mhz
        clock = choose_clock(board.make_platform(), asked)
        parts = {"unit": unit, "board": board, "clock": clock, "asked_mhz": asked, "baud": baud}
        plan = _plan(unit, board, clock, baud, bytes(DIGEST_BYTES))
        digest = cache.digest([board.platform, seeds, versions(board), _sources(), *dataclasses.astuple(plan)])
        built = _plan(unit, board, clock, baud, bytes.fromhex(digest))
        return cls(**parts, seeds=range(1, seeds + 1), digest=digest, **dataclasses.asdict(built))

    @property
    def device(self) -> Device:
        """The device by which Yosys and the cells are known."""
        return self.board.device()

    @property
    def configuration(self) -> str:
        """The file between nextpnr and the packer."""
        (name,) = set(self.place_and_route) & set(self.pack)
        return name

    @property
    def bitstream(self) -> str:
        """The file that the packer ends with."""
        return next(name for name in self.pack if name.endswith((".bin", ".bit")))

    def describe(self) -> dict[str, object]:
        """Return what the manifest says of it before it is built."""
        format = self.unit.format
        return {
            "board": self.board.name,
            "platform": self.board.platform,
            "unit": unit_text(self.unit),
            "operations": list(self.unit.operations),
            "format": format.name,
            "adder": format.adder.name,
            "accumulator": format.accumulator.name,
            "specials": format.specials,
            "digest": self.digest,
            "clock": {
                "asked_mhz": self.asked_mhz,
                "mhz": float(self.clock.frequency) / 1e6,
                "oscillator_mhz": float(self.clock.oscillator) / 1e6,
                "pll": self.clock.pll,
            },
            "baud": self.baud,
            "tools": versions(self.board),
        }


def versions(board: Board) -> dict[str, str]:
    """Return the versions of all that takes part in a build."""
    own = {"lns-coverify": importlib.metadata.version("lns-coverify")}
    return {**own, **board.versions(), **tool_versions(board.device())}


@dataclasses.dataclass(frozen=True)
class _Plan:
    """What Amaranth makes of a design on a platform."""

    rtlil: str
    constraints: dict[str, str]
    place_and_route: list[str]
    pack: list[str]


def _plan(unit: hdl.Unit, board: Board, clock: Clock, baud: int, digest: bytes) -> _Plan:
    top = Top(unit, digest=digest, clock_hz=clock.frequency, baud=baud)
    plan = board.make_platform().prepare(OnBoard(top, clock), name="top", emit_src=False)
    _, place_and_route, pack = json.loads(plan.files["build_top.json"])["commands"]
    constraints = {name: text for name, text in plan.files.items() if name.endswith((".pcf", ".lpf"))}
    return _Plan(plan.files["top.il"], constraints, place_and_route, pack)


def _sources() -> list[str]:
    """Return digests of the files that make a bitstream of RTLIL."""
    return [
        hashlib.sha256(Path(module.__file__).read_bytes()).hexdigest()
        for module in (_child, flow, output_registers, steps)
    ]
