"""The registers of a unit behind AXI4-Lite, driven by cocotbext-axi, an independent implementation of the protocol."""

import itertools
import random
import zlib
from pathlib import Path

import pytest
from hdltesting import golden_answers

from hdl import ALU, AddSubtract, MatrixVector, Multiply, to_verilog
from hdl.bus import AxiLite
from xlnstorch import LNSFormat, lns8, lns16
from xlnstorch.observe import FLAGS
from xlnstorch.reference import Reference

OKAY, SLVERR = 0, 2
DEPTH = 4


class Steps:
    """Steps for the bench, each with the answer that it must give; where that is None, a test looks at it itself."""

    def __init__(self):
        self.steps, self.expected = [], []

    def add(self, *step, expect=None):
        self.steps.append(step)
        self.expected.append(expect)
        return len(self.steps) - 1

    def write(self, address, value, expect=OKAY, length=4):
        self.add("write", address, value.to_bytes(length, "little").hex(), expect=expect)

    def read(self, address, value, response=OKAY):
        self.add("read", address, expect=[response, value.to_bytes(4, "little").hex()])


def answer(format, operation, a, b):
    word, flags = getattr(Reference(format.int_bits, format.frac_bits), operation)(a, b)
    return word, sum(1 << FLAGS.index(flag) for flag in flags)


def in_hex(value):
    return value.to_bytes(4, "little").hex()


def cases_of(rng, unit, count):
    """Return for each case the writes of its operands, and its results, both as the bench wants them."""
    format, registers = unit.format, AxiLite(unit).map.registers
    names = [name for name in ("IN_A", "IN_B", "IN_OP") if name in registers]
    payloads, results = [], []
    for _ in range(count):
        op = rng.randrange(len(unit.operations))
        a, b = rng.getrandbits(format.width), rng.getrandbits(format.width)
        if rng.random() < 0.3:
            a = b = format.max_field
        payloads.append([(registers[n].offset, in_hex(v)) for n, v in zip(names, (a, b, op), strict=False)])
        results.append([in_hex(value) for value in answer(format, list(unit.operations)[op], a, b)])
    return payloads, results


def address(name):
    return AxiLite(AddSubtract(format=lns16)).map.registers[name].offset


def identification(steps):
    unit = AddSubtract(format=lns16)
    steps.read(0x00, int.from_bytes(b"LNSU", "little"))
    steps.read(0x04, 1)
    steps.read(0x08, 8 | 7 << 8)
    steps.read(0x0C, zlib.crc32(b"exact"))
    for index, text in enumerate([b"add\0", bytes(4), bytes(4), bytes(4)]):
        steps.read(0x10 + 4 * index, int.from_bytes(text, "little"))
    steps.read(0x20, unit.latency)
    steps.read(0x24, 2)
    steps.read(0x28, DEPTH)
    steps.add("read", 0x00, 16, expect=[OKAY, b"LNSU".hex() + in_hex(1) + in_hex(0x708) + in_hex(zlib.crc32(b"exact"))])


def refusals(steps):
    registers = AxiLite(AddSubtract(format=lns16)).map.registers
    for offset in range(0, 1 << 9, 4):
        register = next((r for r in registers.values() if r.offset == offset), None)
        if register is None or not register.writable:
            steps.write(offset, 0xFFFFFFFF, SLVERR)
        if register is None or not register.readable:
            steps.read(offset, 0, SLVERR)
    steps.read(address("OUT_WORD"), 0, SLVERR)  # nothing there
    steps.read(address("ERRORS"), 2)
    steps.write(address("ERRORS"), 1)
    steps.read(address("ERRORS"), 2)
    steps.write(address("ERRORS"), 2)
    steps.read(address("ERRORS"), 0)


def strobes(steps):
    a, flags = address("IN_A"), address("IN_OP")
    steps.write(a, 0xFFFF1234)
    steps.read(a, 0x1234)  # what is above the word does not exist
    steps.write(a, 0xAB, length=1)
    steps.read(a, 0x12AB)
    steps.write(a + 1, 0xCD, length=1)  # as a processor stores a byte
    steps.read(a, 0xCDAB)
    steps.write(a + 2, 0xFFFF, length=2)
    steps.read(a, 0xCDAB)
    steps.add("read", a + 1, 1, expect=[OKAY, "cd"])
    steps.write(a, 0x0203_0405)
    steps.read(a, 0x0405)
    steps.write(flags, 0xFFFFFFFF)
    steps.read(flags, 1)
    # A push happens with byte 0 only.
    steps.write(address("PUSH") + 1, 0xFF, length=1)
    steps.write(address("CONTROL") + 1, 0xFF, length=1)
    steps.add("clocks", 20)
    steps.read(address("LEVELS"), 0)
    steps.write(address("PUSH"), 0, length=1)
    steps.add("clocks", 20)
    steps.read(address("LEVELS"), 1 << 16)
    steps.write(address("CONTROL"), 1)
    steps.read(address("LEVELS"), 0)


def arrival_orders(steps):
    a = address("IN_A")
    for channel, clocks in itertools.product(("aw", "w"), (1, 2, 5, 20)):
        value = len(steps.steps)
        steps.add("hold", channel, clocks, a, in_hex(value), expect=OKAY)
        steps.read(a, value)
    steps.add("hold", "b", 20, a, in_hex(77), expect=OKAY)
    steps.read(a, 77)


def interrupts(steps):
    """Flags, errors and interrupts of an addition that overflows."""
    enable, status = address("IRQ_ENABLE"), address("IRQ_STATUS")
    largest = in_hex(lns16.max_field)
    steps.read(status, 2)  # the operand FIFO is empty
    steps.add("irq", expect=0)
    steps.write(enable, 2)
    steps.add("irq", expect=1)
    steps.write(enable, 0xFFFFFFFD)
    steps.read(enable, 0xD)
    steps.add("irq", expect=0)
    for name in ("IN_A", "IN_B"):
        steps.add("write", address(name), largest, expect=OKAY)
    steps.write(address("IN_OP"), 0)
    steps.write(address("PUSH"), 1)
    steps.add("irq", expect=0)
    steps.add("clocks", 20)
    steps.add("irq", expect=1)
    steps.read(status, 0b0111)
    steps.read(address("FLAGS"), 1)
    steps.read(address("STATUS"), 1)
    steps.read(address("OUT_WORD"), lns16.max_field)
    steps.read(address("OUT_FLAGS"), 1)
    steps.read(address("OUT_FLAGS"), 1)
    steps.read(address("STATUS"), 5)
    steps.read(status, 0b0110)
    steps.write(address("FLAGS"), 0xE)
    steps.read(address("FLAGS"), 1)
    steps.write(address("FLAGS"), 1)
    steps.read(address("FLAGS"), 0)
    steps.add("irq", expect=0)
    steps.read(address("OUT_WORD"), 0, SLVERR)
    steps.read(address("OUT_FLAGS"), 1)  # of the result last taken
    steps.read(status, 0b1010)
    steps.add("irq", expect=1)
    steps.write(address("ERRORS"), 3)
    steps.write(enable, 0)


def filled(steps, unit, rng):
    """Push until nothing goes any more: what was accepted comes out, in order, and nothing else."""
    payloads, results = cases_of(rng, unit, 40)
    # Both FIFOs hold so many, and the unit, which stands still once a result waits, one.
    held = 2 * DEPTH + 1
    for writes in payloads[:held]:
        for offset, data in writes:
            steps.add("write", offset, data, expect=OKAY)
        steps.write(address("PUSH"), 0)
        steps.add("clocks", 25)
    steps.read(address("STATUS"), 0b1010)
    steps.read(address("LEVELS"), DEPTH | DEPTH << 16)
    for offset, data in payloads[held]:
        steps.add("write", offset, data, expect=OKAY)
    steps.write(address("PUSH"), 0, SLVERR)
    steps.read(address("ERRORS"), 1)
    steps.write(address("ERRORS"), 1)
    for word, flags in results[:held]:
        steps.add("read", address("OUT_WORD"), expect=[OKAY, word])
        steps.add("read", address("OUT_FLAGS"), expect=[OKAY, flags])
        steps.add("clocks", 25)
    steps.read(address("OUT_WORD"), 0, SLVERR)
    steps.write(address("ERRORS"), 2)


def emptied(steps, unit, rng):
    """CLEAR and resets with operands on their way and results waiting."""
    payloads, results = cases_of(rng, unit, 10)
    push, reads = address("PUSH"), [address("OUT_WORD"), address("OUT_FLAGS")]
    for clocks in (0, 1, 3, 6, 9, 20):
        steps.add("compute", payloads[: DEPTH + 2], push, reads, False)
        steps.add("clocks", clocks)
        steps.write(address("CONTROL"), 1)
        steps.add("clocks", 20)
        steps.read(address("STATUS"), 0b101)
        steps.read(address("OUT_WORD"), 0, SLVERR)
        steps.add("compute", payloads[5:6], push, reads, expect=results[5:6])
    for clocks in range(1, 14):
        steps.add("compute", payloads[: DEPTH + 2], push, reads, False)
        steps.add("abandon", address("IN_A"), "05060000", clocks)
        steps.read(address("IN_A"), 0)
        steps.add("clocks", 20)
        steps.read(address("STATUS"), 0b101)
        steps.read(address("FLAGS"), 0)
        steps.read(address("ERRORS"), 0)
        steps.add("compute", payloads[5:6], push, reads, expect=results[5:6])
    steps.write(address("ERRORS"), 3)


def streams(steps, unit, rng):
    """Pushes and reads at the same time, under every kind of pause at every channel."""
    push, reads = address("PUSH"), [address("OUT_WORD"), address("OUT_FLAGS")]
    kinds = ("never", "cycle", "random")
    for slow in ("", "aw", "w", "b", "ar", "r", "all"):
        for kind in kinds[1:] if slow else kinds[:1]:
            names = ("aw", "w", "b", "ar", "r") if slow == "all" else (slow,) if slow else ()
            steps.add("pause", dict.fromkeys(names, kind))
            payloads, results = cases_of(rng, unit, 30)
            steps.add("compute", payloads, push, reads, expect=results)
    # Several requests under way while nobody takes the answers.
    identity = b"LNSU".hex() + in_hex(1) + in_hex(0x708) + in_hex(zlib.crc32(b"exact"))
    for kind in kinds[1:]:
        steps.add("pause", {"b": kind, "r": kind})
        steps.add("burst", 0x00, 4, expect=[identity] * 3)
    steps.add("pause", {})


@pytest.mark.sim
@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_registers(simulator, run_bench):
    unit, rng, steps = AddSubtract(format=lns16), random.Random(5), Steps()
    identification(steps)
    refusals(steps)
    strobes(steps)
    arrival_orders(steps)
    interrupts(steps)
    filled(steps, unit, rng)
    emptied(steps, unit, rng)
    streams(steps, unit, rng)
    rate = steps.add("rate", 0x00, 11)

    verilog = to_verilog(AxiLite(unit, depth=DEPTH))
    found = run_bench(verilog, "bench_axi_lite", {"steps": steps.steps, "seed": 5}, simulator)
    assert found["problems"] == []
    refused = {"push": 0, "pop": 0}
    for step, expected, answered in zip(steps.steps, steps.expected, found["answers"], strict=True):
        if step[0] == "compute":
            refused = {kind: refused[kind] + count for kind, count in answered["refused"].items()}
            answered = answered["results"]
        if expected is not None:
            assert answered == expected, step
    assert refused["pop"] > 10  # the pauses made the reader wait
    # A register a clock: the others are the way there and back.
    assert max(found["answers"][rate]) <= 11 + 6


@pytest.mark.sim
def test_the_alu_computes_all_it_can(run_bench):
    unit, rng, steps = ALU(format=lns16), random.Random(6), Steps()
    top = AxiLite(unit)
    registers = {name: register.offset for name, register in top.map.registers.items()}
    cases = [
        (operation, tuple(rng.getrandbits(lns16.width) for _ in unit.operands()))
        for operation in unit.operations
        for _ in range(8)
    ]
    rng.shuffle(cases)
    payloads = [
        [
            *zip([registers[name] for name in ("IN_A", "IN_B", "IN_C")], map(in_hex, case), strict=True),
            (registers["IN_OP"], in_hex(list(unit.operations).index(operation))),
        ]
        for operation, case in cases
    ]
    result = unit.o.payload.shape()["result"].width
    expected = [[in_hex(p & (1 << result) - 1), in_hex(p >> result)] for p in golden_answers(unit, cases)]
    step = ("compute", payloads, registers["PUSH"], [registers["OUT_RESULT"], registers["OUT_FLAGS"]])
    steps.add(*step)
    found = run_bench(to_verilog(top), "bench_axi_lite", {"steps": steps.steps, "seed": 6}, "verilator")
    assert found["problems"] == []
    assert found["answers"][0]["results"] == expected


@pytest.mark.sim
def test_the_flags_of_every_row_are_kept(run_bench):
    unit, steps = MatrixVector(format=lns8, rows=3, lanes=1, channels=1), Steps()
    top = AxiLite(unit)
    registers = {name: register.offset for name, register in top.map.registers.items()}
    operations = list(unit.operations)

    def push(**fields):
        for name, value in fields.items():
            steps.write(registers[f"IN_{name.upper()}"], value)
        steps.write(registers["PUSH"], 0)

    one, least, most = lns8.bias, 1, lns8.max_field
    steps.write(registers["IRQ_ENABLE"], 1 << 2)  # flags
    products = [
        ([one, one, most], most, [0, 0, 1]),
        ([one, most, one], most, [0, 1, 0]),
        ([most, one, one], most, [1, 0, 0]),
        ([one, one, least], least, [0, 0, 2]),
        ([one, one, one], most, [0, 0, 0]),
    ]
    for weights, x, flags in products:
        for row, weight in enumerate(weights):
            push(op=operations.index("load"), row=row, x_0=weight, last=0)
        push(op=operations.index("multiply"), x_0=x, last=1)
        steps.add("clocks", unit.latency + 20)
        raised = max(flags)
        steps.add("irq", expect=int(raised != 0))
        steps.read(registers["IRQ_STATUS"], 0b0011 | (raised != 0) << 2)
        steps.read(registers["FLAGS"], raised)
        steps.add("read", registers["OUT_WORD_0"])
        for row in range(unit.rows):
            steps.read(registers[f"OUT_FLAGS_{row}"], flags[row])
        steps.write(registers["FLAGS"], 0xF)
        steps.read(registers["FLAGS"], 0)
    found = run_bench(to_verilog(top), "bench_axi_lite", {"steps": steps.steps, "seed": 7}, "verilator")
    assert found["problems"] == []
    for step, expected, answered in zip(steps.steps, steps.expected, found["answers"], strict=True):
        assert expected is None or answered == expected, step


@pytest.mark.parametrize(
    ("unit", "depth", "error", "message"),
    [
        (None, 16, TypeError, "unit must be a Unit such as Multiply(format=lns16), not None"),
        (AddSubtract(format=lns16), 1, ValueError, "depth must be between 2 and 65535, not 1"),
        (AddSubtract(format=lns16), True, TypeError, "depth must be an integer, not True"),
    ],
)
def test_what_cannot_be_is_refused_at_the_door(unit, depth, error, message):
    with pytest.raises(error) as caught:
        AxiLite(unit, depth=depth)
    assert str(caught.value) == message


def test_the_page_has_the_table_of_the_map():
    page = Path(__file__).parents[3] / "docs" / "buses.md"
    assert AxiLite(AddSubtract(format=lns16)).map.table() in page.read_text()


def test_wide_fields_have_several_registers():
    registers = AxiLite(Multiply(format=LNSFormat(8, 40))).map.registers
    offsets = {name: registers[name].offset for name in ("IN_A_0", "IN_A_1", "IN_B_0", "IN_B_1", "OUT_WORD_1")}
    assert offsets == {"IN_A_0": 0x80, "IN_A_1": 0x84, "IN_B_0": 0x88, "IN_B_1": 0x8C, "OUT_WORD_1": 0x104}
    assert registers["IN_A_1"].bits == {"value": (0, 17, "a")}
