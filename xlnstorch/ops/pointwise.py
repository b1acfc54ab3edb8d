"""Elementwise arithmetic: each handler is one or two calls of :mod:`xlnstorch.arithmetic`."""

from __future__ import annotations

import torch

from .. import arithmetic
from ..tensor import LNSTensor
from ._registry import aten, operands, register, register_inplace, words_of


def scaled(format, words, alpha):
    """Return ``alpha * words``: alpha is encoded, and ±1 costs nothing."""
    if alpha == 1:
        return words
    if alpha == -1:
        return arithmetic.neg(format, words)
    return arithmetic.mul(format, words, words_of(format, alpha, words.device))


@register(aten.add.Tensor, aten.add.Scalar)
def add(func, self, other, alpha=1):
    format, (a, b) = operands(func, self, other)
    return LNSTensor(arithmetic.add(format, a, scaled(format, b, alpha)), format)


@register(aten.sub.Tensor, aten.sub.Scalar)
def sub(func, self, other, alpha=1):
    format, (a, b) = operands(func, self, other)
    return LNSTensor(arithmetic.sub(format, a, scaled(format, b, alpha)), format)


@register(aten.mul.Tensor, aten.mul.Scalar)
def mul(func, self, other):
    format, (a, b) = operands(func, self, other)
    return LNSTensor(arithmetic.mul(format, a, b), format)


@register(aten.div.Tensor, aten.div.Scalar)
def div(func, self, other):
    format, (a, b) = operands(func, self, other)
    return LNSTensor(arithmetic.div(format, a, b), format)


@register(aten.reciprocal.default)
def reciprocal(func, self):
    format, (one, a) = operands(func, 1, self)
    return LNSTensor(arithmetic.div(format, one, a), format)


@register(aten.pow.Tensor_Scalar)
def pow_scalar(func, self, exponent):
    if 2 * exponent != int(2 * exponent):
        raise NotImplementedError(f"{func} of {self.format} takes a whole or half exponent, not {exponent!r}")
    if exponent == int(exponent):
        return LNSTensor(arithmetic.power(self.format, self._words, int(exponent)), self.format)
    root = arithmetic.sqrt(self.format, self._words)
    return LNSTensor(root if exponent == 0.5 else arithmetic.power(self.format, root, int(2 * exponent)), self.format)


@register(aten.sqrt.default)
def sqrt(func, self):
    return LNSTensor(arithmetic.sqrt(self.format, self._words), self.format)


@register(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(func, self, end, weight):
    format, (start, end, weight) = operands(func, self, end, weight)
    step = arithmetic.mul(format, weight, arithmetic.sub(format, end, start))
    return LNSTensor(arithmetic.add(format, start, step), format)


@register(aten.addcmul.default, aten.addcdiv.default)
def add_scaled(func, self, tensor1, tensor2, *, value=1):
    format, (words, a, b) = operands(func, self, tensor1, tensor2)
    combine = arithmetic.mul if func is aten.addcmul.default else arithmetic.div
    return LNSTensor(arithmetic.add(format, words, scaled(format, combine(format, a, b), value)), format)


@register(aten.neg.default)
def neg(func, self):
    return LNSTensor(arithmetic.neg(self.format, self._words), self.format)


@register(aten.abs.default)
def abs(func, self):
    return LNSTensor(arithmetic.absolute(self.format, self._words), self.format)


@register(aten.sign.default, aten.sgn.default)
def sign(func, self):
    key = arithmetic.compare_key(self.format, self._words)
    one = torch.full_like(key, self.format.bias)
    words = self.format.pack(key < 0, torch.where(key == 0, 0, one))
    return LNSTensor(words, self.format)


@register(aten.relu.default)
def relu(func, self):
    return LNSTensor(arithmetic.relu(self.format, self._words), self.format)


@register(aten.threshold_backward.default)
def threshold_backward(func, grad_output, self, threshold):
    format, (grad, x, limit) = operands(func, grad_output, self, threshold)
    below = arithmetic.compare_key(format, x) <= arithmetic.compare_key(format, limit)
    return LNSTensor(torch.where(below, 0, grad), format)


for _inplace, _functional in [
    (aten.add_.Tensor, aten.add.Tensor),
    (aten.add_.Scalar, aten.add.Scalar),
    (aten.sub_.Tensor, aten.sub.Tensor),
    (aten.sub_.Scalar, aten.sub.Scalar),
    (aten.mul_.Tensor, aten.mul.Tensor),
    (aten.mul_.Scalar, aten.mul.Scalar),
    (aten.div_.Tensor, aten.div.Tensor),
    (aten.div_.Scalar, aten.div.Scalar),
    (aten.pow_.Scalar, aten.pow.Tensor_Scalar),
    (aten.reciprocal_.default, aten.reciprocal.default),
    (aten.sqrt_.default, aten.sqrt.default),
    (aten.neg_.default, aten.neg.default),
    (aten.abs_.default, aten.abs.default),
    (aten.relu_.default, aten.relu.default),
    (aten.lerp_.Scalar, aten.lerp.Scalar),
    (aten.lerp_.Tensor, aten.lerp.Tensor),
    (aten.addcmul_.default, aten.addcmul.default),
    (aten.addcdiv_.default, aten.addcdiv.default),
]:
    register_inplace(_inplace, _functional)
