"""Mutants of the gates: small faults that Yosys plants, all in one simulation, of which one at a time is awake."""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from amaranth.back import rtlil

from hdl.unit import Unit
from hdl.verilog import without_initial

from . import payloads
from .batch import Batch
from .segments import Segment
from .simulators import TOP

__all__ = ["Hunt", "Mutants", "mutate"]

# More payloads than the deepest pipeline holds.
_FILL = 64
# From how many states a piece of the vectors runs.
_STATES = 256


@dataclasses.dataclass(frozen=True)
class Mutants:
    """Gates with faults, one of which a port ``selected`` awakes.

    Attributes
    ----------
    verilog : str
    bits : int
        Width of ``selected``.
    faults : tuple of str
        What each of them is: a cell's port and bit that is inverted, constant, or mixed up with another.
    """

    verilog: str
    bits: int
    faults: tuple[str, ...]

    @property
    def none(self) -> int:
        """What ``selected`` is where no fault is awake."""
        return (1 << self.bits) - 1


def mutate(unit: Unit, count: int, seed: int) -> Mutants:
    """Return the gates of a unit with faults, spread over its cells and wires by Yosys's pass ``mutate``.

    Parameters
    ----------
    unit : Unit
    count : int
        How many faults at most; as many as one in eight of those that there could be, since the pass does not end where
        most of them are asked for.
    seed : int
        Which ones; the choice also depends on the names of cells, which Yosys numbers by a counter of the process.
    """
    from pyosys import libyosys

    with tempfile.TemporaryDirectory(prefix="lns-") as folder:
        source, log, script, target = (Path(folder, name) for name in ("unit.il", "log", "mutate.ys", "unit.v"))
        source.write_text(without_initial(rtlil.convert(unit, name=TOP, emit_src=False)))
        design = libyosys.Design()

        def run(*commands: str) -> None:
            for command in commands:
                design.run_pass(f"tee -q -o {os.devnull} {command}")

        run(f'read_rtlil "{source}"', "proc", "memory_collect", "flatten", "opt_clean")
        design.run_pass(f'tee -q -o "{log}" mutate -list 1 -o {script}')
        there_are = int(re.search(r"Raw database size: (\d+)", log.read_text())[1])
        count = max(1, min(count, there_are // 8))
        bits = count.bit_length()  # for one value more
        run(f"mutate -list {count} -seed {seed} -o {script} -ctrl selected {bits} 0")
        faults = tuple(line.split(" -mode ")[1] for line in script.read_text().splitlines())
        run(f"script {script}", f'write_verilog -noattr -norename "{target}"')
        return Mutants(target.read_text(), bits, faults)


class Hunt:
    """The gates with all mutants, which vectors must tell from the unit.

    Parameters
    ----------
    unit : Unit
    mutants : Mutants
    """

    def __init__(self, unit: Unit, mutants: Mutants):
        self._unit = unit
        self._none = mutants.none
        self._gates = Batch(unit, mutants.verilog, selected_bits=mutants.bits)

    def finds(self, number: int, segments: Iterable[Segment]) -> bool:
        """Whether vectors tell a mutant from the unit: by results, one too many or too few, the rate, or a reset.

        Each segment runs without stalls and with them; and pieces of the first one from many states, since what a
        mutant never changes stays as it was.
        """
        gates, unit = self._gates, self._unit
        for count, segment in enumerate(segments):
            rows, expected = _rows(unit, segment)
            gates.select(number)
            if count == 0 and (self._survives_resets(rows) or self._depends_on_state(number, rows, expected)):
                return True
            for stalls in (0, 1 + count):
                gates.reset(rows[:0])
                outcome = gates.run(rows, len(expected), stalls=stalls)
                if outcome.unasked or outcome.wrong(expected).any():
                    return True
                if not (stalls or segment.waits) and outcome.clocks > len(rows) + unit.latency + 8:
                    return True
            if gates.run(rows[:0], 0, drain=True).unasked:
                return True
        return False

    def _depends_on_state(self, number: int, rows: np.ndarray, expected: np.ndarray) -> bool:
        """Whether results are wrong after the mutant has awoken in the midst of others."""
        if len(rows) != len(expected):  # several make up a result
            return False
        rng = np.random.default_rng(0)
        for before, start in rng.integers(0, len(rows), (_STATES, 2)):
            self._gates.select(self._none)
            self._gates.run(rows[before : before + 1 + self._unit.latency], 0)
            self._gates.select(number)
            self._gates.reset(rows[:0])
            piece = slice(start, start + _FILL)
            outcome = self._gates.run(rows[piece], len(expected[piece]))
            if outcome.wrong(expected[piece]).any():
                return True
        return False

    def _survives_resets(self, rows: np.ndarray) -> bool:
        """Whether something comes out of the unit, filled to several depths, after a reset."""
        depths = (1, self._unit.latency, self._unit.latency + 2, _FILL)
        return any(
            self._gates.reset(rows[:depth], take=take, clocks=self._unit.latency + 8)
            for take in (True, False)
            for depth in depths
        )


def _rows(unit: Unit, segment: Segment) -> tuple[np.ndarray, np.ndarray]:
    sent = payloads.to_rows(unit.i.payload.shape(), segment.vectors.fields(unit), len(segment.vectors))
    return sent, payloads.to_rows(unit.o.payload.shape(), segment.expected, len(segment))
