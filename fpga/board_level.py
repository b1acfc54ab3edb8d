"""The level ``board``: the gates of a board at a serial port, on the same vectors as a simulation's."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import numpy as np

import hdl
from sim.batch import Outcome
from sim.levels import Level, Unavailable
from sim.results import Report, Result
from sim.runs import BatchRun
from sim.sequences import is_sequential
from xlnstorch.formats import LNSFormat

from .bridge.protocol import Identity
from .host import Board, connect

__all__ = ["OnBoard"]


class BoardRun(BatchRun):
    """The vectors through a board, after its own test; one after the other, since there is one line."""

    runner = "board"
    alone = True
    self_test = "self-test"

    def build(self, verilog: str, progress: Callable[[int], None]) -> Board:
        return self.level.board

    def simulate(self, gates: Board, progress: Callable[[int], None]) -> dict:
        begin = time.perf_counter()
        tested = {} if is_sequential(self.unit) else gates.self_test(self.seed)
        spent = time.perf_counter() - begin
        return {**super().simulate(gates, progress), "self_test": tested, "self_test_seconds": round(spent, 3)}

    def _send(
        self, gates: Board, rows: np.ndarray, number: int, wanted: int, progress: Callable[[int], None]
    ) -> Outcome:
        segment = self.segments[number]
        return gates.gates.run(rows, segment.completes if segment.vectors.sequence else None, progress)

    def row(self, **values: object) -> Result:
        return dataclasses.replace(super().row(**values), simulator=None)

    def judge(self, raw: dict, report: Report) -> None:
        super().judge(raw, report)
        tested = raw["self_test"]
        wrong = [operation for operation, passed in tested.items() if not passed]
        if tested:  # what is compared is a signature of the results of each operation
            found = {"vectors": len(tested), "mismatches": len(wrong), "seconds": raw["self_test_seconds"]}
            report.results.append(self.row(stimulus=self.self_test, **found))
        sentence = "the board's own test, at its full rate, gives other results than the golden model for"
        report.problems += self.problems([f"{sentence} {', '.join(wrong)}"] if wrong else [])


class OnBoard(Level):
    """A board, by its serial port.

    Parameters
    ----------
    device : str, optional
        None.
    port : str
        Such as ``/dev/ttyUSB1``.
    baud : int, optional

    Raises
    ------
    ValueError
        No port is given.
    BoardError
        From :func:`~fpga.host.connect`.
    """

    name = "board"
    options = ("port", "baud")
    run = BoardRun

    def __init__(self, device: str | None = None, *, port: str | None = None, baud: int | None = None):
        super().__init__(device)
        if port is None:
            raise ValueError("the level board needs the serial port of one, such as --port /dev/ttyUSB1")
        self._arguments = ("--port", port, *(("--baud", str(baud)) if baud is not None else ()))
        self.board = connect(port, **({} if baud is None else {"baud": baud}))
        self.device = port

    @property
    def arguments(self) -> tuple[str, ...]:
        return self._arguments

    @property
    def units(self) -> tuple[str, ...]:
        return (self.board.identity.unit,)

    @property
    def format(self) -> LNSFormat:
        return self.board.unit.format

    def check(self, unit: hdl.Unit) -> None:
        board = self.board.identity
        wanted = Identity.of(unit, digest=board.digest, clock_hz=board.clock_hz, buffer=board.buffer)
        if wanted != board:
            raise Unavailable(f"the board at {self.device!r} has {board}, not {wanted}")

    def source(self, unit: hdl.Unit) -> str:
        return ""

    def verilog(self, name: str, source: str, poll: Callable[[], None]) -> str:
        return source

    def close(self) -> None:
        self.board.close()
