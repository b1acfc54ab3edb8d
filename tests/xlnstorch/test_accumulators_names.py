import dataclasses

import pytest

from xlnstorch import LinearAccumulator, LogAccumulator, named_accumulator
from xlnstorch.accumulators import ACCUMULATORS


@dataclasses.dataclass(frozen=True)
class ScaledAccumulator(LinearAccumulator):
    """An accumulator with a parameter of another type."""

    factor: float | None = None


@pytest.mark.parametrize("name", ACCUMULATORS)
def test_a_name_alone_is_the_accumulator_with_its_defaults(name):
    assert named_accumulator(name) == ACCUMULATORS[name]()
    assert type(named_accumulator(name)) is ACCUMULATORS[name]
    assert named_accumulator(name).name == name


@pytest.mark.parametrize(
    ("accumulator", "name"),
    [
        (LogAccumulator("tree"), "log:order=tree"),
        (LogAccumulator(guard_bits=3), "log:guard_bits=3"),
        (LogAccumulator("tree", 48), "log:order=tree,guard_bits=48"),
        (LinearAccumulator(table_bits=0), "linear:table_bits=0"),  # not the default, though it is false
        (LinearAccumulator(frac_bits=16), "linear:frac_bits=16"),
        (LinearAccumulator(11, 8192), "linear:table_bits=11,frac_bits=8192"),
        (ScaledAccumulator(9, factor=0.1), "scaled:table_bits=9,factor=0.1"),
    ],
    ids=repr,
)
def test_the_name_of_an_accumulator_names_it(accumulator, name, monkeypatch):
    monkeypatch.setitem(ACCUMULATORS, "scaled", ScaledAccumulator)
    assert accumulator.name == name
    assert named_accumulator(name) == accumulator


def test_parameters_may_come_in_any_order_and_be_the_defaults():
    assert named_accumulator("log:guard_bits=2,order=tree") == LogAccumulator("tree", 2)
    assert named_accumulator("log:order=sequential,guard_bits=0") == LogAccumulator()
    assert named_accumulator("linear:") == LinearAccumulator()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "accumulator must be one of log, linear, not ''"),
        ("tree", "accumulator must be one of log, linear, not 'tree'"),
        ("LogAccumulator", "accumulator must be one of log, linear, not 'LogAccumulator'"),
        ("linear:order=tree", "the accumulator linear takes table_bits, frac_bits, not 'order'"),
        ("log:order=tree,", "the accumulator log takes order, guard_bits, not ''"),
        ("log:order", "the parameter order of the accumulator log must be given once, as order=VALUE"),
        ("log:order=tree,order=tree", "the parameter order of the accumulator log must be given once, as order=VALUE"),
        ("log:guard_bits=2.0", "guard_bits of the accumulator log must be an integer, not '2.0'"),
        ("linear:frac_bits=None", "frac_bits of the accumulator linear must be an integer, not 'None'"),
        ("log:order=up", "order must be 'sequential' or 'tree', not 'up'"),
        ("log:guard_bits=49", "guard_bits must be between 0 and 48, not 49"),
        ("linear:table_bits=-1", "table_bits must be between 0 and 60, not -1"),
    ],
)
def test_what_names_no_accumulator_is_refused(text, message):
    with pytest.raises(ValueError) as caught:
        named_accumulator(text)
    assert str(caught.value) == message
