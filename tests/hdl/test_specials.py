"""Infinities, NaN and zero in each operation, written down by hand: what the gates give, alone and in the ALU."""

import pytest

from hdl import ALU, AddSubtract, Compare, Divide, MinMax, Multiply, Relu, Signs, Square, SquareRoot
from sim import payloads
from xlnstorch import LNSFormat
from xlnstorch.observe import FLAGS

FORMAT = LNSFormat(4, 3, specials=True)
MINUS = 1 << FORMAT.log_bits
WORDS = {
    "nan": MINUS,
    "0": 0,
    "inf": FORMAT.max_field,
    "-inf": FORMAT.max_field | MINUS,
    "1": FORMAT.bias,
    "-1": FORMAT.bias | MINUS,
    "2": FORMAT.bias + 8,
    "-2": FORMAT.bias + 8 | MINUS,
    "4": FORMAT.bias + 16,
    "most": FORMAT.max_field - 1,
    "-most": FORMAT.max_field - 1 | MINUS,
    "least": 1,
}

RESULTS = """
mul 0 inf: nan invalid        mul -inf 0: nan invalid       mul inf -2: -inf              mul -inf -inf: inf
mul nan 0: nan                mul 2 nan: nan                mul nan inf: nan              mul most 2: inf overflow
mul -most 1: -most            mul -most 2: -inf overflow    mul least -least: 0 underflow
mul most -most: -inf overflow
div 0 0: nan invalid          div inf inf: nan invalid      div -inf inf: nan invalid     div 2 0: inf zero_divide
div -2 0: -inf zero_divide    div inf 0: inf                div -inf 0: -inf              div 2 inf: 0
div -2 -inf: 0                div 0 -2: 0                   div 0 inf: 0                  div -inf 2: -inf
div -inf -2: inf              div nan 0: nan                div 0 nan: nan                div most least: inf overflow
div least most: 0 underflow   div -most 1: -most            div inf nan: nan              div 4 -2: -2
add inf -inf: nan invalid     add inf inf: inf              add -inf 2: -inf              add 0 -inf: -inf
add nan -inf: nan             add 0 nan: nan                add most most: inf overflow   add inf -most: inf
sub inf inf: nan invalid      sub inf -inf: inf             sub 2 inf: -inf               sub nan nan: nan
sub -inf most: -inf           sub 2 2: 0                    sub 0 -inf: inf               sub -most most: -inf overflow
square -inf: inf              square nan: nan               square 0: 0                   square most: inf overflow
square least: 0 underflow     square -2: 4                  sqrt inf: inf                 sqrt 0: 0
sqrt -inf: nan invalid        sqrt -1: nan invalid          sqrt nan: nan                 sqrt 4: 2
neg nan: nan                  neg inf: -inf                 neg 0: 0                      neg -2: 2
abs nan: nan                  abs -inf: inf                 abs 0: 0                      abs -2: 2
copysign nan -1: nan          copysign -inf 0: inf          copysign -2 nan: 2            copysign inf -1: -inf
copysign 0 -1: 0              copysign 2 -inf: -2           max nan inf: nan              max 0 nan: nan
max -inf 0: 0                 max most inf: inf             min -inf nan: nan             min -inf -most: -inf
min inf 0: 0                  relu nan: nan                 relu -inf: 0                  relu inf: inf
relu_grad inf 2: 2            relu_grad -inf 2: 0           relu_grad 0 inf: 0            relu_grad nan -2: -2
relu_grad 2 nan: nan          relu_grad -2 nan: 0           compare nan nan: 8            compare 0 nan: 8
compare -inf most: 1          compare inf inf: 2            compare inf most: 4           compare -inf -inf: 2
"""
CASES = [case.strip() for line in RESULTS.split("\n") for case in line.split("  ") if case.strip()]
UNITS = [Multiply, Divide, AddSubtract, Square, SquareRoot, Signs, MinMax, Relu, Compare]


def word(name):
    return WORDS[name.removeprefix("-")] | MINUS if name == "-least" else WORDS[name]


def run(unit, cases, run_unit):
    """Assert that the gates give what is written down."""
    operands, operations, layout = list(unit.operands()), list(unit.operations), unit.i.payload.shape()
    sent, expected = [], []
    for case in cases:
        what, result = (part.split() for part in case.split(": "))
        fields = dict(zip(operands, map(word, what[1:]), strict=False))
        if len(operations) > 1:
            fields["op"] = operations.index(what[0])
        sent.append(sum(value << layout[name].offset for name, value in fields.items()))
        bits = int(result[0]) if what[0] == "compare" else word(result[0])
        expected.append((case, bits, sum(1 << FLAGS.index(flag) for flag in result[1:])))
    _, received = run_unit(unit, sent)
    results = [payloads.unpack(unit.o.payload.shape(), bits) for _, bits in received]
    got = [
        (case, sum(bit << place for place, bit in enumerate(fields.values())), 0)
        if "unordered" in fields
        else (case, next(iter(fields.values())), fields["flags"])
        for case, fields in zip(cases, results, strict=True)
    ]
    assert got == expected


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_specials_of_a_unit(unit, run_unit):
    unit = unit(format=FORMAT)
    cases = [case for case in CASES if case.split()[0] in unit.operations]
    assert len(cases) >= 4
    run(unit, cases, run_unit)


def test_specials_in_the_alu(run_unit):
    unit = ALU(format=FORMAT)
    assert {case.split()[0] for case in CASES} == set(unit.operations) - {
        *("mac", "from_float32", "to_float32", "from_fixed", "to_fixed")
    }
    run(unit, CASES, run_unit)
