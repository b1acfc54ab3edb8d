"""The gates against the third writing of the arithmetic, reference.py, in Amaranth's simulator."""

import random

import pytest

from hdl import UNITS, AddSubtract, Multiply, Unit
from hdl.gaussian import RomDatapath
from xlnstorch import CATALOG, LNSFormat, lns16
from xlnstorch.observe import FLAGS
from xlnstorch.reference import Reference


def expected(reference, operation, a, b):
    word, flags = getattr(reference, operation)(a, b)
    return word | sum(1 << FLAGS.index(flag) for flag in flags) << (1 + reference.int_bits + reference.frac_bits)


def vectors(unit, format, pairs):
    width = format.width
    for op, operation in enumerate(unit.operations):
        for a, b in pairs:
            yield operation, a, b, a | b << width | op << 2 * width


def check(unit_class, format, pairs, run_unit):
    reference = Reference(format.int_bits, format.frac_bits)
    cases = list(vectors(unit_class, format, pairs))
    _, received = run_unit(unit_class(format=format), [payload for *_, payload in cases])
    assert len(received) == len(cases)
    for (operation, a, b, _), (_, got) in zip(cases, received, strict=True):
        assert got == expected(reference, operation, a, b), (operation, hex(a), hex(b))


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
@pytest.mark.parametrize(
    "format", [LNSFormat(1, 1), LNSFormat(1, 3), LNSFormat(2, 0), LNSFormat(2, 1), LNSFormat(3, 2)], ids=repr
)
def test_all_pairs_of_words_of_a_small_format(unit, format, run_unit):
    words = range(1 << format.width)
    check(unit, format, [(a, b) for a in words for b in words], run_unit)


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
@pytest.mark.parametrize("name", [name for name, format in CATALOG.items() if format.frac_bits <= 10])
def test_random_and_cancelling_words_of_each_named_format(unit, name, run_unit):
    format = CATALOG[name]
    rng = random.Random(f"{unit.name} {name}")
    pairs = []
    for _ in range(120):
        a = rng.getrandbits(format.width)
        near = max(0, min(format.max_field, (a & format.max_field) + rng.randint(-9, 9)))
        pairs += [(a, rng.getrandbits(format.width)), (a, near | rng.getrandbits(1) << format.log_bits)]
    check(unit, format, pairs, run_unit)


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_latency_and_rate_are_as_stated(unit, run_unit):
    sent, received = run_unit(unit(format=lns16), [lns16.bias] * 20)
    clocks = [clock for clock, _ in received]
    assert [after - before for before, after in zip(sent, clocks, strict=True)] == [unit(format=lns16).latency] * 20
    assert clocks == list(range(clocks[0], clocks[0] + 20))


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
@pytest.mark.parametrize("seed", range(4))
def test_no_stall_changes_a_result_or_its_order(unit, seed, run_unit):
    rng = random.Random(seed)
    pairs = [(rng.getrandbits(16), rng.getrandbits(16)) for _ in range(150)]
    payloads = [payload for *_, payload in vectors(unit, lns16, pairs)]
    stalls = [(rng.random() < 0.5, rng.random() < 0.4) for _ in range(5000)]
    _, calm = run_unit(unit(format=lns16), payloads)
    _, stalled = run_unit(
        unit(format=lns16), payloads, valid=lambda clock: stalls[clock][0], ready=lambda clock: stalls[clock][1]
    )
    assert [payload for _, payload in stalled] == [payload for _, payload in calm]


def test_the_rom_holds_the_table_of_the_adder():
    assert RomDatapath(lns16).table() == lns16.adder.table(lns16)


@pytest.mark.parametrize(
    ("unit", "format", "error", "message"),
    [
        (Multiply, "lns16", TypeError, "format must be an LNSFormat such as xlnstorch.lns16, not 'lns16'"),
        (Multiply, LNSFormat(8, 7, base=3.0), ValueError, "a hardware format must have base 2, not 3.0"),
        (
            AddSubtract,
            LNSFormat(8, 13),
            ValueError,
            "the gates of the exact adder are a ROM, so a format must have at most 12 fraction bits, "
            "not the 13 of LNSFormat(8, 13)",
        ),
    ],
)
def test_a_format_that_cannot_be_built_is_refused_at_the_door(unit, format, error, message):
    with pytest.raises(error) as caught:
        unit(format=format)
    assert str(caught.value) == message


def test_a_latency_that_the_pipeline_does_not_have_is_an_error():
    class Wrong(Multiply):
        latency = 3

    with pytest.raises(RuntimeError) as caught:
        Wrong(format=lns16).elaborate(None)
    assert str(caught.value) == "Wrong states a latency of 3 but has 2 stages"


def test_what_is_not_a_unit_is_refused():
    class Nothing(Unit):
        pass

    class Half(Unit):
        name, operations, latency = "half", {"mul": lambda a, b: a * b}, 1

    with pytest.raises(TypeError, match="Nothing is not a unit: it has no operations"):
        Nothing(format=lns16)
    with pytest.raises(NotImplementedError, match="Half must define datapath"):
        Half(format=lns16).elaborate(None)
