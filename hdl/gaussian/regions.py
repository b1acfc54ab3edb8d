"""Where a distance lies: the region, the row of the segment in it, and the place in the segment."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.utils import bits_for, ceil_log2

from xlnstorch.adders.segments import Region, SegmentedGaussian

from ..pipeline import Pipeline, carry

__all__ = ["Regions", "carry"]

# A list of regions whose numbers have more bits is kept in block RAM, if tables are.
_NUMBER_BITS = 6
# Of how many bits a shift is in one stage.
_SHIFT_BITS = 3


class Regions:
    """Stages that turn a distance into a row and the v of the polynomials of a design.

    A region has a number: near the singularity of t the place of the leading one of d, elsewhere the whole units of d.
    A list has for each number a shift, which brings the point between the segment's number and the offset in it to the
    same place, and a key, whose exclusive or with the segment's number is the row.

    The number, the list, and the shift, three bits at a time, take a stage each, and a list in block RAM one more.

    Parameters
    ----------
    design : SegmentedGaussian
    log_bits : int
        Of a distance.
    rom : {"block", "luts"}
        Where tables are kept.
    attributes : dict
        Of a table.

    Attributes
    ----------
    depth : int
        Stages, without the one that registers the row and v.
    """

    def __init__(self, design: SegmentedGaussian, log_bits: int, rom: str, attributes: dict[str, str]):
        self._design, self._attributes = design, attributes
        self._offset_bits = design.polynomials.offset_bits
        regions = design.polynomials.regions
        self._widest = max(region.width for region in regions)
        self._segment_bits = max(region.size - region.width for region in regions)
        units = max(end >> design.frac_bits for end in design.ends)
        self._unit_bits = min(bits_for(units - 1), log_bits - design.frac_bits)
        self._place_bits = max(self._unit_bits, ceil_log2(max(1, design.top)))

        found = {number: item for region in regions for number, item in self._items(region)}
        fields = {"key": bits_for(len(design.polynomials.rows) - 1)}
        fields["shift"] = bits_for(max(item["shift"] for item in found.values()))
        if design.fall:
            fields["whole"] = signed(6)
        self._item = data.StructLayout({**fields, "known": 1})
        self._list = {number: self._item.const({**item, "known": 1}).as_value().value for number, item in found.items()}

        self._in_ram = rom == "block" and self._place_bits + 2 > _NUMBER_BITS
        self._twice = fields["shift"] > _SHIFT_BITS
        self.depth = 2 + self._in_ram + self._twice

    def _items(self, region: Region) -> list[tuple[int, dict[str, int]]]:
        """Return the numbers under which a region is found, and what the list has there."""
        design = self._design
        if region.subtract and region.start < 1 << design.top:
            # Where there is a logarithm, one region serves all places of the leading one.
            places = range(design.top) if design.fall else [region.size]
            further = {self._number(place, True, True): region.size - place for place in places}
        else:
            place = region.start >> design.frac_bits
            further = {self._number(place, region.subtract, False): 0} if place < 1 << self._unit_bits else {}
        shifted = region.start % (1 << design.top) >> region.width
        key = region.row ^ shifted % (1 << self._segment_bits)
        items = []
        for number, more in further.items():
            item = {"key": key, "shift": self._widest - region.width + more}
            items.append((number, {**item, "whole": more - design.near} if design.fall else item))
        return items

    def _number(self, place: int, subtract: bool, near: bool) -> int:
        return place | (subtract | near << 1) << self._place_bits

    def stages(
        self, m: Module, pipeline: Pipeline, *, d: Value, subtract: Value, silent: Value, **along: Value
    ) -> SimpleNamespace:
        """Add the stages; as those of :class:`~hdl.gaussian.GaussianDatapath`.

        Returns
        -------
        SimpleNamespace
            Of the last stage ``low``, the bits of d below ``2**top``, ``near``, ``subtract``, ``silent``, ``whole``
            where there is a fall, and those of `along`; and after it, not registered, ``row`` and ``v``.
        """
        design = self._design

        # 1. The number.
        low = Signal(design.top)
        m.d.comb += low.eq(d)
        near = subtract & ~d[design.top :].any()
        units = d[design.frac_bits :]
        _, leading = _leading_one(low)
        place = Signal(self._place_bits)
        m.d.comb += place.eq(Mux(near, leading, units[: self._unit_bits]))
        silent = silent | (~near & units[self._unit_bits :].any())
        stage = pipeline.stage(low=low, near=near, place=place, subtract=subtract, silent=silent, **along)

        # 2. What the list has there.
        number = Cat(stage.place, stage.subtract, stage.near)
        names = ["low", "near", "subtract", "silent", *along]
        item = Signal(self._item)
        if self._in_ram:
            contents = [self._list.get(i, 0) for i in range(1 << len(number))]
            m.submodules.regions = memory = Memory(
                shape=self._item.size, depth=len(contents), init=contents, attrs=self._attributes
            )
            port = memory.read_port()
            m.d.comb += [port.addr.eq(number), port.en.eq(pipeline.advance), item.eq(port.data)]
            stage = pipeline.stage(**carry(stage, names))
        else:
            with m.Switch(number):
                for i, content in self._list.items():
                    with m.Case(i):
                        m.d.comb += item.eq(content)
        more = {"whole": item.whole} if design.fall else {}
        stage = pipeline.stage(key=item.key, shift=item.shift, known=item.known, **more, **carry(stage, names))
        stage.silent |= ~stage.known
        names += more

        # 3. Shift.
        shifted = Signal(self._widest + self._segment_bits)
        if self._twice:
            coarse = Signal.like(shifted)
            m.d.comb += coarse.eq(stage.low << Cat(Const(0, _SHIFT_BITS), stage.shift[_SHIFT_BITS:]))
            fine = stage.shift[:_SHIFT_BITS]
            stage = pipeline.stage(coarse=coarse, shift=fine, key=stage.key, **carry(stage, names))
            m.d.comb += shifted.eq(stage.coarse << stage.shift)
        else:
            m.d.comb += shifted.eq(stage.low << stage.shift)
        more_bits = self._offset_bits - self._widest
        v = shifted[max(0, -more_bits) : self._widest] << max(0, more_bits)
        row = stage.key ^ shifted[self._widest :]
        return SimpleNamespace(row=row, v=v, **carry(stage, names))


def _leading_one(bits: Value) -> tuple[Value, Value]:
    """Return whether there is a one, and the place of the highest, which is 0 if there is none."""
    if len(bits) <= 1:
        return bits, Const(0, 0)
    half = 1 << ceil_log2(len(bits)) - 1
    (some_low, low), (some_high, high) = _leading_one(bits[:half]), _leading_one(bits[half:])
    return some_low | some_high, Cat(Mux(some_high, high, low), some_high)
