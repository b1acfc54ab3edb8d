"""A unit on a board at the end of a serial line, as a function of tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import numpy as np

import hdl
from sim.batch import Outcome
from sim.payloads import width
from sim.sequences import is_sequential
from sim.simulated import Answer, UnitFunction, check_function

from .bridge.protocol import DIGEST_BYTES, MAX_DATA, Command, Identity, Status, bytes_of
from .bridge.selftest import expected_signature, seed_size
from .link import BoardError, Link

__all__ = ["Board", "BoardError", "connect"]


class BoardGates:
    """A board's gates, as :class:`sim.batch.Batch` has those of a simulation."""

    def __init__(self, unit: hdl.Unit, link: Link):
        self._unit, self._link = unit, link
        self._sizes = [bytes_of(width(end.payload.shape())) for end in (unit.i, unit.o)]
        #: Payloads in a frame.
        self.per_frame = MAX_DATA // max(self._sizes)

    def run(
        self,
        rows: np.ndarray,
        completes: np.ndarray | None = None,
        progress: Callable[[int], None] = lambda done: None,
    ) -> Outcome:
        """Send payloads and return what comes.

        Parameters
        ----------
        rows : ndarray of uint64, of shape ``(n, words)``
            Payloads, as :func:`~sim.payloads.to_rows` makes them.
        completes : ndarray, of shape ``(n,)``, optional
            For each payload whether it brings a result; by default each does. Payloads of a unit that sums several are
            sent as one sequence, from a reset on; of any other unit each frame is a run of its own.
        progress : callable
            Called now and then with the number of payloads that were answered; may raise, to give up.
        """
        sent, given = self._sizes
        data = np.ascontiguousarray(rows).astype("<u8").view(np.uint8).reshape(len(rows), -1)[:, :sent]
        completes = np.ones(len(rows), np.int64) if completes is None else np.asarray(completes)
        chained = is_sequential(self._unit)
        starts = range(0, len(rows), self.per_frame)
        wanted = [int(completes[start : start + self.per_frame].sum()) for start in starts]
        requests = [
            (
                Command.CONTINUE if chained and start else Command.RUN,
                bytes([given * count]) + data[start : start + self.per_frame].tobytes(),
            )
            for start, count in zip(starts, wanted, strict=True)
        ]
        replies = self._link.ask_all(requests, chained=chained, progress=lambda done: progress(done * self.per_frame))
        results = np.zeros((sum(wanted), -(-given // 8) * 8), np.uint8)
        came, surplus, place = np.ones(sum(wanted), bool), 0, 0
        for reply, count in zip(replies, wanted, strict=True):
            if len(reply) != given * count + 1 or reply[-1] & Status.INCOMPLETE:
                raise BoardError(f"the board at {self._link.port!r} answers {len(reply)} bytes to {count} operands")
            results[place : place + count, :given] = np.frombuffer(reply[:-1], np.uint8).reshape(count, given)
            # It does not say how many are missing; those that are, are zeros.
            came[place : place + count] = not reply[-1] & Status.MISSING
            surplus += bool(reply[-1] & Status.SURPLUS)
            place += count
        return Outcome(results.view("<u8").astype(np.uint64), came, surplus, clocks=0, ends={})


class Board:
    """A unit on a board.

    Made by :func:`connect`; it is a context manager, which closes the port.

    Attributes
    ----------
    identity : Identity
        What the board says of itself.
    unit : Unit
        Of which it has the gates.
    gates : BoardGates
        For payloads instead of tensors.
    link : Link
        For what was on the line.
    """

    def __init__(self, link: Link, identity: Identity, unit: hdl.Unit):
        self.identity, self.unit, self.link = identity, unit, link
        self.gates = BoardGates(unit, link)
        self._function = None if is_sequential(unit) else UnitFunction(unit, self.gates)

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the port."""
        self.link.close()

    @property
    def function(self) -> UnitFunction:
        """The gates for :func:`sim.hardware_function`; a ValueError says that the unit sums several payloads."""
        check_function(self.unit)
        return self._function

    def run(self, operation: str, *operands) -> Answer:
        """Send operands through the gates: what :meth:`sim.SimulatedUnit.run` does.

        Raises
        ------
        ValueError, TypeError
            Another operation, another number of operands, operands of another kind, or a unit that sums several
            payloads, before anything is sent.
        BoardError
            From the line; the next call starts afresh.
        """
        return self.function.run(operation, *operands)

    def self_test(self, seed: int = 0, operations: Sequence[str] | None = None) -> dict[str, bool]:
        """Let the board run 65,536 payloads an operation, one a clock, and return whether the golden model agrees.

        Only a signature of the results comes back, so that the line does not slow it down.

        Parameters
        ----------
        seed : int
            Of the operands.
        operations : sequence of str, optional
            By default all.
        """
        check_function(self.unit)
        return {name: self._test(name, seed) for name in operations or self.unit.operations}

    def _test(self, operation: str, seed: int) -> bool:
        layout, codes = self.unit.i.payload.shape(), list(self.unit.operations)
        drawn = int.from_bytes(np.random.default_rng(seed).bytes(seed_size(self.unit)), "little") | 1 << 8
        if len(codes) > 1:
            place = layout["op"].offset + 8 * (seed_size(self.unit) - bytes_of(width(layout)))
            mask = (1 << layout["op"].width) - 1
            drawn = drawn & ~(mask << place) | codes.index(operation) << place
        start = drawn.to_bytes(seed_size(self.unit), "little")
        expected = expected_signature(self.unit, start)
        return self.link.ask(Command.TEST, bytes([len(expected)]) + start)[:-1] == expected


def connect(
    port: str,
    *,
    baud: int = 1_000_000,
    timeout: float = 1.0,
    expect: hdl.Unit | None = None,
    digest: bytes | str | None = None,
) -> Board:
    """Return the board at a serial port.

    Parameters
    ----------
    port : str
        Such as ``/dev/ttyUSB1``, or that of a :class:`~fpga.simulated_board.SimulatedBoard`.
    baud : int
        What the bridge was built with.
    timeout : float
        Seconds of silence after which a reply is missing, and asked for again.
    expect : Unit, optional
        The unit that it must have, of this format; by default whatever it says that it has, if that is known here.
    digest : bytes or str, optional
        Of the build that it must have, in hexadecimal if it is text.

    Raises
    ------
    ValueError
        A parameter is not as above.
    BoardError
        The port does not exist or is in use, nothing answers as a board does, or it is another one.
    """
    wanted = _digest_of(digest)
    link = Link(port, baud, timeout)
    try:
        identity = Identity.from_bytes(link.ask(Command.IDENTIFY))
        link.buffer = identity.buffer
        return Board(link, identity, _unit_of(identity, port, expect, wanted))
    except ValueError as error:
        link.close()
        raise BoardError(f"the board at {port!r} cannot be used: {error}") from None
    except BaseException:
        link.close()
        raise


def _digest_of(digest: bytes | str | None) -> bytes | None:
    with contextlib.suppress(ValueError):
        if digest is None or len(found := bytes.fromhex(digest) if isinstance(digest, str) else digest) == DIGEST_BYTES:
            return None if digest is None else found
    raise ValueError(f"digest must be {DIGEST_BYTES} bytes, or {2 * DIGEST_BYTES} hexadecimal digits, not {digest!r}")


def _unit_of(identity: Identity, port: str, expect: hdl.Unit | None, digest: bytes | None) -> hdl.Unit:
    """Return the unit that a board has, or raise BoardError if another one, or another build, is expected."""
    if digest is not None and identity.digest != digest:
        raise BoardError(f"the board at {port!r} must have the build {digest.hex()}, not {identity.digest.hex()}")
    unit = expect if expect is not None else identity.make_unit()
    known = Identity.of(unit, digest=identity.digest, clock_hz=identity.clock_hz, buffer=identity.buffer)
    if identity != known:
        raise BoardError(f"the board at {port!r} must have {known}, not {identity}")
    return unit
