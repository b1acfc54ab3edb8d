# amaranth: UnusedElaboratable=no
"""What a run has tried: classes of operands and results, distances and table entries of adders, and stalls.

Each is counted in bins. What no vector has reached, though it can be, is a hole. That something can be reached is known
by computing all operations on all words of a small format with the golden model.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from amaranth.hdl import ShapeLike
from amaranth.lib import data

from hdl.convert import FloatLayout
from hdl.layouts import PADDING, FlagsLayout, WordLayout
from hdl.unit import Unit
from xlnstorch.files import check_writable, replacing
from xlnstorch.formats import LNSFormat
from xlnstorch.observe import FLAGS

from . import golden, payloads
from .exhaustive import Space
from .segments import Segment
from .stimulus import is_sum, sum_distances

__all__ = ["STALLS", "Coverage", "Group", "check_file", "merge_file", "read_code", "read_file"]

# A format small enough to try all operands of an operation, large enough that all classes of words are there.
_SMALL = {"int_bits": 3, "frac_bits": 2}
_SMALL_BITS = 14
# Tables with more entries are not counted entry by entry.
_MAX_ENTRIES = 1 << 17

# What a clock can look like at the two ends of a pipeline that moves as a whole; others, of units with buffers, count
# when they are seen.
STALLS = ("idle, nothing", "idle, taken", "idle, waits", "taken, nothing", "taken, taken", "refused, waits")


@dataclasses.dataclass
class Group:
    """Bins of one kind.

    Attributes
    ----------
    hits : Counter of str
        How often each bin was hit.
    possible : set of str
        Bins that can be hit, as far as that is known.
    """

    hits: Counter[str] = dataclasses.field(default_factory=Counter)
    possible: set[str] = dataclasses.field(default_factory=set)

    @property
    def total(self) -> int:
        """How many bins there are: what was hit can be hit."""
        return len(self.possible | set(self.hits))

    @property
    def holes(self) -> list[str]:
        """The bins that were not hit, in order."""
        return sorted(self.possible - set(self.hits))

    def to_json(self) -> dict:
        """Return the group as an object of JSON."""
        return {"hit": len(self.hits), "of": self.total, "holes": self.holes, "hits": dict(sorted(self.hits.items()))}


@dataclasses.dataclass
class Coverage:
    """What was tried of one unit.

    Attributes
    ----------
    unit, format : str
        Name of the unit, and all of its format.
    groups : dict of str to Group
        ``"classes"``: operation, classes of the operands, class of the result, flags. ``"distances"``: of operations
        that add, the distance of the two logarithms, in octaves of units, and whether signs are equal. ``"table"``: the
        entry of the adder's table, or the segment, by the same. ``"stalls"``: what a clock looked like at the two ends.
    """

    unit: str
    format: str
    groups: dict[str, Group] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, name: str, unit: Unit) -> Coverage:
        """Return that of a unit before anything was tried."""
        coverage = cls(name, repr(unit.format), {"classes": Group(possible=_reachable(unit))})
        if any(map(is_sum, unit.operations)):
            coverage.groups["distances"] = Group(possible=set(_buckets(unit.format)))
            if (entries := _entries(unit.format)) is not None:
                coverage.groups["table"] = Group(possible={f"{kind} {e}" for kind in "st" for e in range(len(entries))})
                coverage.groups["table"].possible.discard("t 0" if entries[1] == 1 else "")
        return coverage

    def add(self, unit: Unit, segment: Segment) -> None:
        """Count the vectors of a segment."""
        vectors = segment.vectors
        if vectors.sequence:
            return self._add_sequence(unit, segment)
        for code, operation in enumerate(unit.operations):
            chosen = vectors.op == code
            if not chosen.any():
                continue
            # Captured words are as narrow as they can be.
            operands = {name: bits[chosen].astype(np.int64) for name, bits in vectors.operands.items()}
            results = {name: bits[chosen].astype(np.int64) for name, bits in segment.expected.items()}
            self.groups["classes"].hits.update(_classes(unit, operation, operands, results))
            if is_sum(operation):
                words = {name: operands[name] for name in unit.operands_of(operation)}
                self._add_distances(unit.format, *sum_distances(unit.format, operation, words))
        return None

    def _add_sequence(self, unit: Unit, segment: Segment) -> None:
        results = {
            name: bits.reshape(-1).astype(np.int64)
            for name, bits in segment.expected.items()
            if name in ("word", "flags")
        }
        names = _result_classes(unit.results(), results)
        self.groups["classes"].hits.update(f"{next(iter(unit.operations))}: {name}" for name in names)

    def _add_distances(self, format: LNSFormat, d: np.ndarray, subtract: np.ndarray) -> None:
        bucket = np.minimum(np.ceil(np.log2(d + 1)).astype(int), _octaves(format))
        self.groups["distances"].hits.update(
            _counted(bucket, subtract, lambda bits, minus: _bucket(format, bits, bool(minus)))
        )
        if "table" in self.groups:
            entries = _entries(format)
            inside = d < format.adder.reach(format)
            entry = np.searchsorted(entries, d[inside], side="right") - 1
            nothing = subtract[inside] & (d[inside] == 0)  # of equal numbers nothing is read
            self.groups["table"].hits.update(
                _counted(entry[~nothing], subtract[inside][~nothing], lambda e, minus: f"{'t' if minus else 's'} {e}")
            )

    def add_stalls(self, clocks: Mapping[str, int], known: bool) -> None:
        """Count clocks, by what they looked like at the two ends.

        Parameters
        ----------
        clocks : mapping of str to int
        known : bool
            Whether the unit moves as a whole, so that :data:`STALLS` are those that can be.
        """
        group = self.groups.setdefault("stalls", Group(possible=set(STALLS) if known else set()))
        group.hits.update(clocks)

    def merge(self, other: Coverage) -> None:
        """Add what another run of the same unit has tried."""
        for name, group in other.groups.items():
            own = self.groups.setdefault(name, Group())
            own.hits.update(group.hits)
            own.possible |= group.possible

    def to_json(self) -> dict:
        """Return all of it as an object of JSON."""
        groups = {name: group.to_json() for name, group in self.groups.items()}
        return {"unit": self.unit, "format": self.format, "groups": groups}

    @classmethod
    def from_json(cls, found: Mapping) -> Coverage:
        """Return what :meth:`to_json` was made from."""
        groups = {
            name: Group(Counter(group["hits"]), set(group["holes"]) | set(group["hits"]))
            for name, group in found["groups"].items()
        }
        return cls(found["unit"], found["format"], groups)


def read_code(path: Path) -> dict[str, dict]:
    """Return from Verilator's coverage file, for lines and toggles, how many there are, were hit, and which were not.

    A line is one of the generated Verilog, a toggle a bit of a signal that changes in one direction.
    """
    found = {kind: {"hit": 0, "of": 0, "missed": []} for kind in ("line", "toggle")}
    for entry in path.read_text(errors="replace").splitlines():
        if not entry.startswith("C '"):
            continue
        keys, count = entry[3:].rsplit("' ", 1)
        fields = dict(part.split("\x02", 1) for part in keys.split("\x01") if "\x02" in part)
        kind = next((kind for kind in found if fields.get("page", "").startswith(f"v_{kind}")), None)
        if kind is None:
            continue
        found[kind]["of"] += 1
        if int(count):
            found[kind]["hit"] += 1
        else:
            found[kind]["missed"].append(f"{fields.get('o', '')} at line {fields.get('l', '?')}".strip())
    return found


def check_file(path: Path) -> None:
    """Raise ValueError or OSError if a file cannot be merged with or written, before there is anything to lose."""
    read_file(path)
    check_writable(path)


def merge_file(path: Path, found: Iterable[Coverage]) -> list[Coverage]:
    """Add coverage to that in a file, if there is one, which is replaced; return all of it.

    Raises
    ------
    ValueError
        The file holds something else; it stays as it is.
    OSError
        It cannot be read or written.
    """
    merged = {(each.unit, each.format): each for each in read_file(path)}
    for each in found:
        key = (each.unit, each.format)
        if key in merged:
            merged[key].merge(each)
        else:
            merged[key] = each
    text = json.dumps({"schema": 1, "coverage": [each.to_json() for each in merged.values()]})
    with replacing(path) as file:
        file.write_text(text + "\n")
    return list(merged.values())


def read_file(path: Path) -> list[Coverage]:
    """Return the coverage in a file; none if it does not exist."""
    if not path.exists():
        return []
    try:
        found = json.loads(path.read_text())
        if found["schema"] != 1:
            raise ValueError(f"its schema is {found['schema']}, not 1")
        return [Coverage.from_json(each) for each in found["coverage"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{str(path)!r} is not a file of lns verify --coverage: {error}") from None


# Classes --------------------------------------------------------------------------------------------------------------


def _classes(
    unit: Unit, operation: str, operands: Mapping[str, np.ndarray], results: Mapping[str, np.ndarray]
) -> Counter[str]:
    """Count operation, classes of operands, class of the result, and flags."""
    names = []
    for name, layout in unit.operands_of(operation).items():
        bits = operands[name] & ((1 << payloads.width(layout)) - 1)
        names.append(_class_of(layout, bits))
    # As the operation fills the payload: its results may share one field of the unit.
    layouts, rows = unit.results_of(operation), payloads.to_rows(unit.o.payload.shape(), results, len(names[0]))
    columns = payloads.from_rows(data.StructLayout(layouts), rows)
    columns.pop(PADDING, None)
    outcome = _result_classes(layouts, columns)
    given = (", ".join(each) for each in zip(*names, strict=True))
    return Counter(f"{operation}: {taken} -> {got}" for taken, got in zip(given, outcome, strict=True))


def _result_classes(layouts: Mapping[str, ShapeLike], columns: Mapping[str, np.ndarray]) -> list[str]:
    names = [_class_of(layouts[name], bits, name) for name, bits in columns.items()]
    return [", ".join(filter(None, each)) for each in zip(*names, strict=True)]


def _class_of(layout: ShapeLike, bits: np.ndarray, name: str = "") -> list[str]:
    """Return the name of each value's class."""
    layout = payloads.element(layout)
    if isinstance(layout, WordLayout):
        return _word_classes(layout.word_format, bits)
    if isinstance(layout, FlagsLayout):
        sets = [" and ".join(payloads.show(layout, value)) for value in range(1 << len(FLAGS))]
        return [sets[value] for value in bits]
    if payloads.width(layout) == 1:
        return [name if value else "" for value in bits]
    values = payloads.tensor(layout, bits).double().numpy()
    kinds = np.select([np.isnan(values), values == 0, np.isinf(values)], ["NaN", "zero", "infinity"], "finite")
    if isinstance(layout, FloatLayout):
        signs = np.where(np.isnan(values), "", np.where(np.signbit(values), "-", "+"))
    else:
        signs = np.where(values == 0, "", np.where(values < 0, "-", "+"))
    return [f"{sign}{kind}" for sign, kind in zip(signs, kinds, strict=True)]


def _word_classes(format: LNSFormat, bits: np.ndarray) -> list[str]:
    sign, field = bits >> format.log_bits & 1, bits & format.max_field
    one, top = format.bias, format.max_finite_field
    conditions = [field == 0, field > top, field == 1, field == top, field == one, field < one]
    kinds = np.select(conditions, ["zero", "infinity", "smallest", "largest", "one", "below one"], "above one")
    signs = np.where(kinds == "zero", "", np.where(sign == 1, "-", "+"))
    if format.specials:
        nan = (field == 0) & (sign == 1)
        kinds = np.where(nan, "NaN", kinds)
    return [f"{sign}{kind}" for sign, kind in zip(signs, kinds, strict=True)]


def _reachable(unit: Unit) -> set[str]:
    """Return which classes can come together, by trying all of a small format; none where that is not possible."""
    small = LNSFormat(**_SMALL, specials=unit.format.specials)
    try:
        # What a unit was made with besides its format changes no class.
        other = type(unit)(format=small)
        space = Space(other)
    except (TypeError, ValueError):
        return set()
    found = set()
    for code, operation in enumerate(other.operations):
        first, end = space.starts[code], space.starts[code + 1]
        if end - first > 1 << _SMALL_BITS or operation not in unit.operations or not _scales(other, operation):
            continue
        for begin, until in space.chunks(first, end):
            vectors = space.vectors(begin, until)
            found |= set(_classes(other, operation, vectors.operands, golden.evaluate(other, vectors)))
    return found


def _scales(unit: Unit, operation: str) -> bool:
    """Whether an operation has only words, flags and truth values, whose classes are the same in each format."""
    layouts = [layout for name, layout in unit.results_of(operation).items() if name != PADDING]
    return all(
        isinstance(layout, WordLayout | FlagsLayout) or payloads.width(layout) == 1
        for layout in (*unit.operands_of(operation).values(), *layouts)
    )


# Distances ------------------------------------------------------------------------------------------------------------


def _octaves(format: LNSFormat) -> int:
    """Return how many bits a distance within the reach has, and one more for those beyond it."""
    return (format.adder.reach(format) - 1).bit_length() + 1


def _bucket(format: LNSFormat, bits: int, subtract: bool) -> str:
    signs = "opposite signs" if subtract else "same sign"
    if bits == _octaves(format):
        return f"beyond, {signs}"
    return f"{(1 << bits) >> 1}, {signs}" if bits < 2 else f"{1 << (bits - 1)} to {(1 << bits) - 1}, {signs}"


def _buckets(format: LNSFormat) -> list[str]:
    return [_bucket(format, bits, subtract) for bits in range(_octaves(format) + 1) for subtract in (False, True)]


@functools.lru_cache(maxsize=16)
def _entries(format: LNSFormat) -> np.ndarray | None:
    """Return the first distance of each entry of the adder's table, or of each segment; None for too many."""
    reach = format.adder.reach(format)
    corners = sorted({0, *(corner for corner in format.adder.corners(format) if 0 <= corner < reach)})
    if len(corners) > 1:
        return np.array(corners) if len(corners) <= _MAX_ENTRIES else None
    return np.arange(reach) if reach <= _MAX_ENTRIES else None


def _counted(first: np.ndarray, second: np.ndarray, name) -> dict[str, int]:
    pairs, counts = np.unique(np.stack([first, second]), axis=1, return_counts=True)
    return {name(*map(int, pair)): int(count) for pair, count in zip(pairs.T, counts, strict=True)}
