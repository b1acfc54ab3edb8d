"""Matrix products; a bias is added last."""

from __future__ import annotations

from .. import arithmetic
from ..tensor import LNSTensor
from ._registry import aten, operands, register
from .pointwise import scaled


def _product(func, a: LNSTensor, b: LNSTensor):
    format, (x, y) = operands(func, a, b)
    if x.shape[-1] != y.shape[-2] or x.shape[:-2] != y.shape[:-2]:
        raise RuntimeError(f"{func}: shapes {tuple(x.shape)} and {tuple(y.shape)} cannot be multiplied")
    return format, format.accumulator.matmul(format, x, y)


@register(aten.mm.default, aten.bmm.default)
def mm(func, self, mat2):
    format, words = _product(func, self, mat2)
    return LNSTensor(words, format)


@register(aten.mv.default)
def mv(func, self, vec):
    format, words = _product(func, self, vec.unsqueeze(-1))
    return LNSTensor(words.squeeze(-1), format)


@register(aten.dot.default)
def dot(func, self, tensor):
    format, (a, b) = operands(func, self, tensor)
    return LNSTensor(format.accumulator.sum(format, arithmetic.mul(format, a, b), 0), format)


@register(aten.addmm.default, aten.baddbmm.default)
def addmm(func, self, mat1, mat2, *, beta=1, alpha=1):
    format, words = _product(func, mat1, mat2)
    words = scaled(format, words, alpha)
    if beta == 0:
        return LNSTensor(words, format)
    format, (bias, _, _) = operands(func, self, mat1, mat2)
    return LNSTensor(arithmetic.add(format, words, scaled(format, bias, beta)), format)
