"""The list by which gates find the region of a distance."""

from __future__ import annotations

from collections.abc import Iterator

from .segments import Region, SegmentedGaussian

__all__ = ["RegionList"]

# A list of regions whose numbers have more bits lies in a memory.
_NUMBER_BITS = 6


class RegionList:
    """For the number of a region, how gates make a row and the v of the polynomials out of a distance in it.

    The number is, near the singularity of t, the place of the leading one of d, elsewhere the whole units of d. The
    list has for each number a shift, which brings the point between the segment's number and the offset in it to the
    same place, and a key, whose exclusive or with the segment's number is the row.

    Parameters
    ----------
    design : SegmentedGaussian
    log_bits : int
        Of a distance.

    Attributes
    ----------
    widest, segment_bits : int
        After the shift so many bits are the offset, and so many above them the segment's number.
    unit_bits : int
        How many bits of the units are looked at.
    place_bits : int
        Of a number, without a bit above them for t and one for the singularity.
    widths : dict of str to int
        Of what there is for each number: ``key``, ``shift``, where there is a fall the signed ``whole``, the units of
        the logarithm, and ``known``, that there is such a region.
    items : dict of int to dict
        These values for each number; zeros for all others.
    """

    def __init__(self, design: SegmentedGaussian, log_bits: int):
        self._design = design
        regions = design.polynomials.regions
        self.widest = max(region.width for region in regions)
        self.segment_bits = max(region.size - region.width for region in regions)
        units = max(end >> design.frac_bits for end in design.ends)
        self.unit_bits = min((units - 1).bit_length(), log_bits - design.frac_bits)
        self.place_bits = max(self.unit_bits, (design.top - 1).bit_length() if design.top else 0)

        self.items = {number: item for region in regions for number, item in self._items(region)}
        self.widths = {"key": (len(design.polynomials.rows) - 1).bit_length()}
        self.widths["shift"] = max(1, max(item["shift"] for item in self.items.values()).bit_length())
        if design.fall:
            self.widths["whole"] = 6
        self.widths["known"] = 1

    @property
    def number_bits(self) -> int:
        """Bits of a number."""
        return self.place_bits + 2

    @property
    def in_memory(self) -> bool:
        """Whether it is long enough for a memory, where tables are kept in block RAM; else it is logic."""
        return self.number_bits > _NUMBER_BITS

    @property
    def rom_bits(self) -> int:
        """Bits of that memory, 0 if there is none."""
        return sum(self.widths.values()) << self.number_bits if self.in_memory else 0

    def _items(self, region: Region) -> Iterator[tuple[int, dict[str, int]]]:
        """Yield the numbers under which a region is found, and what the list has there."""
        design = self._design
        if region.subtract and region.start < 1 << design.top:
            # Where there is a logarithm, one region serves all places of the leading one.
            places = range(design.top) if design.fall else [region.size]
            further = {self._number(place, True, True): region.size - place for place in places}
        else:
            place = region.start >> design.frac_bits
            further = {self._number(place, region.subtract, False): 0} if place < 1 << self.unit_bits else {}
        shifted = region.start % (1 << design.top) >> region.width
        key = region.row ^ shifted % (1 << self.segment_bits)
        for number, more in further.items():
            item = {"key": key, "shift": self.widest - region.width + more, "known": 1}
            yield number, {**item, "whole": more - design.near} if design.fall else item

    def _number(self, place: int, subtract: bool, near: bool) -> int:
        return place | (subtract | near << 1) << self.place_bits
