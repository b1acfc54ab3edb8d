"""Gradients out of the gates: every operation of a function and of its backward pass, and the first that differs."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable

import numpy as np
import torch

import hdl
from hdl.layouts import FlagsLayout, WordLayout
from hdl.unit import Unit
from xlnstorch.tensor import LNSTensor

from . import payloads
from .simulated import SimulatedUnit
from .traces import Recorder, Trace

__all__ = ["Difference", "GradientReport", "verify_gradients"]


@dataclasses.dataclass(frozen=True)
class Difference:
    """The first operation, in the order of computation, on which gates and golden model differ.

    Attributes
    ----------
    operation : str
        Of the unit.
    operator : str
        The aten operator that computed it.
    backward : bool
        Whether that was in the backward pass.
    path : tuple of str
        The nodes of the autograd graph from the output to the one that computed it, this included; empty in the forward
        pass. A sum of gradients counts to the node that brought the last one.
    inputs : tuple of int
        The inputs whose gradients depend on it.
    index : int
        Of the element, among those that the operator computed.
    operands : tuple of int
        Words, as non-negative integers.
    expected, got : tuple of int
        Word and flags.
    """

    operation: str
    operator: str
    backward: bool
    path: tuple[str, ...]
    inputs: tuple[int, ...]
    index: int
    operands: tuple[int, ...]
    expected: tuple[int, int]
    got: tuple[int, int]


@dataclasses.dataclass(frozen=True)
class GradientReport:
    """What :func:`verify_gradients` found; ``print`` shows it.

    Attributes
    ----------
    output : LNSTensor
    gradients : tuple of LNSTensor or None
        Of the inputs that require one, None for the others, by autograd.
    operations : Counter of str
        How many went through the gates.
    not_replayed : Counter of str
        How many there were of kinds that the gates do not have.
    mismatches : int
    difference : Difference or None
    """

    output: torch.Tensor
    gradients: tuple[torch.Tensor | None, ...]
    operations: Counter[str]
    not_replayed: Counter[str]
    mismatches: int
    difference: Difference | None

    @property
    def passed(self) -> bool:
        """Whether there was something to compare, and all of it was equal."""
        return self.operations.total() > 0 and self.difference is None

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {name}" for name, count in sorted(self.operations.items()))
        lines = []
        if self.not_replayed:
            others = ", ".join(f"{count:,} {name}" for name, count in sorted(self.not_replayed.items()))
            lines.append(f"not in the gates, and so not compared: {others}")
        first = self.difference
        if first is None:
            verdict = "passed: all equal" if self.passed else "failed: there is nothing to compare"
            return "\n".join([f"{verdict} ({counts or 'no operations'})", *lines])
        margin = 11
        rows = {
            "operation": f"{first.operation}, element {first.index} of {first.operator}",
            "path": " > ".join(("output", *first.path)) if first.backward else "in the forward pass",
            "gradients": f"of input {', '.join(map(str, first.inputs)) or 'none'}",
            "operands": "  ".join(f"0x{word:x}" for word in first.operands),
            "expected": _shown(first.expected),
            "got": _shown(first.got),
        }
        head = f"failed: {self.mismatches:,} of {self.operations.total():,} operations differ; the first one:"
        return "\n".join([head, *(f"  {name:{margin}}{text}" for name, text in rows.items()), *lines])


def _shown(found: tuple[int, int]) -> str:
    word, flags = found
    return f"0x{word:x}  flags: {', '.join(payloads.show(FlagsLayout(), flags)) or 'none'}"


def verify_gradients(
    function: Callable[..., torch.Tensor], *inputs: torch.Tensor, unit: Unit | SimulatedUnit | None = None
) -> GradientReport:
    """Compare the gates with autograd, operation by operation, in a function and in its backward pass.

    The function runs once, forward and backward, and each of its LNS operations is sent through the gates with the
    operands that it had. So if all are equal, gates in the place of the arithmetic give the same gradients, to the bit.

    Parameters
    ----------
    function : callable
        Of the inputs; it returns an LNSTensor. If that has several elements, the gradient of their sum is meant.
    *inputs : Tensor
        Among them LNSTensors that require a gradient, leaves of the graph, all LNSTensors of one format.
    unit : Unit or SimulatedUnit, optional
        By default the ALU of the format.

    Raises
    ------
    TypeError, ValueError
        No input requires a gradient, formats differ, or the function does not return an LNSTensor that depends on them.
    ToolMissing, BuildFailed
        From Verilator.

    Examples
    --------
    >>> from xlnstorch import lns16, lnstensor
    >>> x = lnstensor([0.5, -2.0], format=lns16, requires_grad=True)
    >>> w = lnstensor([3.0, 1.5], format=lns16, requires_grad=True)
    >>> print(verify_gradients(lambda x, w: ((x * w).relu() + x).sum(), x, w))  # doctest: +SKIP
    passed: all equal (6 add, 6 mul)
    """
    wanted = [x for x in inputs if isinstance(x, LNSTensor) and x.requires_grad]
    if not wanted:
        raise ValueError("verify_gradients needs an input that is an LNSTensor and requires a gradient")
    format = wanted[0].format
    for number, x in enumerate(inputs):
        if isinstance(x, LNSTensor) and x.format != format:
            raise TypeError(f"input {number} must be of {format} as the others are, not of {x.format}")
        if isinstance(x, LNSTensor) and x.requires_grad and not x.is_leaf:
            raise ValueError(f"input {number} must be a leaf of the graph; detach it")
    if unit is None:
        unit = hdl.ALU(format=format, converters=())
    gates = unit if isinstance(unit, SimulatedUnit) else SimulatedUnit(unit)
    if gates.unit.format != format:
        raise ValueError(f"unit must be of {format} as the inputs are, not of {gates.unit.format}")

    trace = Trace(format)
    with _OrderedRecorder(trace) as recorder:
        output = function(*inputs)
        if not isinstance(output, LNSTensor) or output.format != format:
            raise TypeError(f"the function must return an LNSTensor of {format}, not {_kind(output)}")
        if output.grad_fn is None:
            raise ValueError("what the function returns does not depend on an input that requires a gradient")
        recorder.backward = True
        found = torch.autograd.grad(output, wanted, torch.ones_like(output), allow_unused=True)
    of = {id(x): gradient for x, gradient in zip(wanted, found, strict=True)}
    gradients = tuple(of.get(id(x)) for x in inputs)

    operations, not_replayed = Counter(), Counter()
    mismatches, first = 0, None
    for name, count in trace.counts.items():
        if name not in gates.unit.operations or name not in trace.names:
            not_replayed[name] += count
            continue
        operations[name] += count
        record = trace[name]
        operands = [column.astype(np.int64) for column in record.operands]
        answer = gates.run(name, *(WordLayout(format).tensor(column) for column in operands))
        got = np.stack([WordLayout(format).integers(answer.result), answer.flags.numpy()])
        expected = np.stack([record.result.astype(np.int64), record.flags.astype(np.int64)])
        wrong = np.flatnonzero((got != expected).any(0))
        mismatches += len(wrong)
        if not len(wrong):
            continue
        at = int(wrong[0])
        order = int(record.source(at))
        if first is None or order < first[0]:
            start = max(start for start in record.starts if start <= at)
            details = {
                "index": at - start,
                "operands": tuple(int(column[at]) for column in operands),
                "expected": tuple(map(int, expected[:, at])),
                "got": tuple(map(int, got[:, at])),
            }
            first = (order, name, details)
    difference = None if first is None else recorder.difference(output, inputs, *first)
    return GradientReport(output, gradients, operations, not_replayed, mismatches, difference)


def _kind(found: object) -> str:
    return str(found.format) if isinstance(found, LNSTensor) else type(found).__name__


class _OrderedRecorder(Recorder):
    """Records with each aten operator its place in the order of all, and which node of the graph it ran in."""

    def __init__(self, trace: Trace):
        super().__init__(trace)
        self.backward = False
        self._places: list[tuple[str, bool, object | None]] = []

    def source(self, operator: object) -> str:
        self._places.append((str(operator), self.backward, torch._C._current_autograd_node()))
        return str(len(self._places) - 1)

    def difference(
        self, output: torch.Tensor, inputs: tuple[torch.Tensor, ...], order: int, operation: str, details: dict
    ) -> Difference:
        """Return where an operation lies in the graph."""
        operator, backward, node = self._places[order]
        if not backward:
            reached = {number for number, x in enumerate(inputs) if isinstance(x, LNSTensor) and x.requires_grad}
            return Difference(operation, operator, False, (), tuple(sorted(reached)), **details)
        return Difference(
            operation, operator, True, _path(output.grad_fn, node), _inputs_below(node, inputs), **details
        )


def _path(root: object, node: object) -> tuple[str, ...]:
    """Return the names of the nodes of a shortest way through the graph, both ends included."""
    before = {root: None}
    queue = [root]
    for parent in queue:
        if parent is node:
            break
        for child, _ in parent.next_functions:
            if child is not None and child not in before:
                before[child] = parent
                queue.append(child)
    names = []
    while node is not None:
        names.append(node.name())
        node = before.get(node)
    return tuple(reversed(names))


def _inputs_below(node: object, inputs: tuple[torch.Tensor, ...]) -> tuple[int, ...]:
    """Return the numbers of the inputs to which a way leads."""
    seen, queue, found = {node}, [node], set()
    for parent in queue:
        variable = getattr(parent, "variable", None)
        found |= {number for number, x in enumerate(inputs) if variable is x}
        for child, _ in getattr(parent, "next_functions", ()):
            if child is not None and child not in seen:
                seen.add(child)
                queue.append(child)
    return tuple(sorted(found))
