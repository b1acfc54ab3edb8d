"""Where the registers lie, and what the constant ones hold; what they do is in test_axi_lite.py."""

import zlib

from hdl import DotProduct, Multiply, WordLayout
from hdl.bus.registers import RegisterMap
from xlnstorch import LNSFormat, Mitchell, lns8


class NoFlags(Multiply):
    """A unit with a single result."""

    name = "multiply_without_flags"

    def results(self):
        return {"word": WordLayout(self.format)}


def test_the_constants_are_those_of_the_format_and_of_the_unit():
    unit = NoFlags(format=LNSFormat(6, 9, adder=Mitchell(1), specials=True))
    constants = {name: register.constant for name, register in RegisterMap(unit, 7).registers.items()}
    assert constants["FORMAT"] == 6 | 9 << 8 | 1 << 16
    assert constants["ADDER"] == zlib.crc32(b"mitchell:corrections=1")
    name = b"".join(constants[f"UNIT_{index}"].to_bytes(4, "little") for index in range(4))
    assert name == b"multiply_without"  # as much of it as there is room for
    assert (constants["LATENCY"], constants["OPERATIONS"], constants["DEPTH"]) == (unit.latency, 1, 7)


def test_results_begin_at_the_block_after_the_last_operand():
    for lanes, first in ((15, 0x100), (16, 0x180), (20, 0x180), (32, 0x200)):
        found = RegisterMap(DotProduct(format=lns8, lanes=lanes, channels=1), 2)
        offsets = [found.registers[name].offset for name in (*found.operands, *found.results)]
        operands = 2 * lanes + 1  # the arrays and last
        assert offsets == [*(0x80 + 4 * index for index in range(operands)), first, first + 4]


def test_a_field_has_as_many_registers_as_it_needs():
    for width, names in ((32, ["IN_A", "IN_B"]), (33, ["IN_A_0", "IN_A_1", "IN_B_0", "IN_B_1"])):
        found = RegisterMap(NoFlags(format=LNSFormat(8, width - 9)), 2)
        assert list(found.operands) == names
        assert sum(bits["value"][1] for bits in (found.registers[name].bits for name in names)) == 2 * width


def test_the_address_reaches_the_last_register():
    for unit, bits in (
        (NoFlags(format=lns8), 9),  # a single result, at 0x100
        (Multiply(format=lns8), 9),
        (DotProduct(format=lns8, lanes=32), 10),
    ):
        found = RegisterMap(unit, 2)
        assert max(register.offset for register in found.registers.values()) < 1 << found.address_bits
        assert found.address_bits == bits
