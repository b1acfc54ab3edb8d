"""The fields of a payload: where they lie in it, and where a C compiler would put them in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from amaranth.hdl import Shape, ShapeLike, Value
from amaranth.lib import data
from amaranth.utils import ceil_log2

__all__ = ["Field", "MemoryLayout", "fields_of"]


@dataclasses.dataclass(frozen=True)
class Field:
    """One number of a payload: a word, a set of flags, an opcode.

    Attributes
    ----------
    name : str
        As in the payload; an element of an array has its index in brackets, as in ``a[3]``.
    offset : int
        Of the lowest bit.
    width : int
        In bits.
    shape : ShapeLike
        What the payload's layout says of it.
    """

    name: str
    offset: int
    width: int
    shape: ShapeLike

    @property
    def signed(self) -> bool:
        """Whether it is a number in two's complement."""
        return getattr(self.shape, "signed", False)

    def of(self, bits: Value) -> Value:
        """Return the field's bits out of all `bits` that it lies in."""
        return bits[self.offset : self.offset + self.width]


def fields_of(layout: data.Layout) -> list[Field]:
    """Return the fields of a payload, the lowest first; arrays are taken apart, the layouts of numbers are not.

    Fields without bits are left out.
    """
    fields = [field for name, part in layout for field in _flatten(name, part.offset, part.shape)]
    return [field for field in fields if field.width]


def _flatten(name: str, offset: int, shape: ShapeLike) -> Iterator[Field]:
    if isinstance(shape, data.ArrayLayout):
        for index, part in shape:
            yield from _flatten(f"{name}[{index}]", offset + part.offset, part.shape)
    else:
        yield Field(name, offset, Shape.cast(shape).width, shape)


class MemoryLayout:
    """A payload as a C struct of unsigned (or signed) integers on a little-endian machine.

    Each field is an integer of 1, 2, 4, 8, … bytes, the fewest that hold it, at a multiple of its size; an array is an
    array of such. The whole is padded to a power of two of bytes, so that it is a bus width that DMA engines have.

    Parameters
    ----------
    layout : data.Layout
        Of the payload.
    without : str, optional
        A field to leave out.

    Attributes
    ----------
    fields : list of Field
        At their offsets in the payload.
    places : list of Field
        The same at their offsets in memory.
    bytes : int
        The size of all.
    """

    def __init__(self, layout: data.Layout, without: str | None = None):
        self.fields = [field for field in fields_of(layout) if field.name != without]
        self.places = []
        end = 0
        for field in self.fields:
            size = _container(field.width)
            start = -(-end // size) * size
            self.places.append(dataclasses.replace(field, offset=8 * start))
            end = start + size
        self.bytes = 1 << ceil_log2(max(end, 1))

    def load(self, memory: Value, payload: Value) -> list:
        """Return the assignments that set the fields of `payload` to what is in `memory`."""
        return [field.of(payload).eq(place.of(memory)) for field, place in zip(self.fields, self.places, strict=True)]

    def store(self, payload: Value, memory: Value) -> list:
        """Return the assignments that set `memory` to the fields of `payload`: zero in between, signs extended."""
        assignments = [memory.eq(0)]
        for field, place in zip(self.fields, self.places, strict=True):
            bits = field.of(payload)
            space = memory[place.offset : place.offset + 8 * _container(field.width)]
            assignments.append(space.eq(bits.as_signed() if field.signed else bits))
        return assignments


def _container(width: int) -> int:
    """Return the bytes of the smallest integer of so many bits."""
    return 1 << ceil_log2(-(-width // 8))
