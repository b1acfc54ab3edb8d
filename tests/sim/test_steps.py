"""Every step of a sum: each product meets each in every adder, and a single wrong one is found."""

import dataclasses
import itertools

import pytest
from lnstesting import exactly
from planting import awaken, plant

import hdl
from sim.levels import RTL
from sim.steps import check_steps, make_steps
from sim.verify import verify
from xlnstorch import LinearAccumulator, LNSFormat, LogAccumulator, lns8, lns16
from xlnstorch.reference import Reference

TINY = LNSFormat(2, 1)  # words of 4 bits
SPECIAL = dataclasses.replace(TINY, specials=True)


def factors_of_rows(unit, made):
    """Return for each row of the sums the factors of all payloads, of shape ``(n, lanes)``."""
    if isinstance(unit, hdl.DotProduct):
        return [made.terms]
    weights, x = made.terms
    return [(weights[:, row], x) for row in range(unit.rows)]


@pytest.mark.parametrize("format", [TINY, SPECIAL], ids=["", "specials"])
@pytest.mark.parametrize(
    "kind, parameters",
    [
        (hdl.DotProduct, {"lanes": 1}),
        (hdl.DotProduct, {"lanes": 4}),
        (hdl.MatrixVector, {"rows": 1, "lanes": 1}),
        (hdl.MatrixVector, {"rows": 3, "lanes": 2, "columns": 4}),
    ],
)
def test_each_product_is_added_to_each_in_every_adder(kind, parameters, format):
    reference = Reference(format.int_bits, format.frac_bits, format.specials)
    pairs = list(itertools.product(range(1 << format.width), repeat=2))
    products = {(a, b): (word, frozenset(flags)) for a, b in pairs for word, flags in [reference.mul(a, b)]}
    unit = kind(format=format, **parameters)
    segment = make_steps("exhaustive", unit)
    made = segment.vectors.sequence
    assert len(segment) == len(made.groups)
    zero = (0, frozenset())
    for a, b in factors_of_rows(unit, made):
        alone, together = set(), set()
        for group in made.groups:
            factors = list(zip(a[group].ravel().tolist(), b[group].ravel().tolist(), strict=True))
            terms = [products[pair] for pair in factors]
            places = [place for place, term in enumerate(terms) if term != zero]
            alone |= set(enumerate(factors)) if len(places) < 2 and len(group) == 1 else set()
            together |= {
                (place, terms[place & (place - 1)], terms[place])
                for place in range(1, len(terms))
                if set(places) <= {place & (place - 1), place}
            }
        lanes, every = range(unit.lanes), set(products.values())
        assert alone >= set(itertools.product(lanes, pairs))
        assert together >= {(lane + 1, *both) for lane in lanes for both in itertools.product(every, every)}


UNITS = [(hdl.DotProduct, {"lanes": 2}), (hdl.MatrixVector, {"rows": 2, "lanes": 2})]


@pytest.mark.sim
@pytest.mark.parametrize("kind, parameters", UNITS, ids=lambda value: getattr(value, "name", ""))
def test_all_steps_at_lns8(kind, parameters):
    report = verify([kind(format=lns8, **parameters)], lns8, stimuli=["exhaustive"])
    assert report.passed, report.to_json()
    (result,) = report.results
    assert (result.stimulus, result.runner) == ("exhaustive", "batch")
    assert result.vectors > 2 * 2 << 16


@pytest.mark.sim
@pytest.mark.long
@pytest.mark.parametrize("specials", [False, True], ids=["", "specials"])
@pytest.mark.parametrize(
    "accumulator",
    [LogAccumulator(), LogAccumulator("tree"), LogAccumulator("tree", guard_bits=2), LinearAccumulator()],
    ids=repr,
)
@pytest.mark.parametrize("kind, parameters", UNITS, ids=lambda value: getattr(value, "name", ""))
def test_all_steps_of_each_accumulator(kind, parameters, accumulator, specials):
    format = dataclasses.replace(lns8, accumulator=accumulator, specials=specials)
    report = verify([kind(format=format, **parameters)], format, stimuli=["exhaustive"])
    assert report.passed, report.to_json()


@pytest.mark.sim
def test_a_wrong_word_of_a_table_is_found(monkeypatch):
    unit = hdl.DotProduct(format=TINY, lanes=2)
    text, faults = plant(hdl.to_verilog(unit, initial=False))
    words = [number for number, fault in enumerate(faults, 1) if fault.kind == "table"]
    monkeypatch.setattr(RTL, "source", lambda self, unit: awaken(text, words[-2]))
    report = verify([unit], TINY, stimuli=["exhaustive"])
    assert not report.passed
    (example,) = report.counterexamples
    assert len(example.operands["a"].bits) <= 2
    assert report.results[0].mismatches < report.results[0].vectors / 4


@pytest.mark.parametrize(
    "unit, message",
    [
        (
            hdl.DotProduct(format=lns16),
            "exhaustive takes at most 2**20 vectors of a unit that sums, but dot has 4 * 2**32 steps",
        ),
        (hdl.Multiply(format=lns8), "the steps of multiply are not known, so no stimulus of it is exhaustive"),
    ],
)
def test_what_cannot_be_tried(unit, message):
    with pytest.raises(ValueError, match=exactly(message)):
        check_steps(unit)
