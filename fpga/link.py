"""The host's end of the serial line: requests go out while replies come in, and what is lost is asked for again."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import serial

from xlnstorch.cli import CommandError

from .bridge.protocol import FLUSH, MAX_BODY, REPLY, Command, ErrorKind, Frame, FrameReader, encode

__all__ = ["BoardError", "Link"]

# How often it is tried again before that is an error, if nothing was answered in between.
_ATTEMPTS = 4
# Bytes that may be under way to a board of which it is not known yet how many it holds.
_LEAST_BUFFER = 512


class BoardError(CommandError):
    """What is wrong with a board or the line to it, in a sentence."""


class Link:
    """A serial line with a board at its other end.

    Parameters
    ----------
    port : str
        Such as ``/dev/ttyUSB1``.
    baud : int
    timeout : float
        Seconds of silence after which a reply is missing.

    Attributes
    ----------
    buffer : int
        How many bytes of bodies, with their lengths, may be under way, and one more.
    sent, received : int
        Bytes on the line so far.
    recoveries : int
        How often something was lost so far.

    Raises
    ------
    ValueError
        The baud or the timeout is not positive.
    BoardError
        The port cannot be opened.
    """

    def __init__(self, port: str, baud: int, timeout: float):
        if not isinstance(baud, int) or baud <= 0:
            raise ValueError(f"baud must be a positive integer, not {baud!r}")
        if not timeout > 0:
            raise ValueError(f"timeout must be positive, in seconds, not {timeout!r}")
        self.port, self.buffer = str(port), _LEAST_BUFFER
        self.sent = self.received = self.recoveries = 0
        self._timeout = timeout
        self._reader = FrameReader()
        self._sequence = 0
        self._clean = False
        self._serial = _open(self.port, baud, timeout)

    def close(self) -> None:
        """Close the port."""
        if self._serial is not None:
            self._serial.close()
            self._serial = None

    def ask(self, command: Command, payload: bytes = b"") -> bytes:
        """Return the payload of the reply to one request."""
        return self.ask_all([(command, payload)])[0]

    def ask_all(
        self,
        requests: Sequence[tuple[Command, bytes]],
        *,
        chained: bool = False,
        progress: Callable[[int], None] = lambda done: None,
    ) -> list[bytes]:
        """Return the payloads of the replies to requests, of which as many as the board holds are under way at a time.

        Parameters
        ----------
        requests : sequence of command and payload
        chained : bool
            Whether each depends on those before it. Then all are sent again if one is lost, from the first, which must
            not depend on anything; else only what was not answered.
        progress : callable
            Called with the number of replies now and then; may raise, to give up.

        Raises
        ------
        BoardError
            The line was lost, or the board does not answer, or refuses again and again; the next call starts afresh.
        """
        if self._serial is None:
            raise BoardError(f"the port {self.port!r} is closed")
        replies: dict[int, bytes] = {}
        attempts, reason = 0, None
        with self._errors():
            while len(replies) < len(requests):
                if not self._clean:
                    self._recover(reason)
                self._clean, before = False, len(replies)
                reason = self._exchange(requests, replies, progress)
                if reason is None:
                    self._clean = True
                    continue
                self.recoveries += 1
                attempts = attempts + 1 if chained or len(replies) == before else 1
                if attempts == _ATTEMPTS:
                    raise BoardError(f"the board at {self.port!r} failed {_ATTEMPTS} times in a row: {reason}")
                if chained:
                    replies.clear()
        return [replies[index] for index in range(len(requests))]

    def _exchange(
        self, requests: Sequence[tuple[Command, bytes]], replies: dict[int, bytes], progress: Callable[[int], None]
    ) -> str | None:
        """Send the requests that have no reply yet, and add their replies; return why that ended early, if it did."""
        waiting = [index for index in range(len(requests)) if index not in replies][::-1]
        under_way: dict[int, int] = {}  # from sequence number to request
        size = 0
        while waiting or under_way:
            out = b""
            while waiting:
                command, payload = requests[waiting[-1]]
                if size + len(payload) + 3 >= self.buffer or len(under_way) == MAX_BODY:
                    break
                size += len(payload) + 3
                self._sequence = (self._sequence + 1) % 256
                under_way[self._sequence] = waiting.pop()
                out += encode(Frame(command, self._sequence, payload))
            self._write(out)
            came = self._read()
            if not came:
                return f"no reply within {self._timeout:g} s"
            for frame in self._reader.feed(came):
                if frame.command == REPLY:
                    return f"it reports {_name(frame)}"
                index = under_way.pop(frame.sequence, None)
                if index is None or frame.command != requests[index][0] | REPLY:
                    return "it answers what it was not asked"
                replies[index] = frame.payload
                size -= len(requests[index][1]) + 3
            progress(len(replies))
        return None

    def _recover(self, reason: str | None) -> None:
        """End what is under way, at the board and on the line."""
        self._reader.clear()
        self._write(FLUSH)
        for _ in range(_ATTEMPTS):
            # What comes before the reply to this one is of the past.
            self._sequence = (self._sequence + 1) % 256
            self._write(encode(Frame(Command.IDENTIFY, self._sequence, b"")))
            ends = time.monotonic() + self._timeout
            while time.monotonic() < ends:
                for frame in self._reader.feed(self._read()):
                    if (frame.command, frame.sequence) == (Command.IDENTIFY | REPLY, self._sequence):
                        return
        before = f"; before: {reason}" if reason else ""
        raise BoardError(f"no board answers at {self.port!r} within {_ATTEMPTS * self._timeout:g} s{before}")

    def _write(self, data: bytes) -> None:
        self._serial.write(data)
        self.sent += len(data)

    def _read(self) -> bytes:
        data = self._serial.read(self._serial.in_waiting or 1)
        self.received += len(data)
        return data

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Say in a sentence that the line was lost."""
        try:
            yield
        except (serial.SerialException, OSError) as error:
            self.close()
            raise BoardError(f"the board at {self.port!r} is gone: {_cause(error)}") from None


def _open(port: str, baud: int, timeout: float) -> serial.Serial:
    if not port.startswith(("COM", "\\")) and not Path(port).exists():
        raise BoardError(f"port must be a serial port such as /dev/ttyUSB1, but {port!r} does not exist")
    try:
        # Another program at the same port would take some of the bytes.
        return serial.Serial(port, baud, timeout=timeout, write_timeout=timeout, exclusive=True)
    except (serial.SerialException, OSError, ValueError) as error:
        raise BoardError(f"port {port!r} cannot be opened: {_cause(error)}") from None


def _cause(error: Exception) -> str:
    """Return what the operating system said, without what pyserial makes of it."""
    found: BaseException | None = error
    while found is not None:
        number, *text = found.args or (None,)
        if isinstance(number, int) and text:
            return _CAUSES.get(number, str(text[0]))
        found = found.__context__
    return str(error)


_CAUSES = {errno.ENOTTY: "it is no serial port", errno.EAGAIN: "another program uses it"}


def _name(frame: Frame) -> str:
    with contextlib.suppress(ValueError, IndexError):
        return _NAMES[ErrorKind(frame.payload[0])]
    return f"an error that is not known here, {frame.payload.hex()}"


_NAMES = {
    ErrorKind.GARBAGE: "bytes outside of frames",
    ErrorKind.CUT: "a frame that was cut",
    ErrorKind.CRC: "a frame with a wrong CRC",
    ErrorKind.LENGTH: "a frame of a wrong length",
    ErrorKind.OVERRUN: "a frame for which it had no room",
    ErrorKind.COMMAND: "a command that it does not know",
    ErrorKind.ORDER: "a block that is not the next one",
}
