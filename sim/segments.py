"""Segments: the vectors of one stimulus on one unit, with what is expected of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from hdl.unit import Unit

from . import golden
from .stimulus import GENERATED, Vectors, applies, generate
from .traces import Trace

__all__ = ["STIMULI", "Segment", "has_segment", "make_segment"]

#: Every stimulus, in the order in which they run.
STIMULI = (*GENERATED, "captured")


@dataclasses.dataclass(frozen=True)
class Segment:
    """Vectors of one stimulus, with the bits of each field of the results that are expected of them."""

    stimulus: str
    vectors: Vectors
    expected: dict[str, np.ndarray]
    source: Callable[[int], str] | None = None

    def __len__(self) -> int:
        """How many results there are."""
        return len(next(iter(self.expected.values())))

    @property
    def completes(self) -> np.ndarray:
        """For each payload whether it brings a result, 0 or 1."""
        if not self.vectors.sequence:
            return np.ones(len(self), dtype=np.int64)
        completes = np.zeros(len(self.vectors), dtype=np.int64)
        completes[[group[-1] for group in self.vectors.sequence.groups]] = 1
        return completes

    @property
    def waits(self) -> bool:
        """Whether the unit may make payloads wait."""
        return bool(self.vectors.sequence) and self.vectors.sequence.waits

    def places(self, index: int) -> list[int]:
        """Return the indices of the vectors that make up a result."""
        return self.vectors.sequence.groups[index].tolist() if self.vectors.sequence else [index]


def has_segment(stimulus: str, unit: Unit, trace: Trace | None) -> bool:
    """Whether a stimulus means anything to a unit; if it is "captured", whether `trace` has any of its operations."""
    if stimulus != "captured":
        return applies(stimulus, unit)
    return any(operation in trace.names for operation in unit.operations)


def make_segment(stimulus: str, unit: Unit, seed: int, count: int, trace: Trace | None) -> Segment:
    """Return the vectors of a stimulus with what the golden model expects; if it is "captured", those of `trace`."""
    if stimulus != "captured":
        vectors = generate(stimulus, unit, seed=seed, count=count)
        return Segment(stimulus, vectors, golden.evaluate(unit, vectors))
    # The results of the step itself are expected, not those of computing it again.
    records = [trace[operation] for operation in unit.operations]
    lengths = [len(record) for record in records]
    ends = np.cumsum(lengths)
    # Operands that an operation does not have are zero. Words stay as narrow as they are kept: there may be millions.
    operands = {
        name: np.concatenate([r.operands[i] if i < len(r.operands) else np.zeros_like(r.result) for r in records])
        for i, name in enumerate(unit.operands())
    }

    def source(index: int) -> str:
        kind = int(np.searchsorted(ends, index, side="right"))
        return records[kind].source(index - (int(ends[kind - 1]) if kind else 0))

    expected = {next(iter(unit.results())): np.concatenate([record.result for record in records])}
    if "flags" in unit.results():
        expected["flags"] = np.concatenate([record.flags for record in records]) & unit.results()["flags"].mask
    op = np.repeat(np.arange(len(records), dtype=np.uint8), lengths)
    return Segment(stimulus, Vectors(op, operands), expected, source)
