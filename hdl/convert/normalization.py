"""The logarithm of significands, with many fraction bits: factors from small tables bring them ever closer to one."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import flint
from amaranth.hdl import Const, Module, Signal, Value

from xlnstorch.formats import LNSFormat
from xlnstorch.rounding import nearest_integer

from ..pipeline import Pipeline, carry
from .closeness import closest_powers
from .logarithm import Logarithm
from .multiplier import Multiplier
from .products import check_width
from .tables import Table

__all__ = ["NormalizingLogarithm"]

#: The widest significands, behind the leading one.
MAX_BITS = 31

_ADDRESS = 9  # bits: a block RAM that is 36 bits wide has so many
_GAIN = 8  # a factor makes the distance from one so many bits smaller
_FACTOR = 11  # bits in which a factor differs from one


class NormalizingLogarithm(Logarithm):
    """The significand times factors from tables, until it is so close to one that a line gives its logarithm.

    A factor is the inverse, a little above it, of what the leading 9 bits of the distance from one stand for; its
    logarithm comes from the same row. After n of them the distance is below ``2**(-8 n)``. The last table has the
    logarithm of the leading 9 bits, and the slope there. The sum of all logarithms, to which half a unit was added, is
    cut off to an integer.

    It has so many places that this is the nearest one, for sure: :func:`~hdl.convert.closeness.closest_powers` says how
    close any significand can come to where the result changes, and :attr:`error` bounds the sum's error.

    Latency: for each factor the 2 clocks of its table, those of a :class:`~hdl.convert.multiplier.Multiplier` and, but
    for the first, one; in the end the same again.

    Attributes
    ----------
    factors, places : int
        How many factors there are, and fraction bits of the sum of logarithms.
    error : float
        Bound of the error of the sum, in units of its last place.
    """

    def __init__(self, format: LNSFormat, bits: int, *, rom: str = "block"):
        super().__init__(format, bits, rom=rom)
        check_width(format, bits, MAX_BITS)
        # A significand that differs from a threshold, which is below 2, by x: the logarithms do by more than 0.7 x.
        distance = 0.7 * float(closest_powers(format.frac_bits + 1, bits, odd=True)[0])
        self._choose(distance)
        self._tables = [Table(self._factor_rows(level), rom) for level in range(self.factors)]
        self._last = Table(self._line_rows(), rom)
        self.latency = sum(Table.latency + multiplier.latency + 1 for multiplier in self._multipliers)

    def _choose(self, distance: float) -> None:
        """Choose the number of factors, then of places, and with them all multipliers."""
        self.factors = 1
        while 0.2 * 4.0 ** -(_GAIN * self.factors + _ADDRESS) > distance / 2:
            self.factors += 1
        self.places = self.format.frac_bits + self.bits  # the distance is never much larger
        while True:
            self._size()
            if self.error * 2.0**-self.places < distance:
                return
            self.places += 1

    def _size(self) -> None:
        """Find the multipliers and the error for the chosen numbers."""
        places = self.places
        self.error = 0.5 * (self.factors + 1)  # of the tabled logarithms
        self._multipliers = []
        self._widths = [self.bits]  # fraction bits of the distance from one, before each factor and after the last
        for level in range(self.factors):
            have = self._widths[-1]
            exact = have + _GAIN * level + _FACTOR
            width = min(exact, places)
            self._widths.append(width)
            # The distance, of which low bits are of no account as the factor's part is below 2**(-8 level).
            unused = self._unused(level)
            multiplier = Multiplier(have - _GAIN * level - unused, _FACTOR, exact - width - unused)
            self._multipliers.append(multiplier)
            self.error += 1.45 * (multiplier.error + (unused > 0))  # 1 / ln(2), as of a distance
        # The slope is rounded to so many bits that it costs no more than a quarter.
        step = _GAIN * self.factors + _ADDRESS
        self._slope_places = places + 1 - step
        rest = self._widths[-1] - step
        self._multipliers.append(Multiplier(rest, self._slope_places + 1, rest + 1))
        # Of a line through two points, h apart, the logarithm is above by up to h**2 / (8 ln(2)).
        self.error += 0.25 + self._multipliers[-1].error + 0.1804 * 2.0 ** (places - 2 * step)

    def _unused(self, level: int) -> int:
        return max(0, self._widths[level] + _GAIN * level - self._widths[level + 1])

    def _factor_rows(self, level: int) -> dict[str, list[int]]:
        """Return for each leading 9 bits what the factor is below one, and minus its logarithm."""
        lead, unit = _GAIN * level + _ADDRESS, _GAIN * level + _FACTOR
        below = [(row << unit) // ((1 << lead) + row) for row in range(1 << _ADDRESS)]
        half = 0 if level else 1 << (self.places - self.format.frac_bits - 1)
        logs = [half + self._nearest(1, flint.fmpq((1 << unit) - part, 1 << unit), -1) for part in below]
        return {"below": below, "log": logs}

    def _line_rows(self) -> dict[str, list[int]]:
        """Return for each leading 9 bits their logarithm, and the slope to the next."""
        step = _GAIN * self.factors + _ADDRESS
        points = [flint.fmpq((1 << step) + row, 1 << step) for row in range((1 << _ADDRESS) + 1)]
        logs = [self._nearest(1, point) for point in points[:-1]]
        slopes = [
            self._nearest(flint.fmpq(2) ** (step + self._slope_places - self.places), above / below)
            for below, above in itertools.pairwise(points)
        ]
        return {"log": logs, "slope": slopes}

    def _nearest(self, scale, x: flint.fmpq, sign: int = 1) -> int:
        """Return the integer nearest to ``sign * scale * log2(x)`` in units of the last place."""
        scale = flint.fmpq(sign * 2**self.places) * scale
        return nearest_integer(lambda: flint.arb(x).log() / flint.arb.const_log2() * flint.arb(scale))

    def stages(self, m: Module, pipeline: Pipeline, *, significand: Value, **along: Value) -> SimpleNamespace:
        distance, total = significand, Const(0, 1)
        for level, table in enumerate(self._tables):
            have, width, reach = self._widths[level], self._widths[level + 1], _GAIN * level
            stage = table.read(m, pipeline, distance[-_ADDRESS:], distance=distance, total=total, **along)
            # (1 + distance) (1 - below) - 1
            stage = self._multipliers[level].stages(
                m,
                pipeline,
                a=stage.distance[self._unused(level) :],
                b=_extended(m, stage.below, _FACTOR),
                difference=(stage.distance << (width - have)) - (stage.below << (width - reach - _FACTOR)),
                total=stage.total + stage.log,
                **carry(stage, along),
            )
            closer = Signal(width - reach - _GAIN)
            m.d.comb += closer.eq(stage.difference - stage.product)
            along = carry(stage, along)
            stage = pipeline.stage(distance=closer, total=stage.total, **along)
            distance, total = stage.distance, stage.total
            along = carry(stage, along)

        rest = distance[:-_ADDRESS]
        stage = self._last.read(m, pipeline, distance[-_ADDRESS:], rest=rest, total=total, **along)
        stage = self._multipliers[-1].stages(
            m,
            pipeline,
            a=stage.rest,
            b=_extended(m, stage.slope, self._slope_places + 1),
            total=stage.total + stage.log,
            **carry(stage, along),
        )
        total = Signal(self.places + 1)
        m.d.comb += total.eq(stage.total + stage.product)
        log = total[self.places - self.format.frac_bits :]
        return pipeline.stage(log=log, **carry(stage, along))


def _extended(m: Module, value: Value, bits: int) -> Signal:
    """Return a value in so many bits."""
    extended = Signal(bits)
    m.d.comb += extended.eq(value)
    return extended
