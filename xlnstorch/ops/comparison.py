"""Comparisons order by value, with both zeros equal; selections hand words through untouched."""

from __future__ import annotations

import math
import operator

import torch

from .. import arithmetic, conversions
from ..tensor import LNSTensor
from ._registry import aten, common_format, only_lns, operands, prims, register, register_inplace, words_of

_RELATIONS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def _orders(func, *xs):
    format, words = operands(func, *xs)
    return format, [arithmetic.order(format, w) for w in words]


def comparable(func, a, b):
    """Return the orders of two operands, one of which may be plain; infinities without a word are beyond all words."""
    format = common_format(func, a, b)
    device = a.device if isinstance(a, LNSTensor) else b.device
    return _order_of(format, a, device), _order_of(format, b, device)


def _order_of(format, x, device):
    if isinstance(x, LNSTensor) or format.specials:
        return arithmetic.order(format, words_of(format, x, device))
    if not isinstance(x, torch.Tensor):
        if math.isfinite(x):
            return arithmetic.order(format, words_of(format, x, device))
        return torch.tensor(x, dtype=torch.float64, device=device)  # not torch's default dtype
    values = x.to(device) if x.dim() == 0 else x
    if not values.dtype.is_floating_point:
        return arithmetic.order(format, conversions.encode(format, values))
    finite = torch.isfinite(values)
    order = arithmetic.order(format, conversions.encode(format, torch.where(finite, values, 0)))
    return torch.where(finite, order, values)


def _register_relation(name, relation):
    packet = getattr(aten, name)

    @register(packet.Tensor, packet.Scalar)
    def handler(func, self, other):
        return relation(*comparable(func, self, other))


for _name, _relation in _RELATIONS.items():
    _register_relation(_name, _relation)


@register(aten.maximum.default)
def maximum(func, self, other):
    format, words = operands(func, self, other)
    return LNSTensor(arithmetic.maximum(format, *words), format)


@register(aten.minimum.default)
def minimum(func, self, other):
    format, words = operands(func, self, other)
    return LNSTensor(arithmetic.minimum(format, *words), format)


@register(aten.fmax.default, aten.fmin.default)
def without_nan(func, self, other):
    format, orders = _orders(func, self, other)
    return LNSTensor(arithmetic.from_order(format, func(*orders)), format)


@register(aten.maximum.out)
def maximum_out(func, self, other, *, out):
    only_lns(func, out)._words.copy_(maximum(func, self, other)._words)
    return out


@register(
    aten.clamp.default,
    aten.clamp.Tensor,
    aten.clamp_min.default,
    aten.clamp_min.Tensor,
)
def clamp(func, self, min=None, max=None):
    if min is None and max is None:
        raise RuntimeError("clamp takes a min, a max or both, not neither")
    # As torch: where min exceeds max, max wins.
    result = self if min is None else maximum(func, self, min)
    return result if max is None else minimum(func, result, max)


@register(aten.clamp_max.default, aten.clamp_max.Tensor)
def clamp_max(func, self, max):
    return minimum(func, self, max)


@register(aten.isnan.default)
def isnan(func, self):
    return self.format.is_nan(self._words)


@register(aten.isinf.default)
def isinf(func, self):
    return self.format.is_inf(self._words)


@register(aten.isposinf.default, aten.isneginf.default)
def signed_infinity(func, self):
    sign, _ = self.format.unpack(self._words)
    return isinf(func, self) & (sign if func is aten.isneginf.default else ~sign)


@register(aten.isfinite.default)
def isfinite(func, self):
    return ~(isnan(func, self) | isinf(func, self))


@register(aten.where.self, prims.where.default)
def where(func, condition, self, other):
    if isinstance(condition, LNSTensor):
        raise TypeError(f"{func} takes a condition of truth values, not an LNSTensor of {condition.format}")
    if not isinstance(self, LNSTensor):
        self = _taken(condition, self)
    if not isinstance(other, LNSTensor):
        other = _taken(torch.logical_not(condition), other)
    format, (a, b) = operands(func, self, other)
    return LNSTensor(torch.where(condition, a, b), format)


def _taken(condition, x):
    """Return a plain tensor, and zeros where it is not taken, since it may be what no word is there, NaN perhaps."""
    if x.dim() == 0 and not x.is_meta and bool(torch.isfinite(x)):
        return x
    # What requires grad still does, and is refused.
    return torch.where(condition, x, 0).requires_grad_(x.requires_grad)


@register(aten.nan_to_num.default)
def nan_to_num(func, self, nan=None, posinf=None, neginf=None):
    format, words = self.format, self._words.clone()
    if format.specials:
        sign, field = format.unpack(words)
        largest = format.pack(sign, torch.full_like(field, format.max_finite_field))
        up, down = (largest if x is None else words_of(format, x, self.device) for x in (posinf, neginf))
        words = torch.where(format.is_inf(words), torch.where(sign, down, up), words)
        words = torch.where(
            format.is_nan(self._words), words_of(format, 0.0 if nan is None else nan, self.device), words
        )
    return LNSTensor(words, format)


@register(aten.equal.default)
def equal(func, self, other):
    if self.shape != other.shape:
        return False
    _, (a, b) = _orders(func, self, other)
    return torch.equal(a, b)


for _name in ("clamp", "clamp_min", "clamp_max"):
    for _overload in ("default", "Tensor"):
        register_inplace(getattr(getattr(aten, f"{_name}_"), _overload), getattr(getattr(aten, _name), _overload))
register_inplace(aten.nan_to_num_.default, aten.nan_to_num.default)
