"""Payloads of streams and the fields that they are made of, by their layouts: integers, arrays and tensors of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from amaranth.hdl import Shape, ShapeLike
from amaranth.lib import data

from hdl.convert import FixedLayout
from hdl.layouts import FlagsLayout
from xlnstorch.observe import FLAGS

__all__ = [
    "dimensions",
    "element",
    "from_rows",
    "integer",
    "integers",
    "pack",
    "show",
    "tensor",
    "to_rows",
    "unpack",
    "width",
]


def dimensions(layout: ShapeLike) -> tuple[int, ...]:
    """Return the lengths of a field that is an array, or an array of arrays, ``()`` for any other."""
    return (layout.length, *dimensions(layout.elem_shape)) if isinstance(layout, data.ArrayLayout) else ()


def element(layout: ShapeLike) -> ShapeLike:
    """Return the layout of the elements of an array, of any number of dimensions, or else the layout itself."""
    return element(layout.elem_shape) if isinstance(layout, data.ArrayLayout) else layout


def width(layout: ShapeLike) -> int:
    """Return the width of a field in bits."""
    return Shape.cast(layout).width


def pack(layout: data.StructLayout, columns: Mapping[str, np.ndarray]) -> list[int]:
    """Return payloads, of any width, from their fields.

    Parameters
    ----------
    layout : StructLayout
        Of the payload.
    columns : mapping of str to ndarray of int64
        The bits of each field, of shape ``(n, …)``; a field that is an array has a dimension more. Fields that are not
        given are 0.
    """
    total = 0
    for name, values in columns.items():
        total = total + (_joined(layout[name].shape, values) << layout[name].offset)
    return total.tolist()


def _joined(layout: ShapeLike, values: np.ndarray) -> np.ndarray:
    """Return each field as one Python integer."""
    if not isinstance(layout, data.ArrayLayout):
        return values.astype(object) & ((1 << width(layout)) - 1)
    step, elements = width(layout.elem_shape), range(layout.length)
    return sum(_joined(layout.elem_shape, values[:, index]) << index * step for index in elements)


def unpack(layout: data.StructLayout, payload: int) -> dict[str, Any]:
    """Return the bits of each field of one payload, as non-negative integers; nested lists of them for arrays."""
    return {name: _split(field.shape, payload >> field.offset) for name, field in layout}


def _split(layout: ShapeLike, bits: int) -> Any:
    if not isinstance(layout, data.ArrayLayout):
        return bits & ((1 << width(layout)) - 1)
    step = width(layout.elem_shape)
    return [_split(layout.elem_shape, bits >> index * step) for index in range(layout.length)]


def to_rows(layout: data.StructLayout, columns: Mapping[str, np.ndarray], count: int) -> np.ndarray:
    """Return the same payloads as :func:`pack`, as rows of words of 64 bits, the lowest first.

    Parameters
    ----------
    layout : StructLayout
    columns : mapping of str to ndarray of int64
    count : int
        How many payloads there are.

    Returns
    -------
    ndarray of uint64, of shape ``(count, words)``
    """
    rows = np.zeros((count, -(-width(layout) // 64)), dtype=np.uint64)
    for name, values in columns.items():
        places = _places(layout[name].shape, layout[name].offset)
        bits = values.astype(np.int64, copy=False).view(np.uint64).reshape(count, len(places)) if places else None
        for index, (place, size) in enumerate(places):
            column = bits[:, index] if size == 64 else bits[:, index] & np.uint64((1 << size) - 1)
            word, shift = divmod(place, 64)
            rows[:, word] |= column << np.uint64(shift)
            if shift + size > 64:
                rows[:, word + 1] |= column >> np.uint64(64 - shift)
    return rows


def integer(row: np.ndarray) -> int:
    """Return one of such rows as one integer, as :func:`pack` does."""
    return int.from_bytes(row.astype("<u8").tobytes(), "little")


def from_rows(layout: data.StructLayout, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the bits of each field, in int64, of payloads that are rows of words: what :func:`to_rows` was given."""
    columns = {}
    for name, field in layout:
        bits = []
        for place, size in _places(field.shape, field.offset):
            word, shift = divmod(place, 64)
            column = rows[:, word] >> np.uint64(shift)
            if shift + size > 64:
                column = column | rows[:, word + 1] << np.uint64(64 - shift)
            bits.append(column if size == 64 else column & np.uint64((1 << size) - 1))
        shape = (len(rows), *dimensions(field.shape))
        columns[name] = (np.stack(bits, 1) if bits else np.zeros(shape, np.uint64)).view(np.int64).reshape(shape)
    return columns


def _places(layout: ShapeLike, offset: int) -> list[tuple[int, int]]:
    """Return offset and width of a field, or of all elements of an array, the first index being the slowest."""
    if not isinstance(layout, data.ArrayLayout):
        return [(offset, width(layout))] if width(layout) else []
    step = width(layout.elem_shape)
    return [place for index in range(layout.length) for place in _places(layout.elem_shape, offset + index * step)]


def tensor(layout: ShapeLike, values: np.ndarray) -> torch.Tensor:
    """Return the numbers that a field's bits, of any shape, stand for: what a unit's golden function takes."""
    layout = element(layout)
    if hasattr(layout, "tensor"):
        return layout.tensor(values)
    return torch.from_numpy(values).to(torch.bool if width(layout) == 1 else torch.int64)


def integers(layout: ShapeLike, result: torch.Tensor | Mapping[str, torch.Tensor]) -> np.ndarray:
    """Return the bits of a field, in int64, of what a golden function gave for it; flags may be bits already."""
    layout = element(layout)
    if isinstance(layout, FlagsLayout):
        if isinstance(result, Mapping):
            result = sum(raised.to(torch.int64) << FLAGS.index(flag) for flag, raised in result.items())
        return result.to(torch.int64).numpy() & layout.mask
    if hasattr(layout, "integers"):
        return layout.integers(result)
    return result.to(torch.int64).numpy() & ((1 << width(layout)) - 1)


def show(layout: ShapeLike, bits: Any) -> Any:
    """Return what the bits of one field, or of nested lists of it, mean: numbers, or the names of flags.

    Numbers that are not finite are text, since JSON has none.
    """
    layout = element(layout)
    if isinstance(bits, list):
        return [show(layout, element) for element in bits]
    if isinstance(layout, FlagsLayout):
        return [flag for bit, flag in enumerate(FLAGS) if bits >> bit & 1]
    value = tensor(layout, np.array([bits], dtype=np.uint64).astype(np.int64)).item()
    if isinstance(layout, FixedLayout):
        value /= 2.0**layout.frac_bits
    return value if math.isfinite(value) else str(value)
