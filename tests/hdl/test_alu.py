"""The ALU against the reference and the golden model: all operations, mixed, and what is none."""

import dataclasses
import random

import pytest
import torch
from amaranth.hdl import Shape
from hdltesting import check, check_rate, check_reset, packed, random_cases, reference_of

from hdl import ALU
from xlnstorch import CATALOG, LNSFormat, Mitchell, Piecewise, lns8, lns16, lns24, lns32
from xlnstorch.observe import FLAGS

with_and_without_specials = pytest.mark.parametrize("specials", [False, True], ids=["plain", "specials"])


@with_and_without_specials
@pytest.mark.parametrize("format", [LNSFormat(1, 1), LNSFormat(2, 0)], ids=repr)
def test_all_pairs_of_words_of_a_small_format(format, specials, run_unit):
    unit, words = ALU(format=dataclasses.replace(format, specials=specials)), range(1 << format.width)
    cases = [(operation, (a, b, a ^ b)) for operation in unit.operations for a in words for b in words]
    cases += [("mac", (a, b, c)) for a in words for b in words for c in words]
    random.Random(0).shuffle(cases)
    check(unit, cases, run_unit)


@with_and_without_specials
@pytest.mark.parametrize("name", [name for name, format in CATALOG.items() if format.frac_bits <= 10])
def test_random_operations_back_to_back(name, specials, run_unit):
    unit = ALU(format=dataclasses.replace(CATALOG[name], specials=specials))
    check(unit, random_cases(unit, random.Random(f"{name} {specials}"), 800), run_unit)


@pytest.mark.parametrize(
    "format",
    [
        dataclasses.replace(lns16, adder=Mitchell(0)),
        dataclasses.replace(lns24, adder=Piecewise(), specials=True),
        dataclasses.replace(lns32, adder=Mitchell()),
        pytest.param(dataclasses.replace(lns32, adder=Piecewise(2, singularity="logarithm")), marks=pytest.mark.slow),
    ],
    ids=repr,
)
def test_random_operations_with_other_adders(format, run_unit):
    unit = ALU(format=format)
    check(unit, random_cases(unit, random.Random(repr(format)), 500), run_unit, reference=False)


@pytest.mark.parametrize("format", [lns8, dataclasses.replace(lns32, adder=Mitchell())], ids=repr)
def test_every_operation_has_the_same_latency_and_one_result_comes_a_clock(format, run_unit):
    unit = ALU(format=format)
    check_rate(unit, random_cases(unit, random.Random(1), 100), run_unit)


@pytest.mark.parametrize("seed", range(3))
def test_no_stall_changes_a_result_or_its_order(seed, run_unit):
    rng, unit = random.Random(seed), ALU(format=lns16)
    stalls = [(rng.random() < 0.5, rng.random() < 0.4) for _ in range(9000)]
    check(
        unit,
        random_cases(unit, rng, 400),
        run_unit,
        valid=lambda clock: stalls[clock][0],
        ready=lambda clock: stalls[clock][1],
    )


@pytest.mark.parametrize("seed", range(2))
def test_a_reset_loses_what_is_in_flight_and_nothing_else(seed, run_unit):
    rng, unit = random.Random(seed), ALU(format=lns16)
    check_reset(unit, random_cases(unit, rng, 120), rng, run_unit)


def test_an_opcode_beyond_the_last_gives_zero_and_is_invalid(run_unit):
    unit, rng = ALU(format=lns16), random.Random(3)
    layout, result = unit.i.payload.shape()["op"], unit.o.payload.shape()
    illegal = range(len(unit.operations), 1 << layout.width)
    assert illegal, "every opcode is an operation, so that there is nothing to test"
    legal = packed(unit, random_cases(unit, rng, len(illegal)))
    mixed = [
        payload
        for op, between in zip(illegal, legal, strict=True)
        for payload in (rng.getrandbits(layout.offset) | op << layout.offset, between)
    ]
    _, received = run_unit(unit, mixed)
    assert [payload for _, payload in received][::2] == [1 << result["flags"].offset + FLAGS.index("invalid")] * len(
        illegal
    )
    assert [payload for _, payload in received][1::2] == [payload for _, payload in run_unit(unit, legal)[1]]


def test_opcodes_are_these():
    unit = ALU(format=lns16)
    names = "add sub mul div square mac sqrt neg abs copysign max min relu relu_grad compare"
    names += " from_float32 to_float32 from_fixed to_fixed"
    assert list(unit.operations) == names.split()


def test_converters_are_chosen_and_the_operand_is_as_wide_as_the_widest(run_unit):
    for converters, width in (((), 8), (("float16",), 16), (("float16", "bfloat16", "float32", "fixed"), 32)):
        unit = ALU(format=lns8, converters=converters)
        assert Shape.cast(unit.operands()["a"]).width == Shape.cast(unit.results()["result"]).width == width
        assert list(unit.operations)[15:] == [f"{way}_{kind}" for kind in converters for way in ("from", "to")]
        check(unit, random_cases(unit, random.Random(width), 300), run_unit)


@pytest.mark.parametrize(
    ("converters", "error", "message"),
    [
        (("float64",), ValueError, "converters must be among float16, bfloat16, float32, fixed, not 'float64'"),
        ([["fixed"]], ValueError, "converters must be among float16, bfloat16, float32, fixed, not ['fixed']"),
        (("fixed", "fixed"), ValueError, "converters must be different, not fixed, fixed"),
        ("fixed", TypeError, "converters must be a tuple of names such as ('float32', 'fixed'), not 'fixed'"),
        (None, TypeError, "converters must be a tuple of names such as ('float32', 'fixed'), not None"),
    ],
)
def test_converters_that_are_none_are_refused(converters, error, message):
    with pytest.raises(error) as caught:
        ALU(format=lns8, converters=converters)
    assert str(caught.value) == message


def test_golden_functions_take_bits_and_give_bits():
    unit, reference = ALU(format=lns8), reference_of(lns8)
    two, four = (torch.tensor([reference.encode(number)]) for number in (2, 4))
    words = unit.operands()["b"].tensor(four.numpy())
    assert unit.operations["mul"](two, words, words).tolist() == [reference.encode(8)]
    assert unit.operations["compare"](two, words, words).tolist() == [0b0001]
    assert unit.operations["compare"](four, words, words).tolist() == [0b0010]
