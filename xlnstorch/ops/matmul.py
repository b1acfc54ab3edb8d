"""Matrix products; a bias is added last."""

from __future__ import annotations

from .. import arithmetic
from ..tensor import LNSTensor
from ._registry import aten, operands, register
from .pointwise import scaled


def _refuse(func, x, y):
    raise RuntimeError(f"{func}: shapes {tuple(x.shape)} and {tuple(y.shape)} cannot be multiplied")


def _product(func, a: LNSTensor, b: LNSTensor, rank: int):
    format, (x, y) = operands(func, a, b)
    if x.dim() != rank or y.dim() != rank or x.shape[-1] != y.shape[-2] or x.shape[:-2] != y.shape[:-2]:
        _refuse(func, x, y)
    return format, format.accumulator.matmul(format, x, y)


@register(aten.mm.default)
def mm(func, self, mat2):
    format, words = _product(func, self, mat2, rank=2)
    return LNSTensor(words, format)


@register(aten.bmm.default)
def bmm(func, self, mat2):
    format, words = _product(func, self, mat2, rank=3)
    return LNSTensor(words, format)


@register(aten.mv.default)
def mv(func, self, vec):
    if vec.dim() != 1:
        _refuse(func, self, vec)
    format, words = _product(func, self, vec.unsqueeze(-1), rank=2)
    return LNSTensor(words.squeeze(-1), format)


@register(aten.dot.default)
def dot(func, self, tensor):
    if self.dim() != 1 or self.shape != tensor.shape:
        _refuse(func, self, tensor)
    format, (a, b) = operands(func, self, tensor)
    return LNSTensor(format.accumulator.sum(format, arithmetic.mul(format, a, b), 0), format)


@register(aten.addmm.default, aten.baddbmm.default)
def addmm(func, self, mat1, mat2, *, beta=1, alpha=1):
    format, words = _product(func, mat1, mat2, rank=2 if func is aten.addmm.default else 3)
    words = scaled(format, words, alpha)
    if beta == 0:
        return LNSTensor(words, format)
    format, (bias, _, _) = operands(func, self, mat1, mat2)
    return LNSTensor(arithmetic.add(format, words, scaled(format, bias, beta)), format)


@register(aten.addbmm.default)
def addbmm(func, self, batch1, batch2, *, beta=1, alpha=1):
    # One sum over the batch and the inner dimension, as one matrix product.
    rows, columns = batch1.permute(1, 0, 2).flatten(1), batch2.flatten(0, 1)
    return aten.addmm(self, rows, columns, beta=beta, alpha=alpha)
