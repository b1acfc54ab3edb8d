"""What the units take is not worse than the committed baselines, and the benchmark says so where it is."""

import dataclasses
import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
from amaranth.hdl import Signal, signed
from lnstesting import exactly

from fpga.flow import DEVICES, Implementation
from fpga.runner import Runner
from hdl import Multiply
from sim.simulators import ToolMissing
from xlnstorch import lns8, lns16
from xlnstorch.cli import CommandError

FILE = str(Path(__file__).parents[2] / "benchmarks/cells.py")
cells = SimpleNamespace(**runpy.run_path(FILE, run_name="cells"))
ICE40, ECP5 = DEVICES["ice40"], DEVICES["ecp5"]


@pytest.fixture
def baseline():
    """Return a function that gives a device's baseline, or skips: other tools make other cells."""

    def read(device):
        if not cells.baseline_file(device).exists():
            pytest.skip(f"no baseline for these tools: {cells.baseline_file(device).name}")
        return cells.read_baseline(device)

    return read


def measured(unit, format_name, device, seeds):
    """Return the row of the LNS unit."""
    design = next(cells.designs(unit, cells._format(format_name, None)))
    with Runner() as runner:
        return cells.row(design, device, seeds, cells.implement(design, device, seeds, runner))


@pytest.mark.synth
@pytest.mark.parametrize(
    ("unit", "format", "device"),
    [("multiply", "lns16", "ice40"), ("add", "lns16", "ecp5"), ("multiply", "lns32", "ecp5")],
)
def test_a_few_units_are_not_worse_than_the_baseline(unit, format, device, baseline):
    device = DEVICES[device]
    assert cells.worse([measured(unit, format, device, (1, 2, 3))], baseline(device)) == []


@pytest.mark.long
@pytest.mark.synth
def test_no_unit_is_worse_than_the_baseline_and_all_of_it_is_measured(baseline):
    before = [row for device in DEVICES.values() for row in baseline(device)]
    formats = [cells._format(name, None) for name in cells.FORMATS]
    found = cells.measure(cells.UNITS, formats, list(DEVICES.values()), cells.SEEDS)
    assert cells.worse(found, before) == []
    assert {cells._title(row) for row in found} == {cells._title(row) for row in before}


@pytest.mark.synth
def test_a_unit_that_needs_more_is_worse(baseline, monkeypatch):
    class Plain(Multiply):
        """Two additions and the range check in one clock."""

        latency = 1

        def datapath(self, m, pipeline, operands):
            a, b = operands.a, operands.b
            field = Signal(signed(self.format.log_bits + 2))
            m.d.comb += field.eq(a.field + b.field - self.format.bias)
            zero = (a.field == 0) | (b.field == 0)
            return self.fitted(m, pipeline, field=field, sign=a.sign ^ b.sign, zero=zero)

    monkeypatch.setitem(cells.UNITS, "multiply", Plain)
    sentences = cells.worse([measured("multiply", "lns16", ICE40, (1,))], baseline(ICE40))
    assert len(sentences) == 2
    assert "luts, 37 in the baseline" in sentences[0]
    assert "MHz, " in sentences[1]


# Without tools -----------------------------------------------------------------------------------------------------


def row(**changes):
    kinds = {"luts": 100, "registers": 50, "block_rams": 1, "dsps": 0}
    clocks = {"clocks": {"1": 190.0, "2": 200.0, "3": 240.0}, "mhz": 200.0, "reason": None}
    return {"unit": "add", "format": "lns16", "design": "exact", "device": "ecp5", **kinds, **clocks, **changes}


@pytest.mark.parametrize(
    ("changes", "sentences"),
    [
        ({}, []),
        ({"luts": 102, "clocks": {"1": 171.0}}, []),
        ({"luts": 50, "clocks": {"2": 400.0}}, []),
        ({"luts": 103}, ["103 luts, 100 in the baseline"]),
        ({"luts": None}, ["None luts, 100 in the baseline"]),
        ({"block_rams": 2, "dsps": 1}, ["2 block_rams, 1 in the baseline", "1 dsps, 0 in the baseline"]),
        ({"clocks": {"1": 170.9}}, ["170.9 MHz, 190.0 in the baseline"]),
        ({"clocks": {"1": 240.0, "2": 179.0, "3": 179.0}}, ["179.0 MHz, 200.0 in the baseline"]),
        ({"clocks": {"4": 200.0}}, ["no clock to compare (other seeds)"]),
        ({"clocks": {"1": None}, "reason": "no room"}, ["no clock to compare (no room)"]),
        ({"unit": "multiply", "design": ""}, ["not in the baseline"]),
    ],
)
def test_what_counts_as_worse(changes, sentences):
    found = row(**changes)
    assert cells.worse([found], [row()]) == [f"{cells._title(found)}: {sentence}" for sentence in sentences]
    assert cells._title(row()) == "lns16 add exact on ecp5"


def test_what_had_no_clock_need_not_have_one():
    unplaced = row(mhz=None, clocks={"1": None}, reason="no room")
    assert cells.worse([unplaced], [unplaced]) == cells.worse([row()], [unplaced]) == []


def test_a_target_is_missed_by_name():
    assert cells.targets([row(), row(device="ice40"), row(design="zkf long"), row(format="lns8")]) == [
        {"unit": "add", "format": "lns16", "luts": 160, "dsps": 0, "block_rams": 2, "mhz": 196, "missed": []}
    ]
    (missed,) = cells.targets([row(luts=161, dsps=1, mhz=195.9, block_rams=3)])
    assert missed["missed"] == ["luts", "dsps", "block_rams", "mhz"]


def test_the_clock_is_the_median_and_absent_if_a_seed_has_none():
    design = cells.Design("add", "lns16", "exact", "", "rtlil")
    found = [Implementation(1, 2, 3, 4, mhz) for mhz in (100.0, 300.04, 150.0)]
    made = cells.row(design, ECP5, (1, 2, 5), found)
    assert (made["mhz"], made["clocks"], made["reason"]) == (150.0, {"1": 100.0, "2": 300.0, "5": 150.0}, None)
    made = cells.row(design, ECP5, (1, 2), [found[0], dataclasses.replace(found[0], mhz=None, reason="no room")])
    assert (made["mhz"], made["clocks"], made["reason"]) == (None, {"1": 100.0, "2": None}, "no room")


@pytest.mark.parametrize(("text", "seeds"), [("3", (3,)), ("1,4", (1, 4)), ("1-5", (1, 2, 3, 4, 5)), ("2-3,2", (2, 3))])
def test_seeds(text, seeds):
    assert cells.parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "x", "5-1", "-1", f"{1 << 31}"])
def test_seeds_that_are_none(text):
    with pytest.raises(CommandError, match=exactly(f"seeds must be such as 3, 1,4 or 1-5, not {text!r}")):
        cells.parse_seeds(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--unit", "divide"], "unit must be one of multiply, add, mac, not 'divide'"),
        (["--device", "xc7"], "device must be one of ice40, ecp5, not 'xc7'"),
        (["--seeds", "a"], "seeds must be such as 3, 1,4 or 1-5, not 'a'"),
    ],
)
def test_what_is_not_there_is_refused(arguments, message):
    with pytest.raises(CommandError, match=exactly(message)):
        cells.run(arguments)


def test_zkf_is_asked_for_by_its_name(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "zkf" else object())
    with pytest.raises(ToolMissing, match=exactly("zkf is not installed; install with: pip install zkf")):
        cells.measure(["multiply"], [lns16], [ECP5], (1,))


def test_a_baseline_that_is_missing_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(cells.read_baseline.__globals__, "BASELINES", tmp_path)
    name = cells.baseline_file(ECP5).name
    with pytest.raises(CommandError, match=exactly(f"there is no baseline {name}; make one with --write-baselines")):
        cells.run(["--check", "--device", "ecp5"])


def test_floats_have_the_word_size_and_both_settings():
    pytest.importorskip("zkf")
    names = {}
    for design in cells.designs("mac", lns16):
        names[design.name] = design
    assert list(names) == ["exact", "zkf short", "zkf long"]
    assert ".WEXP(8), .WMAN(8), .STAGE_INPUT(1), .STAGE_OUTPUT(1)) multiply" in names["zkf short"].source
    assert ".STAGE_ALIGN(1), .STAGE_NORMALIZE(1), .STAGE_PACK(1)) add" in names["zkf long"].source
    assert "zkf_pipe #(.W(16), .N(5)) pipe" in names["zkf long"].source
    assert [design.name for design in cells.designs("multiply", lns8)] == ["", "zkf short", "zkf long"]


@pytest.mark.parametrize("arguments", [[], ["--json"], ["--check"]])
def test_what_is_printed_and_the_exit_status(arguments, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(cells.run.__globals__, "BASELINES", tmp_path)
    found = iter([[row()], [row(unit="multiply")], rows := [row(luts=170)]])
    monkeypatch.setitem(cells.run.__globals__, "measure", lambda *_: next(found))
    for _ in range(2):  # what the second one finds is added
        assert cells.run(["--device", "ecp5", "--write-baselines"]) == 0
    capsys.readouterr()
    assert cells.run(["--device", "ecp5", *arguments]) == ("--check" in arguments)
    out, err = capsys.readouterr()
    assert err == "worse: lns16 add exact on ecp5: 170 luts, 100 in the baseline\n" * ("--check" in arguments)
    if arguments == ["--json"]:
        report = json.loads(out)
        assert (set(report), report["cells"]) == ({"schema", "tools", "cells", "targets"}, rows)
    else:
        assert "target of lns16 add: ≤ 160 LUT4, ≤ 0 DSP, ≤ 2 block RAM, ≥ 196 MHz: missed: luts" in out
