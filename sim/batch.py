"""The gates as a function of arrays: compiled by Verilator into this process, with no Python in their clock loop."""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import hdl
from hdl.unit import Unit

from . import payloads
from .sequences import is_sequential
from .simulators import TOP, Verilator

__all__ = ["ENDS", "Batch", "Outcome"]

#: What a clock can look like at the two ends: operands, then results.
ENDS = tuple(f"{given}, {got}" for given in ("idle", "taken", "refused") for got in ("nothing", "taken", "waits"))

_SOURCE = Path(__file__).with_suffix(".cpp")
# From about here on, the time that -O3 and more lanes save in the simulation is more than they take to compile.
_MANY = 1 << 27
# More share what Verilator does once a clock among them, but 32 are no faster, and take three times as long to compile.
_LANES = 8
# Clocks without a payload taken or a result come, after which a unit has stopped, and in which nothing more may come.
_PATIENCE = 4096


class BatchVerilator(Verilator):
    """Verilator, making a shared library of the gates and `batch.cpp`."""

    executable = "batch.so"
    module = "lanes"

    def __init__(self, lanes: int, optimize: bool, selected: bool):
        self.build_args = (
            *("--cc", "--exe", "--build", "--top-module", "lanes", "--Mdir", ".", "-o", self.executable),
            *("-Wno-fatal", "-Wno-lint", "-O3", "--output-split", "0", "--x-assign", "fast", "--x-initial", "fast"),
            *("--no-assert", "-CFLAGS", f"-fPIC -DLANES={lanes}{' -DSELECTED' if selected else ''}"),
            *("-LDFLAGS", "-shared"),
        )
        level = "-O3" if optimize else "-O1"
        self.make_args = (f"OPT_FAST={level}", f"OPT_SLOW={'-O1' if optimize else '-O0'}", "OPT_GLOBAL=-O2")

    def version(self) -> str:
        return f"{super().version()} {hashlib.sha256(_SOURCE.read_bytes()).hexdigest()}"

    def runtime_digest(self, waves: str | None, coverage: bool) -> str:
        return hashlib.sha256(f"batch {super().version()} -fPIC -O2".encode()).hexdigest()[:32]

    def _compile(
        self, source: Path, args: Sequence[str], waves: str | None, log: Path, poll: Callable[[], None] | None
    ) -> int:
        command = ["verilator", *args, str(source), str(_SOURCE)]
        return self._child(command, source.parent, log, poll=poll)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came out of the gates.

    Attributes
    ----------
    rows : ndarray of uint64, of shape ``(wanted, words)``
        Results in the order of the payloads; those that never came are 0.
    came : ndarray of bool, of shape ``(wanted,)``
        Which of them came.
    unasked : int
        How many results came that nothing had asked for.
    clocks : int
        Since the first payload was offered.
    ends : dict of str to int
        How many clocks looked like each of :data:`ENDS`, all lanes together; empty if they were not counted.
    """

    rows: np.ndarray
    came: np.ndarray
    unasked: int
    clocks: int
    ends: dict[str, int]

    def wrong(self, expected: np.ndarray) -> np.ndarray:
        """Return which results differ from the rows expected, or never came."""
        return (self.rows != expected).any(1) | ~self.came

    @property
    def problems(self) -> list[str]:
        """What is wrong besides, in sentences."""
        return [f"{self.unasked} results came that no operands had asked for"] if self.unasked else []


class Batch:
    """Gates in this process; several threads may each have one of the same unit, and run them side by side.

    Parameters
    ----------
    unit : Unit
    verilog : str, optional
        Its gates, with the top module ``top``: by default what :func:`hdl.to_verilog` makes of it.
    expected : int
        About how many payloads are to come: for many it is worth while to compile for longer.
    selected_bits : int
        Width of a port ``selected`` of `verilog` that chooses one of several variants, see :meth:`select`; 0 for none.
    poll : callable, optional
        Called now and then during compilation; may raise, to give up.

    Raises
    ------
    ToolMissing, BuildFailed
    """

    def __init__(
        self,
        unit: Unit,
        verilog: str | None = None,
        *,
        expected: int = 0,
        selected_bits: int = 0,
        poll: Callable[[], None] | None = None,
    ):
        self.unit = unit
        self.input_words = -(-payloads.width(unit.i.payload.shape()) // 64)
        self.output_words = -(-payloads.width(unit.o.payload.shape()) // 64)
        many = expected >= _MANY
        # The payloads of a sequence cannot be shared out.
        self.lanes = _LANES if many and not is_sequential(unit) else 1
        source = _lanes(unit, self.lanes, selected_bits) + (
            verilog if verilog is not None else hdl.to_verilog(unit, name=TOP)
        )
        compiler = BatchVerilator(self.lanes, optimize=many, selected=bool(selected_bits))
        self._library = ctypes.CDLL(str(compiler.build(source, poll=poll) / compiler.executable))
        self._library.batch_open.restype = ctypes.c_void_p
        self._library.batch_reset.restype = ctypes.c_int64
        self._handle = ctypes.c_void_p(self._library.batch_open())

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the gates."""
        if self._handle is not None:
            self._library.batch_close(self._handle)
            self._handle = None

    def select(self, number: int) -> None:
        """Choose a variant of gates that have several; the unit should be reset afterwards."""
        self._library.batch_select(self._handle, ctypes.c_uint32(number))

    def reset(self, rows: np.ndarray, *, take: bool = True, clocks: int = 64) -> int:
        """Fill the unit and reset it; return how many results came afterwards, where none should.

        Parameters
        ----------
        rows : ndarray of uint64, of shape ``(n, words)``
            Payloads, one for each clock before the reset; may be none.
        take : bool
            Whether results are taken before the reset.
        clocks : int
            How long to wait for results after it.
        """
        rows = self._checked(rows)
        return self._library.batch_reset(
            self._handle, _pointer(rows), ctypes.c_int64(len(rows)), ctypes.c_int64(take), ctypes.c_int64(clocks)
        )

    def _checked(self, rows: np.ndarray) -> np.ndarray:
        if self._handle is None:
            raise ValueError("the gates are closed")
        rows = np.ascontiguousarray(rows, dtype=np.uint64)
        if rows.ndim != 2 or rows.shape[1] != self.input_words:
            raise ValueError(f"rows must have the shape (n, {self.input_words}), not {rows.shape}")
        return rows

    def run(
        self,
        rows: np.ndarray,
        wanted: int | None = None,
        *,
        stalls: int = 0,
        drain: bool = False,
        count_ends: bool = False,
    ) -> Outcome:
        """Send payloads and return what comes.

        Parameters
        ----------
        rows : ndarray of uint64, of shape ``(n, words)``
            Payloads, as :func:`~sim.payloads.to_rows` makes them.
        wanted : int, optional
            How many results they bring; by default each brings one.
        stalls : int
            Seed of random stalls at both ends, up to 2**64 - 1; with 0 there are none.
        drain : bool
            Whether to wait at the end, and see that no more results come.
        count_ends : bool
            Whether the outcome says what the clocks looked like at the two ends.
        """
        rows = self._checked(rows)
        wanted = len(rows) if wanted is None else wanted
        if wanted != len(rows) and self.lanes > 1:
            raise ValueError(f"each payload of {self.unit.name} brings a result: {wanted} cannot come of {len(rows)}")
        results = np.zeros((wanted, self.output_words), dtype=np.uint64)
        received, report, ends = (np.zeros(size, dtype=np.int64) for size in (self.lanes, 2, len(ENDS)))
        self._library.batch_run(
            self._handle,
            _pointer(rows),
            ctypes.c_int64(len(rows)),
            _pointer(results),
            ctypes.c_int64(wanted),
            ctypes.c_uint64(stalls),
            ctypes.c_int64(_PATIENCE),
            ctypes.c_int64(drain),
            _pointer(received),
            _pointer(report),
            _pointer(ends) if count_ends else None,
        )
        came = np.ones(wanted, dtype=bool)
        if received.sum() != wanted:
            for lane, count in enumerate(received):
                came[wanted * lane // self.lanes + count : wanted * (lane + 1) // self.lanes] = False
        clocks, unasked = report.tolist()
        counted = {name: count for name, count in zip(ENDS, ends.tolist(), strict=True) if count}
        return Outcome(results, came, unasked, clocks, counted)


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _lanes(unit: Unit, lanes: int, selected_bits: int = 0) -> str:
    """Return the module around copies of a unit: each has whole words of 64 bits of the ports."""
    ends = {end: payloads.width(getattr(unit, end).payload.shape()) for end in ("i", "o")}
    steps = {end: -(-bits // 64) * 64 for end, bits in ends.items()}
    port = f"input [{selected_bits - 1}:0] selected, " if selected_bits else ""
    return f"""module lanes(
  {port}input clk, input rst,
  input [{lanes - 1}:0] i_valid, output [{lanes - 1}:0] i_ready, input [{lanes * steps["i"] - 1}:0] i_payload,
  output [{lanes - 1}:0] o_valid, input [{lanes - 1}:0] o_ready, output [{lanes * steps["o"] - 1}:0] o_payload
);
  reg reset;
  reg [{lanes - 1}:0] valid, ready;
  reg [{lanes * steps["i"] - 1}:0] operands;
  always @(posedge clk) begin
    reset <= rst;
    valid <= i_valid;
    ready <= o_ready;
    operands <= i_payload;
  end
  genvar k;
  generate for (k = 0; k < {lanes}; k = k + 1) begin : lane
    wire [{ends["o"] - 1}:0] payload;
    assign o_payload[k * {steps["o"]} +: {steps["o"]}] = payload;
    {TOP} unit (
      {".selected(selected), " if selected_bits else ""}.clk(clk), .rst(reset),
      .i__valid(valid[k]), .i__ready(i_ready[k]), .i__payload(operands[k * {steps["i"]} +: {ends["i"]}]),
      .o__valid(o_valid[k]), .o__ready(ready[k]), .o__payload(payload)
    );
  end endgenerate
endmodule
"""
