"""Stimulus: which operands a unit is tried on. Every generator is seeded."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable

import numpy as np
import torch

from hdl.convert import FixedLayout, FloatLayout
from hdl.layouts import WordLayout
from hdl.unit import Unit
from xlnstorch.formats import LNSFormat

from .payloads import dimensions, element, width
from .sequences import TERMS, Sequence, is_sequential, sequence
from .values import corner_values, midpoints, neighbours, random_distances, random_values, words

__all__ = [
    "GENERATED",
    "Vectors",
    "adder_distances",
    "applies",
    "corner_distances",
    "generate",
    "is_sum",
    "sum_distances",
]

# Up to so many fraction bits `table` tries every distance: at 10 the exact adder has 11,806, in eight ways each.
_EXHAUSTIVE_FRAC_BITS = 10
# More combinations of corners than these, as of three operands, are too many to try all.
_MAX_CORNERS = 4096

# Operations that add two words, and whether they negate the second; of those in _FUSED the first is a product.
_SUMS = {"add": False, "sub": True, "mac": False, "mul_add": False}
_FUSED = ("mac", "mul_add")

Columns = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Vectors:
    """Operands of a unit, in the order in which they are sent.

    Attributes
    ----------
    op : ndarray of int64, of shape ``(n,)``
        Index into the unit's operations.
    operands : dict of str to ndarray of int64, of shape ``(n, …)``
        The bits of each operand, as non-negative integers, in the order of the unit's operands; those of an array have
        a dimension more.
    sequence : Sequence, optional
        Which of them bring results; by default each does.
    """

    op: np.ndarray
    operands: dict[str, np.ndarray]
    sequence: Sequence | None = None

    def __len__(self) -> int:
        return len(self.op)

    def fields(self, unit: Unit) -> Columns:
        """Return the fields of the payloads: the operands, and the opcode if the unit has several."""
        return {**self.operands, **({"op": self.op} if len(unit.operations) > 1 else {})}


def corner_distances(format: LNSFormat) -> list[int]:
    """Return the distances of two logarithms at which an adder may change.

    The first 64, and up to two units from each power of two, each whole octave within the adder's reach, the reach
    itself and the largest distance. Those that the adder names are not among them.
    """
    step, reach, end = 1 << format.frac_bits, format.adder.reach(format), format.max_finite_field
    places = [*(1 << bit for bit in range(format.log_bits)), *range(0, reach + step, step), reach, end - 1]
    distances = {*range(64), *(place + offset for place in places for offset in range(-2, 3))}
    return sorted(distance for distance in distances if 0 <= distance < end)


def adder_distances(format: LNSFormat) -> list[int]:
    """Return the corners that the adder names, and their neighbours."""
    distances = {corner + offset for corner in format.adder.corners(format) for offset in (-1, 0, 1)}
    return sorted(distance for distance in distances if 0 <= distance < format.max_finite_field)


def is_sum(operation: str) -> bool:
    """Whether an operation adds two words, or a word and a product."""
    return operation in _SUMS


def sum_distances(format: LNSFormat, operation: str, operands: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Return the distances of the logarithms that an operation adds, and where it subtracts one from the other.

    Only of numbers: where a term is zero, infinite or NaN nothing is added.
    """
    (sign_a, field_a), (sign_b, field_b), *more = (
        (bits >> format.log_bits & 1, bits & format.max_field) for bits in operands.values()
    )
    top = format.max_finite_field
    added = (field_a != 0) & (field_b != 0) & (field_a <= top) & (field_b <= top)
    if operation in _FUSED:
        product, sign = field_a + field_b - format.bias, sign_a ^ sign_b
        added &= (product >= 1) & (product <= top)
        (field_a, sign_a), ((sign_b, field_b), *_) = (product, sign), more
        added &= (field_b != 0) & (field_b <= top)
    subtract = (sign_a != sign_b) != _SUMS[operation]
    return np.abs(field_a - field_b)[added], subtract[added]


def _corners(unit: Unit, operation: str, rng: np.random.Generator, count: int) -> Columns:
    """All combinations of the corners of what an operation uses, or `count` of them if they are too many."""
    layouts = unit.operands_of(operation)
    # Of 64 bits they are unsigned, and their bits as signed integers wanted.
    corners = [np.array(corner_values(each, unit.format), np.uint64).astype(np.int64) for each in layouts.values()]
    if math.prod(map(len, corners)) <= _MAX_CORNERS and not any(map(dimensions, layouts.values())):
        chosen = [column.reshape(-1) for column in np.meshgrid(*corners, indexing="ij")]
        count = len(chosen[0])
    else:
        chosen = [
            rng.choice(values, (count, *dimensions(layout)))
            for values, layout in zip(corners, layouts.values(), strict=True)
        ]
    columns = _random(unit, operation, rng, count)
    for (name, layout), values in zip(layouts.items(), chosen, strict=True):
        above = -1 << width(element(layout)) if width(element(layout)) < 64 else 0
        columns[name] = columns[name] & above | values
    return columns


def _random(unit: Unit, operation: str, rng: np.random.Generator, count: int) -> Columns:
    """Random operands of all kinds: words with uniform logarithms and both signs."""
    return {name: random_values(layout, unit.format, rng, count) for name, layout in unit.operands().items()}


def _near_cancelling(unit: Unit, operation: str, rng: np.random.Generator, count: int) -> Columns:
    """Results near zero or one: sums of nearly opposite words, products of nearly reciprocal ones, else equal ones."""
    format = _format(unit, operation)
    sign_a, sign_b = rng.integers(0, 2, (2, count))
    field_a = rng.integers(1, format.max_field + 1, count)
    distance = random_distances(format, rng, count)
    if operation in _SUMS:
        field_b, sign_b = field_a + distance, sign_a if _SUMS[operation] else 1 - sign_a
    elif operation == "mul":
        field_b = 2 * format.bias - field_a + distance
    else:
        field_b = field_a + distance
    return _place(unit, operation, rng, words(format, sign_a, field_a), words(format, sign_b, field_b))


def _table(unit: Unit, operation: str, rng: np.random.Generator, count: int) -> Columns:
    """Distances from zero to a little beyond the reach, all or a choice of them, with both signs in both orders."""
    format = _format(unit, operation)
    end = min(format.adder.reach(format) + 2, format.max_finite_field)
    if format.frac_bits <= _EXHAUSTIVE_FRAC_BITS:
        distances = np.arange(end)
    else:
        corners = corner_distances(format)
        room = max(0, count // 4 - len(corners))
        # An adder may have ten thousands of segments: at most three quarters of the room are for them.
        own = rng.permutation(adder_distances(format))[: room * 3 // 4].astype(np.int64)
        more = room - len(own)
        uniform, log_uniform = (
            rng.integers(0, end, more // 2),
            np.abs(random_distances(format, rng, more - more // 2)),
        )
        distances = np.concatenate([corners, own, uniform, np.minimum(log_uniform, end - 1)])
    distance, same_sign, swapped = (x.reshape(-1) for x in np.meshgrid(distances, (0, 1), (0, 1), indexing="ij"))
    smaller = rng.integers(1, format.max_finite_field + 1 - distance)
    # Results outside the range are all alike, whatever the logarithm, so they are brought inside where there is room.
    subtract = (same_sign == 1) == _SUMS[operation]
    change = format.adder.gaussian(format, torch.from_numpy(distance), torch.from_numpy(subtract)).numpy()
    low, high = np.maximum(1, 1 - distance - change), format.max_finite_field - distance - np.maximum(0, change)
    smaller = np.where(low <= high, np.clip(smaller, low, high), smaller)
    sign = rng.integers(0, 2, len(distance))
    near = words(format, sign, smaller + distance)
    far = words(format, np.where(same_sign, sign, 1 - sign), smaller)
    return _place(unit, operation, rng, np.where(swapped, far, near), np.where(swapped, near, far))


def _saturating(unit: Unit, operation: str, rng: np.random.Generator, count: int) -> Columns:
    """Results within a few units of either end of the range, on both sides of it."""
    format = _format(unit, operation)
    sign_a, sign_b = rng.integers(0, 2, (2, count))
    distance, high = random_distances(format, rng, count) // 4, rng.integers(0, 2, count).astype(bool)
    target = np.where(high, format.max_field, 1) + distance
    field_a = rng.integers(1, format.max_field + 1, count)
    field_b = rng.integers(1, format.max_field + 1, count)
    if operation == "mul":
        field_b = target + format.bias - field_a
    elif operation == "div":
        field_b = field_a + format.bias - target
    elif operation == "square":
        field_a = (target + format.bias) // 2
    else:
        step = 1 << format.frac_bits
        field_a = np.where(high, format.max_field - rng.integers(0, 2 * step, count), rng.integers(1, 4 * step, count))
        field_b = field_a + distance
        # Sums overflow, differences underflow.
        same = ~high if _SUMS[operation] else high
        sign_b = np.where(same, sign_a, 1 - sign_a)
    return _place(unit, operation, rng, words(format, sign_a, field_a), words(format, sign_b, field_b))


def _format(unit: Unit, operation: str) -> LNSFormat:
    """Return the format of the words that an operation adds, or whatever it does with two words."""
    words = _word_operands(unit)
    return words[list(words)[2 if operation in _FUSED else 0]].word_format


def _rounding(unit: Unit, operation: str, rng: np.random.Generator, count: int) -> Columns:
    """Operands of a conversion within two units of those numbers at which its result changes."""
    ((name, operand),) = unit.operands().items()
    result = next(iter(unit.results().values()))
    return {name: neighbours(operand, midpoints(result, unit.format, rng, count), rng)}


def _place(unit: Unit, operation: str, rng: np.random.Generator, first: np.ndarray, second: np.ndarray) -> Columns:
    """Return operands of which these two are those of :func:`_format`."""
    columns = _random(unit, operation, rng, len(first))
    words = [first, second]
    if operation in _FUSED:
        words = _fused(unit.format, _format(unit, operation), rng, first, second)
    return {**columns, **dict(zip(_word_operands(unit), words, strict=False))}


def _fused(format: LNSFormat, wide: LNSFormat, rng: np.random.Generator, first: np.ndarray, second: np.ndarray):
    """Return two words of `format`, and one of `wide`, as far from their product as `second` is from `first`."""
    guard_bits = wide.frac_bits - format.frac_bits
    field = np.maximum(1, (first & wide.max_field) >> guard_bits)
    lost = (first & wide.max_field) - (field << guard_bits)
    most = format.max_finite_field
    low, high = np.maximum(1, field + format.bias - most), np.minimum(most, field + format.bias - 1)
    field_b = rng.integers(low, np.maximum(low, high) + 1)
    sign, sign_b = first >> wide.log_bits, rng.integers(0, 2, len(first))
    a = words(format, sign ^ sign_b, field + format.bias - field_b)
    c = words(wide, second >> wide.log_bits, (second & wide.max_field) - lost)
    return a, words(format, sign_b, field_b), c


def _word_operands(unit: Unit) -> dict[str, WordLayout]:
    return {name: layout for name, layout in unit.operands().items() if isinstance(layout, WordLayout)}


#: The generators by the names that the command line gives them.
GENERATED: dict[str, Callable[[Unit, str, np.random.Generator, int], Columns]] = {
    "corners": _corners,
    "random": _random,
    "table": _table,
    "near-cancelling": _near_cancelling,
    "saturation": _saturating,
    "rounding": _rounding,
}

#: Those with a number of vectors of their own. Above 10 fraction bits `table` fills its corners up to `count`.
EXHAUSTIVE = ("corners", "table")


def _has(name: str, unit: Unit, operation: str) -> bool:
    if is_sequential(unit):
        return name in TERMS
    count = len(_word_operands(unit))
    if name == "table":
        return count >= 2 and operation in _SUMS
    if name == "near-cancelling":
        return count >= 2
    if name == "saturation":
        return count >= 1 and operation in (*_SUMS, "mul", "div", "square")
    if name == "rounding":
        ends = (*unit.operands().values(), next(iter(unit.results().values())))
        return len(ends) == 2 and any(isinstance(end, FixedLayout | FloatLayout) for end in ends)
    return True


def applies(name: str, unit: Unit) -> bool:
    """Whether a stimulus means anything to a unit: a multiplier has no table of Gaussian logarithms."""
    return any(_has(name, unit, operation) for operation in unit.operations)


def generate(name: str, unit: Unit, *, seed: int, count: int) -> Vectors:
    """Return the vectors of one generator for a unit.

    Parameters
    ----------
    name : str
        One of :data:`GENERATED`.
    unit : Unit
        Those of its operations to which the stimulus means anything share the vectors evenly.
    seed : int
        Non-negative. The same seed gives the same vectors, whatever else is generated.
    count : int
        How many, at least one for each operation; those of :data:`EXHAUSTIVE` have a number of their own.

    Raises
    ------
    ValueError
        There is no such generator, or it has nothing for the unit.
    """
    if name not in GENERATED:
        raise ValueError(f"stimulus must be one of {', '.join(GENERATED)}, not {name!r}")
    if not applies(name, unit):
        raise ValueError(f"the stimulus {name!r} has nothing for {unit.name}")
    rng = np.random.default_rng([seed, zlib.crc32(f"{name} {unit.name}".encode())])
    if is_sequential(unit):
        made = sequence(unit, name, rng, count)
        return Vectors(made.op, made.operands, made)
    operations = [(op, key) for op, key in enumerate(unit.operations) if _has(name, unit, key)]
    parts = [(op, GENERATED[name](unit, key, rng, -(-count // len(operations)))) for op, key in operations]
    columns = {operand: np.concatenate([part[operand] for _, part in parts]) for operand in unit.operands()}
    op = np.concatenate([np.full(len(next(iter(part.values()))), op, dtype=np.int64) for op, part in parts])
    order = rng.permutation(len(op))
    if name not in EXHAUSTIVE:
        order = order[:count]
    return Vectors(op[order], {operand: values[order] for operand, values in columns.items()})
