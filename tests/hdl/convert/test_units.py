"""What all converters have in common: latency, rate, stalls, resets, defaults, and what they refuse."""

import random

import pytest
import torch
from hdltesting import check_rate, check_reset, golden_answers, packed
from lnstesting import exactly

from hdl import UNITS, FromFixed, FromFloat, ToFixed, ToFloat
from xlnstorch import LNSFormat, lns8, lns16, lns16e5, lns24, lns32

CONVERTERS = [FromFloat, ToFloat, FromFixed, ToFixed]
BUILT = [
    *((unit, lns16, {}) for unit in CONVERTERS),
    *((unit, lns32, {}) for unit in CONVERTERS),
    *((unit, lns24, {"dtype": torch.float16, "rom": "luts"}) for unit in (FromFloat, ToFloat)),
    *((unit, lns8, {"width": 2, "frac_bits": -5, "signed": False}) for unit in (FromFixed, ToFixed)),
    *((unit, lns16, {"width": 64, "rom": "luts"}) for unit in (FromFixed, ToFixed)),
]

each_built = pytest.mark.parametrize(("unit", "format", "options"), BUILT, ids=str)


def cases(unit, count, rng):
    """Return operands of a unit, of which most are no special cases."""
    (operation,), (layout,) = unit.operations, unit.operands().values()
    return [(operation, (rng.getrandbits(layout.size - rng.randrange(2)),)) for _ in range(count)]


def int64(made):
    """Return cases with 64 bits as int64, as tensors have them."""
    return [(operation, (a - (a >> 63 << 64),)) for operation, (a,) in made]


@each_built
def test_latency_and_rate_are_as_stated(unit, format, options, run_unit):
    built = unit(format=format, **options)
    check_rate(built, cases(built, 20, random.Random(0)), run_unit)


@each_built
def test_no_stall_changes_a_result_or_its_order(unit, format, options, run_unit):
    rng = random.Random(str(options))
    built = unit(format=format, **options)
    made = cases(built, 100, rng)
    stalls = [(rng.random() < 0.5, rng.random() < 0.4) for _ in range(5000)]
    _, received = run_unit(
        built, packed(built, made), valid=lambda clock: stalls[clock][0], ready=lambda clock: stalls[clock][1]
    )
    assert [payload for _, payload in received] == golden_answers(built, int64(made))


@pytest.mark.parametrize("unit", CONVERTERS)
def test_a_reset_loses_what_is_in_flight(unit, run_unit):
    rng = random.Random(unit.name)
    built = unit(format=lns16e5)
    check_reset(built, cases(built, 60, rng), rng, run_unit)


def test_the_defaults_are_float32_and_half_of_a_words_width():
    assert {name: UNITS[name] for name in ("from_float", "to_float", "from_fixed", "to_fixed")} == {
        unit.name: unit for unit in CONVERTERS
    }
    assert FromFloat(format=lns16).dtype == ToFloat(format=lns16).dtype == torch.float32
    for layout in (FromFixed(format=lns24).operands()["a"], ToFixed(format=lns24).results()["fixed"]):
        assert (layout.width, layout.frac_bits, layout.signed) == (24, 12, True)
    assert FromFixed(format=lns24, width=9).operands()["a"].frac_bits == 4


@pytest.mark.parametrize("unit", CONVERTERS)
def test_what_cannot_be_built_is_refused_at_the_door(unit):
    with pytest.raises(TypeError, match=exactly("format must be an LNSFormat such as xlnstorch.lns16, not 'lns16'")):
        unit(format="lns16")
    with pytest.raises(ValueError, match=exactly("a hardware format must have base 2, not 3.0")):
        unit(format=LNSFormat(8, 7, base=3.0))
    with pytest.raises(ValueError, match=exactly("rom must be 'block' or 'luts', not 'flash'")):
        unit(format=lns16, rom="flash")
    message = "conversions in gates need a format with at most 24 fraction bits, not the 25 of LNSFormat(8, 25)"
    with pytest.raises(ValueError, match=exactly(message)):
        unit(format=LNSFormat(8, 25))


@pytest.mark.parametrize("unit", [FromFloat, ToFloat])
def test_other_dtypes_are_refused(unit):
    message = "dtype must be torch.float16, torch.bfloat16 or torch.float32, not torch.float64"
    with pytest.raises(TypeError, match=exactly(message)):
        unit(format=lns16, dtype=torch.float64)


@pytest.mark.parametrize("unit", [FromFixed, ToFixed])
def test_other_widths_are_refused(unit):
    message = "width must be at most 32 for lns24, which has over 12 fraction bits, not 33"
    with pytest.raises(ValueError, match=exactly(message)):
        unit(format=lns24, width=33)
    with pytest.raises(ValueError, match=exactly("width must be between 1 and 64 where signed=True, not 65")):
        unit(format=lns16, width=65)
    with pytest.raises(TypeError, match=exactly("width must be an integer, not 8.5")):
        unit(format=lns16, width=8.5)
    assert unit(format=LNSFormat(8, 24))
