"""Functions of one word by lookup, where a format is so narrow that a table holds what each of its words gives.

An entry is computed when its word is first met: a first call takes little longer than without a table, and later ones
hardly anything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

import torch

from . import observe

if TYPE_CHECKING:
    from .formats import LNSFormat

__all__ = ["MAX_WIDTH", "of_each_word"]

#: The widest words, in bits, of which tables are kept: of at most 256 KiB each.
MAX_WIDTH = 16

_UNKNOWN = -1


def of_each_word(
    name: str,
    format: LNSFormat,
    words: torch.Tensor,
    compute: Callable[[torch.Tensor], tuple[torch.Tensor, dict[str, torch.Tensor]]],
    key: Hashable,
) -> torch.Tensor:
    """Return what `compute` gives for each of `words`, and report it to the observers.

    Parameters
    ----------
    name : str
        Of the operation, for :mod:`xlnstorch.observe`.
    format : LNSFormat
    words : Tensor
        Of any shape.
    compute : callable
        Takes words and returns those of the results with their flags, as :func:`xlnstorch.arithmetic.fit` does; each
        of them must depend on the word in its place alone.
    key : hashable
        Tells `compute` from other functions.
    """
    if format.width > MAX_WIDTH or words.is_meta:
        result, flags = compute(words)
        observe.report(name, format, (words,), result, **flags)
        return result
    table, index = _table(key, format, words.device), format.to_unsigned(words)
    entries = table.take(index)
    if entries.numel() and int(entries.min()) == _UNKNOWN:
        new = torch.unique(index[entries == _UNKNOWN])
        results, flags = compute(format.from_unsigned(new))
        # The flags stand above the word.
        table[new] = (format.to_unsigned(results) | observe.bits_of(flags, results) << format.width).to(table.dtype)
        entries = table.take(index)
    # With the strides of the words, as an elementwise operation has them.
    result = torch.empty_like(words).copy_(entries & ((1 << format.width) - 1))
    if observe.watched(name):
        observe.report_bits(name, format, (words,), result, (entries >> format.width).to(torch.int64))
    return result


@functools.lru_cache(maxsize=256)
def _table(key: Hashable, format: LNSFormat, device: torch.device) -> torch.Tensor:
    with torch.inference_mode(False):  # since it is written to later
        return torch.full((1 << format.width,), _UNKNOWN, dtype=torch.int32, device=device)
