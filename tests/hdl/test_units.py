"""The gates of the elementwise units against the reference and the golden model, in Amaranth's simulator."""

import dataclasses
import itertools
import random

import pytest
from hdltesting import check, check_rate, check_reset, random_cases

from hdl import (
    AddSubtract,
    Compare,
    Divide,
    MinMax,
    Multiply,
    Relu,
    Signs,
    Square,
    SquareRoot,
    Unit,
)
from hdl.gaussian import RomDatapath
from hdl.product import Product
from xlnstorch import CATALOG, LNSFormat, lns16

UNITS = [Multiply, Divide, Square, Product, SquareRoot, AddSubtract, Signs, Compare, MinMax, Relu]
SMALL = [LNSFormat(1, 1), LNSFormat(1, 3), LNSFormat(2, 0), LNSFormat(2, 1)]

each_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
with_and_without_specials = pytest.mark.parametrize("specials", [False, True], ids=["plain", "specials"])


@each_unit
@with_and_without_specials
@pytest.mark.parametrize("format", SMALL, ids=repr)
def test_all_words_of_a_small_format(unit, specials, format, run_unit):
    unit = unit(format=dataclasses.replace(format, specials=specials))
    operands = list(itertools.product(range(1 << format.width), repeat=len(unit.operands())))
    check(unit, [(operation, words) for operation in unit.operations for words in operands], run_unit)


@each_unit
@with_and_without_specials
@pytest.mark.parametrize("name", CATALOG)
def test_random_and_near_words_of_each_named_format(unit, specials, name, run_unit):
    format = dataclasses.replace(CATALOG[name], specials=specials)
    if unit is AddSubtract and format.frac_bits > 12:
        pytest.skip("no ROM of the exact adder has so many fraction bits")
    unit = unit(format=format)
    check(unit, random_cases(unit, random.Random(f"{unit.name} {format}"), 400), run_unit)


@each_unit
@pytest.mark.parametrize("format", [lns16, LNSFormat(2, 0, specials=True)], ids=repr)
def test_latency_and_rate_are_as_stated(unit, format, run_unit):
    unit = unit(format=format)
    check_rate(unit, random_cases(unit, random.Random(1), 20), run_unit)


@each_unit
@pytest.mark.parametrize("seed", range(4))
def test_no_stall_changes_a_result_or_its_order(unit, seed, run_unit):
    rng = random.Random(seed)
    unit = unit(format=lns16)
    stalls = [(rng.random() < 0.5, rng.random() < 0.4) for _ in range(5000)]
    check(
        unit,
        random_cases(unit, rng, 150),
        run_unit,
        valid=lambda clock: stalls[clock][0],
        ready=lambda clock: stalls[clock][1],
    )


@each_unit
@pytest.mark.parametrize("seed", range(2))
def test_a_reset_loses_what_is_in_flight_and_nothing_else(unit, seed, run_unit):
    unit, rng = unit(format=lns16), random.Random(seed)
    check_reset(unit, random_cases(unit, rng, 60), rng, run_unit)


@pytest.mark.parametrize("name", ["lns8", "lns16"])
def test_the_exact_adder_at_every_distance(name, run_unit):
    # Their tables go on behind the ROM. From this field on all sums and differences are in range.
    format = CATALOG[name]
    larger = format.max_field - (1 << format.frac_bits)
    distances = range(min(format.adder.reach(format) + 10, larger))
    cases = [(op, (larger, larger - d)) for op in ("add", "sub") for d in distances]
    check(AddSubtract(format=format), cases, run_unit)


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
        latency = Multiply.latency + 1

    with pytest.raises(RuntimeError) as caught:
        Wrong(format=lns16).elaborate(None)
    assert str(caught.value) == f"Wrong states a latency of {Wrong.latency} but has {Multiply.latency} stages"


def test_what_is_not_a_unit_is_refused():
    class Nothing(Unit):
        pass

    class Half(Unit):
        name, operations, latency = "half", {"mul": lambda a, b: a * b}, 1

    with pytest.raises(TypeError, match="Nothing is not a unit: it has no operations"):
        Nothing(format=lns16)
    with pytest.raises(NotImplementedError, match="Half must define datapath"):
        Half(format=lns16).elaborate(None)
