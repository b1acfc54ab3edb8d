"""What a unit must answer: its golden expression, evaluated on LNSTensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from hdl.unit import Unit
from xlnstorch import from_words
from xlnstorch.formats import LNSFormat
from xlnstorch.observe import Operation, observing

from .stimulus import Vectors

__all__ = ["evaluate", "evaluate_expression"]


def evaluate_expression(
    expression: Callable, format: LNSFormat, *operands: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the words and the flags (bits in the order of ``FLAGS``) of an expression of LNSTensors.

    An element's flags are those raised by any operation on the way to it.
    """
    tensors = [from_words(torch.from_numpy(words), format) for words in operands]
    flags = torch.zeros(len(operands[0]), dtype=torch.int64)

    def collect(operation: Operation) -> None:
        flags.bitwise_or_(operation.flags)

    with observing(collect):
        result = expression(*tensors)
    return result.words.numpy(), flags.numpy()


def evaluate(unit: type[Unit], format: LNSFormat, vectors: Vectors) -> tuple[np.ndarray, np.ndarray]:
    """Return the words and flags that `unit` must give for `vectors`, each by its operation's expression."""
    words, flags = np.zeros_like(vectors.a), np.zeros_like(vectors.a)
    for op, expression in enumerate(unit.operations.values()):
        chosen = vectors.op == op
        words[chosen], flags[chosen] = evaluate_expression(expression, format, vectors.a[chosen], vectors.b[chosen])
    return words, flags
