"""What a verification found: rows, the first mismatches, and whether it passed."""

from __future__ import annotations

import dataclasses

__all__ = ["Counterexample", "Report", "Result"]


@dataclasses.dataclass(frozen=True)
class Result:
    """One row of the report: one stimulus on one unit."""

    unit: str
    format: str
    adder: str
    level: str
    simulator: str
    stimulus: str
    vectors: int
    mismatches: int
    seconds: float

    @property
    def rate(self) -> float:
        """Vectors a second, in the simulator."""
        return self.vectors / self.seconds if self.seconds else 0.0


@dataclasses.dataclass(frozen=True)
class Counterexample:
    """The first vector on which a unit and the golden model differ; words as non-negative integers.

    ``got_word`` and ``got_flags`` are None where the result had unknown bits.
    """

    unit: str
    format: str
    operation: str
    stimulus: str
    index: int
    source: str | None
    a: int
    b: int
    a_value: float
    b_value: float
    expected_word: int
    expected_value: float
    expected_flags: list[str]
    got_word: int | None
    got_value: float | None
    got_flags: list[str] | None
    cycle: int
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
        """Return the report as one JSON object, ``"schema"`` 1."""
        return {
            "schema": 1,
            "passed": self.passed,
            "seed": self.seed,
            "results": [dataclasses.asdict(result) for result in self.results],
            "counterexamples": [dataclasses.asdict(example) for example in self.counterexamples],
            "problems": self.problems,
            "not_replayed": self.not_replayed,
        }
