"""Vectors for other people's benches: operands of a unit with what the golden model expects, in files of four kinds."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import hdl
from hdl.bus.fields import Field, fields_of
from hdl.description import describe
from xlnstorch.files import check_writable, replacing

from . import golden, payloads, workloads
from .exhaustive import Space
from .segments import STIMULI, Segment, has_segment, make_segment
from .sequences import is_sequential
from .stimulus import GENERATED, Vectors
from .traces import capture

__all__ = ["EXHAUSTIVE", "KINDS", "VectorFile", "make_vectors"]

EXHAUSTIVE = "exhaustive"
MAX_VECTORS = 1 << 20


@dataclasses.dataclass(frozen=True)
class VectorFile:
    """What is written: payloads in the order in which a unit gets them.

    Attributes
    ----------
    unit : Unit
    name : str
        What the command line calls it.
    seed : int
    segments : list of Segment
        One a stimulus.
    """

    unit: hdl.Unit
    name: str
    seed: int
    segments: list[Segment]

    def __len__(self) -> int:
        """How many vectors there are."""
        return sum(len(segment.vectors) for segment in self.segments)

    @functools.cached_property
    def operands(self) -> list[int]:
        """Payloads of operands."""
        shape = self.unit.i.payload.shape()
        return [
            payload for segment in self.segments for payload in payloads.pack(shape, segment.vectors.fields(self.unit))
        ]

    @functools.cached_property
    def brings(self) -> np.ndarray:
        """For each payload whether it brings a result, as all do but in a sequence."""
        return np.concatenate([segment.completes for segment in self.segments])

    @functools.cached_property
    def results(self) -> list[int]:
        """Payloads of results, 0 where there is none."""
        shape = self.unit.o.payload.shape()
        found = iter([payload for segment in self.segments for payload in payloads.pack(shape, segment.expected)])
        return [next(found) if brings else 0 for brings in self.brings.tolist()]

    @property
    def sequential(self) -> bool:
        """Whether not each payload brings a result."""
        return is_sequential(self.unit)

    @property
    def fields(self) -> tuple[list[Field], list[Field]]:
        """The fields of operands and results, the lowest first."""
        return fields_of(self.unit.i.payload.shape()), fields_of(self.unit.o.payload.shape())

    def columns(self) -> dict[str, tuple[int, list[int]]]:
        """Return width and values of each field, by ``i_`` or ``o_`` and its name, and ``result`` before results."""
        found = {}
        for end, fields, given in zip("io", self.fields, (self.operands, self.results), strict=True):
            if end == "o" and self.sequential:
                found["result"] = (1, self.brings.tolist())
            for field in fields:
                mask = (1 << field.width) - 1
                found[f"{end}_{field.name}"] = (field.width, [payload >> field.offset & mask for payload in given])
        return found

    def description(self) -> dict[str, object]:
        """Return what the vectors are, as an object of JSON."""
        unit = describe(self.unit, self.name, {})
        known = {key: unit[key] for key in ("version", "format", "operations", "flags", "latency")}
        return {
            "schema": 1,
            "unit": self.name,
            **known,
            "seed": self.seed,
            "vectors": len(self),
            "results": int(self.brings.sum()),
            "stimuli": {segment.stimulus: len(segment.vectors) for segment in self.segments},
            "operands": unit["operands"]["fields"],
            "expected": unit["results"]["fields"],
        }

    def write(self, path: Path) -> None:
        """Write a file, of the kind that its suffix says; it appears, or is replaced, only when all of it is there.

        Raises
        ------
        OSError
            The file cannot be written, or has another suffix.
        """
        check_writable(path, list(KINDS))
        with replacing(path) as file:
            file.write_bytes(KINDS[path.suffix.lower()](self))


def make_vectors(
    unit: hdl.Unit, name: str, *, stimuli: Sequence[str] | None = None, seed: int = 0, count: int = 1000
) -> VectorFile:
    """Return vectors of a unit with what the golden model expects.

    Parameters
    ----------
    unit : Unit
    name : str
        What the command line calls it.
    stimuli : sequence of str, optional
        From :data:`~sim.segments.STIMULI`, or ``"exhaustive"``, all operands; by default those of the generated ones
        that mean anything to the unit.
    seed : int
        From 0 to 2**63 - 1.
    count : int
        How many each stimulus has that is not exhaustive, 2 to 2**20.

    Raises
    ------
    ValueError
        A stimulus that is unknown or has nothing for the unit, a number out of range, more than 2**20 vectors in all.
    """
    if not 0 <= seed < 1 << 63:
        raise ValueError(f"seed must be at least 0 and below 2**63, not {seed}")
    if not 2 <= count <= MAX_VECTORS:
        raise ValueError(f"vectors must be between 2 and {MAX_VECTORS:,}, not {count:,}")
    for stimulus in stimuli or ():
        if stimulus not in (*STIMULI, EXHAUSTIVE):
            raise ValueError(f"stimulus must be one of {', '.join((*STIMULI, EXHAUSTIVE))}, not {stimulus!r}")
    if stimuli and EXHAUSTIVE in stimuli and (total := len(Space(unit))) > MAX_VECTORS:
        raise ValueError(f"at most {MAX_VECTORS:,} vectors are written, but {unit.name} has {total:,} operands in all")
    trace = None
    if stimuli and "captured" in stimuli:
        with capture(unit.format) as trace:
            workloads.digits_step(unit.format, seed)
    names = stimuli or [stimulus for stimulus in GENERATED if has_segment(stimulus, unit, None)]
    for stimulus in names:
        if stimulus != EXHAUSTIVE and not has_segment(stimulus, unit, trace):
            raise ValueError(f"the stimulus {stimulus!r} has nothing for {unit.name}")
    make = functools.partial(make_segment, unit=unit, seed=seed, count=count, trace=trace)
    found = VectorFile(unit, name, seed, [_all(unit) if name == EXHAUSTIVE else make(name) for name in names])
    if len(found) > MAX_VECTORS:
        raise ValueError(f"at most {MAX_VECTORS:,} vectors are written, not {len(found):,}")
    return found


def _all(unit: hdl.Unit) -> Segment:
    """Return all operands that there are."""
    space = Space(unit)
    parts = [space.vectors(begin, end) for begin, end in zip(space.starts, space.starts[1:], strict=False)]
    operands = {name: np.concatenate([part.operands[name] for part in parts]) for name in unit.operands()}
    vectors = Vectors(np.concatenate([part.op for part in parts]), operands)
    return Segment(EXHAUSTIVE, vectors, golden.evaluate(unit, vectors))


# Files ----------------------------------------------------------------------------------------------------------------


def _npz(vectors: VectorFile) -> bytes:
    arrays = {}
    for name, (width, values) in vectors.columns().items():
        arrays[name] = np.array(values, dtype=f"uint{max(8, 1 << (width - 1).bit_length())}")
    names = [segment.stimulus for segment in vectors.segments]
    arrays["stimulus"] = np.repeat(names, [len(segment.vectors) for segment in vectors.segments])
    file = io.BytesIO()
    np.savez_compressed(file, metadata=np.array(json.dumps(vectors.description())), **arrays)
    return file.getvalue()


def _csv(vectors: VectorFile) -> bytes:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    columns = vectors.columns()
    writer.writerow(["stimulus", *columns])
    texts = [[f"0x{value:0{_digits(width)}x}" for value in values] for width, values in columns.values()]
    stimuli = [segment.stimulus for segment in vectors.segments for _ in range(len(segment.vectors))]
    writer.writerows(zip(stimuli, *texts, strict=True))
    return file.getvalue().encode()


def _hex(vectors: VectorFile) -> bytes:
    """For $readmemh: one number a vector, the operands in its low digits, the result above them."""
    widths = [payloads.width(end.payload.shape()) for end in (vectors.unit.i, vectors.unit.o)]
    operands, results = (_digits(width) for width in widths)
    bits = 4 * (operands + results + vectors.sequential)
    lines = [
        *_comments(vectors),
        f"reg [{bits - 1}:0] vectors [0:{len(vectors) - 1}];",
        *_places("operands", vectors.fields[0], 0),
        *_places("expected", vectors.fields[1], 4 * operands),
    ]
    if vectors.sequential:
        lines.append(f"  [{4 * (operands + results)}] whether the operands bring a result")
    text = [f"// {line}" for line in lines]
    for sent, expected, brings in zip(vectors.operands, vectors.results, vectors.brings.tolist(), strict=True):
        text.append(f"{f'{brings}_' if vectors.sequential else ''}{expected:0{results}x}_{sent:0{operands}x}")
    return ("\n".join(text) + "\n").encode()


def _txt(vectors: VectorFile) -> bytes:
    """As TestFloat writes its test cases: operands, result and flags, in hexadecimal, one case a line."""
    texts = [[f"{value:0{_digits(width)}X}" for value in values] for width, values in vectors.columns().values()]
    return "".join(f"{' '.join(row)}\n" for row in zip(*texts, strict=True)).encode()


KINDS: dict[str, Callable[[VectorFile], bytes]] = {".npz": _npz, ".csv": _csv, ".hex": _hex, ".txt": _txt}


def _digits(width: int) -> int:
    return -(-width // 4)


def _comments(vectors: VectorFile) -> list[str]:
    format, unit = vectors.unit.format, vectors.description()
    operations = ", ".join(f"{code} {name}" for code, name in enumerate(unit["operations"]))
    return [
        f"{vectors.name}, {format.name}, adder {format.adder.name}, accumulator {format.accumulator.name}, "
        f"{'infinities and NaN' if format.specials else 'results saturate'}",
        f"operations: {operations}",
        *([f"flags, the lowest bit first: {', '.join(unit['flags'])}"] if unit["flags"] else []),
        f"stimuli: {', '.join(f'{name} {count}' for name, count in unit['stimuli'].items())}; seed {vectors.seed}",
    ]


def _places(what: str, fields: list[Field], above: int) -> list[str]:
    lines = [f"{what}:"]
    for field in fields:
        low = field.offset + above
        lines.append(f"  {f'[{low + field.width - 1}:{low}]' if field.width > 1 else f'[{low}]'} {field.name}")
    return lines
