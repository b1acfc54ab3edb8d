"""One step of a sum in gates against the third writing of the arithmetic, and against its golden expression."""

import dataclasses
import random

import pytest
import torch

from hdl import AddSubtract, Multiply, MultiplyAdd
from xlnstorch import (
    CATALOG,
    LinearAccumulator,
    LNSFormat,
    LogAccumulator,
    Mitchell,
    Piecewise,
    from_words,
    lns16,
)
from xlnstorch.observe import FLAGS, observing
from xlnstorch.reference import Reference


def running_format(format):
    return format.accumulator.running_format(format)


def reference_of(format):
    return Reference(format.int_bits, format.frac_bits, format.specials)


def expected(format, a, b, c):
    """Return word and flags of c + a b, of which c and the sum are in the format of the running sum."""
    narrow, wide = reference_of(format), reference_of(running_format(format))
    product, raised = narrow.mul(a, b)
    sign, field = divmod(product, 1 << format.log_bits)
    if product != narrow.nan:
        infinite = format.specials and field == format.max_field
        field = wide.max_field if infinite else field << format.accumulator.guard_bits
    total, more = wide.add(c, sign << wide.log_bits | field)
    return total, raised | more


def interesting_words(format, rng, count):
    """Words all over the range, at its ends, near one, and the same logarithms again so that sums cancel."""
    ends = [0, 1, 2, format.max_field - 1, format.max_field, format.bias, 1 << format.log_bits]
    words = [rng.getrandbits(format.width) for _ in range(count // 2)]
    words += [max(0, format.bias + rng.randint(-60, 60)) & format.max_field for _ in range(count // 4)]
    words += [rng.choice(ends) for _ in range(count - len(words))]
    rng.shuffle(words)
    return [word ^ rng.getrandbits(1) << format.log_bits for word in words]


def triples(format, rng, count):
    wide, guard_bits = running_format(format), format.accumulator.guard_bits
    reference = reference_of(format)
    cases = []
    for a, b, c in zip(*(interesting_words(x, rng, count) for x in (format, format, wide)), strict=True):
        if rng.random() < 0.5:  # near the product, so that they meet
            product = reference.mul(a, b)[0] & format.max_field
            field = max(0, min(wide.max_field, (product << guard_bits) + rng.choice((0, 0, 1, -1, 5, -17))))
            c = field | rng.getrandbits(1) << wide.log_bits
        cases.append((a, b, c))
    return [*cases, (0, format.max_field, format.bias)]


def payload(format, a, b, c):
    return a | b << format.width | c << 2 * format.width


def run(unit, cases, run_unit, **stalls):
    sent, received = run_unit(unit, [payload(unit.format, *case) for case in cases], **stalls)
    width = running_format(unit.format).width
    results = []
    for _, bits in received:
        raised = frozenset(flag for i, flag in enumerate(FLAGS) if bits >> width + i & 1)
        results.append((bits & ((1 << width) - 1), raised))
    return sent, [clock for clock, _ in received], results


ACCUMULATORS = [LogAccumulator(), LogAccumulator(guard_bits=3), LogAccumulator("tree", guard_bits=1)]


@pytest.mark.parametrize("specials", [False, True], ids=["plain", "specials"])
@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=repr)
@pytest.mark.parametrize("name", [name for name, format in CATALOG.items() if format.frac_bits <= 7])
def test_steps_are_the_reference(name, accumulator, specials, run_unit):
    format = dataclasses.replace(CATALOG[name], accumulator=accumulator, specials=specials)
    cases = triples(format, random.Random(f"{name} {accumulator} {specials}"), 200)
    _, _, results = run(MultiplyAdd(format=format), cases, run_unit)
    assert results == [expected(format, *case) for case in cases]
    assert {flag for _, raised in results for flag in raised} == {"overflow", "underflow"} | (
        {"invalid"} if specials else set()
    )


@pytest.mark.parametrize("specials", [False, True], ids=["plain", "specials"])
def test_all_triples_of_words_of_a_small_format(specials, run_unit):
    format = LNSFormat(1, 2, specials=specials)
    words = range(1 << format.width)
    cases = [(a, b, c) for a in words for b in words for c in words]
    _, _, results = run(MultiplyAdd(format=format), cases, run_unit)
    assert results == [expected(format, *case) for case in cases]


@pytest.mark.parametrize(
    "format",
    [
        lns16,
        LNSFormat(5, 10, adder=Piecewise(), accumulator=LogAccumulator(guard_bits=2)),
        LNSFormat(8, 15, adder=Piecewise(), specials=True),
        LNSFormat(8, 15, adder=Mitchell(), accumulator=LogAccumulator(guard_bits=4)),
        LNSFormat(8, 23, adder=Mitchell()),
    ],
    ids=repr,
)
def test_steps_are_the_golden_expression(format, run_unit):
    cases = triples(format, random.Random(repr(format)), 200)
    formats = (format, format, running_format(format))
    operands = [
        from_words(torch.tensor(words), each) for words, each in zip(zip(*cases, strict=True), formats, strict=True)
    ]
    flags = torch.zeros(len(cases), dtype=torch.int64)
    with observing(lambda operation: flags.bitwise_or_(operation.flags)):
        golden = MultiplyAdd.operations["mac"](*operands)
    assert golden.format == running_format(format)
    words = running_format(format).to_unsigned(golden.words)
    raised = [frozenset(flag for i, flag in enumerate(FLAGS) if bits >> i & 1) for bits in flags.tolist()]
    _, _, results = run(MultiplyAdd(format=format), cases, run_unit)
    assert results == list(zip(words.tolist(), raised, strict=True))


@pytest.mark.parametrize("format", [lns16, LNSFormat(8, 7, adder=Mitchell())], ids=repr)
def test_latency_is_that_of_both_and_a_step_is_taken_every_clock(format, run_unit):
    unit = MultiplyAdd(format=format)
    assert unit.latency == Multiply(format=format).latency + AddSubtract(format=format).latency
    sent, clocks, _ = run(unit, [(lns16.bias,) * 3] * 20, run_unit)
    assert [after - before for before, after in zip(sent, clocks, strict=True)] == [unit.latency] * 20
    assert clocks == list(range(clocks[0], clocks[0] + 20))


@pytest.mark.parametrize("seed", range(3))
def test_no_stall_changes_a_result_or_its_order(seed, run_unit):
    rng = random.Random(seed)
    cases = triples(lns16, rng, 150)
    stalls = [(rng.random() < 0.5, rng.random() < 0.4) for _ in range(5000)]
    _, _, results = run(
        MultiplyAdd(format=lns16),
        cases,
        run_unit,
        valid=lambda clock: stalls[clock][0],
        ready=lambda clock: stalls[clock][1],
    )
    assert results == [expected(lns16, *case) for case in cases]


def test_a_sum_in_fixed_point_has_no_steps():
    with pytest.raises(ValueError) as caught:
        MultiplyAdd(format=LNSFormat(8, 7, accumulator=LinearAccumulator(table_bits=9)))
    assert str(caught.value) == (
        "a multiply-add needs a format with a LogAccumulator, not LinearAccumulator(table_bits=9); "
        "the dot product (hdl.DotProduct) sums in fixed point"
    )


def test_the_adder_must_have_gates_for_the_guard_bits():
    with pytest.raises(ValueError) as caught:
        MultiplyAdd(format=LNSFormat(8, 10, accumulator=LogAccumulator(guard_bits=3)))
    assert str(caught.value) == (
        "with guard_bits=3 the running sum has no gates: the gates of the exact adder are a ROM, so a format must have "
        "at most 12 fraction bits, not the 13 of LNSFormat(8, 13)"
    )
