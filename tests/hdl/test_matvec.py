"""Matrix-vector products in gates against the third writing of the sums, and against their golden expression."""

import dataclasses
import functools
import random

import pytest
import torch
from sumtesting import interleaved, random_vectors, summed

from hdl import DotProduct, MatrixVector
from xlnstorch import LinearAccumulator, LogAccumulator, from_words, lns8, lns12
from xlnstorch.observe import observing

ACCUMULATORS = [
    LogAccumulator(),
    LogAccumulator(guard_bits=3),
    LogAccumulator("tree", guard_bits=1),
    LinearAccumulator(),
]

each_accumulator = pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=repr)


def result_of(unit, weights, x, channel):
    """Return the payload that a vector brings, by the reference."""
    layout, width = unit.o.payload.shape(), unit.format.width
    payload = channel << layout["channel"].offset
    for row, words in enumerate(weights):
        word, flags = summed(unit.format, words[: len(x)], x)
        payload |= word << layout["word"].offset + row * width | flags << layout["flags"].offset + row * 4
    return payload


def random_matrix(unit, rng):
    columns = unit.lanes * unit.tiles
    return [row for row, _ in random_vectors(unit.format, rng, [columns] * unit.rows)]


def queues_of(unit, rng, weights, vectors):
    """Return for each channel the beats of some vectors, each with what comes out, None but for the last one."""
    queues = [[] for _ in range(unit.channels)]
    for index in range(vectors):
        channel = index % unit.channels
        (x,) = (a for a, _ in random_vectors(unit.format, rng, [rng.randint(1, unit.lanes * unit.tiles)]))
        *beats, end = unit.pack(x, channel)
        queues[channel] += [*((beat, None) for beat in beats), (end, result_of(unit, weights, x, channel))]
    return queues


def items_of(unit, rng, matrices, vectors):
    """Return beats of vectors, after each of several matrices."""
    items = []
    for _ in range(matrices):
        weights = random_matrix(unit, rng)
        items += [(load, None) for load in unit.pack_weights(weights)]
        items += interleaved(queues_of(unit, rng, weights, vectors), rng)
    return items


def check(unit, items, run_unit, **stalls):
    sent, received = run_unit(unit, [beat for beat, _ in items], idle=unit.latency + 40, **stalls)
    assert len(sent) == len(items)
    assert [payload for _, payload in received] == [result for _, result in items if result is not None]
    ends = [clock for clock, (_, result) in zip(sent, items, strict=True) if result is not None]
    return sent, [end - start for start, (end, _) in zip(ends, received, strict=True)]


@each_accumulator
@pytest.mark.parametrize("specials", [False, True], ids=["plain", "specials"])
@pytest.mark.parametrize(
    ("format", "rows", "lanes", "columns"), [(lns8, 3, 2, 8), (lns12, 2, 1, 4), (lns8, 1, 4, None)]
)
def test_products_are_the_reference(format, rows, lanes, columns, accumulator, specials, run_unit):
    format = dataclasses.replace(format, accumulator=accumulator, specials=specials)
    unit = MatrixVector(format=format, rows=rows, lanes=lanes, columns=columns, channels=4)
    items = items_of(unit, random.Random(f"{format} {rows}"), 3, 8)
    _, latencies = check(unit, items, run_unit)
    assert set(latencies) == {unit.latency}
    assert unit.latency == DotProduct(format=format, lanes=lanes, beats=unit.tiles).latency + 2


@each_accumulator
@pytest.mark.parametrize("seed", range(2))
def test_no_stall_loses_or_changes_anything(accumulator, seed, run_unit):
    unit = MatrixVector(
        format=dataclasses.replace(lns8, accumulator=accumulator), rows=2, lanes=2, columns=4, channels=2
    )
    rng = random.Random(seed)
    stalls = [(rng.random() < 0.6, rng.random() < 0.5) for _ in range(20000)]
    items = items_of(unit, rng, 3, 8)
    check(unit, items, run_unit, valid=lambda clock: stalls[clock][0], ready=lambda clock: stalls[clock][1])


@each_accumulator
def test_a_payload_is_taken_each_clock_loads_and_vectors_alike(accumulator, run_unit):
    unit = MatrixVector(format=dataclasses.replace(lns8, accumulator=accumulator), rows=2, lanes=2, columns=4)
    rng = random.Random(3)
    weights = random_matrix(unit, rng)
    items = [(load, None) for load in unit.pack_weights(weights)]
    vectors = [random_vectors(lns8, rng, [4])[0][0] for _ in range(unit.channels)]
    beats = [unit.pack(x, channel) for channel, x in enumerate(vectors)]
    items += [(first, None) for first, _ in beats]
    items += [
        (last, result_of(unit, weights, x, channel))
        for channel, (x, (_, last)) in enumerate(zip(vectors, beats, strict=True))
    ]
    sent, _ = check(unit, items, run_unit)
    assert sent == list(range(sent[0], sent[0] + len(items)))


def test_a_load_is_accepted_while_a_vector_waits_for_its_running_sum(run_unit):
    unit = MatrixVector(format=lns8, rows=1, lanes=1, columns=2, channels=1)
    one, two = lns8.bias, lns8.bias + 8
    (first, second), (load, _) = unit.pack([one, one]), unit.pack_weights([[two, two]])
    sent, received = run_unit(unit, [first, load, second], idle=unit.latency + 40)
    assert sent[1] == sent[0] + 1
    assert sent[2] == sent[0] + unit.sums.spacing
    assert [payload for _, payload in received] == [0]  # the weights were zero for the first, and tile 1 has none yet


@each_accumulator
def test_a_reset_forgets_vectors_but_no_weights(accumulator, run_unit):
    unit = MatrixVector(
        format=dataclasses.replace(lns8, accumulator=accumulator), rows=2, lanes=2, columns=8, channels=2
    )
    rng = random.Random(5)
    weights = random_matrix(unit, rng)
    lost = [*unit.pack_weights(weights), *unit.pack([lns8.bias] * 8)[:3]]
    items = interleaved(queues_of(unit, rng, weights, 6), rng)
    taken = run_unit(unit, lost)[0]
    for clock in (taken[-1] + 1, taken[-1] + unit.latency + 9):
        sent, received = run_unit(
            unit,
            [*lost, *(beat for beat, _ in items)],
            idle=unit.latency + 40,
            valid=lambda now, clock=clock: now <= taken[-1] or now > clock,
            reset=lambda now, clock=clock: now == clock,
        )
        assert len(sent) == len(lost) + len(items)
        assert [payload for _, payload in received] == [result for _, result in items if result is not None]


@each_accumulator
def test_the_golden_expression_says_the_same(accumulator):
    format = dataclasses.replace(lns12, accumulator=accumulator)
    unit, rng = MatrixVector(format=format, rows=3, lanes=2, columns=4, channels=1), random.Random(2)
    weights = random_matrix(unit, rng)
    x = random_vectors(format, rng, [4])[0][0]
    flags = torch.zeros(3, dtype=torch.int64)

    def collect(operation):
        raised = operation.flags.reshape(3, -1)
        flags.bitwise_or_(functools.reduce(torch.bitwise_or, raised.unbind(-1)))

    with observing(collect):
        product = unit.operations["multiply"](from_words(torch.tensor(weights), format), from_words([x], format)[0])
    words = format.to_unsigned(product.words).tolist()
    assert list(zip(words, flags.tolist(), strict=True)) == [summed(format, row, x) for row in weights]
    assert unit.operations["load"](None, None) is None


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rows": 0}, "rows must be between 1 and 256, not 0"),
        ({"columns": 6}, "columns must be a multiple of the 4 lanes, not 6"),
        ({"columns": 12}, "columns / lanes must be a power of two from 1 to 4096, not 3"),
    ],
)
def test_a_parameter_out_of_its_range_is_refused(parameters, message):
    with pytest.raises(ValueError) as caught:
        MatrixVector(format=lns8, **parameters)
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["rows", "lanes", "columns", "channels"])
@pytest.mark.parametrize("value", ["x", 4.0, True], ids=repr)
def test_a_parameter_that_is_no_integer_is_refused(name, value):
    with pytest.raises(TypeError) as caught:
        MatrixVector(format=lns8, **{name: value})
    assert str(caught.value) == f"{name} must be an integer, not {value!r}"


def test_the_columns_are_as_many_as_said_or_the_lanes():
    assert MatrixVector(format=lns8, rows=1, lanes=2, columns=8).columns == 8
    assert MatrixVector(format=lns8, rows=1, lanes=2).columns == 2
