"""Dot products in gates against the third writing of the sums, and against their golden expression."""

import dataclasses
import functools
import random

import pytest
import torch
from sumtesting import interleaved, random_vectors, summed

from hdl import DotProduct
from xlnstorch import (
    Exact,
    LinearAccumulator,
    LNSFormat,
    LogAccumulator,
    Mitchell,
    from_words,
    lns8,
    lns12,
    lns16,
)
from xlnstorch.observe import FLAGS, observing

ACCUMULATORS = [
    LogAccumulator(),
    LogAccumulator(guard_bits=3),
    LogAccumulator("tree"),
    LogAccumulator("tree", guard_bits=3),
    LinearAccumulator(),
    LinearAccumulator(table_bits=6, frac_bits=9),
]

each_accumulator = pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=repr)


def queues_of(unit, rng, vectors):
    """Return for each channel the beats of some vectors, each with what comes out, None but for the last one."""
    layout, queues = unit.o.payload.shape(), [[] for _ in range(unit.channels)]
    for index in range(vectors):
        channel = index % unit.channels
        ((a, b),) = random_vectors(unit.format, rng, [rng.randint(1, 20)])
        word, flags = summed(unit.format, a, b)
        result = word | flags << layout["flags"].offset | channel << layout["channel"].offset
        *beats, end = unit.pack(a, b, channel)
        queues[channel] += [*((beat, None) for beat in beats), (end, result)]
    return queues


def check(unit, items, run_unit, **stalls):
    """Run beats, assert that their results come in order, and return all clocks."""
    sent, received = run_unit(unit, [beat for beat, _ in items], idle=unit.latency + 40, **stalls)
    assert len(sent) == len(items)
    assert [payload for _, payload in received] == [result for _, result in items if result is not None]
    ends = [clock for clock, (_, result) in zip(sent, items, strict=True) if result is not None]
    return sent, ends, [clock for clock, _ in received]


@each_accumulator
@pytest.mark.parametrize("specials", [False, True], ids=["plain", "specials"])
@pytest.mark.parametrize(("format", "lanes", "channels"), [(lns8, 1, 4), (lns12, 2, 2), (lns16, 4, None)])
def test_vectors_of_interleaved_channels_are_the_reference(format, lanes, channels, accumulator, specials, run_unit):
    format = dataclasses.replace(format, accumulator=accumulator, specials=specials)
    unit = DotProduct(format=format, lanes=lanes, channels=channels, beats=32)
    rng = random.Random(f"{format} {lanes}")
    items = interleaved(queues_of(unit, rng, 48), rng)
    _, ends, clocks = check(unit, items, run_unit)
    assert {end - start for start, end in zip(ends, clocks, strict=True)} == {unit.latency}
    offset = unit.o.payload.shape()["flags"].offset
    raised = functools.reduce(int.__or__, (result >> offset for _, result in items if result is not None)) & 15
    assert {flag for bit, flag in enumerate(FLAGS) if raised >> bit & 1} >= {"overflow", "underflow"}


@each_accumulator
@pytest.mark.parametrize("lanes", [1, 4])
def test_a_beat_is_taken_each_clock_with_the_channels_of_the_default(accumulator, lanes, run_unit):
    unit = DotProduct(format=dataclasses.replace(lns8, accumulator=accumulator), lanes=lanes)
    if accumulator == LogAccumulator():
        assert unit.channels >= unit.sums.spacing > unit.channels / 2
    elif not isinstance(accumulator, LogAccumulator) or accumulator.order == "tree":
        assert unit.channels == 1
    vector = unit.pack([lns8.bias] * 3 * lanes, [lns8.bias] * 3 * lanes)
    shift = unit.i.payload.shape()["channel"].offset
    beats = [beat | channel << shift for beat in vector for channel in range(unit.channels)] * 3
    sent, received = run_unit(unit, beats, idle=unit.latency + 40)
    assert sent == list(range(sent[0], sent[0] + len(beats)))
    assert len(received) == 3 * unit.channels


@each_accumulator
@pytest.mark.parametrize("seed", range(2))
def test_no_stall_loses_or_changes_anything(accumulator, seed, run_unit):
    unit = DotProduct(format=dataclasses.replace(lns8, accumulator=accumulator), lanes=2, channels=4)
    rng = random.Random(seed)
    stalls = [(rng.random() < 0.6, rng.random() < 0.5) for _ in range(20000)]
    items = interleaved(queues_of(unit, rng, 40), rng)
    check(unit, items, run_unit, valid=lambda clock: stalls[clock][0], ready=lambda clock: stalls[clock][1])


@each_accumulator
def test_a_single_channel_waits_for_its_running_sum(accumulator, run_unit):
    unit = DotProduct(format=dataclasses.replace(lns8, accumulator=accumulator), lanes=2, channels=1)
    (items,) = queues_of(unit, random.Random(1), 12)
    sent, _, _ = check(unit, items, run_unit)
    within = [after - before for before, after, (_, end) in zip(sent, sent[1:], items, strict=False) if end is None]
    between = [
        after - before for before, after, (_, end) in zip(sent, sent[1:], items, strict=False) if end is not None
    ]
    assert set(within) == {unit.sums.spacing}
    assert set(between) == {1}


@each_accumulator
def test_a_vector_starts_afresh_after_a_reset_in_the_midst_of_another(accumulator, run_unit):
    unit = DotProduct(format=dataclasses.replace(lns8, accumulator=accumulator), lanes=2, channels=2, beats=16)
    rng = random.Random(7)
    broken = [unit.pack([lns8.bias] * 12, [lns8.max_field] * 12, channel)[:5] for channel in range(2)]
    lost = [beat for pair in zip(*broken, strict=True) for beat in pair]
    taken = run_unit(unit, lost)[0]
    queues, layout = queues_of(unit, rng, 8), unit.o.payload.shape()
    for channel, queue in enumerate(queues):  # small numbers first, which what was lost would change
        first, last = unit.pack([lns8.bias] * 3, [lns8.bias] * 3, channel)
        word, flags = summed(unit.format, [lns8.bias] * 3, [lns8.bias] * 3)
        assert not flags
        queue[:0] = [(first, None), (last, word | channel << layout["channel"].offset)]
    items = interleaved(queues, rng)
    # All beats are taken, one is on its way, or all have got to where they wait.
    for clock in (taken[-1] + 1, taken[-1] + 4, taken[-1] + unit.latency + 9):
        sent, received = run_unit(
            unit,
            [*lost, *(beat for beat, _ in items)],
            idle=unit.latency + 40,
            valid=lambda now, clock=clock: now <= taken[-1] or now > clock,
            reset=lambda now, clock=clock: now == clock,
        )
        assert len(sent) == len(lost) + len(items)
        assert [payload for _, payload in received] == [result for _, result in items if result is not None]


@pytest.mark.parametrize("specials", [False, True], ids=["plain", "specials"])
@pytest.mark.parametrize("accumulator", ACCUMULATORS[2:], ids=repr)
def test_too_long_a_vector_is_invalid_and_others_do_not_suffer(accumulator, specials, run_unit):
    format = dataclasses.replace(lns8, accumulator=accumulator, specials=specials)
    unit = DotProduct(format=format, lanes=2, channels=2, beats=4)
    layout, one, two = unit.o.payload.shape(), format.bias, format.bias + (1 << format.frac_bits)
    items = []
    for length in (8, 9, 7, 17, 8, 2, 40, 3):
        vector, other = unit.pack([one] * length, [one] * length), unit.pack([two], [one], 1)
        word, flags = summed(format, [one] * length, [one] * length)
        if length > 8:
            word, flags = (1 << format.log_bits) * specials, 1 << FLAGS.index("invalid")
        items += [(beat, None) for beat in vector[:-1]]
        items += [(other[0], two | 1 << layout["channel"].offset)]
        items += [(vector[-1], word | flags << layout["flags"].offset)]
    check(unit, items, run_unit)


@pytest.mark.parametrize(
    "format",
    [
        LNSFormat(8, 15, adder=Mitchell(), accumulator=LogAccumulator(guard_bits=2), specials=True),
        LNSFormat(8, 15, adder=Mitchell(), accumulator=LogAccumulator("tree")),
        LNSFormat(8, 23, adder=Mitchell()),
        LNSFormat(5, 10, accumulator=LinearAccumulator()),
    ],
    ids=repr,
)
def test_dot_products_are_the_golden_expression(format, run_unit):
    unit, rng = DotProduct(format=format, lanes=4, channels=2), random.Random(repr(format))
    queues, expected = [[], []], {}
    for index in range(24):
        ((a, b),) = random_vectors(format, rng, [rng.randint(1, 20)])
        flags = torch.zeros((), dtype=torch.int64)

        def collect(operation, flags=flags):
            flags.bitwise_or_(functools.reduce(torch.bitwise_or, operation.flags.reshape(-1)))

        with observing(collect):
            total = DotProduct.operations["dot"](*(from_words(torch.tensor(words), format) for words in (a, b)))
        layout = unit.o.payload.shape()
        result = int(format.to_unsigned(total.words)) | int(flags) << layout["flags"].offset
        *beats, end = unit.pack(a, b, index % 2)
        expected = result | index % 2 << layout["channel"].offset
        queues[index % 2] += [*((beat, None) for beat in beats), (end, expected)]
    check(unit, interleaved(queues, rng), run_unit)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"lanes": 0}, "lanes must be between 1 and 256, not 0"),
        ({"channels": 3}, "channels must be a power of two from 1 to 4096, not 3"),
        ({"beats": 5}, "beats must be a power of two from 1 to 1048576, not 5"),  # though it has no limit
        ({"accumulator": LogAccumulator("tree"), "lanes": 3}, "lanes of a tree must be a power of two, not 3"),
        ({"accumulator": LogAccumulator("tree"), "beats": 5}, "beats must be a power of two from 1 to 65536, not 5"),
        ({"accumulator": LinearAccumulator(), "beats": 0}, "beats must be a power of two from 1 to 1048576, not 0"),
    ],
)
def test_a_parameter_out_of_its_range_is_refused(parameters, message):
    format = dataclasses.replace(lns16, accumulator=parameters.pop("accumulator", LogAccumulator()))
    with pytest.raises(ValueError) as caught:
        DotProduct(format=format, **parameters)
    assert str(caught.value) == message


@pytest.mark.parametrize("accumulator", [LogAccumulator(), LogAccumulator("tree"), LinearAccumulator()], ids=repr)
@pytest.mark.parametrize("name", ["lanes", "channels", "beats"])
@pytest.mark.parametrize("value", ["foo", 4.0, True], ids=repr)
def test_a_parameter_that_is_no_integer_is_refused(name, value, accumulator):
    with pytest.raises(TypeError) as caught:
        DotProduct(format=dataclasses.replace(lns8, accumulator=accumulator), **{name: value})
    assert str(caught.value) == f"{name} must be an integer, not {value!r}"


@pytest.mark.parametrize("adder", [Exact(), Mitchell()], ids=repr)
@pytest.mark.parametrize("accumulator", [LogAccumulator(), LogAccumulator("tree"), LinearAccumulator()], ids=repr)
def test_a_place_of_tables_that_is_none_is_refused_though_there_may_be_no_tables(accumulator, adder):
    with pytest.raises(ValueError) as caught:
        DotProduct(format=dataclasses.replace(lns8, adder=adder, accumulator=accumulator), rom="paper")
    assert str(caught.value) == "rom must be 'block' or 'luts', not 'paper'"


def test_a_format_whose_sums_have_no_gates_is_refused():
    with pytest.raises(ValueError) as caught:
        DotProduct(format=LNSFormat(8, 15, accumulator=LinearAccumulator()))
    assert str(caught.value) == (
        "sums in fixed point have gates for at most 12 fraction bits with a register of 288 bits, "
        "not for the 15 of LNSFormat(8, 15, accumulator=LinearAccumulator())"
    )
