"""Elementwise functions that LNS hardware has no primitive for; ``xlnstorch.float_fallbacks()`` lists them."""

from __future__ import annotations

import torch

from .. import conversions
from ..tensor import LNSTensor
from ._registry import aten, note_float_fallback, register

note_float_fallback("exp", "nearest word to the exact result, proved")
note_float_fallback(
    "log",
    "nearest word to the exact result, proved; of zero the largest negative word, of a negative number ValueError",
)


@register(aten.exp.default)
def exp(func, self):
    format = self.format
    sign, field = format.unpack(self._words)
    zero = field == 0
    log = format.scale.log_of_exp(sign, torch.where(zero, 0, field - format.bias))
    return LNSTensor(conversions.words_from_log(format, torch.zeros_like(sign), torch.where(zero, 0, log)), format)


@register(aten.log.default)
def log(func, self):
    format = self.format
    sign, field = format.unpack(self._words)
    if bool((sign & (field != 0)).any()):
        raise ValueError(f"log of a negative number: {format} has no word for NaN")
    e = field - format.bias
    log = format.scale.log_of_log(torch.where(e == 0, 1, e))
    words = conversions.words_from_log(format, e < 0, log)
    # ln(1) is zero; ln(0) is the largest negative word, as the limit saturates.
    lowest = format.pack(torch.ones_like(sign), torch.full_like(field, format.max_field))
    return LNSTensor(torch.where(field == 0, lowest, torch.where(e == 0, 0, words)), format)
