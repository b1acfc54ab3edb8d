"""What a board's own test makes and keeps: the sequence, its windows, and errors that a signature must show."""

import numpy as np
import pytest

import hdl
from fpga.bridge import selftest
from fpga.bridge.selftest import TEST_BITS, expected_signature, seed_size, signature
from sim import golden, payloads
from xlnstorch import lns8, lns16

COUNT = 1 << TEST_BITS


def test_the_operands_are_windows_on_one_sequence():
    unit = hdl.AddSubtract(format=lns16)
    seed = bytes([1, 2, 3, 4, 0])
    vectors = selftest.test_vectors(unit, seed)
    # Bit by bit, after the definition.
    bits = [byte >> place & 1 for byte in seed for place in range(8)]
    while len(bits) < 8 * (len(seed) + COUNT - 1):
        bits.append(bits[-31] ^ bits[-28])
    packed = np.packbits(np.array(bits, np.uint8), bitorder="little").astype(np.int64)
    for index in (0, 1, 2, 1000, COUNT - 1):
        a, b = (packed[index + place] | packed[index + place + 1] << 8 for place in (0, 2))
        assert (vectors.operands["a"][index], vectors.operands["b"][index], vectors.op[index]) == (a, b, 0)
    assert len(vectors) == COUNT
    assert len(np.unique(vectors.operands["a"])) > 40_000


def test_the_opcode_stays():
    vectors = selftest.test_vectors(hdl.AddSubtract(format=lns16), bytes([1, 2, 3, 4, 0xFF]))
    assert vectors.op.tolist() == [1] * COUNT


@pytest.mark.parametrize("unit", [hdl.Square(format=lns8), hdl.Multiply(format=lns16), hdl.ALU(format=lns16)])
def test_a_seed_is_as_large_as_the_payload_and_the_sequence_need(unit):
    assert seed_size(unit) == {"square": 4, "multiply": 4, "alu": 9}[unit.name]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_errors_do_not_cancel(size):
    rng = np.random.default_rng(size)
    results = [int.from_bytes(rng.bytes(size), "little") for _ in range(COUNT)]
    sound = signature(results, size)
    for error in (1, 1 << 8 * size - 1, (1 << 8 * size) - 1):
        assert signature([each ^ error for each in results], size) != sound
        for period in (2, 64):
            wrong = [each ^ error if not index % period else each for index, each in enumerate(results)]
            assert signature(wrong, size) != sound
    for index in (0, 1, COUNT - 1):
        assert signature([*results[:index], results[index] ^ 1, *results[index + 1 :]], size) != sound
        assert signature([*results[:index], *results[index + 1 :], 0], size) != sound


def test_the_signature_is_of_the_golden_model(monkeypatch):
    unit, seed = hdl.Multiply(format=lns8), bytes([9, 8, 7, 6])
    results = golden.evaluate(unit, selftest.test_vectors(unit, seed))
    packed = payloads.pack(unit.o.payload.shape(), results)
    assert expected_signature(unit, seed) == signature(packed, 2).to_bytes(2, "little")
    results["flags"][12345] ^= 1
    monkeypatch.setattr(golden, "evaluate", lambda *_: results)
    assert expected_signature(unit, seed) != signature(packed, 2).to_bytes(2, "little")
