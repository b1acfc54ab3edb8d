"""Another implementation of one operation, or of the Gaussian logarithm, for the length of a ``with`` block.

The blocks are torch modes. They hold in the thread that entered them and in autograd's threads while these work for it,
not in others; they nest, the innermost deciding; and they end with the block, whatever ends it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from .adders import Adder, GaussianTable
from .formats import LNSFormat
from .ops._registry import dispatch, handler_of
from .tensor import LNSTensor

__all__ = [
    "GaussianFunction",
    "Implementation",
    "get_default_implementation_key",
    "get_implementation",
    "implements",
    "override_adder",
    "override_implementation",
]

BUILT_IN = "default"


class Implementation(NamedTuple):
    """What :func:`implements` has registered under one key."""

    func: Callable
    lns_op: Callable | None


_implementations: dict[Callable, dict[str, Implementation]] = {}


class _Here(threading.local):
    """What is so in this thread.

    Attributes
    ----------
    keys : dict
        The keys of the overrides that it is inside, by operation, innermost last.
    adder_chosen : bool
        Whether an override of the adder is computing an operation, so that those around it have no say.
    """

    def __init__(self):
        self.keys: dict[Callable, list[str]] = {}
        self.adder_chosen = False


_here = _Here()


def implements(operation: Callable, lns_operation: Callable | None = None, key: str | None = None) -> Callable:
    """Register the decorated function as an implementation of `operation`, for :func:`override_implementation`.

    Parameters
    ----------
    operation
        As in :func:`override_implementation`.
    lns_operation
        A form of it on packed words, kept for :func:`get_implementation`; nothing here calls it.
    key
        Its name, by default the function's own; registering a name again replaces it.
    """

    def decorate(function: Callable) -> Callable:
        _implementations.setdefault(operation, {})[key or function.__name__] = Implementation(function, lns_operation)
        return function

    return decorate


def get_implementation(operation: Callable, key: str) -> Implementation:
    """Return what was registered for `operation` under `key`.

    Raises
    ------
    ValueError
        Nothing was; the message lists what there is.
    """
    known = _implementations.get(operation, {})
    if key not in known:
        raise ValueError(f"implementation of {_name(operation)} must be one of {sorted(known)}, not {key!r}")
    return known[key]


def get_default_implementation_key(operation: Callable) -> str:
    """Return the key in use for `operation` in this thread: that of the innermost override, else ``"default"``."""
    keys = _here.keys.get(operation)
    return keys[-1] if keys else BUILT_IN


@contextlib.contextmanager
def override_implementation(operation: Callable, implementation: Callable | str) -> Iterator[None]:
    """Compute `operation` on LNSTensors by `implementation` inside the block.

    Parameters
    ----------
    operation
        Either a function of torch such as ``torch.add`` or ``torch.nn.functional.relu``: then each call of it from
        Python is replaced, and of the operator and the method of its name; the implementation stands above autograd and
        has to be differentiable itself, by being made of torch's operations or of an :class:`~xlnstorch.LNSFunction`.
        What torch or this package call inside their functions is not replaced.
        Or an aten operator such as ``torch.ops.aten.mul.Tensor``: then each arrival of it is replaced, those of the
        backward pass included, below autograd, with PyTorch's derivative formula staying in force. What handlers of
        other operators compute by themselves (a matrix product does not multiply by ``aten.mul``) is not replaced.
    implementation
        Takes what `operation` takes, plain numbers and tensors included, and returns LNSTensors. Inside, `operation` is
        the built-in one again, or that of the enclosing override. Or the key of one that :func:`implements` has
        registered for `operation`.

    Raises
    ------
    TypeError
        `operation` or `implementation` is not callable; inside the block, an implementation that returns
        floating-point tensors that are not LNSTensors.
    ValueError
        An unknown key; an aten operator that never arrives, because torch takes it apart above.

    Examples
    --------
    >>> import torch, xlnstorch
    >>> x = xlnstorch.lnstensor([3.0, 8.0], f=23)
    >>> def larger(a, b):
    ...     return torch.maximum(*xlnstorch.format_lnstensor_operands(a, b))
    >>> with xlnstorch.override_implementation(torch.add, larger):
    ...     (x + 4).value
    tensor([4., 8.], dtype=torch.float64)
    """
    key = implementation if isinstance(implementation, str) else getattr(implementation, "__name__", "override")
    if isinstance(implementation, str):
        implementation = get_implementation(operation, implementation).func
    for name, function in (("operation", operation), ("implementation", implementation)):
        if not callable(function):
            raise TypeError(f"{name} must be a function, not {function!r}")
    mode = _OverrideOperator if isinstance(operation, torch._ops.OpOverload) else _OverrideFunction
    keys = _here.keys.setdefault(operation, [])
    with mode(operation, implementation):
        keys.append(key)
        try:
            yield
        finally:
            keys.pop()


@contextlib.contextmanager
def override_adder(adder: Adder, format: LNSFormat | None = None) -> Iterator[None]:
    """Use `adder` for every LNS addition inside the block, sums, matrix products and the backward pass included.

    Formats stay as they are: results still say ``lns16``. A backward pass after the block adds as the format says, so
    put both passes inside; or make the adder part of the format, with ``dataclasses.replace(lns16, adder=...)``.

    Parameters
    ----------
    adder : Adder
        For example a :class:`GaussianFunction`.
    format : LNSFormat
        Change the additions of this format only.

    Raises
    ------
    TypeError
        `adder` is not an adder, or `format` not a format.

    Examples
    --------
    >>> import torch, xlnstorch
    >>> nothing = xlnstorch.GaussianFunction(lambda z, s, base: torch.zeros_like(z))
    >>> x = xlnstorch.lnstensor([3.0, 4.0], f=23)
    >>> with xlnstorch.override_adder(nothing):
    ...     x.sum().value
    tensor(4., dtype=torch.float64)
    """
    if not isinstance(adder, Adder):
        raise TypeError(f"adder must be an Adder such as Exact(), not {adder!r}")
    if format is not None and not isinstance(format, LNSFormat):
        raise TypeError(f"format must be an LNSFormat such as xlnstorch.lns16, not {format!r}")
    with _OverrideAdder(adder, format):
        yield


@dataclasses.dataclass(frozen=True)
class GaussianFunction(Adder):
    """An adder that takes its Gaussian logarithms from a function with the interface of the xlnstorch package's sbdb.

    Parameters
    ----------
    function
        ``function(z, s, base)`` with int64 tensors ``z = -d`` and s (0 where magnitudes are added, 1 where they are
        subtracted) and a float64 scalar base. Returns ``2 * round(log_base(|1 - 2 s + base**z|))``, an even integer
        for each element, in int64 or float64; where z is 0 and s is 1 whatever it likes. (Twice, since the xlnstorch
        package adds to the packed form.)
    """

    function: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

    def gaussian(self, format: LNSFormat, d: torch.Tensor, subtract: torch.Tensor) -> torch.Tensor:
        base = torch.tensor(format.base ** (2.0**-format.frac_bits), dtype=torch.float64)
        subtract = subtract.broadcast_to(d.shape)
        doubled = self.function(-d, subtract.to(torch.int64), base)
        if not isinstance(doubled, torch.Tensor) or doubled.shape != d.shape:
            what = tuple(doubled.shape) if isinstance(doubled, torch.Tensor) else type(doubled).__name__
            raise TypeError(f"{_name(self.function)} must return a tensor of shape {tuple(d.shape)}, not {what}")
        bad = (doubled % 2 != 0) & ~(subtract & (d == 0))  # infinite and NaN too
        if bool(bad.any()):
            raise ValueError(f"{_name(self.function)} must return even integers, not {doubled[bad][0].item()!r}")
        return torch.where(subtract & (d == 0), 0, doubled).to(torch.int64) >> 1

    def table(self, format: LNSFormat) -> GaussianTable:
        raise ValueError(f"{self} has no table: how far a function reaches is not known")


# ----------------------------------------------------------------------------------------------------------------------


def _name(operation: Any) -> str:
    return str(operation) if isinstance(operation, torch._ops.OpOverload) else getattr(operation, "__name__", "it")


def _has_lns(*arguments: Any) -> bool:
    return any(isinstance(x, LNSTensor) for x in tree_leaves(arguments))


def _only_lns(operation: Callable, result: Any) -> Any:
    for x in tree_leaves(result):
        if isinstance(x, torch.Tensor) and x.dtype.is_floating_point and not isinstance(x, LNSTensor):
            raise TypeError(f"an implementation of {_name(operation)} must return LNSTensors, not a {x.dtype} tensor")
    return result


class _OverrideFunction(TorchFunctionMode):
    def __init__(self, operation: Callable, implementation: Callable):
        super().__init__()
        method = getattr(torch.Tensor, getattr(operation, "__name__", ""), None)
        self.operations = (operation,) if method is None else (operation, method)
        self.implementation = implementation

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in self.operations and _has_lns(args, kwargs):
            return _only_lns(func, self.implementation(*args, **kwargs))
        return func(*args, **kwargs)


class _OverrideOperator(TorchDispatchMode):
    def __init__(self, operation: torch._ops.OpOverload, implementation: Callable):
        super().__init__()
        if operation.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
            raise ValueError(f"{operation} never arrives: torch takes it apart above autograd; override its parts")
        self.operation = operation
        self.implementation = implementation

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not _has_lns(args, kwargs):
            return func(*args, **kwargs)
        if func is self.operation:
            return _only_lns(func, self.implementation(*args, **kwargs))
        if handler_of(func) is not None:
            return func(*args, **kwargs)
        with self:  # the parts of an operator that torch takes apart come by here
            return dispatch(func, args, kwargs)


class _OverrideAdder(TorchDispatchMode):
    """Hands each operator its operands in the format with the other adder: the same words under another name."""

    def __init__(self, adder: Adder, format: LNSFormat | None):
        super().__init__()
        self.adder = adder
        self.format = format

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        formats = {x.format for x in tree_leaves((args, kwargs)) if isinstance(x, LNSTensor)}
        # Two formats are for the operator to refuse, or to convert between; one that reshapes its operand itself, and
        # adds nothing, would reshape a passing tensor.
        mine = len(formats) == 1 and (self.format is None or self.format in formats)
        if not mine or _here.adder_chosen or torch.Tag.inplace_view in func.tags:
            return func(*args, **kwargs)
        (own,) = formats
        other = dataclasses.replace(own, adder=self.adder)

        def rename(x, to):
            return LNSTensor(x._words, to) if isinstance(x, LNSTensor) else x

        args, kwargs = tree_map(lambda x: rename(x, other), (args, kwargs))
        _here.adder_chosen = True
        try:
            result = func(*args, **kwargs)
        finally:
            _here.adder_chosen = False
        return tree_map(lambda x: rename(x, own), result)
