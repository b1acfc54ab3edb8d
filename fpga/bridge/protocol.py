"""What the two ends of the serial line agree on: frames, commands, errors, and how a board says what it is."""

from __future__ import annotations

import binascii
import dataclasses
import enum
import inspect
import struct
from collections.abc import Iterator
from typing import NamedTuple

import torch
from amaranth.lib.crc.catalog import CRC16_IBM_3740

from hdl.unit import Unit
from sim.naming import named_unit
from sim.payloads import width
from xlnstorch.accumulators import named_accumulator
from xlnstorch.adders import named_adder
from xlnstorch.catalog import named_format
from xlnstorch.formats import LNSFormat

__all__ = [
    "CRC",
    "DIGEST_BYTES",
    "FLUSH",
    "MAX_BODY",
    "MAX_DATA",
    "REPLY",
    "START",
    "VERSION",
    "Command",
    "ErrorKind",
    "Frame",
    "FrameReader",
    "Identity",
    "Status",
    "bytes_of",
    "encode",
    "unit_text",
]

VERSION = 1
#: The first byte of a frame. After it come the length of the body in a byte, the body, which is a command, a sequence
#: number and a payload, and a CRC of length and body, the higher byte first.
START = 0xA5
CRC = CRC16_IBM_3740
#: Bytes of the longest body: that of which the length is a byte.
MAX_BODY = 255
#: Bytes of operands, or of results, in a frame: a body without command, sequence number, and length or status.
MAX_DATA = MAX_BODY - 3
#: What a reply's command is more than that of its request; an error that answers no request has the command 0.
REPLY = 0x80
DIGEST_BYTES = 16
#: Zeros of which as many as this end any frame that is under way.
FLUSH = bytes(MAX_BODY + 4)


class Command(enum.IntEnum):
    """What the host asks for."""

    IDENTIFY = 1
    RUN = 2
    CONTINUE = 3
    TEST = 4


class ErrorKind(enum.IntEnum):
    """Why a frame got no other answer."""

    GARBAGE = 1
    CUT = 2
    CRC = 3
    LENGTH = 4
    OVERRUN = 5
    COMMAND = 6
    ORDER = 7


class Status(enum.IntFlag):
    """What was not as it should be in a run: the last byte of its reply."""

    MISSING = 1
    SURPLUS = 2
    INCOMPLETE = 4


class Frame(NamedTuple):
    """A frame without its check."""

    command: int
    sequence: int
    payload: bytes


def encode(frame: Frame) -> bytes:
    """Return the bytes of a frame on the line."""
    checked = bytes([2 + len(frame.payload), frame.command, frame.sequence]) + frame.payload
    return bytes([START]) + checked + binascii.crc_hqx(checked, CRC.initial_crc).to_bytes(2, "big")


class FrameReader:
    """The frames in a stream of bytes; what is none is skipped."""

    def __init__(self):
        self._bytes = bytearray()

    def clear(self) -> None:
        """Forget what is not yet a frame."""
        self._bytes.clear()

    def feed(self, received: bytes) -> Iterator[Frame]:
        """Yield the frames that bytes complete."""
        self._bytes += received
        while (start := self._bytes.find(START)) >= 0:
            del self._bytes[:start]
            end = 4 + self._bytes[1] if len(self._bytes) > 1 else 5
            if len(self._bytes) < end:
                return
            if end >= 6 and binascii.crc_hqx(self._bytes[1:end], CRC.initial_crc) == 0:
                frame = Frame(self._bytes[2], self._bytes[3], bytes(self._bytes[4 : end - 2]))
                del self._bytes[:end]
                yield frame
            else:
                del self._bytes[0]  # a frame may begin at any byte after it
        self._bytes.clear()


def bytes_of(bits: int) -> int:
    """Return how many bytes so many bits take, at least one."""
    return max(1, -(-bits // 8))


# What a board is ------------------------------------------------------------------------------------------------------

_FIXED = struct.Struct(f"<BHHIH{DIGEST_BYTES}s")


@dataclasses.dataclass(frozen=True)
class Identity:
    """What a board says of itself.

    Attributes
    ----------
    unit : str
        As a command line names it, with parameters.
    format, adder, accumulator : str
        Names.
    specials : bool
    operand_bits, result_bits : int
        Widths of the payloads of the unit's streams.
    clock_hz : int
        Of the gates.
    buffer : int
        Bytes of bodies, each with its length, that wait on the board for their turn; one less may be under way.
    digest : bytes
        Of the build.
    """

    unit: str
    format: str
    adder: str
    accumulator: str
    specials: bool
    operand_bits: int
    result_bits: int
    clock_hz: int
    buffer: int
    digest: bytes

    @classmethod
    def of(cls, unit: Unit, *, digest: bytes = bytes(DIGEST_BYTES), clock_hz: float = 0, buffer: int = 0) -> Identity:
        """Return what a board with a unit says."""
        format = unit.format
        return cls(
            unit=unit_text(unit),
            format=format.name,
            adder=format.adder.name,
            accumulator=format.accumulator.name,
            specials=format.specials,
            operand_bits=width(unit.i.payload.shape()),
            result_bits=width(unit.o.payload.shape()),
            clock_hz=round(clock_hz),
            buffer=buffer,
            digest=digest,
        )

    def to_bytes(self) -> bytes:
        """Return the payload of the reply; a ValueError says that names are too long for a frame."""
        names = (self.unit, self.format, self.adder, self.accumulator, "specials" * self.specials)
        numbers = (VERSION, self.operand_bits, self.result_bits, self.clock_hz, self.buffer, self.digest)
        payload = _FIXED.pack(*numbers) + "\0".join(names).encode()
        if len(payload) > MAX_BODY - 2:
            raise ValueError(
                f"names of unit and format must fit in {MAX_BODY - 2 - _FIXED.size} bytes, not {', '.join(names)}"
            )
        return payload

    @classmethod
    def from_bytes(cls, payload: bytes) -> Identity:
        """Return the identity in the payload of a reply; a ValueError says why it cannot be read."""
        if payload[:1] != bytes([VERSION]):
            raise ValueError(
                f"the board must speak version {VERSION} of the protocol, not {payload[:1].hex() or 'none'}"
            )
        try:
            _, operand_bits, result_bits, clock_hz, buffer, digest = _FIXED.unpack_from(payload)
            unit, format, adder, accumulator, specials = payload[_FIXED.size :].decode().split("\0")
        except (struct.error, ValueError):
            raise ValueError(f"what the board says of itself cannot be read: {payload.hex()}") from None
        return cls(
            *(unit, format, adder, accumulator, specials == "specials"),
            *(operand_bits, result_bits, clock_hz, buffer, digest),
        )

    def make_format(self) -> LNSFormat:
        """Return the format; a ValueError says that a name is not known here."""
        return dataclasses.replace(
            named_format(self.format),
            adder=named_adder(self.adder),
            accumulator=named_accumulator(self.accumulator),
            specials=self.specials,
        )

    def make_unit(self) -> Unit:
        """Return the unit; a ValueError says that a name is not known here."""
        return named_unit(self.unit, self.make_format())

    def __str__(self) -> str:
        """Return which arithmetic it is."""
        sums = "" if self.accumulator == "log" else f", {self.accumulator} accumulator"
        specials = ", infinities and NaN" if self.specials else ""
        return f"{self.unit} of {self.format} ({self.adder} adder{sums}{specials})"


def unit_text(unit: Unit) -> str:
    """Return what a command line calls a unit, with those parameters that are not the defaults.

    Where tables are kept is left out, since results do not depend on it.
    """
    given = []
    for name, parameter in inspect.signature(type(unit)).parameters.items():
        value = getattr(unit, name, parameter.default)
        if name not in ("format", "rom") and value != parameter.default:
            given.append(f"{name}={_text(value)}")
    return ":".join([unit.name, *([",".join(given)] if given else [])])


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return "+".join(value) or "none"
    return str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else str(value)
