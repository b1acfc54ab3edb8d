import copy
import json

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, Signal
from amaranth.lib.memory import Memory

from fpga.flow import DEVICES, place_and_route, synthesize
from fpga.output_registers import move_output_registers

ECP5 = DEVICES["ecp5"]


def register(data, q, **changes):
    """Return a register, whose enable is net 2 and whose clock is net 1."""
    connections = {"CLK": [1], "CE": [2], "DI": [data], "LSR": ["0"], "Q": [q]}
    parameters = {"CEMUX": "CE", "CLKMUX": "CLK", "LSRMUX": "LSR", "REGSET": "RESET"}
    for name, value in changes.items():
        (connections if name in connections else parameters)[name] = [value] if name in connections else value
    directions = {name: "output" if name == "Q" else "input" for name in connections}
    return {"type": "TRELLIS_FF", "parameters": parameters, "connections": connections, "port_directions": directions}


def ram(outputs, width=18):
    """Return a block RAM that is read at port A, or if it is wide at B, with these nets at outputs."""
    port, other = "BA" if width == 36 else "AB"
    connections = {f"CLK{port}": [1], f"CE{port}": [2], f"OCE{port}": ["1"], f"CLK{other}": ["0"], f"CE{other}": ["0"]}
    connections |= {name: [net] for name, net in outputs.items()}
    parameters = {"DATA_WIDTH_A": f"{width:032b}", **{f"REGMODE_{letter}": "NOREG" for letter in "AB"}}
    parameters |= {f"CLK{letter}MUX": f"CLK{letter}" for letter in "AB"}
    directions = {name: "output" if name in outputs else "input" for name in connections}
    return {"type": "DP16KD", "parameters": parameters, "connections": connections, "port_directions": directions}


def module(rom, *registers):
    ports = {"o": {"direction": "output", "bits": [cell["connections"]["Q"][0] for cell in registers]}}
    return {"ports": ports, "cells": {"rom": rom, **{f"q{i}": cell for i, cell in enumerate(registers)}}}


def test_registers_behind_a_port_move_into_the_block_ram():
    top = module(ram({"DOA0": 10, "DOA7": 11}), register(10, 20), register(11, 21))
    assert move_output_registers(top) == 2
    assert set(top["cells"]) == {"rom"}
    rom = top["cells"]["rom"]
    assert (rom["connections"]["DOA0"], rom["connections"]["DOA7"], rom["connections"]["OCEA"]) == ([20], [21], [2])
    assert (rom["parameters"]["REGMODE_A"], rom["parameters"]["REGMODE_B"]) == ("OUTREG", "NOREG")


def test_a_wide_word_is_read_at_port_b_alone():
    top = module(ram({"DOA0": 10, "DOB0": 11}, width=36), register(10, 20), register(11, 21))
    assert move_output_registers(top) == 2
    rom = top["cells"]["rom"]
    assert (rom["connections"]["DOA0"], rom["connections"]["DOB0"], rom["connections"]["OCEB"]) == ([20], [21], [2])
    assert (rom["parameters"]["REGMODE_A"], rom["parameters"]["REGMODE_B"]) == ("OUTREG", "OUTREG")


def test_registers_without_an_enable_move_too():
    rom = ram({"DOA0": 10})
    rom["connections"]["CEA"] = ["1"]
    top = module(rom, register(10, 20, CEMUX="1", CE=0))
    assert move_output_registers(top) == 1
    assert top["cells"]["rom"]["connections"]["OCEA"] == ["1"]


@pytest.mark.parametrize(
    "registers",
    [
        [register(10, 20), register(10, 21)],  # two behind one output
        [register(10, 20), register(30, 21, CE=11)],  # the other output goes to something else
        [register(10, 20), register(11, 21, CE=3)],
        [register(10, 20), register(11, 21, CEMUX="1")],
        [register(10, 20), register(11, 21, CLK=3)],
        [register(10, 20), register(11, 21, CLKMUX="INV")],
        [register(10, 20), register(11, 21, LSR=3)],
        [register(10, 20), register(11, 21, REGSET="SET")],
        [register(10, 20), {**register(11, 21), "type": "LUT4"}],
        [],
    ],
)
def test_otherwise_nothing_moves(registers):
    top = module(ram({"DOA0": 10, "DOA1": 11}), *registers)
    before = copy.deepcopy(top)
    assert move_output_registers(top) == 0
    assert top == before


def test_an_output_that_leaves_the_module_stays():
    top = module(ram({"DOA0": 10}), register(10, 20))
    top["ports"]["o"]["bits"].append(10)
    assert move_output_registers(top) == 0


def read(stages):
    """Return RTLIL of a ROM of 36 bits between registers, so many of which are behind it."""
    m = Module()
    address, enable, word = Signal(9), Signal(), Signal(36)
    m.submodules.rom = rom = Memory(shape=36, depth=512, init=[i * 0x9E3779B97 % 2**36 for i in range(512)])
    port = rom.read_port()
    here = Signal(9)
    m.d.sync += here.eq(address)
    m.d.comb += [port.addr.eq(here), port.en.eq(enable)]
    value = port.data
    for _ in range(stages):
        behind = Signal(36, reset_less=True)
        with m.If(enable):
            m.d.sync += behind.eq(value)
        value = behind
    m.d.comb += word.eq(value)
    return rtlil.convert(m, name="top", ports=[address, enable, word], emit_src=False)


@pytest.mark.synth
def test_a_block_ram_with_its_register_is_faster():
    modes, registers = [], []
    for stages in (0, 1, 2):
        netlist = synthesize(read(stages), ECP5)
        cells = json.loads(netlist.json)["modules"]["top"]["cells"].values()
        modes += [cell["parameters"]["REGMODE_B"] for cell in cells if cell["type"] == "DP16KD"]
        registers.append(netlist.cells["TRELLIS_FF"] - 9)
    assert modes == ["NOREG", "OUTREG", "OUTREG"]
    assert registers == [0, 0, 36]
    assert place_and_route(netlist, ECP5).mhz > 300  # 178 at most from a block RAM alone
