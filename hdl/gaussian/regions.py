"""Where a distance lies: the region, the row of the segment in it, and the place in the segment."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.utils import ceil_log2

from xlnstorch.adders.regions import RegionList
from xlnstorch.adders.segments import SegmentedGaussian

from ..pipeline import Pipeline, carry

__all__ = ["Regions"]

# Of how many bits a shift is in one stage.
_SHIFT_BITS = 3


class Regions:
    """Stages that turn a distance into a row and the v of the polynomials of a design.

    The number of the region, the list of them (:class:`~xlnstorch.adders.regions.RegionList`) and the shift, three bits
    at a time, take a stage each, and a list in block RAM one more.

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
        self._list = regions = RegionList(design, log_bits)
        self._item = data.StructLayout({n: signed(w) if n == "whole" else w for n, w in regions.widths.items()})
        self._contents = {number: self._item.const(item).as_value().value for number, item in regions.items.items()}
        self._in_ram = rom == "block" and regions.in_memory
        self._twice = regions.widths["shift"] > _SHIFT_BITS
        self.depth = 2 + self._in_ram + self._twice

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
        design, regions = self._design, self._list

        # 1. The number.
        low = Signal(design.top)
        m.d.comb += low.eq(d)
        near = subtract & ~d[design.top :].any()
        units = d[design.frac_bits :]
        _, leading = _leading_one(low)
        place = Signal(regions.place_bits)
        m.d.comb += place.eq(Mux(near, leading, units[: regions.unit_bits]))
        silent = silent | (~near & units[regions.unit_bits :].any())
        stage = pipeline.stage(low=low, near=near, place=place, subtract=subtract, silent=silent, **along)

        # 2. What the list has there.
        number = Cat(stage.place, stage.subtract, stage.near)
        names = ["low", "near", "subtract", "silent", *along]
        item = Signal(self._item)
        if self._in_ram:
            contents = [self._contents.get(i, 0) for i in range(1 << len(number))]
            m.submodules.regions = memory = Memory(
                shape=self._item.size, depth=len(contents), init=contents, attrs=self._attributes
            )
            port = memory.read_port()
            m.d.comb += [port.addr.eq(number), port.en.eq(pipeline.advance), item.eq(port.data)]
            stage = pipeline.stage(**carry(stage, names))
        else:
            with m.Switch(number):
                for i, content in self._contents.items():
                    with m.Case(i):
                        m.d.comb += item.eq(content)
        more = {"whole": item.whole} if design.fall else {}
        stage = pipeline.stage(key=item.key, shift=item.shift, known=item.known, **more, **carry(stage, names))
        stage.silent |= ~stage.known
        names += more

        # 3. Shift.
        shifted = Signal(regions.widest + regions.segment_bits)
        if self._twice:
            coarse = Signal.like(shifted)
            m.d.comb += coarse.eq(stage.low << Cat(Const(0, _SHIFT_BITS), stage.shift[_SHIFT_BITS:]))
            fine = stage.shift[:_SHIFT_BITS]
            stage = pipeline.stage(coarse=coarse, shift=fine, key=stage.key, **carry(stage, names))
            m.d.comb += shifted.eq(stage.coarse << stage.shift)
        else:
            m.d.comb += shifted.eq(stage.low << stage.shift)
        more_bits = design.polynomials.offset_bits - regions.widest
        v = shifted[max(0, -more_bits) : regions.widest] << max(0, more_bits)
        row = stage.key ^ shifted[regions.widest :]
        return SimpleNamespace(row=row, v=v, **carry(stage, names))


def _leading_one(bits: Value) -> tuple[Value, Value]:
    """Return whether there is a one, and the place of the highest, which is 0 if there is none."""
    if len(bits) <= 1:
        return bits, Const(0, 0)
    half = 1 << ceil_log2(len(bits)) - 1
    (some_low, low), (some_high, high) = _leading_one(bits[:half]), _leading_one(bits[half:])
    return some_low | some_high, Cat(Mux(some_high, high, low), some_high)
