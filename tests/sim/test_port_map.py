import json

import pytest

from sim.port_map import Control, PortMap, Slice
from sim.sources import Port
from xlnstorch import lns8

LEAST = {"latency": 0, "operands": {"a": "x"}, "results": {"word": "z"}}
FULL = {
    "clock": "clk",
    "reset": {"port": "rst_n", "active": "low"},
    "latency": {"max": 9},
    "handshake": {"in_valid": "iv", "in_ready": "ir", "out_valid": "ov", "out_ready": "o_r"},
    "parameters": {"W": 8, "MODE": "fast"},
    "constants": {"mode": 2},
    "operands": {"a": {"port": "bus", "offset": 8}, "b": {"sign": "s", "field": {"port": "bus", "offset": 0}}},
    "results": {"word": {"port": "out", "offset": 1}, "flags": {"underflow": "under", "overflow": "over"}},
}
PORTS = {
    **{name: Port("input", 1) for name in ("clk", "rst_n", "iv", "o_r", "s")},
    **{name: Port("output", 1) for name in ("ir", "ov", "under", "over", "unused")},
    "mode": Port("input", 2),
    "bus": Port("input", 16),
    "out": Port("output", 12),
}
# Bit 7 of the bus is left, and held.
HELD = {**FULL, "constants": {"mode": 2, "bus": 0}}


def read(tmp_path, found, format=lns8):
    file = tmp_path / "map.json"
    file.write_text(found if isinstance(found, str) else json.dumps(found))
    return PortMap.read(file, format)


def test_the_least_map_is_that_of_gates_without_a_clock(tmp_path):
    assert read(tmp_path, LEAST) == PortMap(
        clock=None,
        reset=None,
        latency=0,
        steady=True,
        handshake={},
        enable=None,
        parameters={},
        constants={},
        operands={"a": (Slice("x", 8),)},
        word=(Slice("z", 8),),
        flags={},
    )


def test_a_full_map(tmp_path):
    found = read(tmp_path, FULL)
    assert found == PortMap(
        clock="clk",
        reset=Control("rst_n", active_low=True),
        latency=9,
        steady=False,
        handshake=FULL["handshake"],
        enable=None,
        parameters={"W": 8, "MODE": "fast"},
        constants={"mode": 2},
        operands={
            "a": (Slice("bus", 8, 8, whole=False),),
            "b": (Slice("bus", 7, 0, whole=False), Slice("s", 1)),
        },
        word=(Slice("out", 8, 1, whole=False),),
        flags={"overflow": Slice("over", 1), "underflow": Slice("under", 1)},
    )
    read(tmp_path, HELD).check("dut", PORTS)


def test_all_flags_in_one_port(tmp_path):
    found = read(tmp_path, {**LEAST, "results": {"word": "z", "flags": {"port": "status", "offset": 4}}})
    assert found.flags == {
        name: Slice("status", 1, 4 + bit, whole=False)
        for bit, name in enumerate(("overflow", "underflow", "invalid", "zero_divide"))
    }


STREAMS = {"clock": "clk", "reset": "rst", "latency": 1, "handshake": {"in_valid": "iv", "out_valid": "ov"}}


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            "{",
            "'{file}' must be a map of ports in JSON: Expecting property name enclosed in double quotes: line 1 "
            "column 2 (char 1)",
        ),
        ('{"latency": 1, "latency": 2}', "'{file}' must be a map of ports in JSON: the key 'latency' is there twice"),
        (
            "[]",
            "{file}: a map of ports must be an object with clock, reset, latency, handshake, enable, parameters, "
            "constants, operands, results, among them latency, operands, results, not []",
        ),
        (
            {**LEAST, "clok": "c"},
            "{file}: a map of ports must be an object with clock, reset, latency, handshake, enable, parameters, "
            "constants, operands, results, among them latency, operands, results, not ['latency', 'operands', "
            "'results', 'clok']",
        ),
        ({**LEAST, "latency": -1}, "{file}: latency must be a whole number from 0 on, not -1"),
        ({**LEAST, "latency": 1.0}, "{file}: latency must be a whole number from 0 on, not 1.0"),
        ({**LEAST, "latency": 401}, "{file}: latency must be at most 400, not 401"),
        ({**LEAST, "latency": {"min": 1}}, "{file}: latency must be an object with max, not ['min']"),
        (
            {**LEAST, "latency": 1},
            "{file}: a map without a clock must have latency 0, and neither handshake nor enable",
        ),
        (
            {**LEAST, "clock": "clk", "latency": {"max": 2}},
            "{file}: without a handshake the latency must be a number of clocks, not a longest one",
        ),
        (
            {**LEAST, "clock": "clk", "enable": "ce"},
            "{file}: a unit without registers, of latency 0, can have neither handshake nor enable",
        ),
        ({**LEAST, **STREAMS, "enable": "ce"}, "{file}: a map must have a handshake or an enable, not both"),
        (
            {**LEAST, **STREAMS, "reset": None},
            "{file}: a handshake needs a reset, after which nothing may come out that went in before",
        ),
        (
            {**LEAST, **STREAMS, "handshake": {"in_valid": "iv"}},
            "{file}: handshake must be an object with in_valid, in_ready, out_valid, out_ready, among them "
            "in_valid, out_valid, not ['in_valid']",
        ),
        (
            {**LEAST, **STREAMS, "handshake": {"in_valid": "iv", "out_valid": "ov", "out_ready": "r"}},
            "{file}: a unit whose results can be made to wait must make operands wait: in_ready is missing",
        ),
        ({**LEAST, "clock": "a b"}, "{file}: clock must be a name of Verilog, not 'a b'"),
        ({**LEAST, "reset": {"port": "r", "active": 0}}, "{file}: active of reset must be high or low, not 0"),
        ({**LEAST, "operands": {}}, "{file}: operands must name at least one"),
        ({**LEAST, "operands": ["a"]}, "{file}: operands must be an object, not ['a']"),
        ({**LEAST, "operands": {"a": 3}}, "{file}: operand a must be a port or an object with port, offset, not 3"),
        (
            {**LEAST, "operands": {"a": {"port": "x"}}},
            "{file}: operand a must be a port or an object with port, offset, not ['port']",
        ),
        (
            {**LEAST, "operands": {"a": {"sign": "x"}}},
            "{file}: operand a must be an object with sign, field, not ['sign']",
        ),
        (
            {**LEAST, "results": {"flags": "f"}},
            "{file}: results must be an object with word, flags, among them word, not ['flags']",
        ),
        (
            {**LEAST, "results": {"word": "z", "flags": {"inexact": "f"}}},
            "{file}: flags must be an object with overflow, underflow, invalid, zero_divide, not ['inexact']",
        ),
        ({**LEAST, "constants": {"c": "1"}}, "{file}: the constant of c must be a whole number from 0 on, not '1'"),
        (
            {**LEAST, "parameters": {"P": 1.5}},
            "{file}: the parameter P must be a whole number or a plain text, not 1.5",
        ),
        (
            {**LEAST, "parameters": {"P": '"; shell'}},
            "{file}: the parameter P must be a whole number or a plain text, not '\"; shell'",
        ),
        ({**LEAST, "parameters": {"P; x": 1}}, "{file}: a parameter must be a name of Verilog, not 'P; x'"),
    ],
)
def test_no_other_map_is_taken(tmp_path, found, message):
    with pytest.raises(ValueError) as error:
        read(tmp_path, found)
    assert str(error.value) == message.format(file=tmp_path / "map.json")


def without(name):
    return {key: port for key, port in PORTS.items() if key != name}


@pytest.mark.parametrize(
    ("change", "ports", "message"),
    [
        ({"clock": "clock"}, PORTS, f"clock must be a port of dut, which has {', '.join(PORTS)}, not 'clock'"),
        ({"clock": "ov"}, PORTS, "clock must be an input of dut, but ov is none"),
        (
            {"clock": "mode"},
            PORTS,
            'clock has 1 bits, but the port mode of dut has 2; a part of it is {"port": "mode", "offset": 0}',
        ),
        ({"clock": "iv"}, PORTS, "in_valid is in bits of the port iv that something else is in as well"),
        ({}, without("rst_n"), f"reset must be a port of dut, which has {', '.join(without('rst_n'))}, not 'rst_n'"),
        ({}, {**PORTS, "bus": Port("input", 15)}, "operand a is bits 15 to 8 of the port bus of dut, which has 15"),
        (
            {},
            {**PORTS, "s": Port("input", 3)},
            'operand b has 1 bits, but the port s of dut has 3; a part of it is {"port": "s", "offset": 0}',
        ),
        ({}, {**PORTS, "out": Port("output", 8)}, "result word is bits 8 to 1 of the port out of dut, which has 8"),
        (
            {},
            without("under"),
            f"flag underflow must be a port of dut, which has {', '.join(without('under'))}, not 'under'",
        ),
        ({"constants": {"bus": 0}}, PORTS, "nothing drives the input mode of dut; constants may"),
        ({"constants": {"mode": 0}}, PORTS, "nothing drives 1 bits of the input bus of dut; constants may"),
        ({"constants": {"mode": 4, "bus": 0}}, PORTS, "the constant 4 does not fit the 2 bits of the port mode"),
        (
            {"constants": {"mode": 0, "bus": 1}},
            PORTS,
            "the constant 1 of the port bus has bits where something else is",
        ),
        (
            {"constants": {"mode": 0, "bus": 0, "s": 0}},
            PORTS,
            "the constant 0 of the port s has bits where something else is",
        ),
        ({}, {**PORTS, "pad": Port("inout", 1)}, "the port pad of dut is an inout, which a unit cannot have"),
        (
            {"operands": {**FULL["operands"], "c": {"port": "bus", "offset": 4}}},
            PORTS,
            "operand c is in bits of the port bus that something else is in as well",
        ),
    ],
)
def test_a_map_that_does_not_fit_the_module_is_refused(tmp_path, change, ports, message):
    found = read(tmp_path, {**HELD, **change})
    with pytest.raises(ValueError) as error:
        found.check("dut", ports)
    assert str(error.value) == message
