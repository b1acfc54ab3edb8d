"""The level ``bitstream`` of a board: the very bitstream of ``lns bitstream``, read back, driven at its UART pins."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path

import hdl
from sim.levels import Level, Unavailable
from sim.segments import STIMULI
from sim.simulators import SIMULATORS
from xlnstorch import cache

from . import cells, netlists, read_back
from .bitstream import TooLarge, build
from .board_level import BoardRun
from .boards import named_board
from .bridge.uart import check_divisor
from .design import BAUD, Design
from .flow import require_tools
from .host import connect
from .levels import Bitstream, icebox_files, icebox_vlog
from .read_back import board_of_chip
from .runner import Runner
from .simulated_board import SimulatedBoard

__all__ = ["BoardBitstream"]

# Seconds of silence in which a simulated board may think: a test of its own, or a frame at a slow clock.
_PATIENCE = 120.0


class ReadBackRun(BoardRun):
    """The vectors as frames on the line of a simulated board, from the same host as for any board."""

    def build(self, verilog: str, progress: Callable[[int], None]) -> SimulatedBoard:
        design = self.level.design(self.unit)
        divisor = check_divisor(float(design.clock.frequency), design.baud)
        given = {"baud": design.baud, "divisor": divisor, "verilog": verilog}
        return SimulatedBoard(self.unit, **given, poll=lambda: progress(0))

    def simulate(self, gates: SimulatedBoard, progress: Callable[[int], None]) -> dict:
        design = self.level.design(self.unit)
        expected = {"expect": self.unit, "digest": design.digest}
        with gates, connect(gates.port, baud=design.baud, timeout=_PATIENCE, **expected) as board:
            return super().simulate(board, progress)


class BoardBitstream(Level):
    """The bitstream of a unit on a board with an iCE40.

    Parameters
    ----------
    board : str
        What :func:`~fpga.boards.named_board` takes.
    clock : float, optional
    baud, seeds : int, optional
        As for :class:`~fpga.design.Design`.

    Raises
    ------
    ValueError
        The board is none, or none whose bitstream can be read back.
    """

    name = "bitstream"
    run = ReadBackRun
    units = ("alu",)
    # A line is slow, and the more so a simulated one.
    vectors = 500
    stimuli = tuple(name for name in STIMULI if name != "captured")

    def __init__(self, board: str, *, clock: float | None = None, baud: int = BAUD, seeds: int = 1):
        self._board = named_board(board)
        family = self._board.device().name
        if family in Bitstream.impossible:
            raise ValueError(f"there is no level bitstream on {board}: {Bitstream.impossible[family]}")
        self.device = board
        self._build = {"mhz": clock, "baud": baud, "seeds": seeds}
        given = {"--clock": (clock, None), "--baud": (baud, BAUD), "--seeds": (seeds, 1)}
        words = [word for option, (value, usual) in given.items() if value != usual for word in (option, str(value))]
        self._arguments = ("--board", board, *words)
        self._designs: dict[hdl.Unit, Design] = {}

    @property
    def arguments(self) -> tuple[str, ...]:
        return self._arguments

    def check(self, unit: hdl.Unit) -> None:
        super().check(unit)
        require_tools([self._board.device()])
        icebox_vlog()
        SIMULATORS["verilator"].check()

    def design(self, unit: hdl.Unit) -> Design:
        """Return the design of a unit, once :meth:`source` has been called for it."""
        return self._designs[unit]

    def source(self, unit: hdl.Unit) -> str:
        self._designs[unit] = Design.of(unit, self._board, **self._build)
        return self._designs[unit].digest

    def verilog(self, name: str, source: str, poll: Callable[[], None]) -> str:
        design = next(design for design in self._designs.values() if design.digest == source)
        try:
            built = build(design, poll=poll)
        except TooLarge as error:
            raise Unavailable(str(error)) from None
        return self._gates(design, built.bitstream, poll)

    def _gates(self, design: Design, bitstream: bytes, poll: Callable[[], None]) -> str:
        """Return the gates of a bitstream, from the cache if they have been read back before."""
        (pins,) = design.constraints.values()
        key = cache.digest([hashlib.sha256(bitstream).hexdigest(), pins, _sources()])
        if (chip := cache.load("levels", key)) is None:
            job = {"program": "iceunpack", "pins": pins, "package": self._board.make_platform().package.lower()}
            with Runner() as runner:
                encoded = base64.b64encode(bitstream).decode()
                chip = runner.step("unpack", encoded, design.device, job, poll)["chip"]
            cache.store("levels", key, chip)
        return board_of_chip(chip, pins, design.clock)


def _sources() -> list[str]:
    """Return digests of what makes gates of a bitstream."""
    files = icebox_files()
    files += [Path(module.__file__) for module in (cells, netlists, read_back)]
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
