"""Elementwise arithmetic: each handler is one or two calls of :mod:`xlnstorch.arithmetic`."""

from __future__ import annotations

import builtins
import math

import torch

from .. import arithmetic, kernels
from ..observe import report
from ..tensor import LNSTensor
from ._registry import aten, operands, prims, register, register_inplace, words_of


def scaled(format, words, alpha):
    """Return ``alpha * words``: alpha is encoded, and ±1 costs nothing."""
    if alpha == 1:
        return words
    if alpha == -1:
        return arithmetic.neg(format, words)
    return arithmetic.mul(format, words, words_of(format, alpha, words.device))


@register(aten.add.Tensor, aten.add.Scalar, prims.add.default)
def add(func, self, other, alpha=1):
    format, (a, b) = operands(func, self, other)
    return LNSTensor(arithmetic.add(format, a, scaled(format, b, alpha)), format)


@register(aten.sub.Tensor, aten.sub.Scalar, prims.sub.default)
def sub(func, self, other, alpha=1):
    format, (a, b) = operands(func, self, other)
    return LNSTensor(arithmetic.sub(format, a, scaled(format, b, alpha)), format)


@register(aten.mul.Tensor, aten.mul.Scalar, prims.mul.default)
def mul(func, self, other):
    format, (a, b) = operands(func, self, other)
    return LNSTensor(arithmetic.mul(format, a, b), format)


@register(aten.div.Tensor, aten.div.Scalar, prims.div.default)
def div(func, self, other):
    format, (a, b) = operands(func, self, other)
    return LNSTensor(arithmetic.div(format, a, b), format)


@register(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div_mode(func, self, other, *, rounding_mode):
    if rounding_mode not in (None, "floor", "trunc"):
        raise RuntimeError(f"rounding_mode must be None, 'trunc' or 'floor', not {rounding_mode!r}")
    quotient = div(func, self, other)
    if rounding_mode is None:
        return quotient
    if rounding_mode == "trunc":
        return aten.trunc(quotient)
    return _infinite_floors(self, other, aten.floor(quotient)) if quotient.format.specials else aten.floor(quotient)


def _infinite_floors(a, b, floor):
    """Return the floors of a / b with those that torch gives where a or b is infinite.

    An infinity over a number other than zero has no remainder, and so is NaN; of a number over an infinity of the other
    sign the quotient, a negative zero elsewhere, is below zero.
    """
    format, (x, y) = operands(aten.floor_divide.default, a, b)
    (sign_x, field_x), (sign_y, field_y) = format.unpack(x), format.unpack(y)
    inf_x, inf_y = format.is_inf(x), format.is_inf(y)
    floor = aten.masked_fill(floor, inf_x & (field_y != 0), math.nan)
    return aten.masked_fill(floor, inf_y & ~inf_x & (field_x != 0) & (sign_x ^ sign_y), -1)


@register(aten.floor_divide.default, aten.floor_divide.Scalar)
def floor_divide(func, self, other):
    return div_mode(func, self, other, rounding_mode="floor")


@register(aten.reciprocal.default)
def reciprocal(func, self):
    format, (one, a) = operands(func, 1, self)
    return LNSTensor(arithmetic.div(format, one, a), format)


@register(aten.sqrt.default)
def sqrt(func, self):
    return LNSTensor(arithmetic.sqrt(self.format, self._words), self.format)


@register(aten.rsqrt.default)
def rsqrt(func, self):
    return reciprocal(func, sqrt(func, self))


@register(aten.sigmoid.default)
def sigmoid(func, self):
    return reciprocal(func, aten.add.Scalar(aten.exp(neg(func, self)), 1))


@register(aten.logit_backward.default)
def logit_backward(func, grad_output, self, eps=None):
    gradient = grad_output / (self * (1 - self))
    low = 0.0 if eps is None else eps
    outside = aten.logical_or(aten.lt(self, low), aten.gt(self, 1.0 - low))
    return aten.masked_fill(gradient, outside, math.nan if eps is None and self.format.specials else 0)


@register(aten.round.decimals)
def round_decimals(func, self, *, decimals):
    scale = 10.0 ** builtins.abs(decimals)
    return aten.round(self * scale) / scale if decimals >= 0 else aten.round(self / scale) * scale


@register(aten.hypot.default)
def hypot(func, self, other):
    format, (a, b) = operands(func, self, other)
    squares = (arithmetic.power(format, words, 2) for words in (a, b))
    words = arithmetic.sqrt(format, arithmetic.add(format, *squares))
    if format.specials:  # however long the other side, even if it is NaN
        words = torch.where(format.is_inf(a) | format.is_inf(b), words_of(format, math.inf, a.device), words)
    return LNSTensor(words, format)


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


@register(aten.neg.default, prims.neg.default)
def neg(func, self):
    return LNSTensor(arithmetic.neg(self.format, self._words), self.format)


@register(aten.abs.default, prims.abs.default)
def abs(func, self):
    return LNSTensor(arithmetic.absolute(self.format, self._words), self.format)


@register(aten.sign.default, aten.sgn.default)
def sign(func, self):
    key = arithmetic.compare_key(self.format, self._words)
    one = torch.full_like(key, self.format.bias)
    words = self.format.pack(key < 0, torch.where(key == 0, 0, one))
    return LNSTensor(words, self.format)


@register(aten.signbit.default)
def signbit(func, self):
    return arithmetic.compare_key(self.format, self._words) < 0


@register(aten.copysign.Tensor, aten.copysign.Scalar)
def copysign(func, self, other):
    format, (a, b) = operands(func, self, other)
    # The sign that a plain zero may have is not kept by any word, so it is read before.
    negative = torch.signbit(torch.as_tensor(other, device=None if isinstance(other, torch.Tensor) else a.device))
    _, field = format.unpack(a)
    words = arithmetic.pack_like(format, a, negative & (field != 0), field)
    if isinstance(other, LNSTensor):
        report("copysign", format, (a, b), words)
    return LNSTensor(words, format)


@register(aten.frexp.Tensor)
def frexp(func, self):
    format = self.format
    if format.base != 2.0:
        raise NotImplementedError(f"{func} needs a format of base 2, not {format}")
    sign, field = format.unpack(self._words)
    exponent = torch.where(field == 0, 0, ((field - format.bias) >> format.frac_bits) + 1)
    if format.specials:
        exponent = torch.where(format.is_inf(self._words), 0, exponent)
    mantissa = torch.where(field == 0, 0, field - (exponent << format.frac_bits))
    words = arithmetic.pack_like(format, self._words, sign, mantissa)
    return LNSTensor(words, format), exponent.to(torch.int32)


@register(aten.angle.default)
def angle(func, self):
    format = self.format
    words = torch.where(format.unpack(self._words)[0], words_of(format, math.pi, self.device), 0)
    if format.specials:
        words = torch.where(format.is_nan(self._words), self._words, words)
    return LNSTensor(words, format)


@register(aten.relu.default)
def relu(func, self):
    return LNSTensor(arithmetic.relu(self.format, self._words), self.format)


@register(aten.softshrink_backward.default, aten.hardshrink_backward.default)
def shrink_backward(func, grad_output, self, lambd):
    return aten.masked_fill(grad_output, ~aten.gt(abs(func, self), lambd), 0)


@register(aten.threshold_backward.default)
def threshold_backward(func, grad_output, self, threshold):
    format, (grad, x, limit) = operands(func, grad_output, self, threshold)
    if threshold == 0 and (words := kernels.elementwise("relu_grad", format, x, grad)) is not None:
        return LNSTensor(words, format)
    below = arithmetic.order(format, x) <= arithmetic.order(format, limit)  # which NaN is not
    words = format.canonical(torch.where(below, 0, grad))
    if threshold == 0:
        report("relu_grad", format, (x, grad), words)
    return LNSTensor(words, format)


for _inplace, _functional in [
    (aten.add_.Tensor, aten.add.Tensor),
    (aten.add_.Scalar, aten.add.Scalar),
    (aten.sub_.Tensor, aten.sub.Tensor),
    (aten.sub_.Scalar, aten.sub.Scalar),
    (aten.mul_.Tensor, aten.mul.Tensor),
    (aten.mul_.Scalar, aten.mul.Scalar),
    (aten.div_.Tensor, aten.div.Tensor),
    (aten.div_.Scalar, aten.div.Scalar),
    (aten.div_.Tensor_mode, aten.div.Tensor_mode),
    (aten.div_.Scalar_mode, aten.div.Scalar_mode),
    (aten.floor_divide_.Tensor, aten.floor_divide.default),
    (aten.rsqrt_.default, aten.rsqrt.default),
    (aten.hypot_.default, aten.hypot.default),
    (aten.sigmoid_.default, aten.sigmoid.default),
    (aten.copysign_.Tensor, aten.copysign.Tensor),
    (aten.sign_.default, aten.sign.default),
    (aten.sgn_.default, aten.sgn.default),
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
