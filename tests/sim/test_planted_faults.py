"""``lns verify`` as it is called without options finds a fault of each kind in each unit.

The faults are planted in the Verilog of the unit (tests/planting.py), all in one simulation; each run awakes one. Kinds
that a unit has no place for are the only ones left out.
"""

import contextlib
import dataclasses

import pytest
from planting import KINDS, plant

import hdl
from sim import capture, workloads
from sim.levels import RTL
from sim.simulators import Verilator
from sim.verify import verify
from xlnstorch import lns8

pytestmark = pytest.mark.sim

FORMAT = dataclasses.replace(lns8, specials=True)
PARAMETERS = {
    "alu": {"converters": ("float16", "fixed")},
    "dot": {"lanes": 2},
    "matvec": {"rows": 2, "lanes": 2, "columns": 4},
}
#: Kinds that a unit has no place for: of tables, at lns8, those of adders only; what selects a word or compares has no
#: sum; what gives or takes no word with a sign of its own passes it on in the word.
ABSENT = {
    "multiply": {"table"},
    "divide": {"table"},
    "square": {"table"},
    "sqrt": {"table", "sign"},
    "signs": {"table", "carry", "sign"},
    "compare": {"table", "carry", "sign", "flag"},
    "minmax": {"table", "carry"},
    "relu": {"table", "carry", "sign"},
    "from_float": {"table"},
    "to_float": {"table"},
    "from_fixed": {"table"},
    "to_fixed": {"table"},
}


@pytest.fixture(scope="module")
def trace():
    """The training step that ``lns verify`` captures, once for all."""
    with capture(FORMAT) as trace:
        workloads.digits_step(FORMAT, 0)
    return trace


@pytest.mark.parametrize("name", hdl.UNITS)
def test_a_fault_of_each_kind_is_found(name, trace, monkeypatch):
    unit = hdl.UNITS[name](format=FORMAT, **PARAMETERS.get(name, {}))
    text, faults = plant(hdl.to_verilog(unit, initial=False))
    assert set(KINDS) - {fault.kind for fault in faults} == ABSENT.get(name, set())
    monkeypatch.setattr("sim.verify.capture", lambda format: contextlib.nullcontext(trace))
    monkeypatch.setattr(workloads, "digits_step", lambda format, seed: None)
    monkeypatch.setattr(RTL, "source", lambda self, unit: text)
    awake, power_up = [0], Verilator.power_up
    monkeypatch.setattr(Verilator, "power_up", lambda self, seed: [*power_up(self, seed), f"+fault={awake[0]}"])
    assert verify([unit], FORMAT, stimuli=["random"], vectors=100).passed  # while none is awake
    for kind in KINDS:
        places = [number for number, fault in enumerate(faults, 1) if fault.kind == kind]
        if not places:
            continue
        awake[0] = places[len(places) // 2]
        report = verify([unit], FORMAT, exit_first=True)
        assert report.problems or report.counterexamples, faults[awake[0] - 1]
        assert not report.passed
        if kind == "reset":
            assert report.problems[0].startswith(f"{name}: a result that was in flight came out after a reset")
