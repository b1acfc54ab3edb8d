"""Faults planted in the Verilog of any unit, in all its stages, of which an argument of the simulation awakes one."""

import re
from typing import NamedTuple

#: What is wrong: a word of a table is inverted; a sum is without its carries; a stage inverts a sign, or a flag; data
#: moves though the pipeline stands still; what is valid stays so in a reset.
KINDS = ("table", "carry", "sign", "flag", "stall", "reset")

# As Yosys writes it: one operator a line; of a register one always block, and one that has its next value.
_MODULE = re.compile(r"^module (?P<name>\S+) ?\([^;]*;$", re.MULTILINE)
_WORD = re.compile(r"    (?P<place>(?P<memory>\S+)\[\d+\]) = (?P<bits>\d+'h[0-9a-f]+);")
_SUM = re.compile(r"  assign (?P<place>\S+) +?= (?P<a>[^?]+) (?P<op>[+-]) (?P<b>[^?]+);")
_REGISTER = re.compile(r"    (?P<place>\S+) <= (?P<next>.+?) ?;")
_ENABLE = re.compile(r"    if \((?P<condition>i__ready|advance)\) begin")
_RESET = re.compile(r"    if \(rst\) begin")
_SIGN = re.compile(r"sign(_|$)")
_FLAG = re.compile(r"(flags|overflow|underflow|invalid|zero_divide)(_|$)")
_VALID = re.compile(r"(\S+_)?valid(_|$)")


# How a simulation is told which fault is awake.
_ASKED = 'if (!$value$plusargs("fault=%d", fault)) fault = 0;'


class Fault(NamedTuple):
    """What is wrong, and where: a module, and a register, a sum, or a word of a memory in it."""

    kind: str
    module: str
    place: str


def plant(verilog: str) -> tuple[str, list[Fault]]:
    """Return the Verilog with all faults, and these; ``+fault=N``, from 1 on, awakes one, and nothing none."""
    faults: list[Fault] = []
    begins = [match.start() for match in _MODULE.finditer(verilog)]
    modules = [verilog[begin:end] for begin, end in zip(begins, [*begins[1:], None], strict=True)]
    return "".join(_plant(module, faults) for module in modules), faults


def awaken(verilog: str, number: int) -> str:
    """Return Verilog with one fault awake for good, for gates that are given no arguments."""
    return verilog.replace(_ASKED, f"fault = {number};")


def _plant(module: str, faults: list[Fault]) -> str:
    """Return a module with its faults, which are added to the others."""
    header = _MODULE.match(module)
    lines = module[header.end() :].splitlines()
    registers = [match for line in lines if (match := _REGISTER.fullmatch(line))]
    written = {match["place"].partition("[")[0] for match in registers}
    of_next = {match["next"]: match["place"] for match in registers}

    def awake(kind: str, place: str) -> str:
        faults.append(Fault(kind, header["name"], place))
        return f"fault == {len(faults)}"

    def planted(line: str, following: str) -> str:
        target = following.partition("=")[0].strip(" <")
        target = of_next.get(target, target)
        if (word := _WORD.fullmatch(line)) and word["memory"] not in written:
            return f"{line}\n    if ({awake('table', word['place'])}) {word['place']} = ~{word['bits']};"
        if total := _SUM.fullmatch(line):
            a, b = total["a"], total["b"]
            return f"  assign {total['place']} = {awake('carry', total['place'])} ? {a} ^ {b} : {a} {total['op']} {b};"
        if (register := _REGISTER.fullmatch(line)) and (kind := _kind_of(register["place"])):
            return f"{line[:-1]} ^ {{ 4 {{ {awake(kind, register['place'])} }} }};"
        if (enable := _ENABLE.fullmatch(line)) and not _FLAG.match(target):
            return f"    if ({enable['condition']} || {awake('stall', target)}) begin"
        if _RESET.fullmatch(line) and _VALID.match(target):
            return f"    if (rst && !({awake('reset', target)})) begin"
        return line

    body = "\n".join(map(planted, lines, [*lines[1:], ""]))
    return f"{header[0]}\n  integer fault;\n  initial {_ASKED}{body}\n"


def _kind_of(register: str) -> str | None:
    return "sign" if _SIGN.match(register) else "flag" if _FLAG.match(register) else None
