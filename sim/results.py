"""What a verification found: rows, the first mismatches, and whether it passed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .coverage import Coverage

__all__ = ["Counterexample", "Field", "Report", "Result"]


@dataclasses.dataclass(frozen=True)
class Result:
    """One row of the report: one stimulus on one unit."""

    unit: str
    format: str
    adder: str
    accumulator: str
    specials: bool
    level: str
    simulator: str | None
    runner: str
    stimulus: str
    vectors: int
    mismatches: int
    seconds: float
    #: How many of the vectors were compared by an earlier run that was interrupted.
    earlier: int = 0
    #: What the gates of the level are made for, if they are made for one device.
    device: str | None = None

    @property
    def rate(self) -> float:
        """Vectors a second, in the simulator."""
        return (self.vectors - self.earlier) / self.seconds if self.seconds else 0.0


@dataclasses.dataclass(frozen=True)
class Field:
    """One field of a payload.

    Attributes
    ----------
    width : int
        In bits; of an array, of its elements.
    bits : int or nested list of int
        Non-negative integers.
    value : float, int, bool, str, list of str, or nested list of these
        What the bits mean: a number, "inf", "-inf" or "nan"; of flags, the names of those that are set.
    """

    width: int
    bits: Any
    value: Any


@dataclasses.dataclass(frozen=True)
class Counterexample:
    """The first vector on which a unit and the golden model differ.

    ``got`` is None if there are unknown bits in it, or it never came; ``cycle`` is None where nobody counts them.
    """

    unit: str
    format: str
    operation: str
    stimulus: str
    index: int
    source: str | None
    operands: dict[str, Field]
    expected: dict[str, Field]
    got: dict[str, Field] | None
    cycle: int | None
    seed: int
    command: str


@dataclasses.dataclass
class Report:
    """What a run found."""

    seed: int
    results: list[Result] = dataclasses.field(default_factory=list)
    counterexamples: list[Counterexample] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    #: How many captured operations of each kind have no unit yet, and so were not replayed.
    not_replayed: dict[str, int] = dataclasses.field(default_factory=dict)
    #: Of each unit that the level does not have, though nobody asked for it by name, a sentence that says why.
    left_out: list[str] = dataclasses.field(default_factory=list)
    #: What was tried of each unit, if that was asked for.
    coverage: list[Coverage] = dataclasses.field(default_factory=list)
    #: Of each unit, for ``"line"`` and ``"toggle"`` of its Verilog, how many were hit, of how many, and those missed.
    code_coverage: dict[str, dict[str, dict]] = dataclasses.field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether there was something to compare and all of it was equal, latency and handshake included."""
        return (
            bool(self.results)
            and not self.problems
            and not self.counterexamples
            and all(result.vectors > 0 and result.mismatches == 0 for result in self.results)
        )

    def to_json(self) -> dict:
        """Return the report as one JSON object, ``"schema"`` 2."""
        return {
            "schema": 2,
            "passed": self.passed,
            "seed": self.seed,
            "results": [dataclasses.asdict(result) for result in self.results],
            "counterexamples": [dataclasses.asdict(example) for example in self.counterexamples],
            "problems": self.problems,
            "not_replayed": self.not_replayed,
            "left_out": self.left_out,
            "coverage": [each.to_json() for each in self.coverage],
            "code_coverage": self.code_coverage,
        }
