"""The table from aten operator to handler, and what happens to an operator that is not in it.

An operator is, in this order: handled here; taken apart by PyTorch, so that its parts come back here; or refused.
Nothing is ever computed in float instead.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.utils._pytree import tree_leaves

from .. import conversions
from ..formats import LNSFormat
from ..tensor import LNSTensor

aten = torch.ops.aten
prims = torch.ops.prims
Operator = torch._ops.OpOverload

_HANDLERS: dict[Operator, Callable] = {}
_FLOAT_FALLBACKS: dict[str, str] = {}


def register(*operators: Operator) -> Callable[[Callable], Callable]:
    """Make the decorated function the handler of `operators`; it is called as ``handler(func, *args, **kwargs)``."""

    def decorate(handler: Callable) -> Callable:
        for operator in operators:
            if operator in _HANDLERS:
                raise RuntimeError(f"{operator} already has a handler, {_HANDLERS[operator].__qualname__}")
            _HANDLERS[operator] = handler
        return handler

    return decorate


def handler_of(operator: Operator) -> Callable | None:
    """Return the handler of `operator`, None where PyTorch takes it apart or nobody knows it."""
    return _HANDLERS.get(operator)


def register_inplace(operator: Operator, functional: Operator) -> None:
    """Handle `operator` by computing `functional` and writing the words over the first argument's."""
    compute = _HANDLERS[functional]

    @register(operator)
    def handler(func, self, *args, **kwargs):
        self = only_lns(func, self)
        result = compute(functional, self, *args, **kwargs)
        if result.shape != self.shape:
            raise RuntimeError(f"output with shape {tuple(self.shape)} does not match the shape {tuple(result.shape)}")
        self._words.copy_(result._words)
        return self


def dispatch(func: Operator, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Compute `func` on arguments of which at least one is, or contains, an LNSTensor."""
    handler = _HANDLERS.get(func)
    if handler is not None:
        return handler(func, *args, **kwargs)
    try:
        result = func.decompose(*args, **kwargs)
        if result is NotImplemented and func in decomposition_table:
            result = decomposition_table[func](*args, **kwargs)
    except NotImplementedError as error:
        # A part of this operator is missing: name what was asked for as well.
        raise NotImplementedError(f"{func}: {error}") from None
    if result is not NotImplemented:
        return result
    formats = sorted({repr(x.format) for x in tree_leaves((args, kwargs)) if isinstance(x, LNSTensor)})
    raise NotImplementedError(
        f"{func} has no LNS implementation (called with {', '.join(formats)}). It is not computed in float64 instead, "
        "since hardware would not compute that either; x.decode() gives the float64 values if that is what is wanted."
    )


def registered() -> list[str]:
    """Return the names of the aten operators with a handler, sorted."""
    return sorted(str(operator) for operator in _HANDLERS)


def note_float_fallback(name: str, how: str) -> None:
    """List `name` among the functions that hardware has no LNS primitive for."""
    _FLOAT_FALLBACKS[name] = how


def float_fallbacks() -> dict[str, str]:
    """Return the elementwise functions that leave LNS on the way, each with how its result is rounded.

    Everything else is LNS arithmetic alone: a network without these functions runs on an LNS unit as it is.
    """
    return dict(_FLOAT_FALLBACKS)


# What handlers share --------------------------------------------------------------------------------------------------


def only_lns(func: Operator, x: Any) -> LNSTensor:
    """Return `x` if an LNSTensor; refuse to store LNS results in anything else."""
    if not isinstance(x, LNSTensor):
        # Not a TypeError: torch's operators would swallow it, and ``plain += lns`` rebind the name without a word.
        raise RuntimeError(f"{func} cannot write LNS words into a plain {getattr(x, 'dtype', type(x).__name__)} tensor")
    return x


def common_format(func: Operator, *operands: Any) -> LNSFormat:
    """Return the one format among `operands`.

    Raises
    ------
    TypeError
        Two formats: LNS formats never mix silently.
    """
    format = None
    for operand in operands:
        if isinstance(operand, LNSTensor):
            if format is None:
                format = operand._format
            elif operand._format is not format and operand._format != format:
                raise TypeError(
                    f"{func} got operands of two formats, {format} and {operand.format}; convert one with "
                    f"xlnstorch.lnstensor(x, format=..., detach=False)"
                )
    return format


def words_of(format: LNSFormat, x: Any, device: torch.device | None = None) -> torch.Tensor:
    """Return the words of an operand: an LNSTensor's own, or those nearest to a plain tensor or number.

    Scalars are moved to `device`, as torch does.

    Raises
    ------
    TypeError
        A plain tensor that requires grad: autograd would hand it an LNSTensor for its gradient.
    """
    if isinstance(x, LNSTensor):
        words = x._words
    elif isinstance(x, torch.Tensor):
        if x.requires_grad and torch.is_grad_enabled():
            raise TypeError(
                "a plain tensor that requires grad cannot be an operand beside an LNSTensor, since its gradient would "
                f"be one; convert it with xlnstorch.lnstensor(x, format={format}, detach=False)"
            )
        # Autograd's own zeros (a derivative of sgn) have no memory to encode, and meta tensors no values.
        if x._is_zerotensor() or x.is_meta:
            words = torch.zeros_like(x, dtype=format.dtype)
        elif x.dim() == 0 and not x.dtype.is_complex:
            return words_of(format, x.item(), x.device if device is None else device)
        else:
            words = conversions.encode(format, x)
    else:
        return conversions.scalar_words(format, x, device)
    return words.to(device) if device is not None and words.dim() == 0 else words


def operands(func: Operator, *xs: Any) -> tuple[LNSFormat, list[torch.Tensor]]:
    """Return the common format of `xs` and their words, on one device."""
    format = common_format(func, *xs)
    for x in xs:
        if isinstance(x, LNSTensor):
            device = x._words.device
            break
    return format, [words_of(format, x, device) for x in xs]


_keeping = contextvars.ContextVar("keep_format", default=False)


@contextlib.contextmanager
def keep_format() -> Iterator[None]:
    """Let casts of LNSTensors to other float dtypes do nothing inside the block, instead of raising.

    For code that casts on its way, such as ``torch.optim.Muon`` (to bfloat16) or layers that normalise in float32: the
    computation stays in the format, with its precision.

    Examples
    --------
    >>> import torch, xlnstorch
    >>> with xlnstorch.keep_format():
    ...     xlnstorch.ones(2, format=xlnstorch.lns16).to(torch.float32)
    lnstensor([1., 1.], format=lns16)
    """
    token = _keeping.set(True)
    try:
        yield
    finally:
        _keeping.reset(token)


def only_float64(func: Operator, self: LNSTensor, dtype: torch.dtype | None) -> None:
    """Refuse to give the result of an operation another dtype than the one that LNSTensors report."""
    if dtype not in (None, torch.float64) and not (dtype.is_floating_point and _keeping.get()):
        raise NotImplementedError(
            f"{func} cannot give {self.format} the dtype {dtype}; x.decode().to({dtype}) gives its values, and "
            f"xlnstorch.to_float(model, {dtype}) converts a whole model"
        )
