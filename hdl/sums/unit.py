"""What the units that sum products of vectors share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from amaranth.hdl import Module, ShapeLike, Signal, unsigned

from xlnstorch.formats import LNSFormat

from ..pipeline import Pipeline
from ..unit import Unit
from .datapath import SumDatapath, sum_datapath_of

__all__ = ["SumUnit"]


class SumUnit(Unit):
    """A unit between two streams around a :class:`~hdl.sums.SumDatapath`; parameters and attributes are those of it.

    Parameters
    ----------
    format : LNSFormat
    lanes, channels, beats, rom
        See :class:`~hdl.sums.SumDatapath`.

    Attributes
    ----------
    lead : int
        How many clocks after a payload the words reach the sums, a constant of the class.
    """

    lead: ClassVar[int] = 0

    def __init__(
        self,
        *,
        format: LNSFormat,
        lanes: int = 4,
        channels: int | None = None,
        beats: int | None = None,
        rom: str = "block",
    ):
        super().check_format(format)
        self._sums = sum_datapath_of(
            format.accumulator, format, lanes=lanes, channels=channels, beats=beats, rom=rom, lead=self.lead
        )
        self._accept = Signal()
        super().__init__(format=format)

    @property
    def sums(self) -> SumDatapath:
        """The gates of the sums."""
        return self._sums

    @property
    def lanes(self) -> int:
        """Products in a beat."""
        return self._sums.lanes

    @property
    def channels(self) -> int:
        """How many vectors may be under way at once."""
        return self._sums.channels

    @property
    def beats(self) -> int | None:
        """The most beats of a vector, or None."""
        return self._sums.beats

    @property
    def latency(self) -> int:
        return self._sums.latency

    @classmethod
    def check_format(cls, format: LNSFormat) -> None:
        super().check_format(format)
        sum_datapath_of(format.accumulator, format, lanes=1)

    def channel_shape(self) -> ShapeLike:
        """Return the shape of a channel's number."""
        return unsigned((self.channels - 1).bit_length())

    def split(self, words: Sequence[int]) -> list[Sequence[int]]:
        """Return words, `lanes` at a time."""
        return [words[start : start + self.lanes] for start in range(0, len(words), self.lanes)]

    def payload(self, words: Mapping[str, Sequence[int]], **fields: int) -> int:
        """Return the payload with these words in the lanes of its arrays, and with these other fields."""
        layout, width = self.i.payload.shape(), self.format.width
        lanes = (
            word << layout[name].offset + lane * width
            for name, given in words.items()
            for lane, word in enumerate(given)
        )
        return sum(value << layout[name].offset for name, value in fields.items()) | sum(lanes)

    def pipeline(self, m: Module) -> Pipeline:
        return Pipeline(m, self.i, self.o, accept=self._accept)
