import tempfile

import pytest

from hdl import UNITS, Multiply, to_verilog
from xlnstorch import lns8, lns16


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_the_text_is_the_same_each_time_and_holds_no_path(unit):
    first, second = (to_verilog(unit(format=lns16)) for _ in range(2))
    assert first == second
    assert ".py" not in first
    assert "/tmp" not in first


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_ports_are_named_after_the_streams(unit):
    text = to_verilog(unit(format=lns8), name="lns_unit")
    ports = text[text.index("module lns_unit(") :].split("(", 1)[1].split(")", 1)[0].split(", ")
    streams = [f"{stream}__{part}" for stream in "io" for part in ("payload", "valid", "ready")]
    assert sorted(ports) == sorted(["clk", "rst", *streams])


def test_formats_and_units_give_different_text():
    texts = {to_verilog(unit(format=format)) for unit in UNITS.values() for format in (lns8, lns16)}
    assert len(texts) == 4


def test_a_temporary_folder_with_a_space_in_its_path(tmp_path, monkeypatch):
    (tmp_path / "with space").mkdir()
    expected = to_verilog(Multiply(format=lns8))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "with space"))
    assert to_verilog(Multiply(format=lns8)) == expected
