import json
import re
import shutil

import pytest

from fpga.netlists import _top, after_routing, after_synthesis, read_back


def cell(kind, inputs=None, outputs=None, **parameters):
    connections = {**(inputs or {}), **(outputs or {})}
    return {
        "type": kind,
        "parameters": parameters,
        "attributes": {},
        "connections": {port: [net] if net else [] for port, net in connections.items()},
        "port_directions": {port: "output" if port in (outputs or {}) else "input" for port in connections},
    }


def netlist(cells, **ports):
    """Return a netlist; a port is its direction and the nets of its bits."""
    described = {name: {"direction": direction, "bits": bits} for name, (direction, *bits) in ports.items()}
    names = {name: {"hide_name": 0, "bits": port["bits"], "attributes": {}} for name, port in described.items()}
    top = {"attributes": {}, "ports": described, "cells": cells, "netnames": names}
    return json.dumps({"creator": "a test", "modules": {"top": top}})


def statements(gates):
    """Return the text without white space, as one line."""
    return "".join(gates.verilog.split())


def test_after_synthesis_the_netlist_is_written_as_it_is():
    lut = cell("SB_LUT4", {"I0": 2, "I1": "0", "I2": "0", "I3": "0"}, {"O": 3}, LUT_INIT=f"{2:016b}")
    gates = after_synthesis(netlist({"lut": lut}, i=["input", 2], o=["output", 3]))
    assert gates.cells == ["SB_LUT4"]
    assert "SB_LUT4#(.LUT_INIT(16'h0002))lut(.I0(i),.I1(1'h0),.I2(1'h0),.I3(1'h0),.O(o));" in statements(gates)
    assert "/tmp" not in gates.verilog


def test_pins_and_buffers_only_pass_a_value_on():
    cells = {
        "in": cell("SB_IO", {"PACKAGE_PIN": 2, "D_OUT_0": None}, {"D_IN_0": 3}, PIN_TYPE=f"{0b000001:032b}"),
        "out": cell("SB_IO", {"PACKAGE_PIN": 4, "D_OUT_0": 3}, {"D_IN_0": None}, PIN_TYPE=f"{0b011001:032b}"),
        "low": cell("SB_IO", {"PACKAGE_PIN": 5, "D_OUT_0": None}, {"D_IN_0": None}, PIN_TYPE=f"{0b011001:032b}"),
        "unread": cell("SB_IO", {"PACKAGE_PIN": 6, "D_OUT_0": None}, {"D_IN_0": None}, PIN_TYPE=f"{0b000001:032b}"),
    }
    gates = after_routing(netlist(cells, i=["input", 2, 6], o=["output", 4, 5]))
    assert gates.cells == []
    assert "assigno[1]=1'h0;" in statements(gates)
    (between,) = re.findall(r"assign([^;]*)=i\[0\];", statements(gates))
    assert f"assigno[0]={between};" in statements(gates)
    ecp5 = {
        "in": cell("TRELLIS_IO", {"B": 2, "I": None}, {"O": 3}, DIR="INPUT"),
        "clock": cell("DCCA", {"CLKI": 3, "CE": None}, {"CLKO": 4}),
        "out": cell("TRELLIS_IO", {"B": 5, "I": 4}, {"O": None}, DIR="OUTPUT"),
    }
    assert after_routing(netlist(ecp5, i=["input", 2], o=["output", 5])).cells == []


def test_a_pin_of_both_directions_is_refused_not_guessed():
    both = cell("SB_IO", {"PACKAGE_PIN": 2, "D_OUT_0": 3}, {"D_IN_0": 4}, PIN_TYPE=f"{0b101001:032b}")
    with pytest.raises(KeyError, match="101001"):
        after_routing(netlist({"pin": both}, io=["inout", 2]))


def test_open_inputs_read_what_they_read_in_the_device():
    logic = cell("ICESTORM_LC", {"I0": 2, "I1": None, "CEN": None, "SR": None, "CLK": 3}, {"O": 4})
    text = statements(after_routing(netlist({"lc": logic}, i=["input", 2, 3], o=["output", 4])))
    assert "lc(.CEN(1'h1),.CLK(i[1]),.I0(i[0]),.I1(1'h0),.O(o),.SR(1'h0));" in text
    lut = cell("TRELLIS_COMB", {"A": 2, "B": None, "DI0": None}, {"F": 4})  # C and D are not even named
    text = statements(after_routing(netlist({"comb": lut}, i=["input", 2], o=["output", 4])))
    assert "comb(.A(i),.B(1'h1),.C(1'h1),.D(1'h1),.F(o));" in text


@pytest.mark.parametrize(("way", "port"), [("1 ", "DI"), ("0 ", "M")])
def test_a_register_of_an_ecp5_has_its_data_from_beside_the_lut_or_past_it(way, port):
    flip_flop = cell("TRELLIS_FF", {port: 2, "CLK": 3, "LSR": None}, {"Q": 4}, SD=way)
    text = statements(after_routing(netlist({"ff": flip_flop}, i=["input", 2, 3], o=["output", 4])))
    assert "ff(.CLK(i[1]),.DI(i[0]),.LSR(1'h0),.Q(o));" in text


@pytest.mark.parametrize("second", [False, True])
def test_a_cell_of_an_ecp5_has_the_multiplexer_whose_inputs_it_has(second):
    inputs = {"FXA": 2, "FXB": 3, "M": 5} if second else {"F1": 2, "M": 5}
    comb = cell("TRELLIS_COMB", inputs, {"OFX": 4})
    text = statements(after_routing(netlist({"mux": comb}, i=["input", 2, 3, 5], o=["output", 4])))
    assert f".IS_Z1(1'h{int(second)})" in text


def pin(net, place):
    return {**cell("SB_IO", {"PACKAGE_PIN": net}), "attributes": {"NEXTPNR_BEL": place}}


def test_the_pins_of_a_chip_get_the_names_of_the_ports_that_are_placed_there():
    cells = {"p": pin(2, "X0/Y17/io0"), "q": pin(3, "X33/Y4/io1"), "r": pin(4, "X5/Y0/io0")}
    top = json.loads(netlist(cells, clk=["input", 2], o=["output", 3, 4]))["modules"]["top"]
    assert _top(top, {"io_0_17_0", "io_33_4_1"}).splitlines() == [
        "module top (clk, o);",
        "input [0:0] clk;",
        "output [1:0] o;",
        "chip chip (.io_0_17_0(clk[0]), .io_33_4_1(o[0]));",
        "endmodule",
    ]


def test_what_icestorm_writes_becomes_verilog_that_verilator_reads(tmp_path, monkeypatch):
    chip = "\nmodule chip (input io_0_17_0, output io_33_4_1);\n\nreg io_33_4_1 = 0;\nSB_RAM40_4K #(\n);\nendmodule\n"
    program = tmp_path / "icebox_vlog"
    program.write_text(f"#!{shutil.which('python3')}\nprint({chip!r})\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    gates = read_back("", netlist({"p": pin(2, "X0/Y17/io0")}, clk=["input", 2]))
    assert gates.cells == ["SB_RAM40_4K"]
    lines = gates.verilog.splitlines()
    start = lines.index("module chip (io_0_17_0, io_33_4_1);")
    assert lines[start + 1 : start + 3] == ["input io_0_17_0;", "output io_33_4_1;"]
