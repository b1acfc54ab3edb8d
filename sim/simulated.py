"""Gates as functions of tensors, simulated ones first, and as operations that autograd goes through."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import torch
from amaranth.hdl import ShapeLike
from amaranth.lib import data

from hdl.layouts import PADDING, WordLayout
from hdl.unit import Unit
from xlnstorch import lnstensor
from xlnstorch.autograd import LNSFunction
from xlnstorch.conversions import unpack
from xlnstorch.tensor import LNSTensor

from . import payloads
from .batch import Batch, Outcome
from .sequences import is_sequential
from .stimulus import Vectors

__all__ = ["Answer", "Gates", "SimulatedUnit", "UnitFunction", "hardware_function"]

Gradients = tuple[torch.Tensor | None, ...]


class Answer(NamedTuple):
    """What the gates gave.

    Attributes
    ----------
    result : Tensor, or dict of str to Tensor
        Of the operands' broadcast shape: an LNSTensor where it is a word, a float, or integers; of an operation with
        several results, as a comparison, a dict.
    flags : int64 Tensor
        One bit for each of :data:`xlnstorch.observe.FLAGS`; 0 where the unit has none.
    """

    result: torch.Tensor | dict[str, torch.Tensor]
    flags: torch.Tensor


class Gates(Protocol):
    """What takes payloads and gives results: compiled gates, or a board."""

    def run(self, rows: np.ndarray) -> Outcome:
        """Send payloads, as :func:`~sim.payloads.to_rows` makes them, and return the result of each."""


class UnitFunction:
    """A unit's gates, wherever they are, as a function of tensors.

    Parameters
    ----------
    unit : Unit
        One each of whose payloads brings a result.
    gates : Gates
        Of the unit.

    Raises
    ------
    ValueError
        The unit sums several payloads.
    """

    def __init__(self, unit: Unit, gates: Gates):
        check_function(unit)
        self.unit = unit
        self._gates = gates
        self._lock = threading.Lock()  # autograd may call from another thread

    def run(self, operation: str, *operands: torch.Tensor) -> Answer:
        """Send operands through the gates; nothing is recorded for autograd.

        Parameters
        ----------
        operation : str
            A key of the unit's operations.
        *operands : Tensor
            What the operation takes, as the golden function would: LNSTensors of the unit's format, floats of a
            converter's type, or integers. They broadcast.

        Raises
        ------
        ValueError, TypeError
            Another operation, another number of operands, or operands of another kind.
        RuntimeError
            The gates stopped, or more results came than operands.
        """
        if operation not in self.unit.operations:
            raise ValueError(f"operation must be one of {', '.join(self.unit.operations)}, not {operation!r}")
        layouts = self.unit.operands_of(operation)
        if len(operands) != len(layouts):
            raise ValueError(f"{operation} takes {len(layouts)} operands, not {len(operands)}")
        for (name, layout), operand in zip(layouts.items(), operands, strict=True):
            _check(f"{name} of {operation}", layout, operand)
        operands = torch.broadcast_tensors(*(operand.detach() for operand in operands))
        shape, count = operands[0].shape, operands[0].numel()
        columns = {
            name: payloads.integers(layout, operand.reshape(-1).cpu())
            for (name, layout), operand in zip(layouts.items(), operands, strict=True)
        }
        vectors = Vectors(np.full(count, list(self.unit.operations).index(operation)), columns)
        rows = payloads.to_rows(self.unit.i.payload.shape(), vectors.fields(self.unit), count)
        with self._lock:
            outcome = self._gates.run(rows)
        if outcome.unasked or not outcome.came.all():
            raise RuntimeError(
                f"the gates of {self.unit.name} gave {int(outcome.came.sum()) + outcome.unasked} results for {count} "
                "operands"
            )
        results = self.unit.results_of(operation)
        bits = payloads.from_rows(data.StructLayout(results), outcome.rows)
        flags = torch.from_numpy(bits.pop("flags", np.zeros(count, dtype=np.int64))).reshape(shape)
        values = {
            name: payloads.tensor(results[name], column).reshape(shape)
            for name, column in bits.items()
            if name != PADDING
        }
        return Answer(values if len(values) > 1 else next(iter(values.values())), flags)


class SimulatedUnit(UnitFunction):
    """A unit's gates, compiled by Verilator into this process, as a function of tensors.

    Parameters
    ----------
    unit : Unit
        One each of whose payloads brings a result.

    Raises
    ------
    ValueError
        The unit sums several payloads.
    ToolMissing, BuildFailed
        From Verilator.

    Examples
    --------
    >>> import hdl, xlnstorch
    >>> from xlnstorch import lns16, lnstensor
    >>> gates = SimulatedUnit(hdl.Multiply(format=lns16))  # doctest: +SKIP
    >>> gates.run("mul", lnstensor([1.0, 2.0], format=lns16), lnstensor(3.0, format=lns16)).result  # doctest: +SKIP
    LNSTensor([3., 6.], format=lns16)
    """

    def __init__(self, unit: Unit):
        check_function(unit)
        super().__init__(unit, Batch(unit))


def check_function(unit: Unit) -> None:
    """Raise ValueError if a unit's results do not depend on the operands of one payload only."""
    if is_sequential(unit):
        raise ValueError(f"{unit.name} sums several payloads, so it is no function of the operands of one")


def _check(name: str, layout: ShapeLike, operand: torch.Tensor) -> None:
    if not isinstance(operand, torch.Tensor):
        raise TypeError(f"{name} must be a tensor, not {operand!r}")
    given = operand.format if isinstance(operand, LNSTensor) else operand.dtype
    if isinstance(layout, WordLayout):
        kind, wanted = "an LNSTensor", layout.word_format
    else:
        kind, wanted = "a tensor", payloads.tensor(layout, np.zeros(0, dtype=np.int64)).dtype
    if given != wanted:
        raise TypeError(f"{name} must be {kind} of {wanted}, not of {given}")


# Gates in a network ---------------------------------------------------------------------------------------------------


def _two_of(a: LNSTensor) -> LNSTensor:
    return lnstensor(2.0, format=a.format)


#: Gradients by the name of an operation, from `run`, the gradient of the result, the result, and the operands:
#: PyTorch's own formulas, term by term. With the names of the operations that they need.
_DERIVATIVES: dict[str, tuple[tuple[str, ...], Callable[..., Gradients]]] = {
    "add": ((), lambda run, grad, result, a, b: (grad, grad)),
    "sub": (("neg",), lambda run, grad, result, a, b: (grad, run("neg", grad))),
    "mul": (("mul",), lambda run, grad, result, a, b: (run("mul", grad, b), run("mul", grad, a))),
    "div": (
        ("neg", "mul", "div"),
        lambda run, grad, result, a, b: (
            run("div", grad, b),
            run("mul", run("neg", grad), run("div", run("div", a, b), b)),
        ),
    ),
    "mac": (("mul",), lambda run, grad, result, a, b, c: (run("mul", grad, b), run("mul", grad, a), grad)),
    "square": (("mul",), lambda run, grad, result, a: (run("mul", grad, run("mul", a, _two_of(a))),)),
    "sqrt": (("mul", "div"), lambda run, grad, result, a: (run("div", grad, run("mul", result, _two_of(a))),)),
    "neg": (("neg",), lambda run, grad, result, a: (run("neg", grad),)),
    "relu": (("relu_grad",), lambda run, grad, result, a: (run("relu_grad", result, grad),)),
}


def hardware_function(
    unit: Unit | UnitFunction,
    operation: str | None = None,
    *,
    backward: Callable[..., Gradients | torch.Tensor] | None = None,
) -> Callable[..., LNSTensor]:
    """Return an operation of LNSTensors whose results and gradients come out of gates, simulated or on a board.

    It is an :class:`~xlnstorch.LNSFunction`, so it can stand in any PyTorch model. Operands broadcast; the sums that
    this and fan-out bring to a backward pass are autograd's own.

    Parameters
    ----------
    unit : Unit or UnitFunction
        A unit is simulated; gates that are there already, as of a SimulatedUnit or a board, are shared.
    operation : str, optional
        One of the unit's that takes and gives words; by default its only one.
    backward : callable, optional
        Given the gradient of the result and the operands, LNSTensors all, it returns the gradient of each operand, or
        None; with other gates, say, by :meth:`UnitFunction.run`. By default PyTorch's formula for ``add``, ``sub``,
        ``mul``, ``div``, ``mac``, ``square``, ``sqrt``, ``neg`` and ``relu``, computed by the same gates.

    Raises
    ------
    ValueError
        The unit has no such operation, or several and none was named; without `backward`, there is no formula for it,
        or the unit lacks an operation that the formula needs.

    Examples
    --------
    >>> import hdl
    >>> from xlnstorch import lns16, lnstensor
    >>> multiply = hardware_function(hdl.Multiply(format=lns16))  # doctest: +SKIP
    >>> x = lnstensor([2.0, 3.0], format=lns16, requires_grad=True)
    >>> multiply(x, x).sum().backward()  # doctest: +SKIP
    """
    given = unit if isinstance(unit, UnitFunction) else None
    unit = given.unit if given else unit
    names = list(unit.operations)
    if operation is None and len(names) > 1:
        raise ValueError(f"operation must be given: {unit.name} has {', '.join(names)}")
    operation = operation or names[0]
    if operation not in names:
        raise ValueError(f"operation must be one of {', '.join(names)}, not {operation!r}")
    fields = [*unit.operands_of(operation).values(), *_values(unit, operation)]
    if not all(isinstance(layout, WordLayout) for layout in fields):
        raise ValueError(f"{operation} of {unit.name} takes or gives what is no word, so autograd cannot go through it")
    if backward is None and operation not in _DERIVATIVES:
        raise ValueError(f"backward must be given: there is no formula for {operation}")
    missing = [] if backward else [name for name in _DERIVATIVES[operation][0] if name not in names]
    if missing:
        raise ValueError(f"backward must be given: that of {operation} needs {', '.join(missing)}, not in {unit.name}")
    gates, format = given or SimulatedUnit(unit), unit.format

    def run(name: str, *operands: LNSTensor) -> LNSTensor:
        return gates.run(name, *operands).result

    class Hardware(LNSFunction):
        @staticmethod
        def forward(ctx, *packed: torch.Tensor) -> torch.Tensor:
            result = run(operation, *(LNSTensor(unpack(format, each), format) for each in packed)).lns
            ctx.save_for_backward(result, *packed)
            return result

        @staticmethod
        def backward(ctx, grad: torch.Tensor) -> Gradients:
            grad, result, *operands = (LNSTensor(unpack(format, each), format) for each in (grad, *ctx.saved_tensors))
            if backward is not None:
                found = backward(grad, *operands)
                found = tuple(found) if isinstance(found, tuple | list) else (found,)
            else:
                found = _DERIVATIVES[operation][1](run, grad, result, *operands)
            return tuple(each.lns if isinstance(each, LNSTensor) else each for each in found)

    Hardware.__name__ = Hardware.__qualname__ = f"{type(unit).__name__}Gates"

    def function(*operands: LNSTensor) -> LNSTensor:
        return Hardware.apply(*torch.broadcast_tensors(*operands))

    function.__name__ = operation
    return function


def _values(unit: Unit, operation: str) -> list[ShapeLike]:
    return [layout for name, layout in unit.results_of(operation).items() if name not in (PADDING, "flags")]
