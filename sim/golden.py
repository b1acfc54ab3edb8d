"""What a unit must answer: its golden expression, evaluated on the tensors that its operands' bits stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from hdl.layouts import WordLayout
from hdl.unit import Unit
from xlnstorch.observe import FLAGS, Operation, observing

from . import payloads
from .stimulus import Vectors

__all__ = ["evaluate", "evaluate_expression"]


def evaluate_expression(
    expression: Callable, *operands: torch.Tensor, inner: tuple[int, ...] = ()
) -> tuple[object, torch.Tensor]:
    """Return what an expression of tensors of shape ``(n, …)`` gives, and which flags its LNS operations raise.

    The flags, in int64 of shape ``(n, *inner)`` with a bit for each of :data:`~xlnstorch.observe.FLAGS`, are those
    raised by any operation on the way to an element. Where there are more dimensions, n must be the largest, for its
    length tells which one it is.
    """
    rows = len(operands[0])
    bits = torch.zeros((rows, *inner), dtype=torch.int64)

    def collect(operation: Operation) -> None:
        raised = operation.flags
        first = raised.shape.index(rows)
        kept = range(first, first + bits.ndim)
        elements = raised.movedim(tuple(kept), tuple(range(bits.ndim))).reshape(*bits.shape, -1)
        for column in elements.unbind(-1) if elements.shape[-1] <= len(FLAGS) else _any(elements):
            bits.bitwise_or_(column)

    with observing(collect, this_thread=True):
        result = expression(*operands)
    return result, bits


def _any(elements: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield for each flag where any of the elements in the last dimension has it."""
    for bit in range(len(FLAGS)):
        yield (elements >> bit & 1).amax(-1) << bit


def evaluate(unit: Unit, vectors: Vectors) -> dict[str, np.ndarray]:
    """Return the bits of each field of the results that `unit` must give for `vectors`, by its operations' expressions.

    Returns
    -------
    dict of str to ndarray of int64, of shape ``(n, …)``
        In the order of the unit's results; those of an array have a dimension more. A field that the golden function
        does not give is 0.
    """
    if vectors.sequence:
        return _evaluate_sequence(unit, vectors)
    columns = _empty(unit, len(vectors))
    for op, expression in enumerate(unit.operations.values()):
        chosen = vectors.op == op
        if not chosen.any():
            continue
        if chosen.all():  # without a copy
            chosen = slice(None)
        operands = [payloads.tensor(layout, vectors.operands[name][chosen]) for name, layout in unit.operands().items()]
        _fill(unit, columns, chosen, *evaluate_expression(expression, *operands))
    return columns


def _evaluate_sequence(unit: Unit, vectors: Vectors) -> dict[str, np.ndarray]:
    """Return the same of a unit whose expressions take, for each result, the terms of several payloads."""
    made, layouts = vectors.sequence, unit.results()
    columns = _empty(unit, len(made.groups))
    inner = payloads.dimensions(layouts["flags"])
    ends = np.array([group[-1] for group in made.groups])
    kinds = np.stack([made.op[ends], [len(group) for group in made.groups]], axis=1)
    for op, length in np.unique(kinds, axis=0):
        # More rows than there is of anything else: if need be the same ones again.
        chosen = np.flatnonzero((kinds == (op, length)).all(1))
        chosen = np.resize(chosen, 1 + max(len(chosen), length * made.terms[0].shape[-1], *inner))
        places = np.stack([made.groups[index] for index in chosen])
        operands = [_joined(values[places]) for values in made.terms]
        expression = list(unit.operations.values())[op]
        tensors = [payloads.tensor(WordLayout(unit.format), values) for values in operands]
        _fill(unit, columns, chosen, *evaluate_expression(expression, *tensors, inner=inner))
    tags = {name: vectors.operands[name][ends] for name in layouts if name in vectors.operands}
    return {**columns, **tags}


def _joined(values: np.ndarray) -> np.ndarray:
    """Return terms of shape ``(n, payloads, …, terms)`` with those of all payloads in the last dimension."""
    values = np.moveaxis(values, 1, -2)
    return np.ascontiguousarray(values.reshape(*values.shape[:-2], -1))


def _empty(unit: Unit, count: int) -> dict[str, np.ndarray]:
    return {
        name: np.zeros((count, *payloads.dimensions(layout)), dtype=np.int64) for name, layout in unit.results().items()
    }


def _fill(unit: Unit, columns: dict[str, np.ndarray], chosen: object, result: object, flags: torch.Tensor) -> None:
    """Put what an expression gave into the chosen rows."""
    layouts = unit.results()
    fields = dict(result) if isinstance(result, dict) else {next(iter(layouts)): result}
    if "flags" in layouts:
        fields.setdefault("flags", flags)
    for name, value in fields.items():
        columns[name][chosen] = payloads.integers(layouts[name], value)
