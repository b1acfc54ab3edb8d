"""A board without a board: the gates of its whole top in Verilator, their UART pins joined to a pseudo-terminal."""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
import tty
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

import hdl
from sim.simulators import Verilator

from .bridge.protocol import DIGEST_BYTES
from .top import Top

__all__ = ["NO_STOP", "SILENCE", "BoardModel", "SimulatedBoard"]

#: Added to a byte that is sent without its stop bit; and what silence before it, in bits, is multiplied by.
NO_STOP, SILENCE = 1 << 8, 1 << 16

_SOURCE = Path(__file__).with_suffix(".cpp")
# Clocks without anything on the lines, more than a self-test or the end of a frame that was cut takes, after which a
# simulated board goes to sleep.
_AWAKE = 1 << 18


class _Compiler(Verilator):
    """Verilator, making a shared library of the gates and `simulated_board.cpp`."""

    executable = "board.so"
    build_args = (
        *(
            "--cc",
            "--exe",
            "--build",
            "--top-module",
            "top",
            "--Mdir",
            ".",
            "-o",
            executable,
            "-Wno-fatal",
            "-Wno-lint",
        ),
        *("-O3", "--output-split", "0", "--x-assign", "fast", "--x-initial", "fast", "--no-assert"),
        *("-CFLAGS", "-fPIC", "-LDFLAGS", "-shared"),
    )
    make_args = ("OPT_FAST=-O1", "OPT_SLOW=-O0", "OPT_GLOBAL=-O2")

    def version(self) -> str:
        return f"{super().version()} {hashlib.sha256(_SOURCE.read_bytes()).hexdigest()}"

    def runtime_digest(self, waves: str | None, coverage: bool) -> str:
        return hashlib.sha256(f"board {super().version()} -fPIC -O2".encode()).hexdigest()[:32]

    def _compile(
        self, source: Path, waves: str | None, coverage: bool, log: Path, poll: Callable[[], None] | None
    ) -> int:
        return self._child(["verilator", *self.build_args, str(source), str(_SOURCE)], source.parent, log, poll=poll)


class BoardModel:
    """The gates of a board's top in this process.

    Parameters
    ----------
    unit : Unit
        Not to be used elsewhere.
    digest : bytes, optional
        The identity of the build; by default made of the gates.
    baud : int
    divisor : int
        Clocks of a bit; the fewer, the faster is the simulation of a byte.
    verilog : str, optional
        Gates from elsewhere of a board with all this, with the top module ``top`` and its ports ``clk``, ``rx`` and
        ``tx``: by default what :class:`~fpga.top.Top` becomes.
    poll : callable, optional
        Called now and then during compilation; may raise, to give up.

    Attributes
    ----------
    identity : Identity or None
        What the board says of itself; None of gates from elsewhere.
    divisor : int

    Raises
    ------
    TypeError, ValueError
        The bridge cannot have the unit.
    ToolMissing, BuildFailed
        From Verilator.
    """

    def __init__(
        self,
        unit: hdl.Unit,
        *,
        digest: bytes | None = None,
        baud: int = 1_000_000,
        divisor: int = 4,
        verilog: str | None = None,
        poll: Callable[[], None] | None = None,
    ):
        self.divisor, self.identity = divisor, None
        if verilog is None:
            made = _make_top(unit, digest, baud, divisor)
            self.identity, verilog = made.bridge.identity, hdl.to_verilog(made)
        compiler = _Compiler()
        self._library = ctypes.CDLL(str(compiler.build(verilog, poll=poll) / compiler.executable))
        self._library.board_open.restype = ctypes.c_void_p
        self._library.board_exchange.restype = self._library.board_clocks.restype = ctypes.c_int64
        self._handle = ctypes.c_void_p(self._library.board_open(ctypes.c_int64(divisor)))

    def close(self) -> None:
        """Free the gates."""
        if self._handle is not None:
            self._library.board_close(self._handle)
            self._handle = None

    @property
    def clocks(self) -> int:
        """How many there have been."""
        return self._library.board_clocks(self._handle)

    def exchange(self, sent: Sequence[int] | bytes, *, quiet_bits: int = 1000) -> bytes:
        """Send bytes and return those that come until both lines have been quiet for so many bits.

        A byte may have :data:`NO_STOP` added to it, and :data:`SILENCE` times the bits of silence before it. One that
        comes without a stop bit is a RuntimeError.
        """
        items = np.frombuffer(sent, np.uint8) if isinstance(sent, bytes | bytearray) else np.array(sent)
        items = np.ascontiguousarray(items, np.uint32)
        answer, broken = np.zeros(1 << 20, np.uint8), ctypes.c_int64()
        count = self._library.board_exchange(
            self._handle,
            ctypes.c_void_p(items.ctypes.data),
            ctypes.c_int64(len(items)),
            ctypes.c_void_p(answer.ctypes.data),
            ctypes.c_int64(len(answer)),
            ctypes.c_int64(quiet_bits * self.divisor),
            ctypes.byref(broken),
        )
        if broken.value or count > len(answer):
            raise RuntimeError(f"{broken.value} bytes came without a stop bit, {count} with one")
        return answer[:count].tobytes()


def _make_top(unit: hdl.Unit, digest: bytes | None, baud: int, divisor: int) -> Top:
    def top(digest: bytes) -> Top:
        return Top(unit, digest=digest, clock_hz=Fraction(divisor * baud), baud=baud)

    if digest is None:
        digest = hashlib.sha256(hdl.to_verilog(top(bytes(DIGEST_BYTES))).encode()).digest()[:DIGEST_BYTES]
    return top(digest)


class SimulatedBoard(BoardModel):
    """A board whose serial port is a pseudo-terminal, for :func:`fpga.connect` and any other program.

    Parameters are those of :class:`BoardModel`; it is a context manager.

    Attributes
    ----------
    port : str
        The path of the terminal.
    """

    def __init__(self, unit: hdl.Unit, **parameters):
        super().__init__(unit, **parameters)
        self._files = os.openpty()
        for file in self._files:
            tty.setraw(file)
        os.set_blocking(self._files[0], False)
        # The other end stays open here too, so that hosts may come and go.
        self.port = os.ttyname(self._files[1])
        self._stop = ctypes.c_int(0)
        self._thread = threading.Thread(target=self._serve, name="simulated board", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        file, awake = ctypes.c_int(self._files[0]), ctypes.c_int64(_AWAKE)
        self._library.board_serve(self._handle, file, awake, ctypes.byref(self._stop))

    def __enter__(self) -> SimulatedBoard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unplug it."""
        self._stop.value = 1
        self._thread.join()
        for file in self._files:
            os.close(file)
        self._files = ()
        super().close()
