"""The bench must be able to fail: hundreds of faults in each unit, and none that any operands show may escape it.

Yosys plants them: a port of a cell inverted, constant, or mixed up with another. The vectors of ``lns verify`` must
find each that any operands at all tell from the unit.
"""

import pytest
import torch

import hdl
from sim import golden
from sim.exhaustive import Space
from sim.mutants import Hunt, mutate
from sim.segments import STIMULI, Segment, has_segment, make_segment
from xlnstorch import lns8

pytestmark = [pytest.mark.sim, pytest.mark.slow]

MUTANTS = 150
UNITS = [hdl.Multiply, hdl.AddSubtract, hdl.MinMax, hdl.ToFloat, hdl.FromFixed]
MORE = [hdl.Divide, hdl.Square, hdl.SquareRoot, hdl.Signs, hdl.Compare, hdl.Relu, hdl.ToFixed]


def survivors(unit, count=MUTANTS):
    """Return the hunt, its mutants, and the numbers of those that the default vectors do not find."""
    mutants = mutate(unit, count, seed=0)
    hunt = Hunt(unit, mutants)
    segments = [
        make_segment(stimulus, unit, 0, 5000, None)
        for stimulus in STIMULI
        if stimulus != "captured" and has_segment(stimulus, unit, None)
    ]
    assert not hunt.finds(mutants.none, segments)
    return hunt, mutants, [number for number in range(len(mutants.faults)) if not hunt.finds(number, segments)]


def all_operands(unit):
    space = Space(unit)
    for begin, end in space.chunks(0, len(space)):
        vectors = space.vectors(begin, end)
        yield Segment("exhaustive", vectors, golden.evaluate(unit, vectors))


@pytest.mark.parametrize(
    "kind", [*UNITS, *(pytest.param(kind, marks=pytest.mark.long) for kind in MORE)], ids=lambda kind: kind.name
)
def test_what_any_operands_show_the_default_vectors_show(kind):
    unit = kind(format=lns8)
    hunt, mutants, left = survivors(unit)
    everything = list(all_operands(unit))
    escaped = [mutants.faults[number] for number in left if hunt.finds(number, everything)]
    assert not escaped
    assert len(left) < 0.35 * len(mutants.faults)


def test_of_floats_of_16_bits():
    unit = hdl.FromFloat(format=lns8, dtype=torch.float16)
    hunt, mutants, left = survivors(unit)
    everything = list(all_operands(unit))
    assert not [mutants.faults[number] for number in left if hunt.finds(number, everything)]


@pytest.mark.parametrize(
    "unit, most",
    [
        (hdl.MultiplyAdd(format=lns8), 0.1),
        (hdl.DotProduct(format=lns8, lanes=2), 0.2),
        (hdl.MatrixVector(format=lns8), 0.2),
        (hdl.ALU(format=lns8, converters=("float16", "fixed")), 0.2),
    ],
    ids=lambda value: getattr(value, "name", None),
)
@pytest.mark.parametrize("count", [60, pytest.param(MUTANTS, marks=pytest.mark.long)])
def test_of_units_with_too_many_operands_to_try_all(unit, most, count):
    """Few survive, most or all of them because nothing can tell them apart; which faults there are differs by run."""
    _, mutants, left = survivors(unit, count)
    assert len(left) < most * len(mutants.faults), [mutants.faults[number] for number in left]
