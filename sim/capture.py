"""Capture: every LNS operation of real PyTorch code, forward and backward, as words for the gates."""

from __future__ import annotations

import bisect
import dataclasses
import functools
from collections import Counter, defaultdict

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from xlnstorch.formats import LNSFormat
from xlnstorch.observe import Operation, observing

__all__ = ["CapturedOperations", "capture"]

# What the operations of units are called where the arithmetic reports another name.
_UNIT_NAMES = {"pow2": "square"}


@dataclasses.dataclass
class CapturedOperations:
    """The elementwise operations of one kind, in the order in which they were computed.

    Attributes
    ----------
    operands : tuple of ndarray of int64
    result : ndarray of int64
        Words, as non-negative integers.
    flags : ndarray of int64
        As the golden model raised them.
    """

    operands: tuple[np.ndarray, ...]
    result: np.ndarray
    flags: np.ndarray
    _starts: list[int]
    _sources: list[str]

    def __len__(self) -> int:
        return len(self.result)

    def source(self, index: int) -> str:
        """Return which aten operator, of the forward or the backward pass, computed element `index`."""
        return self._sources[bisect.bisect_right(self._starts, index) - 1]


class capture(TorchDispatchMode):
    """Record all LNS operations of one format inside a ``with`` block, those of a backward pass included.

    They can be read back by the name of a unit's operation and replayed; of those without operands, the last rounding
    of a sum, ``counts`` tells the number.

    Parameters
    ----------
    format : LNSFormat
        Operations of other formats, and of other threads, are not recorded.

    Examples
    --------
    >>> import xlnstorch
    >>> x = xlnstorch.lnstensor([1.0, 2.0], format=xlnstorch.lns16, requires_grad=True)
    >>> with capture(xlnstorch.lns16) as trace:
    ...     (x * x).sum().backward()
    >>> len(trace["mul"]), len(trace["add"]), trace["mul"].source(0)
    (6, 3, 'aten.mul.Tensor')
    """

    def __init__(self, format: LNSFormat):
        super().__init__()
        self.format = format
        #: How many elementwise operations of each kind were computed, those without operands included.
        self.counts: Counter[str] = Counter()
        self._chunks: dict[str, list[tuple[str, tuple[torch.Tensor, ...]]]] = defaultdict(list)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        where = f"{func} (backward)" if torch._C._current_autograd_node() is not None else str(func)
        # A dispatch mode is of one thread.
        with observing(functools.partial(self._record, where), this_thread=True):
            return func(*args, **(kwargs or {}))

    def _record(self, where: str, operation: Operation) -> None:
        if operation.format != self.format:
            return
        name = _UNIT_NAMES.get(operation.name, operation.name)
        self.counts[name] += operation.flags.numel()
        if not operation.operands:
            return
        words = (self.format.to_unsigned(x) for x in (*operation.operands, operation.result))
        columns = (*words, operation.flags)
        self._chunks[name].append((where, tuple(column.reshape(-1).cpu() for column in columns)))

    @property
    def names(self) -> list[str]:
        """The kinds of operation captured, such as ``"mul"`` and ``"add"``."""
        return sorted(self._chunks)

    def __getitem__(self, name: str) -> CapturedOperations:
        """Return the operations of one kind; none is an empty record."""
        chunks = self._chunks.get(name, [])
        if not chunks:
            nothing = np.zeros(0, dtype=np.int64)
            return CapturedOperations((), nothing, nothing, [], [])
        starts = np.cumsum([0, *(len(columns[0]) for _, columns in chunks[:-1])]).tolist()
        *operands, result, flags = (torch.cat(parts).numpy() for parts in zip(*(c for _, c in chunks), strict=True))
        return CapturedOperations(tuple(operands), result, flags, starts, [where for where, _ in chunks])
