"""AXI4-Stream around units, driven by cocotbext-axi, an independent implementation of the protocol."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
from amaranth.hdl import ClockSignal, Module
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.sim import Simulator

from hdl import AddSubtract, Multiply, WordLayout, to_verilog
from hdl.bus import AxiStream
from hdl.dot import DotProduct
from xlnstorch import lns8, lns16
from xlnstorch.observe import FLAGS, observing
from xlnstorch.reference import Reference


def memory(dtype, values, size, padding=None):
    """Return the bytes of a C struct, as numpy lays it out, padded to `size`, with zeros or with `padding`."""
    struct = np.dtype(dtype, align=True)
    memory = bytearray(padding or bytes(size))
    for (kind, offset), value in zip(struct.fields.values(), values, strict=True):
        memory[offset : offset + kind.itemsize] = np.array(value, kind).tobytes()
    return bytes(memory)


def answer(format, operation, a, b):
    word, flags = getattr(Reference(format.int_bits, format.frac_bits), operation)(a, b)
    return word, sum(1 << FLAGS.index(flag) for flag in flags)


def packets_of(rng, format, operations, dtype, sizes):
    """Return packets of operands and the packets of results that they must give, in hex; `sizes` of one transfer."""
    sent, expected = [], []
    for length in [1, 2, 1, 30, 7, 1, 60, rng.randint(1, 40)]:
        packet, results = b"", b""
        for _ in range(length):
            operation = rng.choice(operations)
            a = rng.getrandbits(format.width)
            near = max(0, min(format.max_field, (a & format.max_field) + rng.randint(-9, 9)))
            b = rng.choice([rng.getrandbits(format.width), near | rng.getrandbits(1) << format.log_bits])
            values = (a, b, operations.index(operation))[: len(dtype[0])]
            packet += memory(dtype[0], values, sizes[0], rng.randbytes(sizes[0]))
            results += memory(dtype[1], answer(format, operation, a, b), sizes[1])
        sent.append(packet.hex())
        expected.append(results.hex())
    return sent, expected


OPERANDS = {8: "<u1", 16: "<u2"}


@pytest.mark.sim
@pytest.mark.parametrize(
    ("unit", "simulator", "sizes"),
    [
        (AddSubtract(format=lns16), "verilator", (8, 4)),
        (AddSubtract(format=lns16), "icarus", (8, 4)),
        (Multiply(format=lns8), "verilator", (2, 2)),
    ],
    ids=["add-verilator", "add-icarus", "multiply"],
)
def test_results_and_packets_whatever_stalls_and_across_resets(unit, simulator, sizes, run_bench):
    format, operations = unit.format, list(unit.operations)
    word = OPERANDS[format.width]
    dtype = [("a", word), ("b", word), ("op", "u1")][: 2 + (len(operations) > 1)], [("word", word), ("flags", "u1")]
    sent, expected = packets_of(random.Random(unit.name), format, operations, dtype, sizes)
    wrapped = AxiStream(unit)
    found = run_bench(to_verilog(wrapped), "bench_axi_stream", {"packets": sent, "seed": unit.name}, simulator)

    assert found["problems"] == []
    assert len(found["points"]) == 16
    for point in found["points"]:
        assert point["received"] == expected, (point["idle"], point["backpressure"])
        assert len(point["clocks"]["s_axis"]) == len(point["clocks"]["m_axis"]) == sum(map(len, sent)) // 2 // sizes[0]
    calm = found["points"][0]
    assert (calm["idle"], calm["backpressure"]) == ("never", "never")
    taken, came = calm["clocks"]["s_axis"], calm["clocks"]["m_axis"]
    assert taken == list(range(taken[0], taken[0] + len(taken)))  # one transfer a clock
    assert [after - before for before, after in zip(taken, came, strict=True)] == [wrapped.latency] * len(taken)

    assert len(found["resets"]) == 10
    for attempt in found["resets"]:
        assert attempt["before"] == expected[: len(attempt["before"])]
        assert attempt["after"] == expected[-1:]


@pytest.mark.sim
def test_a_packet_of_a_dot_product_is_a_vector(run_bench):
    unit, rng = DotProduct(format=lns8, lanes=2), random.Random(7)
    operands = [("a", "u1", 2), ("b", "u1", 2), ("channel", "u1")][: 2 + (unit.channels > 1)]
    size = AxiStream(unit).operands.bytes
    sent, expected = [], []
    for beats in (1, 2, 5, 1, 1, 9, 3, 1, 1, 4, 2, 6):
        vectors = np.array([[rng.getrandbits(lns8.width) for _ in range(2 * beats)] for _ in "ab"])
        channel = rng.randrange(unit.channels)
        packet = b""
        for beat in range(beats):
            struct = np.zeros(1, np.dtype(operands, align=True))
            struct["a"], struct["b"] = vectors[:, 2 * beat : 2 * beat + 2]
            if unit.channels > 1:
                struct["channel"] = channel
            packet += struct.tobytes().ljust(size, b"\0")
        sent.append(packet.hex())
        a, b = (WordLayout(lns8).tensor(vector) for vector in vectors)
        flags = 0

        def collect(operation):
            nonlocal flags
            flags |= int(np.bitwise_or.reduce(operation.flags.numpy().ravel()))

        with observing(collect):
            word = WordLayout(lns8).integers(unit.operations["dot"](a, b)).item()
        expected.append(bytes([word, flags, channel, 0] if unit.channels > 1 else [word, flags]).hex())
    found = run_bench(to_verilog(AxiStream(unit)), "bench_axi_stream", {"packets": sent, "seed": "dot"}, "verilator")
    assert found["problems"] == []
    for point in found["points"]:
        assert point["received"] == expected, (point["idle"], point["backpressure"])
    for attempt in found["resets"]:
        assert attempt["before"] == expected[: len(attempt["before"])]
        assert attempt["after"] == expected[-1:]


class Marked(Multiply):
    """A unit whose results say themselves which of them is the last."""

    def operands(self):
        return {**super().operands(), "last": 1}

    def results(self):
        return {**super().results(), "last": 1}

    def datapath(self, m, pipeline, operands):
        last = pipeline.branch().delay(self.latency, last=operands.last).last
        return SimpleNamespace(**vars(super().datapath(m, pipeline, operands)), last=last)


class Queue(Multiply):
    """A unit that may hold more payloads than its latency has clocks; it gives the operand a."""

    latency = 2

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = SyncFIFOBuffered(width=self.format.width, depth=9)
        m.d.comb += [
            queue.w_data.eq(self.i.payload.a),
            queue.w_en.eq(self.i.valid),
            self.i.ready.eq(queue.w_rdy),
            self.o.payload.word.eq(queue.r_data),
            self.o.valid.eq(queue.r_rdy),
            queue.r_en.eq(self.o.ready),
        ]
        return m


def transferred(wrapped, sent, ready):
    """Send transfers, each tdata and tlast; return those that come out, taken in the clocks that are `ready`."""
    m, received = Module(), []
    m.submodules.wrapped = wrapped
    m.d.comb += wrapped.aclk.eq(ClockSignal())

    async def drive(ctx):
        ctx.set(wrapped.aresetn, 1)
        await ctx.tick()
        for data, last in sent:
            ctx.set(wrapped.s_axis_tvalid, 1)
            ctx.set(wrapped.s_axis_tdata, data)
            ctx.set(wrapped.s_axis_tlast, last)
            await ctx.tick().until(wrapped.s_axis_tready)
        ctx.set(wrapped.s_axis_tvalid, 0)

    async def take(ctx):
        for clock in range(200):
            ctx.set(wrapped.m_axis_tready, ready(clock))
            if ctx.get(wrapped.m_axis_tvalid) and ready(clock):
                received.append((ctx.get(wrapped.m_axis_tdata), ctx.get(wrapped.m_axis_tlast)))
            await ctx.tick()

    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)
    simulator.add_testbench(take)
    simulator.run()
    return received


def test_tlast_is_the_last_of_a_result_that_has_one():
    wrapped, lasts = AxiStream(Marked(format=lns8)), [0, 0, 1, 0, 1, 1, 0, 1]
    sent = [(lns8.bias | lns8.bias + index << 8, last) for index, last in enumerate(lasts)]
    expected = [(lns8.bias + index, last) for index, last in enumerate(lasts)]
    assert transferred(wrapped, sent, lambda clock: True) == expected
    assert (wrapped.operands.bytes, wrapped.results.bytes) == (2, 2)


def test_a_unit_may_hold_more_payloads_than_its_latency_says():
    rng = random.Random(3)
    sent = [(index, rng.getrandbits(1)) for index in range(40)]
    assert transferred(AxiStream(Queue(format=lns8)), sent, lambda clock: clock > 60) == sent


def test_latency_and_places_in_memory():
    wrapped = AxiStream(AddSubtract(format=lns16))
    assert wrapped.latency == AddSubtract(format=lns16).latency + 2
    assert [(place.name, place.offset, place.width) for place in wrapped.operands.places] == [
        ("a", 0, 16),
        ("b", 16, 16),
        ("op", 32, 1),
    ]
    assert (wrapped.operands.bytes, wrapped.results.bytes) == (8, 4)


def test_what_is_not_a_unit_is_refused():
    with pytest.raises(TypeError) as caught:
        AxiStream("multiply")
    assert str(caught.value) == "unit must be a Unit such as Multiply(format=lns16), not 'multiply'"
