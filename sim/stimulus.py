"""Stimulus: which words a unit is tried on. Every generator is seeded and makes words of one format."""

from __future__ import annotations

import dataclasses
import itertools
import zlib
from collections.abc import Callable

import numpy as np
import torch

from hdl.unit import Unit
from xlnstorch.formats import LNSFormat

__all__ = ["GENERATED", "Vectors", "adder_distances", "applies", "corner_distances", "corner_words", "generate"]

# Up to so many fraction bits `table` tries every distance: at 10 the exact adder has 11,806, in eight ways each.
_EXHAUSTIVE_FRAC_BITS = 10


@dataclasses.dataclass(frozen=True)
class Vectors:
    """Operands of a unit, in the order in which they are sent.

    Attributes
    ----------
    op : ndarray of int64
        Index into the unit's operations.
    a, b : ndarray of int64
        Words, as non-negative integers.
    """

    op: np.ndarray
    a: np.ndarray
    b: np.ndarray

    def __len__(self) -> int:
        return len(self.op)


def corner_words(format: LNSFormat) -> list[int]:
    """Return the words at which something changes: both zeros, ends of the range, one, the adder's reach."""
    one, top, step = format.bias, format.max_field, 1 << format.frac_bits
    reach = format.adder.reach(format)
    near = [0, 1, 2, step, one - step, one - 1, one, one + 1, one + step, top - step, top - 1, top]
    far = [one - reach, one - reach + 1, one + reach - 1, one + reach, one // 2, one + one // 2, top // 3]
    fields = sorted({field for field in near + far if 0 <= field <= top})
    return [(sign << format.log_bits) | field for field in fields for sign in (0, 1)]


def corner_distances(format: LNSFormat) -> list[int]:
    """Return the distances of two logarithms at which an adder may change.

    The first 64, and up to two units from each power of two, each whole octave within the adder's reach, the reach
    itself and the largest distance. Those that the adder names are not among them.
    """
    step, reach, end = 1 << format.frac_bits, format.adder.reach(format), format.max_field
    places = [*(1 << bit for bit in range(format.log_bits)), *range(0, reach + step, step), reach, end - 1]
    distances = {*range(64), *(place + offset for place in places for offset in range(-2, 3))}
    return sorted(distance for distance in distances if 0 <= distance < end)


def adder_distances(format: LNSFormat) -> list[int]:
    """Return the corners that the adder names, and their neighbours."""
    distances = {corner + offset for corner in format.adder.corners(format) for offset in (-1, 0, 1)}
    return sorted(distance for distance in distances if 0 <= distance < format.max_field)


def _corners(format: LNSFormat, operation: str, rng: np.random.Generator, count: int):
    pairs = np.array(list(itertools.product(corner_words(format), repeat=2)), dtype=np.int64)
    return pairs[:, 0], pairs[:, 1]


def _random(format: LNSFormat, operation: str, rng: np.random.Generator, count: int):
    """Uniform over all words: uniform logarithms, both signs."""
    return rng.integers(0, 1 << format.width, (2, count))


def _distances(format: LNSFormat, rng: np.random.Generator, count: int):
    """Signed distances, log-uniform from zero to a little beyond the reach of the Gaussian logarithms."""
    octaves = np.log2(format.adder.reach(format)) + 0.5
    return (np.exp2(rng.uniform(0, octaves, count)).astype(np.int64) - 1) * rng.choice((-1, 1), count)


def _near_cancelling(format: LNSFormat, operation: str, rng: np.random.Generator, count: int):
    """Terms that nearly cancel: for a sum nearly opposite values, for a product nearly reciprocal ones."""
    sign_a, field_a = rng.integers(0, 2, count), rng.integers(1, format.max_field + 1, count)
    distance = _distances(format, rng, count)
    if operation == "mul":
        field_b, sign_b = 2 * format.bias - field_a + distance, rng.integers(0, 2, count)
    else:
        field_b, sign_b = field_a + distance, sign_a if operation == "sub" else 1 - sign_a
    return _words(format, sign_a, field_a), _words(format, sign_b, field_b)


def _table(format: LNSFormat, operation: str, rng: np.random.Generator, count: int):
    """Distances from zero to a little beyond the reach, all or a choice of them, with both signs in both orders."""
    end = min(format.adder.reach(format) + 2, format.max_field)
    if format.frac_bits <= _EXHAUSTIVE_FRAC_BITS:
        distances = np.arange(end)
    else:
        corners = corner_distances(format)
        room = max(0, count // 4 - len(corners))
        # An adder may have ten thousands of segments: at most three quarters of the room are for them.
        own = rng.permutation(adder_distances(format))[: room * 3 // 4].astype(np.int64)
        more = room - len(own)
        uniform, log_uniform = rng.integers(0, end, more // 2), np.abs(_distances(format, rng, more - more // 2))
        distances = np.concatenate([corners, own, uniform, np.minimum(log_uniform, end - 1)])
    distance, same_sign, swapped = (x.reshape(-1) for x in np.meshgrid(distances, (0, 1), (0, 1), indexing="ij"))
    smaller = rng.integers(1, format.max_field + 1 - distance)
    # Results outside the range are all alike, whatever the logarithm, so they are brought inside where there is room.
    subtract = (same_sign == 1) == (operation == "sub")
    change = format.adder.gaussian(format, torch.from_numpy(distance), torch.from_numpy(subtract)).numpy()
    low, high = np.maximum(1, 1 - distance - change), format.max_field - distance - np.maximum(0, change)
    smaller = np.where(low <= high, np.clip(smaller, low, high), smaller)
    sign = rng.integers(0, 2, len(distance))
    near = _words(format, sign, smaller + distance)
    far = _words(format, np.where(same_sign, sign, 1 - sign), smaller)
    return np.where(swapped, far, near), np.where(swapped, near, far)


def _saturating(format: LNSFormat, operation: str, rng: np.random.Generator, count: int):
    """Results within a few units of either end of the range, on both sides of it."""
    sign_a, sign_b = rng.integers(0, 2, (2, count))
    distance, high = _distances(format, rng, count) // 4, rng.integers(0, 2, count).astype(bool)
    if operation == "mul":
        field_a = rng.integers(1, format.max_field + 1, count)
        field_b = np.where(high, format.max_field, 1) + format.bias - field_a + distance
    else:
        step = 1 << format.frac_bits
        field_a = np.where(high, format.max_field - rng.integers(0, 2 * step, count), rng.integers(1, 4 * step, count))
        field_b = field_a + distance
        # Sums overflow, differences underflow.
        same = high if operation == "add" else ~high
        sign_b = np.where(same, sign_a, 1 - sign_a)
    return _words(format, sign_a, field_a), _words(format, sign_b, field_b)


def _words(format: LNSFormat, sign: np.ndarray, field: np.ndarray) -> np.ndarray:
    return (sign.astype(np.int64) << format.log_bits) | np.clip(field, 0, format.max_field)


#: The generators by the names that the command line gives them.
GENERATED: dict[str, Callable] = {
    "corners": _corners,
    "random": _random,
    "table": _table,
    "near-cancelling": _near_cancelling,
    "saturation": _saturating,
}

#: Those with a number of vectors of their own. Above 10 fraction bits `table` fills its corners up to `count`.
EXHAUSTIVE = ("corners", "table")


def applies(name: str, unit: type[Unit]) -> bool:
    """Whether a stimulus means anything to a unit: a multiplier has no table of Gaussian logarithms."""
    return name != "table" or "add" in unit.operations


def generate(name: str, unit: type[Unit], format: LNSFormat, *, seed: int, count: int) -> Vectors:
    """Return the vectors of one generator for a unit.

    Parameters
    ----------
    name : str
        One of :data:`GENERATED`.
    unit : type of Unit
        Its operations share the vectors evenly.
    format : LNSFormat
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
    share = -(-count // len(unit.operations))
    parts = []
    for op, operation in enumerate(unit.operations):
        a, b = GENERATED[name](format, operation, rng, share)
        parts.append((np.full(len(a), op, dtype=np.int64), a, b))
    op, a, b = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = rng.permutation(len(op))
    if name not in EXHAUSTIVE:
        order = order[:count]
    return Vectors(op[order], a[order], b[order])
