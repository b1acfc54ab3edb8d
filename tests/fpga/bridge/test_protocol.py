"""Frames and identities, for both ends."""

import dataclasses

import numpy as np
import pytest
import torch
from lnstesting import exactly

import hdl
from fpga.bridge.protocol import CRC, START, Frame, FrameReader, Identity, encode, unit_text
from sim.naming import named_unit
from xlnstorch import LinearAccumulator, LNSFormat, Mitchell, Piecewise, lns8, lns16

FRAMES = [Frame(1, 0, b""), Frame(2, 255, bytes([START] * 9)), Frame(0x83, 7, bytes(range(253)))]


def test_a_frame_byte_for_byte():
    checked = bytes([4, 2, 200, 0x10, 0x20])
    high, low = divmod(CRC(data_width=8).compute(checked), 256)
    assert encode(Frame(2, 200, b"\x10\x20")) == bytes([0xA5, *checked, high, low])


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_frames_are_found_between_noise_in_pieces_of_any_size(size):
    noise = [b"", b"\xa5\x00", b"\xa5\xa5\xa5", b"zeros\0\0\0", b"\xa5\x01\x02"]
    data = b"".join(noise[i % 5] + encode(frame) for i, frame in enumerate(FRAMES * 5)) + bytes(300)
    reader = FrameReader()
    found = [frame for start in range(0, len(data), size) for frame in reader.feed(data[start : start + size])]
    assert found == FRAMES * 5


def test_a_wrong_bit_anywhere_is_seen():
    data = encode(Frame(2, 3, b"\x01\x02\x03"))
    for bit in range(8, 8 * len(data)):
        wrong = bytearray(data)
        wrong[bit // 8] ^= 1 << bit % 8
        assert list(FrameReader().feed(bytes(wrong) + bytes(300))) == []


def test_a_reader_that_is_left_in_the_middle_goes_on_behind_the_frame():
    reader = FrameReader()
    assert next(iter(reader.feed(encode(FRAMES[0]) + encode(FRAMES[1])))) == FRAMES[0]
    assert list(reader.feed(b"")) == [FRAMES[1]]
    assert list(reader.feed(encode(FRAMES[1])[:5])) == []
    reader.clear()
    assert list(reader.feed(encode(FRAMES[1])[5:])) == []


UNITS = [
    *(kind(format=lns8) for kind in hdl.UNITS.values()),
    hdl.ALU(format=lns8, converters=()),
    hdl.ALU(format=lns8, converters=("bfloat16", "fixed")),
    hdl.AddSubtract(format=lns8, rom="luts"),
    hdl.FromFloat(format=lns8, dtype=torch.bfloat16),
    hdl.ToFixed(format=lns8, width=20, frac_bits=3, signed=False),
    hdl.DotProduct(format=LNSFormat(4, 3, accumulator=LinearAccumulator()), lanes=3, beats=8),
    hdl.MatrixVector(format=lns8, rows=2, lanes=2),
    hdl.AddSubtract(format=LNSFormat(8, 7, adder=Piecewise(1, error=0.9), specials=True)),
    hdl.Multiply(format=LNSFormat(7, 9, adder=Mitchell())),
]


@pytest.mark.parametrize("unit", UNITS, ids=unit_text)
def test_what_a_unit_says_of_itself_is_enough_to_make_it(unit):
    identity = Identity.of(unit, digest=bytes(range(16)), clock_hz=12e6, buffer=2048)
    assert Identity.from_bytes(identity.to_bytes()) == identity
    made = identity.make_unit()
    assert (type(made), made.format) == (type(unit), unit.format)
    assert (made.i.payload.shape(), made.o.payload.shape()) == (unit.i.payload.shape(), unit.o.payload.shape())
    assert Identity.of(made, digest=identity.digest, clock_hz=12e6, buffer=2048) == identity


def test_a_unit_is_named_by_what_is_not_the_default():
    assert unit_text(hdl.ALU(format=lns16)) == "alu"
    assert unit_text(named_unit("alu:converters=float16+fixed,rom=luts", lns16)) == "alu:converters=float16+fixed"


def test_what_is_read_as_no_identity():
    payload = Identity.of(hdl.Multiply(format=lns8)).to_bytes()
    assert str(Identity.from_bytes(payload)) == "multiply of lns8 (exact adder)"
    for wrong, message in (
        (b"\2" + payload[1:], "the board must speak version 1 of the protocol, not 02"),
        (b"", "the board must speak version 1 of the protocol, not none"),
        (payload[:20], f"what the board says of itself cannot be read: {payload[:20].hex()}"),
        (payload[:-4], f"what the board says of itself cannot be read: {payload[:-4].hex()}"),
        (payload + b"\xff", f"what the board says of itself cannot be read: {payload.hex()}ff"),
    ):
        with pytest.raises(ValueError, match=exactly(message)):
            Identity.from_bytes(wrong)


def test_names_that_are_too_long():
    identity = dataclasses.replace(Identity.of(hdl.Multiply(format=lns8)), adder="a" * 230)
    with pytest.raises(ValueError, match=r"^names of unit and format must fit in 226 bytes, not multiply, lns8, aaa"):
        identity.to_bytes()


def test_the_crc_in_c_is_that_of_the_gates():
    data = np.random.default_rng(1).bytes(200)
    assert encode(Frame(data[0], data[1], data[2:]))[-2:] == CRC(data_width=8).compute(bytes([200]) + data).to_bytes(
        2, "big"
    )
