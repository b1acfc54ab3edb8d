import pytest
import torch

import hdl
from sim.naming import named_unit
from xlnstorch import LNSFormat, lns8


@pytest.mark.parametrize("name", hdl.UNITS)
def test_every_unit_has_its_name(name):
    unit = named_unit(name, lns8)
    assert type(unit) is hdl.UNITS[name]
    assert (unit.name, unit.format) == (name, lns8)


def test_parameters_are_integers_truth_values_dtypes_and_text():
    assert named_unit("from_float:dtype=bfloat16", lns8).dtype == torch.bfloat16
    dot = named_unit("dot:lanes=2,channels=64,rom=luts", lns8)
    assert (dot.lanes, dot.channels) == (2, 64)
    layout = named_unit("from_fixed:width=13,signed=False", lns8).operands()["a"]
    assert (layout.width, layout.signed) == (13, False)


def test_several_names_are_joined_by_plus():
    assert named_unit("alu:converters=float16+fixed", lns8).converters == ("float16", "fixed")
    assert named_unit("alu:converters=fixed,rom=luts", lns8).converters == ("fixed",)
    assert named_unit("alu:converters=none", lns8).converters == ()
    assert named_unit("alu", lns8).converters == ("float32", "fixed")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("power", f"unit must be one of {', '.join(hdl.UNITS)}, not 'power'"),
        ("multiply:lanes=2", "the unit multiply takes no parameters, not 'lanes'"),
        ("add:lanes=2", "the unit add takes rom, not 'lanes'"),
        ("add:rom", "the parameter rom of the unit add must be given once, as rom=VALUE"),
        ("dot:lanes=2,lanes=4", "the parameter lanes of the unit dot must be given once, as lanes=VALUE"),
    ],
)
def test_what_names_no_unit_is_refused(text, message):
    with pytest.raises(ValueError) as caught:
        named_unit(text, lns8)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("matvec:columns=x", "columns must be an integer, not 'x'"),
        ("dot:beats=foo", "beats must be an integer, not 'foo'"),
        ("dot:lanes=True", "lanes must be an integer, not True"),
        ("from_fixed:width=float16", "width must be an integer, not torch.float16"),
        ("alu:converters=float64", "converters must be among float16, bfloat16, float32, fixed, not 'float64'"),
        ("alu:converters=", "converters must be among float16, bfloat16, float32, fixed, not ''"),
        ("alu:converters=fixed+fixed", "converters must be different, not fixed, fixed"),
    ],
)
def test_a_value_that_a_parameter_cannot_have_is_refused(text, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        named_unit(text, lns8)
    assert str(caught.value) == message


def test_a_format_that_a_unit_cannot_have_is_refused():
    with pytest.raises(ValueError, match=r"^a hardware format must have base 2, not 3\.0$"):
        named_unit("multiply", LNSFormat(8, 7, base=3.0))
