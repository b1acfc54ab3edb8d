"""The antilogarithm of many fraction bits: a product of powers of two from small tables."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

from amaranth.hdl import Module, Signal, Value

from xlnstorch.formats import LNSFormat

from ..pipeline import Pipeline, carry
from .antilogarithm import Antilogarithm
from .closeness import check_frac_bits, closest_powers
from .multiplier import Multiplier
from .tables import Table, floor_of_power

__all__ = ["ProductAntilogarithm", "check_width"]

#: The widest significands, behind the leading one, of formats that are not tabled.
MAX_BITS = 33

_FIRST, _NEXT = 9, 8  # address bits of a block RAM that is 36 bits wide; one less halves what follows no more


def check_width(format: LNSFormat, bits: int, most: int) -> None:
    """Raise ValueError if a format, or so many bits of a significand, is beyond what gates without a full table do."""
    check_frac_bits(format)
    if bits > most:
        raise ValueError(
            f"conversions in gates of {format}, which has over 12 fraction bits, have at most {most} bits behind the "
            f"leading one, not {bits}"
        )


class ProductAntilogarithm(Antilogarithm):
    """``2**fraction`` as the product of the powers for the pieces of the fraction, each from a table.

    The first table holds ``2**high``; the others ``2**low - 1``, so that a product is a sum with a small correction.
    All have so many places that what is cut off can change no bit of the result. That is certain because all powers of
    the format were tried: :func:`~hdl.convert.closeness.closest_powers` says how far they stay from the next number of
    `bits` bits, and :attr:`error` bounds what is cut off. Only the fraction 0 lies on one; there every step is exact.

    Latency: for the tables 2, for each product those of :class:`~hdl.convert.multiplier.Multiplier` and one, and one
    more if the nearest is wanted.

    Attributes
    ----------
    places : int
        Fraction bits of the computed power.
    error : float
        The computed power is less than the real one by less than this, in units of its last place; it is not larger.
    """

    def __init__(self, format: LNSFormat, bits: int, *, nearest: bool = False, rom: str = "block"):
        super().__init__(format, bits, nearest=nearest, rom=rom)
        check_width(format, bits + nearest, MAX_BITS)
        distance, _ = closest_powers(format.frac_bits, bits + nearest)
        self.places = format.frac_bits + bits  # the distance is never much larger
        while True:
            self._choose(self.places)
            if self.error * 2.0**-self.places < distance:
                break
            self.places += 1
        self._tables = [Table({"power": list(self._entries(start, end))}, rom) for start, end in self._pieces()]
        self.latency = Table.latency + sum(multiplier.latency + 1 for multiplier in self._multipliers) + nearest

    def _pieces(self) -> list[tuple[int, int]]:
        """Return from where to where each piece of the fraction goes, counted from the binary point."""
        f = self.format.frac_bits
        count = -(-(f - _FIRST) // _NEXT)
        cuts = [0, *(_FIRST + (f - _FIRST) * i // count for i in range(count + 1))]
        return list(itertools.pairwise(cuts))

    def _choose(self, places: int) -> None:
        """Choose multipliers for so many places, and find the error."""
        self.error = 1.0  # of the first table's entries, which are cut off
        self._multipliers = []
        for start, _ in self._pieces()[1:]:
            # The factor is less than 2**-start. It comes in so many places; of the power the last `start` ones are of
            # no account for the product, which loses less than 1 by that and less than 2 by what the factor lost.
            multiplier = Multiplier(places + 1 - start, places - start, places - start)
            self.error = self.error * (1 + 2.0**-start) + 3 + multiplier.error
            self._multipliers.append(multiplier)

    def _entries(self, start: int, end: int):
        for i in range(1 << (end - start)):
            yield floor_of_power(i, end, self.places) - ((1 << self.places) if start else 0)

    def stages(self, m: Module, pipeline: Pipeline, *, fraction: Value, **along: Value) -> SimpleNamespace:
        f, pieces = self.format.frac_bits, self._pieces()
        # All tables are read at once.
        factors = {
            start: table.read(m, pipeline.branch(), fraction[f - end : f - start]).power
            for table, (start, end) in zip(self._tables, pieces, strict=True)
        }
        power = factors.pop(0)
        stage = pipeline.delay(Table.latency, **along)
        for start, multiplier in zip(list(factors), self._multipliers, strict=True):
            factor = Signal(self.places - start)
            m.d.comb += factor.eq(factors.pop(start))
            waiting = {f"factor_{other}": value for other, value in factors.items()}
            kept = carry(stage, along)
            stage = multiplier.stages(m, pipeline, a=power[start:], b=factor, power=power, **waiting, **kept)
            product = Signal(self.places + 1)
            m.d.comb += product.eq(stage.power + stage.product)
            kept = carry(stage, [*waiting, *along])
            stage = pipeline.stage(power=product, **kept)
            factors = {other: getattr(stage, f"factor_{other}") for other in factors}
            power = stage.power
        significand = power[self.places - self.bits - self.nearest :]
        kept = carry(stage, along)
        if not self.nearest:
            return SimpleNamespace(significand=significand, **kept)
        return pipeline.stage(significand=(significand >> 1) + significand[0], **kept)
