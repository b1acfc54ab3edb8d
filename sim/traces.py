"""Capture: every LNS operation of real PyTorch code, forward and backward, as words for the gates."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import functools
import importlib.metadata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from xlnstorch.formats import LNSFormat
from xlnstorch.observe import Operation, observing

__all__ = ["CapturedOperations", "Recorder", "Trace", "capture", "word_dtype"]

# What the operations of units are called where the arithmetic reports another name.
_UNIT_NAMES = {"pow2": "square"}
# The pieces in which the arithmetic reports, some of them a few words long, are joined when they are so many words.
_BLOCK = 1 << 20


def word_dtype(format: LNSFormat) -> np.dtype:
    """Return the smallest unsigned dtype that holds a word of a format."""
    return np.dtype(f"u{format.dtype.itemsize}")


@dataclasses.dataclass(frozen=True)
class CapturedOperations:
    """The elementwise operations of one kind, in the order in which they were computed.

    Attributes
    ----------
    operands : tuple of ndarray
    result : ndarray
        Words, as non-negative integers, of :func:`word_dtype`.
    flags : ndarray of uint8
        As the golden model raised them.
    starts : list of int
        Where another aten operator begins.
    sources : list of str
        The operators that begin there.
    """

    operands: tuple[np.ndarray, ...]
    result: np.ndarray
    flags: np.ndarray
    starts: list[int]
    sources: list[str]

    def __len__(self) -> int:
        return len(self.result)

    @property
    def columns(self) -> tuple[np.ndarray, ...]:
        """Operands, result and flags."""
        return (*self.operands, self.result, self.flags)

    def source(self, index: int) -> str:
        """Return which aten operator, of the forward or the backward pass, computed element `index`."""
        return self.sources[bisect.bisect_right(self.starts, index) - 1]


class _Record:
    """The operations of one kind so far."""

    def __init__(self):
        self._parts: list[tuple[np.ndarray, ...]] = []
        self._blocks = 0  # how many of the parts, the first ones, are joined
        self._pending = self._length = 0
        self._starts: list[int] = []
        self._sources: list[str] = []

    def append(self, source: str, columns: tuple[np.ndarray, ...]) -> None:
        if not self._sources or self._sources[-1] != source:
            self._starts.append(self._length)
            self._sources.append(source)
        self._parts.append(columns)
        self._pending += len(columns[0])
        self._length += len(columns[0])
        if self._pending >= _BLOCK:
            self._parts[self._blocks :] = [_joined(self._parts[self._blocks :])]
            self._blocks, self._pending = len(self._parts), 0

    def read(self) -> CapturedOperations:
        # Runs of several units read in threads of their own. Each may join; what they join is the same.
        parts = self._parts
        if len(parts) > 1:
            self._parts = parts = [_joined(parts)]
            self._blocks, self._pending = 1, 0
        *operands, result, flags = parts[0]
        return CapturedOperations(tuple(operands), result, flags, self._starts, self._sources)


def _joined(pieces: list[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    return tuple(np.concatenate(parts) for parts in zip(*pieces, strict=True))


class Trace:
    """The LNS operations of one format that some code computed; :func:`capture` makes one.

    They are read by the name of a unit's operation. Of those without operands, such as the last rounding of a sum, only
    the number is known.

    Parameters
    ----------
    format : LNSFormat

    Attributes
    ----------
    format : LNSFormat
    counts : Counter of str
        How many elementwise operations of each kind were computed, those without operands included.
    others : Counter of LNSFormat
        How many were computed in other formats, and not recorded.
    versions : dict of str to str
        Of the packages that computed them.
    path : Path or None
        The file that it was last saved to, or loaded from.
    """

    def __init__(self, format: LNSFormat):
        if not isinstance(format, LNSFormat):
            raise TypeError(f"format must be an LNSFormat such as lns16, not {format!r}")
        self.format = format
        self.counts: Counter[str] = Counter()
        self.others: Counter[LNSFormat] = Counter()
        self.versions = {name: importlib.metadata.version(name) for name in ("lns-coverify", "torch", "numpy")}
        self.path: Path | None = None
        self._records: dict[str, _Record] = {}

    def add(self, name: str, source: str, count: int, columns: tuple[np.ndarray, ...]) -> None:
        """Add operations of one kind and one source: operands, result and flags, or no columns without operands."""
        self.counts[name] += count
        if columns and count:
            self._records.setdefault(name, _Record()).append(source, columns)

    @property
    def names(self) -> list[str]:
        """The kinds of operation that have operands, such as ``"mul"`` and ``"add"``."""
        return sorted(self._records)

    def __len__(self) -> int:
        """How many operations there are."""
        return sum(tuple(self.counts.values()))  # a copy, for another thread may be counting on

    def __getitem__(self, name: str) -> CapturedOperations:
        """Return the operations of one kind; none is an empty record."""
        if name in self._records:
            return self._records[name].read()
        return CapturedOperations((), np.zeros(0, word_dtype(self.format)), np.zeros(0, np.uint8), [], [])

    @property
    def nbytes(self) -> int:
        """How many bytes operands, results and flags take."""
        return sum(column.nbytes for name in self.names for column in self[name].columns)

    def save(self, path: str | Path) -> None:
        """Write a ``.npz`` file with all of this; it appears, or is replaced, only when it is complete.

        Raises
        ------
        ValueError
            The format has an adder or accumulator that :func:`~xlnstorch.named_adder` or
            :func:`~xlnstorch.named_accumulator` does not know.
        OSError
            The file has another suffix, or cannot be written.
        """
        from .trace_files import write

        write(self, Path(path))
        self.path = Path(path)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Return the trace that was saved in a file.

        Raises
        ------
        ValueError
            The file is no trace, is damaged, or is of a later schema; the message is one sentence that names it.
        OSError
            It cannot be read.
        """
        from .trace_files import read

        trace = read(Path(path))
        trace.path = Path(path)
        return trace


class Recorder(TorchDispatchMode):
    """Adds to a trace what aten operators compute, with their names."""

    def __init__(self, trace: Trace):
        super().__init__()
        self._trace = trace
        self._dtype = word_dtype(trace.format)
        self._mask = self._dtype.type((1 << trace.format.width) - 1)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        # A dispatch mode is of one thread.
        with observing(functools.partial(self._record, self.source(func)), this_thread=True, exact=True):
            return func(*args, **(kwargs or {}))

    def source(self, operator: object) -> str:
        """Return what the trace shall call an aten operator that is about to run."""
        return f"{operator} (backward)" if torch._C._current_autograd_node() is not None else str(operator)

    def _record(self, where: str, operation: Operation) -> None:
        format, count = self._trace.format, operation.flags.numel()
        if operation.format != format:
            self._trace.others[operation.format] += count
            return
        columns = ()
        if operation.operands:
            columns = (
                *(self._column(x, self._dtype) & self._mask for x in (*operation.operands, operation.result)),
                self._column(operation.flags, np.uint8),
            )
        self._trace.add(_UNIT_NAMES.get(operation.name, operation.name), where, count, columns)

    @staticmethod
    def _column(integers: torch.Tensor, dtype: np.dtype) -> np.ndarray:
        return integers.reshape(-1).cpu().numpy().astype(dtype)


@contextlib.contextmanager
def capture(format: LNSFormat) -> Iterator[Trace]:
    """Record all LNS operations of one format inside a ``with`` block, those of a backward pass included.

    Parameters
    ----------
    format : LNSFormat
        Operations of other formats, and of other threads, are not recorded.

    Yields
    ------
    Trace

    Examples
    --------
    >>> import sim, xlnstorch
    >>> x = xlnstorch.lnstensor([1.0, 2.0], format=xlnstorch.lns16, requires_grad=True)
    >>> with sim.capture(xlnstorch.lns16) as trace:
    ...     (x * x).sum().backward()
    >>> len(trace["mul"]), len(trace["add"]), trace["mul"].source(0)
    (6, 3, 'aten.mul.Tensor')
    """
    trace = Trace(format)
    with Recorder(trace):
        yield trace
