"""Sequences of payloads, for units of which not each payload brings a result: which ones make up which."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable

import numpy as np

from hdl.dot import DotProduct
from hdl.matvec import MatrixVector
from hdl.sums import SumUnit
from hdl.unit import Unit
from xlnstorch.formats import LNSFormat

from .values import corner_words, random_distances, words

__all__ = ["TERMS", "Sequence", "is_sequential", "sequence"]

_LONGEST = 16  # beats of a vector
_LOADS = 1 / 8  # share of the payloads that change a matrix

Factors = np.ndarray  # of shape (2, n), int64: words


@dataclasses.dataclass(frozen=True)
class Sequence:
    """Payloads in the order in which they are sent, and which of them make up which result.

    Attributes
    ----------
    op : ndarray of int64, of shape ``(n,)``
    operands : dict of str to ndarray of int64, of shape ``(n, …)``
        As of :class:`~sim.stimulus.Vectors`.
    terms : tuple of ndarray of int64, of shape ``(n, …, terms)``
        Words that each payload adds to the operands of the golden function; those of all payloads of a result come
        behind each other in the last dimension.
    groups : list of ndarray of int64
        For each result, in their order, the indices of the payloads that it is made of; the last of them brings it.
    waits : bool
        Whether the unit may make payloads of this order wait, so that it does not take one a clock.
    """

    op: np.ndarray
    operands: dict[str, np.ndarray]
    terms: tuple[np.ndarray, ...]
    groups: list[np.ndarray]
    waits: bool


@functools.singledispatch
def sequence(unit: Unit, name: str, rng: np.random.Generator, count: int) -> Sequence:
    """Return a sequence of at least `count` payloads. Packages with such units register theirs.

    Parameters
    ----------
    unit : Unit
    name : str
        A key of :data:`TERMS`. In the stimulus ``"random"`` channels are in random order, otherwise in one that the
        unit takes at its full rate, if there is such.
    rng : Generator
    count : int
    """
    raise NotImplementedError(f"of {unit.name} each payload brings a result")


def is_sequential(unit: Unit) -> bool:
    """Whether a unit needs a sequence, since not each payload brings a result."""
    return sequence.dispatch(type(unit)) is not sequence.dispatch(Unit)


@sequence.register
def _(unit: DotProduct, name: str, rng: np.random.Generator, count: int) -> Sequence:
    rounds = -(-count // unit.channels)
    control, groups, waits = _beats(unit, name, rng, rounds)
    total, lanes = rounds * unit.channels, unit.lanes
    # The terms of one result are in the order of their generation.
    a, b = np.empty((2, total, lanes), dtype=np.int64)
    a[np.concatenate(groups)], b[np.concatenate(groups)] = TERMS[name](unit.format, rng, total * lanes).reshape(
        2, total, lanes
    )
    return Sequence(np.zeros(total, dtype=np.int64), {"a": a, "b": b, **control}, (a, b), groups, waits)


@sequence.register
def _(unit: MatrixVector, name: str, rng: np.random.Generator, count: int) -> Sequence:
    """Load the whole matrix, which a reset does not clear, and then tiles of it in between."""
    rounds = -(-count // unit.channels)
    beats, groups, waits = _beats(unit, name, rng, rounds)
    whole, total = unit.rows * unit.tiles, rounds * unit.channels
    loads = np.insert(np.zeros(total, dtype=bool), rng.integers(0, total, int(total * _LOADS)), True)
    loads = np.concatenate([np.ones(whole, dtype=bool), loads])
    places = np.flatnonzero(~loads)
    size = len(loads)
    control = {
        "tile": rng.integers(0, unit.tiles, size),
        "row": rng.integers(0, 1 << (unit.rows - 1).bit_length(), size),
        "channel": rng.integers(0, unit.channels, size),
        "last": rng.integers(0, 2, size),
    }
    control["row"][:whole], control["tile"][:whole] = np.divmod(np.arange(whole), unit.tiles)
    for key, values in beats.items():
        control[key][places] = values
    moving, still = TERMS[name](unit.format, rng, size * unit.lanes).reshape(2, size, unit.lanes)
    x = np.where(loads[:, None], still, moving)
    matrix = np.zeros((unit.rows, unit.tiles, unit.lanes), dtype=np.int64)
    weights = np.empty((size, unit.rows, unit.lanes), dtype=np.int64)
    for index, (load, row, tile) in enumerate(zip(loads, control["row"], control["tile"], strict=True)):
        if load and row < unit.rows:
            matrix[row, tile] = x[index]
        weights[index] = matrix[:, tile]
    op = np.where(loads, *(list(unit.operations).index(name) for name in ("load", "multiply")))
    return Sequence(op, {"x": x, **control}, (weights, x), [places[group] for group in groups], waits)


def _beats(
    unit: SumUnit, name: str, rng: np.random.Generator, rounds: int
) -> tuple[dict[str, np.ndarray], list[np.ndarray], bool]:
    """Return the operands ``channel`` and ``last`` of so many beats in each channel, the groups, and whether it waits.

    Vectors are as long as the unit can have them, but at most 16 beats.
    """
    channels = unit.channels
    channel = np.tile(np.arange(channels), rounds)
    in_turn = name != "random"
    if not in_turn:
        channel = rng.permutation(channel)
    last = np.zeros(len(channel), dtype=np.int64)
    groups = []
    for places in np.argsort(channel, kind="stable").reshape(channels, rounds):
        lengths = rng.integers(1, min(_LONGEST, unit.beats or _LONGEST), rounds, endpoint=True)
        ends = itertools.takewhile(lambda end: end < rounds, np.cumsum(lengths).tolist())
        groups += np.split(places, list(ends))
    groups.sort(key=lambda places: places[-1])
    last[[places[-1] for places in groups]] = 1
    return {"channel": channel, "last": last}, groups, unit.sums.spacing > (channels if in_turn else 1)


# Factors: the product of any of the first with any of the second is as it should be ---------------------------------


def _corners(format: LNSFormat, rng: np.random.Generator, count: int) -> Factors:
    return rng.choice(corner_words(format), (2, count))


def _random(format: LNSFormat, rng: np.random.Generator, count: int) -> Factors:
    """Products of about the size of one, so that each of them counts in a sum, and a few of any size."""
    near = format.bias + np.stack([random_distances(format, rng, count) // 2 for _ in range(2)])
    field = np.where(rng.random((2, count)) < 1 / 16, rng.integers(0, format.max_field + 1, (2, count)), near)
    return words(format, rng.integers(0, 2, (2, count)), field)


def _near_cancelling(format: LNSFormat, rng: np.random.Generator, count: int) -> Factors:
    """Every other product nearly cancels the one before it."""
    field, sign = rng.integers(1, format.max_field + 1, (2, count)), rng.integers(0, 2, (2, count))
    pairs = count // 2
    field[:, 1 : 2 * pairs : 2], sign[:, 1 : 2 * pairs : 2] = field[:, : 2 * pairs : 2], sign[:, : 2 * pairs : 2]
    field[0, 1 : 2 * pairs : 2] += random_distances(format, rng, pairs)
    sign[0, 1 : 2 * pairs : 2] ^= 1
    return words(format, sign, field)


def _saturating(format: LNSFormat, rng: np.random.Generator, count: int) -> Factors:
    """Products near either end of the range, so that they, or sums of them, leave it, or near one."""
    end = np.where(rng.integers(0, 2, count), format.max_field, 1)
    distances = np.stack([random_distances(format, rng, count) // 8 for _ in range(2)])
    return words(format, rng.integers(0, 2, (2, count)), (end + format.bias) // 2 + distances)


#: The generators of the factors of products, by the names that the command line gives them.
TERMS: dict[str, Callable[[LNSFormat, np.random.Generator, int], Factors]] = {
    "corners": _corners,
    "random": _random,
    "near-cancelling": _near_cancelling,
    "saturation": _saturating,
}
