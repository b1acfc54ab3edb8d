import numpy as np
from amaranth.hdl import Module, Signal, signed, unsigned
from amaranth.lib import data
from amaranth.sim import Simulator

from hdl import WordLayout
from hdl.bus.fields import MemoryLayout, fields_of
from xlnstorch import LNSFormat, lns12

LAYOUT = data.StructLayout(
    {
        "op": unsigned(3),
        "a": WordLayout(lns12),
        "none": unsigned(0),
        "x": data.ArrayLayout(signed(5), 3),
        "wide": WordLayout(LNSFormat(8, 40)),
        "last": unsigned(1),
    }
)
# The bits below the sign of each word.
LOGS = (("a", 11), ("wide", 48))
# What numpy, and a C compiler, makes of the same integers.
STRUCT = np.dtype([("op", "u1"), ("a", "<u2"), ("x", "i1", 3), ("wide", "<u8"), ("last", "u1")], align=True)


def test_fields_are_numbers_in_the_order_of_their_bits():
    fields = [(field.name, field.offset, field.width, field.signed) for field in fields_of(LAYOUT)]
    assert fields == [
        ("op", 0, 3, False),
        ("a", 3, 12, False),
        ("x[0]", 15, 5, True),
        ("x[1]", 20, 5, True),
        ("x[2]", 25, 5, True),
        ("wide", 30, 49, False),
        ("last", 79, 1, False),
    ]


def test_places_are_those_of_a_struct():
    memory = MemoryLayout(LAYOUT)
    places = {place.name: place.offset // 8 for place in memory.places}
    x = STRUCT.fields["x"][1]
    expected = {name: offset for name, (_, offset) in STRUCT.fields.items() if name != "x"}
    assert places == expected | {"x[0]": x, "x[1]": x + 1, "x[2]": x + 2}
    assert (STRUCT.itemsize, memory.bytes) == (24, 32)


def test_a_field_can_be_left_out_and_the_size_is_a_power_of_two():
    memory = MemoryLayout(data.StructLayout({"a": unsigned(9), "b": unsigned(8), "last": 1}), without="last")
    assert [place.name for place in memory.places] == ["a", "b"]
    assert memory.bytes == 4
    assert MemoryLayout(data.StructLayout({"a": 17, "b": 17, "c": 1})).bytes == 16


def test_signs_are_extended_into_the_padding_and_the_rest_is_zero():
    memory = MemoryLayout(LAYOUT)
    payload, stored, back = Signal(LAYOUT.size), Signal(8 * memory.bytes), Signal(LAYOUT.size)
    m = Module()
    m.d.comb += [*memory.store(payload, stored), *memory.load(stored, back)]
    values = {"op": 5, "a": 0xABC, "x": [-1, 7, -16], "wide": 0x1_2345_6789_ABCD, "last": 1}

    async def look(ctx):
        words = {name: {"field": values[name] & (1 << bits) - 1, "sign": values[name] >> bits} for name, bits in LOGS}
        bits = LAYOUT.const(values | words).as_value().value
        ctx.set(payload, bits)
        struct = np.frombuffer(bytearray(STRUCT.itemsize), STRUCT)
        for name, value in values.items():
            struct[name] = value
        assert ctx.get(stored).to_bytes(memory.bytes, "little") == struct.tobytes().ljust(memory.bytes, b"\0")
        assert ctx.get(back) == bits

    simulator = Simulator(m)
    simulator.add_testbench(look)
    simulator.run()
