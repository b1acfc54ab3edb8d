"""The self-test: which operands a board makes of a seed, and what it makes of the results; for gates and for the host.

Operands are a window of whole bytes on the sequence s[n] = s[n - 31] ^ s[n - 28] of bits (PRBS31 of ITU-T O.150), and
the window moves on by a byte with each payload; only the opcode stays. The signature is the remainder modulo
x^w + x + 1 of a polynomial that has the results, of w bits each, as coefficients. The modulus has no factor twice and
not x + 1, so that an error which all 2^16 results have, or each 2nd, 4th, 8th …, cannot cancel itself.
"""

from __future__ import annotations

import numpy as np
from amaranth.hdl import Cat, Value

from hdl.unit import Unit
from sim import golden, payloads
from sim.payloads import width
from sim.stimulus import Vectors

from .protocol import bytes_of

__all__ = [
    "SEED_BYTES",
    "TEST_BITS",
    "expected_signature",
    "next_byte",
    "next_signature",
    "seed_size",
    "signature",
    "test_vectors",
]

#: The fewest bytes of a seed: those that the next one depends on.
SEED_BYTES = 4
#: Of the number of payloads: there are 65,536.
TEST_BITS = 16


def next_byte(bits: Value) -> Value:
    """Return the gates of the byte that follows in the sequence on `bits`, at least 32, the latest the highest."""
    return Cat(bits[len(bits) - 31 + place] ^ bits[len(bits) - 28 + place] for place in range(8))


def next_signature(bits: Value, result: Value) -> Value:
    """Return the gates of the signature that a result makes of one."""
    return Cat(bits[-1], bits[:-1]) ^ Cat(0, bits[-1]) ^ result


def seed_size(unit: Unit) -> int:
    """Return how many bytes the seed of a unit's test has."""
    return max(SEED_BYTES, bytes_of(width(unit.i.payload.shape())))


def test_vectors(unit: Unit, seed: bytes) -> Vectors:
    """Return the operands that a board makes of a seed."""
    bits, made = int.from_bytes(seed[-SEED_BYTES:], "little"), bytearray(seed)
    for _ in range((1 << TEST_BITS) - 1):
        made.append((bits >> 1 ^ bits >> 4) & 0xFF)
        bits = bits >> 8 | made[-1] << 24
    layout = unit.i.payload.shape()
    size = bytes_of(width(layout))
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(made, np.uint8)[len(seed) - size :], size)
    rows = np.zeros((len(windows), -(-size // 8) * 8), np.uint8)
    rows[:, :size] = windows
    columns = payloads.from_rows(layout, rows.view("<u8").astype(np.uint64))
    op = columns.pop("op", np.zeros(len(windows), np.int64))
    return Vectors(np.full_like(op, op[0]), columns)


def signature(results: list[int], size: int) -> int:
    """Return the signature of results of `size` bytes."""
    bits, found = 8 * size, 0
    for result in results:
        found = (found << 1) & ((1 << bits) - 1) ^ (0b11 if found >> bits - 1 else 0) ^ result
    return found


def expected_signature(unit: Unit, seed: bytes) -> bytes:
    """Return what the golden model makes of a seed."""
    layout, results = unit.o.payload.shape(), golden.evaluate(unit, test_vectors(unit, seed))
    size = bytes_of(width(layout))
    return signature(payloads.pack(layout, results), size).to_bytes(size, "little")
