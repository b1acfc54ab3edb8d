"""Stopping at the first operation that raises a flag, in the forward or the backward pass."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import conversions
from .observe import FLAGS, Operation, observing

__all__ = ["AnomalyError", "detect_anomaly"]

_IN_WORDS = {
    "overflow": "overflow",
    "underflow": "underflow",
    "invalid": "invalid operation",
    "zero_divide": "division by zero",
}


class AnomalyError(ArithmeticError):
    """An LNS operation raised a flag inside :func:`detect_anomaly`.

    Attributes
    ----------
    operation : Operation
        Name, format, operands, result and flags of the whole elementwise operation, as words.
    flag : str
        One of ``FLAGS``: the first that the element raised.
    index : tuple of int
        The first such element, within the elementwise operation; a sum or matrix product consists of several.
    operator : str or None
        The aten operator that was computed, None where the arithmetic was called directly.
    backward : str or None
        In a backward pass the name of the autograd node; of a sum of two gradients, the node that gave the second.
    forward_stack : str or None
        In a backward pass the Python stack that made the node, if that happened inside the block.
    """

    def __init__(
        self,
        operation: Operation,
        flag: str,
        index: tuple[int, ...],
        operator: str | None = None,
        backward: str | None = None,
        forward_stack: str | None = None,
    ):
        super().__init__(operation, flag, index, operator, backward, forward_stack)
        self.operation = operation
        self.flag = flag
        self.index = index
        self.operator = operator
        self.backward = backward
        self.forward_stack = forward_stack

    def __str__(self) -> str:
        format, operands, result = self.operation.format, self.operation.operands, self.operation.result
        where = f", in {self.operator}" if self.operator else ""
        if self.backward:
            where += f" of the backward pass ({self.backward})"
        lines = [
            f"{_IN_WORDS[self.flag]} in {self.operation.name} of {format}{where}, "
            f"at element {self.index} of {tuple(result.shape)}:"
        ]
        for name, words in zip(("a", "b", "c"), operands, strict=False):
            lines.append(f"  {name:8}{_number(format, words[self.index])}")
        lines.append(f"  {'result':8}{_number(format, result[self.index])}")
        if self.forward_stack:
            lines.append(f"Stack of the forward call:\n{self.forward_stack.rstrip()}")
        return "\n".join(lines)


def _number(format, word: torch.Tensor) -> str:
    digits = -(-format.width // 4)
    return f"0x{int(format.to_unsigned(word)):0{digits}x}  {conversions.decode(format, word).item()!r}"


class _Operators(TorchDispatchMode):
    """Knows which aten operator is being computed."""

    current: str | None = None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        outer, self.current = self.current, str(func)
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.current = outer


@contextlib.contextmanager
def detect_anomaly(flags: Collection[str] = FLAGS) -> Iterator[None]:
    """Raise an :class:`AnomalyError` at the first LNS operation inside the block that raises one of `flags`.

    The error names the operation, the aten operator, and the first element with its operands and result. Raised in a
    backward pass it also names the autograd node and, where the forward pass ran inside the block too, shows the Python
    stack of the forward call; ``torch.autograd`` records those stacks meanwhile, which takes time.

    Parameters
    ----------
    flags : collection of str
        Any of ``"overflow"``, ``"underflow"``, ``"invalid"`` and ``"zero_divide"``; all four by default. Gradients and
        softmax flush small numbers to zero as a matter of course: leave ``"underflow"`` out where that is no concern.

    Raises
    ------
    ValueError
        `flags` is empty, or names something else.

    Notes
    -----
    Works as a decorator too (``@detect_anomaly()``), and blocks nest. Like torch's own anomaly mode it is of the whole
    process: an operation in another thread is stopped in that thread. Conversions between numbers and words raise no
    flags.

    Examples
    --------
    >>> import xlnstorch
    >>> x = xlnstorch.lnstensor([1.0, 2.0**64], format=xlnstorch.lns16)
    >>> with xlnstorch.detect_anomaly():
    ...     x * x
    Traceback (most recent call last):
    xlnstorch.anomaly.AnomalyError: overflow in mul of lns16, in aten.mul.Tensor, at element (1,) of (2,):
      a       0x6000  1.8446744073709552e+19
      b       0x6000  1.8446744073709552e+19
      result  0x7fff  3.3844464596121152e+38
    """
    wanted = [flag for flag in FLAGS if flag in flags]
    if not wanted or len(wanted) != len(set(flags)):
        raise ValueError(f"flags must be some of {', '.join(FLAGS)}, not {flags!r}")
    mask = sum(1 << FLAGS.index(flag) for flag in wanted)
    operators = _Operators()

    def check(operation: Operation) -> None:
        raised = operation.flags & mask
        if not bool(raised.any()):
            return
        index = tuple(raised.nonzero()[0].tolist())
        flag = next(flag for flag in wanted if int(raised[index]) >> FLAGS.index(flag) & 1)
        backward, stack = _backward_pass()
        # Otherwise torch would print the same stack, as a warning.
        torch.set_anomaly_enabled(False)
        raise AnomalyError(operation, flag, index, operators.current, backward, stack)

    nan_too = torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled()
    with torch.autograd.set_detect_anomaly(True, check_nan=nan_too), operators, observing(check):
        yield


def _backward_pass() -> tuple[str | None, str | None]:
    """Return the name of the autograd node at work and the stack of its forward call, as far as there are any."""
    node = torch._C._current_autograd_node()
    if node is None:
        return None, None
    return node.name(), "".join(node.metadata.get("traceback_", ())) or None
