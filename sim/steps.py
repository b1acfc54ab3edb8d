"""Every step of a sum: in each adder each product added to each, for units that sum any number of payloads.

How long a vector may be has no end, but what its sum is made of has: an addition takes a running sum, a word with the
flags raised so far, and a product, a word with its flags. So vectors of one beat are enough to multiply any two words
at each place, and vectors of one or two, of zeros but for two places, to bring any two products to each adder.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np

from hdl.dot import DotProduct
from hdl.layouts import WordLayout
from hdl.matvec import MatrixVector
from hdl.sums import SumUnit
from hdl.unit import Unit
from xlnstorch.observe import FLAGS

from . import golden, payloads
from .segments import Segment
from .sequences import Sequence
from .stimulus import Vectors

__all__ = ["check_steps", "make_steps"]

#: The most vectors there may be.
MAX_VECTORS = 1 << 20


def check_steps(unit: SumUnit) -> None:
    """Raise ValueError if the steps of a unit are not known, or too many to try all."""
    if _steps.dispatch(type(unit)) is _steps.dispatch(Unit):
        raise ValueError(f"the steps of {unit.name} are not known, so no stimulus of it is exhaustive")
    bits = 2 * unit.format.width
    if unit.lanes << bits > MAX_VECTORS:
        raise ValueError(
            f"exhaustive takes at most 2**{MAX_VECTORS.bit_length() - 1} vectors of a unit that sums, but {unit.name} "
            f"has {unit.lanes} * 2**{bits} steps"
        )


def make_steps(name: str, unit: SumUnit) -> Segment:
    """Return all steps of a unit with what the golden model expects, as a stimulus of that name."""
    check_steps(unit)
    made = _steps(unit)
    vectors = Vectors(made.op, made.operands, made)
    return Segment(name, vectors, golden.evaluate(unit, vectors))


@functools.singledispatch
def _steps(unit: Unit) -> Sequence:
    raise NotImplementedError


@_steps.register
def _(unit: DotProduct) -> Sequence:
    words = np.arange(1 << unit.format.width)[None]
    pairs = _combinations(words, words)
    products = _products(unit, pairs)
    both = _combinations(products, products)
    beats = [_beats(unit, 1, {place: pairs}) for place in range(unit.lanes)]
    beats += [_beats(unit, 1 + j // unit.lanes, {i: both[:2], j: both[2:]}) for i, j in _adders(unit)]
    factors, channel, last = (np.concatenate(each, -1 if each[0].ndim == 1 else 1) for each in zip(*beats, strict=True))
    a, b = factors
    return Sequence(
        np.zeros(len(last), np.int64),
        {"a": a, "b": b, "channel": channel, "last": last},
        (a, b),
        _groups(np.arange(len(last)), channel, last),
        unit.sums.spacing > unit.channels,
    )


@_steps.register
def _(unit: MatrixVector) -> Sequence:
    """Hold each word at each place of a tile, and for two products those few words that bring each of them.

    Odd rows hold the opposite numbers, so that no row does what its neighbour does.
    """
    format, lanes, words = unit.format, unit.lanes, np.arange(1 << unit.format.width)[None]
    sent = []  # what a tile holds, or None, and beats

    def load(matrix: np.ndarray) -> None:
        sent.append((matrix ^ (np.arange(unit.rows) % 2 << format.log_bits)[:, None], None))

    for place, word in itertools.product(range(lanes), words[0]):
        matrix = np.full((unit.rows, lanes), format.bias)
        matrix[:, place] = word
        load(matrix)
        sent.append((None, _beats(unit, 1, {place: words})))
    # Of infinity and zero the product is invalid, with specials; without them the two largest are one.
    held = np.array([[*dict.fromkeys([format.bias, format.max_finite_field, 1, format.max_field])]])
    products = _products(unit, _combinations(held, words))
    moving = {word: products[1:, products[0] == word] for word in held[0]}
    for (i, j), first, second in itertools.product(_adders(unit), held[0], held[0]):
        both, count = _combinations(moving[first], moving[second]), 1 + j // lanes
        matrices = np.full((count, unit.rows, lanes), format.bias)
        for place, word in ((i, first), (j, second)):
            matrices[place // lanes, :, place % lanes] = word
        together = (matrices == matrices[0]).all()
        # Where the second beat needs another tile than the first, it is loaded between them, for one block of channels
        # after the other.
        step = both.shape[1] if together else unit.channels
        for start in range(0, both.shape[1], step):
            block = both[:, start : start + step]
            factors, channel, last = _beats(unit, count, {i: block[:1], j: block[1:]})
            for beat in range(1 if together else count):
                part = slice(None) if together else slice(beat * unit.channels, (beat + 1) * unit.channels)
                load(matrices[beat])
                sent.append((None, (factors[:, part], channel[part], last[part])))
    return _sequence(unit, sent)


def _sequence(unit: MatrixVector, sent: list[tuple[np.ndarray | None, tuple | None]]) -> Sequence:
    """Return loads and beats as payloads."""
    load, multiply = (list(unit.operations).index(name) for name in ("load", "multiply"))
    parts, weights = [], None
    for matrix, beats in sent:
        if beats is None:
            weights, rows = matrix, np.arange(unit.rows)
            parts.append(
                (np.full(unit.rows, load), matrix, rows, 0 * rows, 0 * rows, np.tile(matrix, (unit.rows, 1, 1)))
            )
            continue
        ((x,), channel, last), count = beats, len(beats[2])
        parts.append(
            (np.full(count, multiply), x, 0 * last, channel, last, np.broadcast_to(weights, (count, *weights.shape)))
        )
    op, x, row, channel, last, weights = (np.concatenate(each) for each in zip(*parts, strict=True))
    operands = {"x": x, "tile": np.zeros_like(op), "row": row, "channel": channel, "last": last}
    groups = _groups(np.flatnonzero(op == multiply), channel, last)
    return Sequence(op, operands, (weights, x), groups, unit.sums.spacing > unit.channels)


def _adders(unit: SumUnit) -> list[tuple[int, int]]:
    """Return for each adder two places, the second at most the first of another beat, whose products meet there.

    It is so where terms are added in order, and in a tree.
    """
    return [(place & (place - 1), place) for place in range(1, unit.lanes + 1)]


def _combinations(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return each column of one array above each of the other."""
    i, j = np.indices((first.shape[1], second.shape[1])).reshape(2, -1)
    return np.concatenate([first[:, i], second[:, j]])


def _products(unit: SumUnit, pairs: np.ndarray) -> np.ndarray:
    """Return of pairs of words, of shape ``(2, n)``, one for each product, word and flags."""
    words = [payloads.tensor(WordLayout(unit.format), factor) for factor in pairs]
    product, flags = golden.evaluate_expression(lambda a, b: a * b, *words)
    bits = payloads.integers(WordLayout(unit.format), product) << len(FLAGS) | flags.numpy()
    return pairs[:, np.unique(bits, return_index=True)[1]]


def _beats(unit: SumUnit, beats: int, factors: dict[int, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return vectors of zeros but for the factors at some places, all channels taking turns beat by beat.

    Parameters
    ----------
    unit : SumUnit
    beats : int
    factors : dict of int to ndarray, of shape ``(k, n)``
        By places, from 0 to ``beats * lanes - 1``.

    Returns
    -------
    tuple of ndarray
        The k factors of shape ``(k, payloads, lanes)``, ``channel``, and ``last``.
    """
    (kinds, count), channels = next(iter(factors.values())).shape, unit.channels
    vectors = np.zeros((kinds, -(-count // channels) * channels, beats * unit.lanes), np.int64)
    for place, values in factors.items():
        vectors[:, :count, place] = values
    blocks = vectors.reshape(kinds, -1, channels, beats, unit.lanes).swapaxes(2, 3)
    beat, channel = np.indices((beats, channels)).reshape(2, -1)
    turns = blocks.shape[1]
    return blocks.reshape(kinds, -1, unit.lanes), np.tile(channel, turns), np.tile(1 * (beat == beats - 1), turns)


def _groups(places: np.ndarray, channel: np.ndarray, last: np.ndarray) -> list[np.ndarray]:
    """Return the places of the beats of each vector, in the order of the last ones."""
    places = places[np.argsort(channel[places], kind="stable")]
    return sorted(np.split(places, np.flatnonzero(last[places])[:-1] + 1), key=lambda group: group[-1])
