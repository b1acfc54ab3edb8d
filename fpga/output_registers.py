"""Registers behind block RAMs, moved into them.

An ECP5's block RAM is slow to its output, 5.6 ns at speed grade 6, unless its own register behind it is used, and then
1.0 ns. Yosys 0.70 never uses it (its issue 5814), so :func:`fpga.flow.synthesize` does that in the netlist.
"""

from __future__ import annotations

from collections import defaultdict

__all__ = ["move_output_registers"]

_OUTPUTS = 18  # of each port
_PSEUDO_DUAL_PORT = 36  # the width at which both halves of a word are read at port B


def move_output_registers(module: dict) -> int:
    """Let the block RAMs of a module keep the registers behind them; return how many registers that spares.

    It is done for a port all of whose outputs go to nothing but the data input of one register each, which has the
    port's clock and clock enable, and no reset.

    Parameters
    ----------
    module : dict
        As Yosys writes it in JSON, flat and mapped to an ECP5's cells; it is changed.
    """
    cells, readers, moved = module["cells"], _readers(module), 0
    for ram in [cell for cell in cells.values() if cell["type"] == "DP16KD"]:
        for outputs, port in _ports(ram):
            registers = _registers(ram, outputs, port, cells, readers)
            if not registers:
                continue
            for output, name in registers.items():
                ram["connections"][output] = cells.pop(name)["connections"]["Q"]
            ram["connections"]["OCE" + port] = ram["connections"]["CE" + port]
            for letter in {output[2] for output in outputs}:
                ram["parameters"]["REGMODE_" + letter] = "OUTREG"
            moved += len(registers)
    return moved


def _readers(module: dict) -> dict[int | str, list[tuple[str, str]]]:
    """Return for each net the cells and ports that read it; a port of the module counts as one."""
    readers = defaultdict(list)
    for name, cell in module["cells"].items():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] != "output":
                for bit in bits:
                    readers[bit].append((name, port))
    for name, port in module["ports"].items():
        if port["direction"] != "input":
            for bit in port["bits"]:
                readers[bit].append(("", name))
    return readers


def _ports(ram: dict) -> list[tuple[list[str], str]]:
    """Return the outputs of each port that reads, and the port's letter."""
    a, b = ([f"DO{letter}{i}" for i in range(_OUTPUTS)] for letter in "AB")
    wide = int(ram["parameters"]["DATA_WIDTH_A"], 2) == _PSEUDO_DUAL_PORT
    return [(a + b, "B")] if wide else [(a, "A"), (b, "B")]


def _registers(ram: dict, outputs: list[str], port: str, cells: dict, readers: dict) -> dict[str, str] | None:
    """Return the name of the register behind each output that is used, or None if one cannot be moved."""
    registers = {}
    for output in outputs:
        (bit,) = ram["connections"].get(output, [None])
        found = readers.get(bit, [])
        if not found:
            continue
        name, pin = found[0]
        if len(found) > 1 or pin != "DI" or not _moves(cells[name], ram, port):
            return None
        registers[output] = name
    return registers


def _moves(register: dict, ram: dict, port: str) -> bool:
    here, there = register["connections"], ram["connections"]
    parameters = register["parameters"]
    enable = here["CE"] if parameters["CEMUX"] == "CE" else [parameters["CEMUX"]]
    return (
        register["type"] == "TRELLIS_FF"
        and parameters["CLKMUX"] == "CLK"
        and ram["parameters"][f"CLK{port}MUX"] == f"CLK{port}"
        and here["CLK"] == there["CLK" + port]
        and enable == there["CE" + port]
        and here.get("LSR", ["0"]) == ["0"]
        and parameters["REGSET"] == "RESET"
        and ram["parameters"]["REGMODE_" + port] == "NOREG"
    )
