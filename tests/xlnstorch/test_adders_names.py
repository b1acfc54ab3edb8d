import dataclasses

import pytest
from lnstesting import Off

from xlnstorch import Exact
from xlnstorch.adders import ADDERS, Mitchell, Piecewise, named_adder


@dataclasses.dataclass(frozen=True)
class Scaled(Exact):
    """An adder with a parameter of each type."""

    factor: float = 0.5
    bits: int = 3
    mode: str = "plain"


@pytest.fixture(autouse=True)
def more_adders(monkeypatch):
    monkeypatch.setitem(ADDERS, "off", Off)
    monkeypatch.setitem(ADDERS, "scaled", Scaled)


@pytest.mark.parametrize("name", ADDERS)
def test_a_name_alone_is_the_adder_with_its_defaults(name):
    assert named_adder(name) == ADDERS[name]()
    assert type(named_adder(name)) is ADDERS[name]
    assert named_adder(name).name == name


@pytest.mark.parametrize(
    ("adder", "name"),
    [
        (Exact(), "exact"),
        (Mitchell(corrections=0), "mitchell:corrections=0"),
        (Piecewise(error=0.75, degree=2), "piecewise:degree=2,error=0.75"),
        (Off(by=-2), "off:by=-2"),
        (Off(below=7, by=3), "off:by=3,below=7"),  # in the order in which they are defined
        (Scaled(factor=0.1), "scaled:factor=0.1"),
        (Scaled(factor=1e-30, bits=0, mode="a b"), "scaled:factor=1e-30,bits=0,mode=a b"),
    ],
    ids=repr,
)
def test_the_name_of_an_adder_names_it(adder, name):
    assert adder.name == name
    assert named_adder(name) == adder


def test_parameters_may_come_in_any_order_and_be_the_defaults():
    assert named_adder("off:below=7,by=1") == Off(below=7)
    assert named_adder("scaled:bits=4,factor=1") == Scaled(factor=1.0, bits=4)
    assert isinstance(named_adder("scaled:factor=1").factor, float)
    assert named_adder("off:") == Off()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "adder must be one of {names}, not ''"),
        ("Exact", "adder must be one of {names}, not 'Exact'"),
        ("nearest:by=1", "adder must be one of {names}, not 'nearest'"),
        (" off", "adder must be one of {names}, not ' off'"),
        ("exact:by=1", "the adder exact takes no parameters, not 'by'"),
        ("off:at=1", "the adder off takes by, below, not 'at'"),
        ("off:by=1,", "the adder off takes by, below, not ''"),
        ("off:by=1, below=2", "the adder off takes by, below, not ' below'"),
        ("off:by", "the parameter by of the adder off must be given once, as by=VALUE"),
        ("off:by=1,by=1", "the parameter by of the adder off must be given once, as by=VALUE"),
        ("off:by=", "by of the adder off must be an integer, not ''"),
        ("off:by=1.5", "by of the adder off must be an integer, not '1.5'"),
        ("off:by=1=2", "by of the adder off must be an integer, not '1=2'"),
        ("scaled:factor=half", "factor of the adder scaled must be a number, not 'half'"),
    ],
)
def test_what_names_no_adder_is_refused(text, message):
    with pytest.raises(ValueError) as caught:
        named_adder(text)
    assert str(caught.value) == message.format(names=", ".join(ADDERS))


def test_what_an_adder_itself_refuses_is_its_own_error(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Picky(Exact):
        bits: int = 3

        def __post_init__(self):
            if self.bits < 1:
                raise ValueError(f"bits must be at least 1, not {self.bits}")

    monkeypatch.setitem(ADDERS, "picky", Picky)
    with pytest.raises(ValueError, match=r"^bits must be at least 1, not 0$"):
        named_adder("picky:bits=0")
