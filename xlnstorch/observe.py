"""Watching the arithmetic: every LNS operation, element by element, with its operands, result and flags.

Capture for hardware, counting of flags and the anomaly check all hang on this one hook, so none of them can see
anything but what was really computed. Nothing is built while nobody watches.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from .formats import LNSFormat

__all__ = ["EXACT", "FLAGS", "FlagCounts", "Operation", "flags", "observing"]

#: The status flags of an operation, in the order of their bits in hardware.
FLAGS = ("overflow", "underflow", "invalid", "zero_divide")

#: Operations that only choose a word or change its sign: exact, without flags, and told only to who asks for them.
EXACT = frozenset({"neg", "abs", "copysign", "max", "min", "relu", "relu_grad"})


class Operation(NamedTuple):
    """One elementwise LNS operation, as it was computed.

    Attributes
    ----------
    name : str
        ``"mul"``, ``"add"``, ``"sub"``, ``"div"``, …, or one of :data:`EXACT`.
    format : LNSFormat
        The format of operands and result.
    operands : tuple of Tensor
        Words, broadcast to the shape of the result.
    result : Tensor
        Words.
    flags : Tensor
        int64, one bit for each of :data:`FLAGS`.
    """

    name: str
    format: LNSFormat
    operands: tuple[torch.Tensor, ...]
    result: torch.Tensor
    flags: torch.Tensor


# With the thread whose operations they are to see, or None, and whether they see exact ones too.
_observers: list[tuple[Callable[[Operation], None], int | None, bool]] = []


@contextlib.contextmanager
def observing(
    observer: Callable[[Operation], None], *, this_thread: bool = False, exact: bool = False
) -> Iterator[None]:
    """Call `observer` with each LNS operation computed inside the block.

    Parameters
    ----------
    observer : callable
    this_thread : bool
        Only of this thread; by default of all.
    exact : bool
        Those of :data:`EXACT` as well.
    """
    entry = (observer, threading.get_ident() if this_thread else None, exact)
    _observers.append(entry)
    try:
        yield
    finally:
        _observers.remove(entry)


def watched(name: str) -> bool:
    """Whether anybody is to be told of operations of that name in this thread."""
    return bool(_observers) and bool(_watching(name))


def report(
    name: str, format: LNSFormat, operands: tuple[torch.Tensor, ...], result: torch.Tensor, **flags: torch.Tensor
) -> None:
    """Tell the observers of one operation; `flags` maps names of :data:`FLAGS` to boolean tensors."""
    if result.is_meta or not watched(name):  # of meta tensors only the shape is wanted
        return
    report_bits(name, format, operands, result, bits_of(flags, result))


def bits_of(flags: dict[str, torch.Tensor], result: torch.Tensor) -> torch.Tensor:
    """Return the flags of results as in :class:`Operation`, from boolean tensors by names of :data:`FLAGS`."""
    bits = torch.zeros(result.shape, dtype=torch.int64, device=result.device)
    for flag, raised in flags.items():
        bits |= raised.to(torch.int64) << FLAGS.index(flag)
    return bits


def report_bits(
    name: str, format: LNSFormat, operands: tuple[torch.Tensor, ...], result: torch.Tensor, bits: torch.Tensor
) -> None:
    """Tell the observers of one operation, with its flags as in :class:`Operation`."""
    operation = Operation(name, format, tuple(x.broadcast_to(result.shape) for x in operands), result, bits)
    for observer in _watching(name):
        observer(operation)


def _watching(name: str) -> list[Callable[[Operation], None]]:
    here, is_exact = threading.get_ident(), name in EXACT
    return [watch for watch, thread, exact in _observers if thread in (None, here) and exact >= is_exact]


@dataclasses.dataclass
class FlagCounts:
    """How many elementwise operations ran in a block and how many raised each flag; ``print`` shows it as a table.

    Attributes
    ----------
    operations : int
    overflow, underflow, invalid, zero_divide : int
    by_operation : dict of str to FlagCounts
        The same for each kind of operation, ``"mul"``, ``"add"``, …, in the order in which they first ran.
    """

    operations: int = 0
    overflow: int = 0
    underflow: int = 0
    invalid: int = 0
    zero_divide: int = 0
    by_operation: dict[str, FlagCounts] = dataclasses.field(default_factory=dict, repr=False)

    def _count(self, operation: Operation) -> None:
        of_kind = self.by_operation.setdefault(operation.name, FlagCounts())
        for counts in (self, of_kind):
            counts.operations += operation.flags.numel()
        for bit, flag in enumerate(FLAGS):
            raised = int(((operation.flags >> bit) & 1).sum())
            for counts in (self, of_kind):
                setattr(counts, flag, getattr(counts, flag) + raised)

    def __str__(self) -> str:
        columns = ("operations", *FLAGS)
        lines = [f"{'':10}" + "".join(f"  {column:>11}" for column in columns)]
        for name, counts in [*self.by_operation.items(), ("all", self)]:
            lines.append(f"{name:10}" + "".join(f"  {getattr(counts, column):11,}" for column in columns))
        return "\n".join(lines)


@contextlib.contextmanager
def flags() -> Iterator[FlagCounts]:
    """Count the flags that LNS operations raise inside the block, forward and backward, in any thread.

    Examples
    --------
    >>> import xlnstorch
    >>> with xlnstorch.flags() as counts:
    ...     x = xlnstorch.lnstensor([1e30, 1.0], format=xlnstorch.lns16) * 1e30
    ...     y = x + x
    >>> counts
    FlagCounts(operations=4, overflow=2, underflow=0, invalid=0, zero_divide=0)
    >>> print(counts)
                 operations     overflow    underflow      invalid  zero_divide
    mul                   2            1            0            0            0
    add                   2            1            0            0            0
    all                   4            2            0            0            0
    """
    counts = FlagCounts()
    with observing(counts._count):
        yield counts
