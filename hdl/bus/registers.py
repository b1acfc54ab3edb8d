"""The register map of a unit behind AXI4-Lite: one description for the gates, the documentation and the drivers."""

from __future__ import annotations

import dataclasses
import re
import zlib

from amaranth.hdl import Signal, Value
from amaranth.utils import ceil_log2

from xlnstorch.observe import FLAGS

from ..unit import Unit
from .fields import Field, fields_of

__all__ = ["ERRORS", "INTERRUPTS", "MAGIC", "Register", "RegisterMap"]

#: What the register ``MAGIC`` holds: the bytes "LNSU" in memory.
MAGIC = int.from_bytes(b"LNSU", "little")
#: Rises with every change of the map that a driver must know of.
_MAP_VERSION = 1
_NAME_REGISTERS = 4
# Operands begin here, results at the next multiple of a block.
_OPERANDS = _BLOCK = 0x80

#: The bits of the register ``ERRORS``, the lowest first.
ERRORS = {
    "push_full": "a PUSH found the operand FIFO full",
    "pop_empty": "a result was read while there was none",
}
#: The bits of the registers ``IRQ_STATUS`` and ``IRQ_ENABLE``, the lowest first.
INTERRUPTS = {
    "results": "a result can be read",
    "operands": "the operand FIFO is empty",
    "flags": "a bit of FLAGS is set",
    "errors": "a bit of ERRORS is set",
}


@dataclasses.dataclass(frozen=True)
class Register:
    """One register.

    Attributes
    ----------
    name : str
        Upper case.
    offset : int
        Of its first byte; a multiple of 4.
    access : str
        RO (read only), WO (write only), RW, or W1C (a bit that is written as one is cleared).
    meaning : str
        One sentence.
    bits : dict
        For each group of bits the lowest, the width and what it means; bits that are in none read as zero.
    constant : int, optional
        What it always reads as.
    """

    name: str
    offset: int
    access: str
    meaning: str
    bits: dict[str, tuple[int, int, str]]
    constant: int | None = None

    @property
    def readable(self) -> bool:
        """Whether it can be read."""
        return self.access != "WO"

    @property
    def writable(self) -> bool:
        """Whether it can be written."""
        return self.access != "RO"

    def to_json(self) -> dict[str, object]:
        """Return it as an object of JSON."""
        bits = [
            {"name": name, "offset": low, "width": width, "meaning": meaning}
            for name, (low, width, meaning) in self.bits.items()
        ]
        row = {"name": self.name, "offset": self.offset, "access": self.access, "meaning": self.meaning, "bits": bits}
        return row if self.constant is None else {**row, "value": self.constant}


class RegisterMap:
    """The registers of a unit.

    Parameters
    ----------
    unit : Unit
    depth : int
        Payloads that each of the two FIFOs holds.

    Attributes
    ----------
    registers : dict of Register
        By name, in the order of their offsets.
    operands, results : dict
        For the name of each operand's or result's register, the field of the payload and the lowest of its bits that
        the register holds.
    address_bits : int
        How many bits of the address tell the registers apart.
    """

    def __init__(self, unit: Unit, depth: int):
        self.registers: dict[str, Register] = {}
        self._unit = unit
        self._identification(depth)
        self._control()
        self.operands = self._fields("IN", fields_of(unit.i.payload.shape()), _OPERANDS, "RW", "operand")
        results = -(-(_OPERANDS + 4 * len(self.operands)) // _BLOCK) * _BLOCK
        self.results = self._fields("OUT", fields_of(unit.o.payload.shape()), results, "RO", "result")
        self.address_bits = ceil_log2(max(register.offset for register in self.registers.values()) + 4)

    def _add(self, name: str, offset: int, access: str, meaning: str, constant: int | None = None, **bits) -> None:
        self.registers[name] = Register(name, offset, access, meaning, bits, constant)

    def _identification(self, depth: int) -> None:
        unit, format = self._unit, self._unit.format
        self._add("MAGIC", 0x00, "RO", "The bytes LNSU.", MAGIC)
        self._add("MAP_VERSION", 0x04, "RO", "Version of this map.", _MAP_VERSION)
        self._add(
            "FORMAT",
            0x08,
            "RO",
            "The word format.",
            format.int_bits | format.frac_bits << 8 | int(format.specials) << 16,
            int_bits=(0, 8, "integer bits of the logarithm"),
            frac_bits=(8, 8, "fraction bits"),
            specials=(16, 1, "whether there are infinities and NaN"),
        )
        self._add("ADDER", 0x0C, "RO", "CRC-32 of the adder's name.", zlib.crc32(format.adder.name.encode()))
        name = unit.name.encode()[: 4 * _NAME_REGISTERS].ljust(4 * _NAME_REGISTERS, b"\0")
        for i in range(_NAME_REGISTERS):
            part = int.from_bytes(name[4 * i : 4 * i + 4], "little")
            self._add(f"UNIT_{i}", 0x10 + 4 * i, "RO", f"Bytes {4 * i} to {4 * i + 3} of the unit's name.", part)
        self._add("LATENCY", 0x20, "RO", "Clocks that the unit takes.", unit.latency)
        self._add("OPERATIONS", 0x24, "RO", "How many opcodes there are.", len(unit.operations))
        self._add("DEPTH", 0x28, "RO", "How many payloads each FIFO holds.", depth)

    def _control(self) -> None:
        interrupts = {name: (bit, 1, meaning) for bit, (name, meaning) in enumerate(INTERRUPTS.items())}
        self._add(
            "CONTROL",
            0x40,
            "WO",
            "Commands: what is written as one is done.",
            clear=(0, 1, "drop all that is in the FIFOs and in the unit"),
        )
        self._add(
            "STATUS",
            0x44,
            "RO",
            "The FIFOs.",
            operands_empty=(0, 1, "the operand FIFO is empty"),
            operands_full=(1, 1, "a PUSH would be refused"),
            results_empty=(2, 1, "there is no result to read"),
            results_full=(3, 1, "the result FIFO is full, and the unit waits; nothing is lost"),
        )
        self._add(
            "LEVELS",
            0x48,
            "RO",
            "Payloads in the FIFOs; those inside the unit are in neither.",
            operands=(0, 16, "in the operand FIFO"),
            results=(16, 16, "in the result FIFO"),
        )
        self._add(
            "FLAGS",
            0x4C,
            "W1C",
            "Flags of all results since they were cleared; set when a result enters its FIFO.",
            **{name: (bit, 1, f"a result had {name}") for bit, name in enumerate(FLAGS)},
        )
        self._add(
            "ERRORS",
            0x50,
            "W1C",
            "What was refused since they were cleared.",
            **{name: (bit, 1, meaning) for bit, (name, meaning) in enumerate(ERRORS.items())},
        )
        self._add("IRQ_ENABLE", 0x54, "RW", "Which bits of IRQ_STATUS raise irq.", **interrupts)
        self._add("IRQ_STATUS", 0x58, "RO", "Reasons for an interrupt; each stays as long as it is so.", **interrupts)
        self._add(
            "PUSH", 0x5C, "WO", "A write of byte 0, of any value, sends the operand registers to the operand FIFO."
        )

    def _fields(self, prefix: str, fields: list[Field], offset: int, access: str, what: str):
        found = {}
        for field in fields:
            name = "_".join([prefix, *re.findall(r"\w+", field.name.upper())])
            for low in range(0, field.width, 32):
                width = min(32, field.width - low)
                part = "" if field.width <= 32 else f", bits {low} to {low + width - 1}"
                meaning = f"The {what} {field.name}{part}."
                if what == "result":
                    meaning += " Reading takes the next result." if not found else " Of the result last taken."
                own_name = name + (f"_{low // 32}" if field.width > 32 else "")
                self._add(own_name, offset + 4 * len(found), access, meaning, value=(0, width, field.name))
                found[own_name] = (field, low)
        return found

    def part(self, name: str, payload: Value) -> Value:
        """Return the bits of a payload that an operand's or result's register holds."""
        field, low = {**self.operands, **self.results}[name]
        return field.of(payload)[low : low + 32]

    def storage(self, name: str) -> Signal:
        """Return a new signal for the bits of a register."""
        return Signal(max(low + width for low, width, _ in self.registers[name].bits.values()), name=name.lower())

    def table(self) -> str:
        """Return the map as a table in Markdown, as ``docs/buses.md`` has it."""
        lines = ["| offset | register | | bits | |", "|---|---|---|---|---|"]
        for register in self.registers.values():
            bits = ", ".join(
                f"{low + width - 1}:{low} {name}" if width > 1 else f"{low} {name}"
                for name, (low, width, _) in register.bits.items()
            )
            lines.append(
                f"| 0x{register.offset:03x} | `{register.name}` | {register.access} | {bits} | {register.meaning} |"
            )
        return "\n".join(lines) + "\n"
