"""The kernels as functions of word tensors; each returns None or False where there is none for what it is given."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch.utils.dlpack import to_dlpack

from .. import observe
from . import curves
from ._module import compiled
from .engines import Engine, engine_of

if TYPE_CHECKING:
    from ..exact import LogScale
    from ..formats import LNSFormat

__all__ = ["accumulate", "decode", "elementwise", "encode", "from_order", "order", "product", "total"]

Words = torch.Tensor

_ADDITIONS = ("add", "sub")

_MAX_TABLED_FRAC_BITS = 16
_NORMAL_INT_BITS = 10  # up to here all numbers are normal ones of float64


def elementwise(name: str, format: LNSFormat, a: Words, b: Words | None = None) -> Words | None:
    """Return the words of an operation, which is reported to the observers with its flags; operands broadcast.

    Parameters
    ----------
    name : str
        A key of the compiled module's ``OPERATIONS``, as in :class:`xlnstorch.observe.Operation`.
    format : LNSFormat
    a, b : Tensor
        Words, on any device.
    """
    engine = _engine_for(format, a, b)
    if engine is None:
        return None
    core = engine.core if name in _ADDITIONS else engine.plain
    if core is None:
        return None
    if b is None or b.dim() == 0 or a.shape == b.shape:
        result = torch.empty_like(a)
    elif a.dim() == 0:
        result = torch.empty_like(b)
    else:
        result = torch.empty(_broadcast(a.shape, b.shape), dtype=a.dtype)
    flags = torch.empty(result.shape, dtype=torch.int64) if observe.watched(name) else None
    module, threads = compiled(), torch.get_num_threads()
    while undecided := module.elementwise(
        core,
        module.OPERATIONS[name],
        to_dlpack(a),
        None if b is None else to_dlpack(b),
        to_dlpack(result),
        None if flags is None else to_dlpack(flags),
        threads,
    ):
        core = engine.decide(undecided)
    if flags is not None:
        observe.report_bits(name, format, (a,) if b is None else (a, b), result, flags)
    return result


def product(format: LNSFormat, running: LNSFormat, guard_bits: int, tree: bool, a: Words, b: Words) -> Words | None:
    """Return the words of the matrix product, (…, M, K) by (…, K, N), batches broadcast; the sums are over K.

    Parameters
    ----------
    format, running : LNSFormat
        Of the words, and of the running sum.
    guard_bits : int
        How many more fraction bits the running sum has.
    tree : bool
        Whether terms are added in a balanced tree, rather than left to right.
    a, b : Tensor
    """
    a, b = _same_batches(a, b)
    result = torch.empty((*a.shape[:-1], b.shape[-1]), dtype=a.dtype, device=a.device)
    left, right, out = map(_one_batch, (a, b, result))
    if a.shape[-2] > b.shape[-1]:  # lanes lie along the longer side
        left, right, out = right.mT, left.mT, out.mT
    return result if _sum_of_products(format, running, guard_bits, tree, left, right, out) else None


def total(format: LNSFormat, running: LNSFormat, guard_bits: int, tree: bool, words: Words, dim: int) -> Words | None:
    """Return the words of the sum over `dim`; parameters as for :func:`product`."""
    terms = words.movedim(dim, 0)
    result = torch.empty(terms.shape[1:], dtype=words.dtype, device=words.device)
    columns = terms.reshape(1, len(terms), result.numel())
    out = result.view(1, 1, -1)
    return result if _sum_of_products(format, running, guard_bits, tree, None, columns, out) else None


def accumulate(
    format: LNSFormat,
    antilog: torch.Tensor,
    shift: int,
    significand_bits: int,
    limbs: torch.Tensor,
    a: Words | None,
    b: Words,
) -> bool:
    """Add the terms of fixed-point sums to their registers; False where there is no kernel.

    Parameters
    ----------
    format : LNSFormat
    antilog : Tensor
        int64, of each fraction of a logarithm.
    shift : int
        How far up the antilogarithm of field 0 lies; where it is negative, bits are cut off.
    significand_bits : int
        Of the largest antilogarithm.
    limbs : Tensor
        Those of :class:`xlnstorch.accumulators.register.Registers`, contiguous.
    a, b : Tensor
        Words of the factors of a matrix product, as for :func:`product`; or, without `a`, terms along dimension 0.
    """
    engine = _engine_for(format, a, b)
    if engine is None or (a is not None and observe.watched("mul")):
        return False
    if a is None:
        left, right = None, b.reshape(1, len(b), limbs.shape[1])
    else:
        left, right = map(_one_batch, _same_batches(a, b))
    compiled().accumulate(
        engine.plain,
        antilog.numpy(),
        shift,
        significand_bits,
        None if left is None else to_dlpack(left),
        to_dlpack(right),
        to_dlpack(limbs),
        torch.get_num_threads(),
    )
    return True


def encode(format: LNSFormat, values: torch.Tensor, rest: Callable[[torch.Tensor], Words]) -> Words | None:
    """Return the words nearest to float64 values; `rest` computes those that the kernel does not decide."""
    engine = _engine_for(format, values)
    if engine is None or not curves.serves(format):
        return None
    words, flat_values, flat_words = _paired(values, format.dtype)
    threads = torch.get_num_threads()
    left = compiled().encode(engine.plain, to_dlpack(flat_values), to_dlpack(flat_words), threads)
    if left:
        flat_words[left] = rest(flat_values[left])
    return words


def decode(format: LNSFormat, words: Words) -> torch.Tensor | None:
    """Return the float64 nearest to each word."""
    engine = _engine_for(format, words)
    if engine is None or not curves.serves(format):
        return None
    if format.frac_bits > _MAX_TABLED_FRAC_BITS or format.int_bits > _NORMAL_INT_BITS:
        return None
    values, flat_words, flat_values = _paired(words, torch.float64)
    significands, threads = to_dlpack(_significands(format.scale)), torch.get_num_threads()
    compiled().decode(engine.plain, significands, to_dlpack(flat_words), to_dlpack(flat_values), threads)
    return values


def order(format: LNSFormat, words: Words) -> torch.Tensor | None:
    """Return float64 numbers ordered as the words are, as :func:`xlnstorch.arithmetic.order`."""
    return _each("order", format, words, torch.float64)


def from_order(format: LNSFormat, orders: torch.Tensor) -> Words | None:
    """Return the words of which :func:`order` gave these numbers."""
    return _each("from_order", format, orders, format.dtype)


def _each(name: str, format: LNSFormat, source: torch.Tensor, dtype: torch.dtype) -> torch.Tensor | None:
    """Return what a function of the compiled module makes of each element."""
    engine = _engine_for(format, source)
    if engine is None:
        return None
    result, flat_source, flat_result = _paired(source, dtype)
    getattr(compiled(), name)(engine.plain, to_dlpack(flat_source), to_dlpack(flat_result), torch.get_num_threads())
    return result


def _paired(source: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a new tensor with the strides of `source`, if that has no gaps, and views of both in memory's order."""
    result = torch.empty_like(source, dtype=dtype)
    if result.stride() != source.stride():
        source = torch.empty_like(source).copy_(source)
    return result, source.as_strided((source.numel(),), (1,)), result.as_strided((source.numel(),), (1,))


@functools.lru_cache(maxsize=16)
def _significands(scale: LogScale) -> torch.Tensor:
    return scale.exp(torch.arange(1 << scale.frac_bits))


def _sum_of_products(format, running, guard_bits: int, tree: bool, a: Words | None, b: Words, out: Words) -> bool:
    narrow, wide = _engine_for(format, b), _engine_for(running, b)
    # Observers are told of every addition, and kernels do not tell.
    if narrow is None or wide is None or (core := wide.core) is None or observe.watched("add"):
        return False
    product, threads = compiled().product, torch.get_num_threads()
    while undecided := product(
        narrow.plain,
        core,
        guard_bits,
        tree,
        None if a is None else to_dlpack(a),
        to_dlpack(b),
        to_dlpack(out),
        threads,
    ):
        core = wide.decide(undecided)
    return True


def _engine_for(format: LNSFormat, *tensors: torch.Tensor | None) -> Engine | None:
    if compiled() is None:
        return None
    for tensor in tensors:
        if tensor is not None and (type(tensor) is not torch.Tensor or not tensor.is_cpu):
            return None
    return engine_of(format)


def _same_batches(a: Words, b: Words) -> tuple[Words, Words]:
    if a.dim() == b.dim() == 2:
        return a, b
    batch = _broadcast(a.shape[:-2], b.shape[:-2])
    return a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])


def _one_batch(matrices: Words) -> Words:
    return matrices.unsqueeze(0) if matrices.dim() == 2 else matrices.flatten(0, -3)


def _broadcast(a: torch.Size, b: torch.Size) -> tuple[int, ...]:
    """Return what torch.broadcast_shapes does, ten times as fast where it is simple."""
    if len(a) == len(b) and all(m == n or n == 1 for m, n in zip(a, b, strict=True)):
        return a
    return torch.broadcast_shapes(a, b)
