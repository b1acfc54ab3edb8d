"""Sampling at the points of a grid. Coordinates and weights are LNS numbers; indices are counted in integers.

PyTorch's own decomposition counts with the numbers: in LNS the word of 3, plus 1, need not be the word of 4.
"""

from __future__ import annotations

import itertools

import torch

from ..tensor import LNSTensor
from ._registry import aten, common_format, register, words_of


def _index(x: LNSTensor) -> torch.Tensor:
    """Return the integers that whole LNS numbers stand for."""
    return x.detach().value.round().to(torch.int64)


def _reflected(x: LNSTensor, low: float, span: float) -> LNSTensor:
    """Return coordinates folded at `low` and ``low + span`` as often as it takes."""
    if span == 0:
        return torch.zeros_like(x)
    distance = (x - low).abs()
    rest = torch.fmod(distance, span)
    odd = torch.remainder(_index(torch.floor(distance / span)), 2) == 1
    return torch.where(odd, span - rest, rest) + low


def _position(x: LNSTensor, size: int, padding: int, align_corners: bool) -> LNSTensor:
    """Return coordinates from −1 to 1 in units of elements, with the padding applied."""
    scale, offset = ((size - 1) / 2, (size - 1) / 2) if align_corners else (size / 2, (size - 1) / 2)
    x = x * scale + offset
    if padding == 2:
        low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
        x = _reflected(x, low, high - low)
    return x if padding == 0 else x.clamp(0, size - 1)


def _taken(input: LNSTensor, index: list[torch.Tensor]) -> LNSTensor:
    """Return the elements (N, C, …) at an index (N, …) for each spatial dimension; zero outside."""
    sizes = input.shape[2:]
    inside = torch.ones_like(index[0], dtype=torch.bool)
    for i, size in zip(index, sizes, strict=True):
        inside = inside & (i >= 0) & (i < size)
    flat = torch.zeros_like(index[0])
    for i, size in zip(index, sizes, strict=True):
        flat = flat * size + i.clamp(0, size - 1)
    count, channels = input.shape[:2]
    places = flat.flatten(1).unsqueeze(1).expand(count, channels, -1)
    elements = input.flatten(2).gather(2, places).reshape(count, channels, *flat.shape[1:])
    return elements.masked_fill(~inside.unsqueeze(1), 0)


def in_one_format(func, *xs) -> list[LNSTensor]:
    """Return operands of which one may be plain as LNSTensors, which those of them that are already stay."""
    format = common_format(func, *xs)
    return [x if isinstance(x, LNSTensor) else LNSTensor(words_of(format, x), format) for x in xs]


@register(aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def grid_sampler(func, input, grid, interpolation_mode, padding_mode, align_corners):
    input, grid = in_one_format(func, input, grid)
    if interpolation_mode == 2:
        raise NotImplementedError(f"{func} with bicubic interpolation has no LNS implementation ({input.format})")
    # The grid names the last dimension first.
    positions = [
        _position(x, size, padding_mode, align_corners)
        for x, size in zip(reversed(grid.unbind(-1)), input.shape[2:], strict=True)
    ]
    if interpolation_mode == 1:
        return _taken(input, [_index(torch.round(x)) for x in positions])
    floors = [torch.floor(x) for x in positions]
    parts = [x - floor for x, floor in zip(positions, floors, strict=True)]
    first = [_index(floor) for floor in floors]
    total = None
    for corner in itertools.product((0, 1), repeat=len(positions)):
        weight = None
        for part, step in zip(parts, corner, strict=True):
            factor = part if step else 1 - part
            weight = factor if weight is None else weight * factor
        term = _taken(input, [i + step for i, step in zip(first, corner, strict=True)]) * weight.unsqueeze(1)
        total = term if total is None else total + term
    return total
