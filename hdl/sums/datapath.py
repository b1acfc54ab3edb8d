"""What the gates of every kind of sum offer to a unit, and which gates an accumulator has."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import SimpleNamespace

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data

from xlnstorch.accumulators import Accumulator
from xlnstorch.checks import as_integer, integer_between
from xlnstorch.formats import LNSFormat

from ..pipeline import Pipeline

__all__ = ["SumDatapath", "power_of_two_between", "sum_datapath_of"]

_MAX_LANES, _MAX_CHANNELS = 1 << 8, 1 << 12


class SumDatapath(ABC):
    """Stages that sum the products of vectors, in any number of rows that move in lockstep.

    Vectors come in beats of `lanes` pairs of words. The beats of a vector belong to one channel, the last of them says
    so, and between them there may be beats of other channels. A vector starts with the first beat of its channel
    after a reset or after the last beat of another vector.

    Parameters
    ----------
    format : LNSFormat
        Whose accumulator has these gates.
    lanes : int
        1 to 256.
    channels : int, optional
        A power of two, so that every payload names one, up to 4096. By default as many as are needed for a beat each
        clock.
    beats : int, optional
        The most beats of a vector, a power of two, of sums that have such a limit.
    rom : {"block", "luts"}
        Where tables are kept.
    lead : int
        How many clocks the words of a beat come after the rest of it.

    Attributes
    ----------
    channels : int
    beats : int or None
        As above, with the defaults put in; None where there is no limit.
    latency : int
        Clocks from the acceptance of the last beat to the sum, while nothing stalls.
    spacing : int
        Clocks from a beat that is not the last one of its vector to the next beat of its channel, at least.

    Raises
    ------
    TypeError, ValueError
        A parameter is not as above, or the format cannot have these gates.
    """

    beats: int | None
    latency: int
    spacing: int

    def __init__(
        self,
        format: LNSFormat,
        *,
        lanes: int,
        channels: int | None = None,
        beats: int | None = None,
        rom: str = "block",
        lead: int = 0,
    ):
        self.format = format
        self.lanes = integer_between("lanes", lanes, 1, _MAX_LANES)
        self.rom = rom
        self.lead = lead
        self._set_up(beats)
        self.channels = power_of_two_between(
            "channels", 1 << (self.spacing - 1).bit_length() if channels is None else channels, _MAX_CHANNELS
        )

    @abstractmethod
    def _set_up(self, beats: int | None) -> None:
        """Set `beats`, `latency` and `spacing`."""

    @abstractmethod
    def stages(
        self,
        m: Module,
        pipeline: Pipeline,
        rows: Sequence[Sequence[tuple[data.View, data.View]]],
        *,
        channel: Value,
        last: Value,
        when: Value,
    ) -> SimpleNamespace:
        """Add the stages.

        Parameters
        ----------
        m : Module
        pipeline : Pipeline
        rows : sequence of sequences of (View of WordLayout, View of WordLayout)
            For each row `lanes` pairs of words, `lead` clocks late.
        channel, last : Value
            Of the beat, as it is offered to the pipeline, which has no stages yet.
        when : Value, 1 bit
            Whether the payload is a beat at all.

        Returns
        -------
        SimpleNamespace
            ``sums``, for each row a word and its flags, an array of :func:`~hdl.sums.steps.term_layout`; ``channel``;
            and ``when``, whether the last beat of a vector has got there; all of the last stage. Beside them
            ``accept``, whether a beat of `channel` can be taken in this clock.
        """

    def _begin(self, m: Module, pipeline: Pipeline, *, channel: Value, last: Value, when: Value) -> Value:
        """Return whether a beat is the first one of its vector; to be asked before the first stage."""
        begun = Signal(self.channels)
        with m.If(pipeline.advance & pipeline.valid & when):
            m.d.sync += begun.bit_select(channel, 1).eq(~last)
        return ~begun.bit_select(channel, 1)


@functools.singledispatch
def sum_datapath_of(accumulator: Accumulator, format: LNSFormat, **parameters) -> SumDatapath:
    """Return the gates of an accumulator; `parameters` are those of :class:`SumDatapath`.

    ``@sum_datapath_of.register`` adds those of another package's accumulator.
    """
    raise ValueError(f"the accumulator {accumulator!r} has no gates")


def power_of_two_between(name: str, value: int, most: int) -> int:
    """Return a power of two up to `most`, or raise an error that names the parameter."""
    value = as_integer(name, value)
    if not 1 <= value <= most or value & (value - 1):
        raise ValueError(f"{name} must be a power of two from 1 to {most}, not {value}")
    return value
