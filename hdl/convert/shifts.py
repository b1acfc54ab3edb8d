"""Shifts by a number that the data tell: up to the leading one, and down again."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.utils import bits_for

from ..pipeline import Pipeline

__all__ = ["Denormalizer", "Normalizer"]

_STEPS_A_STAGE = 2  # two multiplexers behind each other


class _Shifter:
    """Shifts by sums of powers of two, the largest first.

    Parameters
    ----------
    bits : int
        Of the value.
    most : int
        How far to shift at most.

    Attributes
    ----------
    latency : int
        Clocks: one for two bits of the distance.
    most, distance_bits : int
        The longest distance that is asked for, and the width of a distance.
    """

    def __init__(self, bits: int, most: int):
        self.bits = bits
        self.most = most
        self.distance_bits = bits_for(most) if most else 0
        self.latency = -(-self.distance_bits // _STEPS_A_STAGE)

    def _groups(self) -> list[list[int]]:
        """Return the bits of the distance that each stage looks at, the highest first."""
        places = range(self.distance_bits - 1, -1, -1)
        return [list(places[i : i + _STEPS_A_STAGE]) for i in range(0, len(places), _STEPS_A_STAGE)]


class Normalizer(_Shifter):
    """Shifts a value up until its highest bit is set.

    Latency one clock for two bits of the distance, one value a clock.

    Parameters
    ----------
    bits : int
        Of the value.
    most : int, optional
        How far to shift at least, if the highest bit is still clear; by default to wherever it can be. The stages
        shift up to the next power of two, less one.
    """

    def __init__(self, bits: int, most: int | None = None):
        super().__init__(bits, bits - 1 if most is None else min(most, bits - 1))

    def stages(self, m: Module, pipeline: Pipeline, *, value: Value, **along: Value) -> SimpleNamespace:
        """Add the stages; without any, the values that came in are returned.

        Returns
        -------
        SimpleNamespace
            ``value``, shifted; ``distance``, how far; ``found``, whether the highest bit is set now; and those of
            `along`, by their names. Where nothing was found, ``value`` and ``distance`` mean nothing.
        """
        stage = SimpleNamespace(value=value, **along)
        taken = []
        for group in self._groups():
            value, now = stage.value, []
            for place in group:
                shifts, shifted = Signal(), Signal(self.bits)
                m.d.comb += [
                    shifts.eq(value[-(1 << place) :] == 0),
                    shifted.eq(Mux(shifts, value << (1 << place), value)),
                ]
                value = shifted
                now.insert(0, shifts)
            stage = pipeline.stage(**{**vars(stage), "value": value, "distance": Cat(*now, *taken)})
            taken = list(stage.distance)
        if not taken:
            stage.distance = Const(0, 0)
        stage.found = stage.value[-1]
        return stage


class Denormalizer(_Shifter):
    """Shifts a value down; what leaves it is lost.

    Latency one clock for two bits of the distance, one value a clock.

    Parameters
    ----------
    bits : int
        Of the value.
    most : int
        The largest distance.
    """

    def stages(
        self, m: Module, pipeline: Pipeline, *, value: Value, distance: Value, **along: Value
    ) -> SimpleNamespace:
        """Add the stages; return ``value`` and those of `along`, by their names: without any, as they came in."""
        stage = SimpleNamespace(value=value, distance=distance, **along)
        for group in self._groups():
            value = stage.value
            for place in group:
                shifted = Signal(self.bits)
                m.d.comb += shifted.eq(Mux(stage.distance[place], value >> (1 << place), value))
                value = shifted
            stage = pipeline.stage(**{**vars(stage), "value": value, "distance": stage.distance[: group[-1]]})
        del stage.distance
        return stage
