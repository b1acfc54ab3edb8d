"""Custom differentiable operations on packed words, and the analysis of fan-out in autograd graphs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from . import conversions
from .formats import LNSFormat
from .ops._registry import common_format
from .tensor import LNSTensor

__all__ = ["LNSFunction", "find_fanout", "has_fanout", "raise_fanout_error"]


class LNSFunction(torch.autograd.Function):
    """Base class of custom LNS operations: ``torch.autograd.Function`` on packed words.

    Subclass it as you would ``torch.autograd.Function``, in either style: ``forward(ctx, …)``, or ``forward(…)`` with
    ``setup_context(ctx, inputs, output)``. ``apply`` takes LNSTensors of one format (and, between them, anything else,
    handed through). Inside, each is a plain float64 tensor in the packed form: integers ``(e << 1) | sign``, zero as
    ``LNS_ZERO``. ``forward`` returns packed float64 tensors, which ``apply`` hands out as LNSTensors of the inputs'
    format; tensors of another dtype come out as they are and are not differentiable. ``backward`` receives the packed
    gradients of the outputs and returns packed gradients of the inputs, or None. Where an input is used more than
    once, autograd adds the gradients in LNS.

    A packed result above the range saturates, one below it flushes to zero.

    Raises
    ------
    TypeError
        ``apply`` without an LNSTensor, with two formats, or with a keyword argument.
    ValueError
        ``forward`` or ``backward`` returned a float64 tensor that is not in the packed form.
    RuntimeError
        A second derivative: ``backward`` works on packed words, which autograd cannot look into.

    Examples
    --------
    >>> import torch, xlnstorch
    >>> class Multiply(xlnstorch.autograd.LNSFunction):
    ...     @staticmethod
    ...     def forward(ctx, x, y):
    ...         ctx.save_for_backward(x, y)
    ...         return x + y  # logarithms of positive numbers
    ...     @staticmethod
    ...     def backward(ctx, grad_output):
    ...         x, y = ctx.saved_tensors
    ...         return grad_output + y, grad_output + x
    >>> a = xlnstorch.lnstensor([2.0], f=23, requires_grad=True)
    >>> b = xlnstorch.lnstensor([4.0], f=23)
    >>> Multiply.apply(a, b).sum().backward()
    >>> a.grad.value
    tensor([4.], dtype=torch.float64)
    """

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run ``forward`` on `args` and record ``backward``; see the class."""
        format = common_format(f"{cls.__name__}.apply", *args)
        if format is None:
            names = ", ".join(type(arg).__name__ for arg in args) or "no arguments"
            raise TypeError(f"{cls.__name__}.apply needs at least one LNSTensor, not {names}")
        # Kept on the class itself, so that both can go together.
        bridges = cls.__dict__.get("_bridges")
        if bridges is None:
            bridges = cls._bridges = {}
        if format not in bridges:
            bridges[format] = _bridge(cls, format)
        return bridges[format].apply(*args)


def _is_plain(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and not isinstance(x, LNSTensor)


class _Context:
    """The ctx that the user's methods see: torch's own, except where that compares tensors with inputs and outputs."""

    def __init__(self, ctx):
        object.__setattr__(self, "_ctx", ctx)
        object.__setattr__(self, "_non_differentiable", [])

    def __getattr__(self, name):
        return getattr(self._ctx, name)

    def __setattr__(self, name, value):
        setattr(self._ctx, name, value)

    def mark_non_differentiable(self, *outputs):
        self._non_differentiable.extend(outputs)

    def mark_dirty(self, *inputs):
        raise NotImplementedError(
            "an LNSFunction gets packed copies of its inputs, so it cannot change one in place; return a new tensor"
        )


def _bridge(cls: type[LNSFunction], format: LNSFormat) -> type[torch.autograd.Function]:
    """Return the autograd function, of the same name, that packs and unpacks around the methods of `cls`."""
    separate = cls.setup_context is not LNSFunction.setup_context

    def wrap(packed: torch.Tensor) -> LNSTensor:
        return LNSTensor(conversions.unpack(format, packed), format)

    def forward(ctx, *args):
        ctx._lns_inputs = tuple(isinstance(arg, LNSTensor) for arg in args)
        inputs = tuple(arg.lns if isinstance(arg, LNSTensor) else arg for arg in args)
        context = _Context(ctx)
        if separate:
            result = cls.forward(*inputs)
            cls.setup_context(context, inputs, result)
        else:
            result = cls.forward(context, *inputs)
        outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        wrapped, non_differentiable = [], []
        for output in outputs:
            if isinstance(output, LNSTensor) and output.format != format:
                raise TypeError(f"{cls.__name__}.forward must return {format} as its inputs have, not {output.format}")
            packed = _is_plain(output) and output.dtype == torch.float64
            wrapped.append(wrap(output) if packed else output)
            if (_is_plain(output) and not packed) or any(output is marked for marked in context._non_differentiable):
                non_differentiable.append(wrapped[-1])
        ctx.mark_non_differentiable(*non_differentiable)
        return tuple(wrapped) if isinstance(result, (tuple, list)) else wrapped[0]

    def pack_gradient(grad: Any) -> Any:
        # autograd's zeros for an unused output are plain, and so is what a caller of autograd may pass: values.
        if _is_plain(grad) and grad.dtype == torch.float64:
            grad = LNSTensor(conversions.encode(format, grad), format)
        return grad.lns if isinstance(grad, LNSTensor) else grad

    @once_differentiable
    def backward(ctx, *grad_outputs):
        grads = cls.backward(_Context(ctx), *(pack_gradient(grad) for grad in grad_outputs))
        grads = tuple(grads) if isinstance(grads, (tuple, list)) else (grads,)
        for_lns = ctx._lns_inputs + (False,) * (len(grads) - len(ctx._lns_inputs))
        return tuple(wrap(g) if lns and _is_plain(g) else g for g, lns in zip(grads, for_lns, strict=False))

    return type(
        cls.__name__,
        (torch.autograd.Function,),
        {
            "__module__": cls.__module__,
            "__doc__": cls.__doc__,
            "forward": staticmethod(forward),
            "backward": staticmethod(backward),
        },
    )


# Fan-out ------------------------------------------------------------------------------------------------------------


def find_fanout(root: Any) -> list[dict[str, Any]]:
    """Return the nodes of an autograd graph that more than one edge leads to: where gradients are added.

    Parameters
    ----------
    root : Tensor or autograd node
        Where the graph starts: an LNSTensor, a plain tensor, or a node such as ``x.grad_fn``.

    Returns
    -------
    list of dict
        In the order in which a breadth-first walk finds them, ``{"child": node, "edge_count": number of edges,
        "parents": set of the nodes they come from}``. Empty for a tree, and for a tensor without a graph.
    """
    if not isinstance(root, torch.Tensor) and not hasattr(root, "next_functions"):
        raise TypeError(f"root must be a tensor or an autograd node, not {type(root).__name__}")
    start = root.grad_fn if isinstance(root, torch.Tensor) else root
    found: dict[Any, dict[str, Any]] = {}
    queue = [] if start is None else [start]
    seen = set(queue)
    for parent in queue:
        for child, _ in parent.next_functions:
            if child is None:
                continue
            entry = found.setdefault(child, {"child": child, "edge_count": 0, "parents": set()})
            entry["edge_count"] += 1
            entry["parents"].add(parent)
            if child not in seen:
                seen.add(child)
                queue.append(child)
    return [entry for entry in found.values() if entry["edge_count"] > 1]


def has_fanout(root: Any) -> bool:
    """Return whether any node of the graph below `root` has more than one incoming edge; see :func:`find_fanout`."""
    return bool(find_fanout(root))


def raise_fanout_error(offenders: Iterable[dict[str, Any]]) -> None:
    """Raise a RuntimeError that names each node of :func:`find_fanout`'s list and its parents; none if it is empty."""
    lines = [
        f"  {_node_name(entry['child'])}: {entry['edge_count']} edges, from "
        + ", ".join(sorted(_node_name(parent) for parent in entry["parents"]))
        for entry in offenders
    ]
    if lines:
        raise RuntimeError("the autograd graph has fan-out at\n" + "\n".join(lines))


def _node_name(node: Any) -> str:
    return f"{type(node).__name__}@{id(node):#x}"
