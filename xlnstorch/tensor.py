"""LNSTensor: a torch.Tensor whose elements are LNS words.

It is a wrapper subclass that acts *below* autograd (``__torch_dispatch__``), as DTensor does. PyTorch's derivative
formulas, its engine, ``nn`` and ``optim`` therefore run unchanged on it, and every addition that they make, the sum of
two gradients included, arrives here as an aten operator and is done in LNS. It reports dtype float64, because autograd
differentiates floating point only; no float64 value is stored.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data._utils.collate import default_collate_fn_map

from . import conversions
from .formats import LNSFormat
from .operators import define_operators

__all__ = ["LNSTensor"]


@define_operators
class LNSTensor(torch.Tensor):
    """A tensor of LNS words. Make one with :func:`xlnstorch.lnstensor` or the other factories.

    Parameters
    ----------
    words : Tensor
        Words in ``format.dtype``, of any shape; kept, not copied.
    format : LNSFormat
        What the words mean and how they are added.
    requires_grad : bool
        Whether autograd records operations on it.
    """

    _words: torch.Tensor
    _format: LNSFormat

    #: Computes aten operators: :func:`xlnstorch.ops.dispatch`, which needs this class.
    _dispatch: Callable

    @staticmethod
    def __new__(cls, words: torch.Tensor, format: LNSFormat, requires_grad: bool = False) -> LNSTensor:
        if words.dtype != format.dtype:
            raise TypeError(f"words of {format} must be {format.dtype}, not {words.dtype}")
        self = torch.Tensor._make_wrapper_subclass(
            cls,
            words.size(),
            strides=words.stride(),
            storage_offset=words.storage_offset(),
            dtype=torch.float64,
            device=words.device,
            requires_grad=requires_grad,
        )
        self._words = words
        self._format = format
        return self

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return cls._dispatch(func, args, kwargs or {})

    # What it holds -------------------------------------------------------------------------------------------------

    @property
    def format(self) -> LNSFormat:
        """The word format, adder and accumulator included."""
        return self._format

    @property
    def words(self) -> torch.Tensor:
        """The bits on the wires, as non-negative int64 (0xC000, not −16384)."""
        return self._format.to_unsigned(self._words)

    @property
    def value(self) -> torch.Tensor:
        """The decoded float64 values, detached; see :meth:`decode` for a differentiable one."""
        return conversions.decode(self._format, self._words)

    @property
    def lns(self) -> torch.Tensor:
        """The packed form: float64 integers ``(e << 1) | sign``, zero as ``LNS_ZERO``."""
        return conversions.pack(self._format, self._words)

    @property
    def _lns(self) -> torch.Tensor:
        """:attr:`lns` by its name in the xlnstorch package; a copy, so writing to it changes nothing."""
        return self.lns

    @property
    def base(self) -> torch.Tensor:
        """The number whose power e is, ``2 ** (2 ** -frac_bits)`` for a base-2 format, as a float64 scalar."""
        return torch.tensor(self._format.base ** (2.0**-self._format.frac_bits), dtype=torch.float64)

    @property
    def grad(self) -> LNSTensor | None:
        """The gradient that reached this leaf; where PyTorch made zeros of its own, those as LNS zeros."""
        grad = torch.Tensor.grad.__get__(self)
        if grad is not None and not isinstance(grad, LNSTensor):
            words = torch.zeros(self.shape, dtype=self._format.dtype, device=self.device)
            if not grad._is_zerotensor():
                words = conversions.encode(self._format, grad)
            torch.Tensor.grad.__set__(self, LNSTensor(words, self._format))
            grad = torch.Tensor.grad.__get__(self)
        return grad

    @grad.setter
    def grad(self, grad: LNSTensor | None) -> None:
        torch.Tensor.grad.__set__(self, grad)

    @grad.deleter
    def grad(self) -> None:
        torch.Tensor.grad.__set__(self, None)

    @property
    def data(self) -> LNSTensor:
        """The same words outside autograd; assigning replaces them by those of a tensor of this format and shape."""
        return self.detach()

    @data.setter
    def data(self, other: LNSTensor) -> None:
        if not isinstance(other, LNSTensor) or other.format != self._format or other.shape != self.shape:
            what = f"one of {other.format} and {tuple(other.shape)}" if isinstance(other, LNSTensor) else type(other)
            raise TypeError(
                f"data of an LNSTensor must be an LNSTensor of {self._format} and shape {tuple(self.shape)}, not {what}"
            )
        # The wrapper's strides cannot change, so the words keep to them.
        self._words = torch.empty_strided(
            self.size(), self.stride(), dtype=other._words.dtype, device=other.device
        ).copy_(other._words)

    def decode(self) -> torch.Tensor:
        """Return the float64 values; gradients that come back are encoded into this tensor's format."""
        return _Decode.apply(self)

    def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None) -> None:
        """Compute gradients as ``torch.Tensor.backward``; a plain `gradient` is encoded into this tensor's format.

        Without `gradient` it is one for every element, as in the xlnstorch package, and not for scalars alone.
        """
        if gradient is None and self.numel() != 1:
            one = torch.full_like(self._words, self._format.bias)
            gradient = LNSTensor(one, self._format)
        if isinstance(gradient, torch.Tensor) and not isinstance(gradient, LNSTensor):
            gradient = LNSTensor(conversions.encode(self._format, gradient), self._format)
        super().backward(gradient, retain_graph, create_graph, inputs)

    # Where torch.Tensor reads memory that a wrapper does not have -----------------------------------------------------

    def numpy(self, *, force: bool = False):
        """Return the decoded values as a NumPy array."""
        if self.requires_grad and not force:
            raise RuntimeError("numpy() of an LNSTensor that requires grad: call detach() first")
        return self.value.cpu().numpy()

    def xlns(self):
        """Return an array of the xlns package; see :func:`xlnstorch.to_xlns`."""
        from .compat import to_xlns

        return to_xlns(self)

    def __array__(self, dtype=None, copy=None):
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    # NumPy would decode both operands and compute in float64.
    __array_ufunc__ = None

    def __dlpack__(self, *args, **kwargs):
        raise BufferError("an LNSTensor has no float64 memory to share; export x.words or x.value instead")

    def share_memory_(self) -> LNSTensor:
        """Move the words to shared memory."""
        self._words.share_memory_()
        return self

    def is_shared(self) -> bool:
        """Whether the words are in shared memory."""
        return self._words.is_shared()

    def apply_(self, callable):
        """Refuse: there are no float64 elements to apply a Python function to."""
        raise NotImplementedError("apply_ works on float64 memory, which an LNSTensor does not have")

    map_ = apply_

    def tolist(self):
        """Return the decoded values as (nested) Python floats."""
        return self.value.tolist()

    def __format__(self, specification: str) -> str:
        return format(self.item(), specification) if self.dim() == 0 else super().__format__(specification)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        text = repr(self.value).removeprefix("tensor(").removesuffix(")").removesuffix(", dtype=torch.float64")
        parts = [text.removesuffix(",\n       dtype=torch.float64"), f"format={self._format}"]
        if self.grad_fn is not None:
            parts.append(f"grad_fn=<{type(self.grad_fn).__name__}>")
        elif self.requires_grad:
            parts.append("requires_grad=True")
        return f"lnstensor({', '.join(parts)})"

    def __deepcopy__(self, memo):
        # torch.Tensor's looks at the data pointer, and takes a view of a wrapper for a tensor with storage.
        if not self.is_leaf:
            raise RuntimeError(
                "only LNSTensors created by the user (graph leaves) can be deep-copied; detach() it first"
            )
        if id(self) not in memo:
            extra = copy.deepcopy(_extra_state(self), memo)
            memo[id(self)] = twin = _rebuild(self._words.clone(), self._format, self.requires_grad, extra)
            if self.grad is not None:
                twin.grad = copy.deepcopy(self.grad, memo)
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        return _rebuild, (self._words, self._format, self.requires_grad, _extra_state(self))

    # For torch's own handling of wrapper subclasses -------------------------------------------------------------------

    def __tensor_flatten__(self):
        # That there is this method makes Module.to() exchange parameters as a whole; torch.compile is who calls it.
        raise NotImplementedError(
            "torch.compile and torch.export cannot trace LNS arithmetic; mark the functions that take, make or "
            "return LNSTensors with torch.compiler.disable, or do not compile them"
        )

    @staticmethod
    def __tensor_unflatten__(inner, format, outer_size, outer_stride):
        return LNSTensor(inner["_words"], format)


def _extra_state(tensor: LNSTensor) -> dict[str, Any]:
    return {key: value for key, value in tensor.__dict__.items() if key not in ("_words", "_format")}


def _rebuild(words: torch.Tensor, format: LNSFormat, requires_grad: bool, extra: dict[str, Any]) -> LNSTensor:
    tensor = LNSTensor(words, format, requires_grad)
    tensor.__dict__.update(extra)
    return tensor


# What DataLoader calls in a worker process: PyTorch's own stacks into shared float64 memory that it made.


def _collate(batch, *, collate_fn_map=None):
    return torch.stack(batch)


default_collate_fn_map[LNSTensor] = _collate


# Crossing into and out of LNS is differentiable, with the gradient converted the other way, as in DTensor ------------


class _Encode(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values: torch.Tensor, format: LNSFormat) -> LNSTensor:
        ctx.dtype = values.dtype
        return LNSTensor(conversions.encode(format, values), format)

    @staticmethod
    def backward(ctx, grad: LNSTensor):
        return grad.value.to(ctx.dtype), None


class _Decode(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor: LNSTensor) -> torch.Tensor:
        ctx.format = tensor.format
        return tensor.value

    @staticmethod
    def backward(ctx, grad: torch.Tensor):
        return LNSTensor(conversions.encode(ctx.format, grad), ctx.format)


class _Convert(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor: LNSTensor, format: LNSFormat) -> LNSTensor:
        ctx.format = tensor.format
        return LNSTensor(conversions.rescale(tensor.format, tensor._words, format).clone(), format)

    @staticmethod
    def backward(ctx, grad: LNSTensor):
        return _Convert.apply(grad, ctx.format), None
