"""The logarithm of a significand, to the nearest integer: a table of thresholds, or what :mod:`.normalization` does.

:func:`logarithm` chooses between them and gives an object with a ``latency`` and with ``stages`` for a pipeline.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction
from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Signal, Value

from xlnstorch.formats import LNSFormat

from ..memories import check_rom
from ..pipeline import Pipeline, carry
from .tables import Table, floor_of_power

__all__ = ["MAX_TABLED_FRAC_BITS", "Logarithm", "ThresholdLogarithm", "logarithm"]

#: Formats with more fraction bits have no tables with an entry for each logarithm, nor do wider significands with one
#: for each significand.
MAX_TABLED_FRAC_BITS = 12

_PIECE = 32  # bits that are compared in one clock


class Logarithm(ABC):
    """Stages that turn a significand from 1 up to 2 into the nearest integer logarithm, exactly.

    A logarithm of a significand is zero or irrational, so there are no ties.

    Parameters
    ----------
    format : LNSFormat
        Whose ``frac_bits`` are the unit of the logarithm.
    bits : int
        Of the significand, behind the leading one.
    rom : {"block", "luts"}
        Where tables are kept.

    Attributes
    ----------
    latency : int
        How many stages :meth:`stages` adds.
    """

    latency: int

    def __init__(self, format: LNSFormat, bits: int, *, rom: str = "block"):
        self.format = format
        self.bits = bits
        self.rom = check_rom(rom)

    @abstractmethod
    def stages(self, m: Module, pipeline: Pipeline, *, significand: Value, **along: Value) -> SimpleNamespace:
        """Add the stages.

        Parameters
        ----------
        m : Module
        pipeline : Pipeline
        significand : Value, ``bits`` bits
            Without the leading one.
        **along : Value
            What else to register in each stage.

        Returns
        -------
        SimpleNamespace
            Registers of the last stage: ``log``, unsigned, from 0 to ``2**frac_bits``, that is included; and those of
            `along`, by their names.
        """


class ThresholdLogarithm(Logarithm):
    """A table of the significands at which the rounded logarithm rises, for any width of the significand.

    Two such thresholds, ``2**((k + 1/2) / 2**f)``, are further than ``ln(2) / 2**f`` apart, so among the significands
    with the same first f + 1 bits lies no more than one. A row is the logarithm below it, as what it exceeds the first
    bits by, and the threshold, less one unit of the significand and without the first bits. Thresholds are irrational,
    so rounded up to the width of the significand they decide as the real ones do.

    Latency 4 clocks: read, register, comparison, addition; one more for significands with over f + 33 bits, and one
    less if f + 1 bits are all there are.
    """

    def __init__(self, format: LNSFormat, bits: int, *, rom: str = "block"):
        super().__init__(format, bits, rom=rom)
        f = format.frac_bits
        self.address_bits = min(bits, f + 1)
        self.rest_bits = bits - self.address_bits
        corrections, limits = [], []
        for row in range(1 << self.address_bits):
            start, end = row << self.rest_bits, (row + 1) << self.rest_bits
            k = format.scale.log_exact(Fraction((1 << bits) + start, 1 << bits))
            corrections.append(k - self._linear(row))
            limits.append(min(self._threshold(k), end) - 1 - start if self.rest_bits else 0)
        columns = {"correction": corrections} | ({"limit": limits} if self.rest_bits else {})
        self.table = Table(columns, rom)
        pieces = -(-self.rest_bits // _PIECE)
        self.latency = Table.latency + 1 + min(pieces, 2)

    def _threshold(self, k: int) -> int:
        """Return the first significand, without its leading one, whose logarithm is above k."""
        return floor_of_power(2 * k + 1, self.format.frac_bits + 1, self.bits) + 1 - (1 << self.bits)

    def _linear(self, row):
        """Return the first bits of the significand as a logarithm."""
        f = self.format.frac_bits
        return row >> 1 if self.address_bits > f else row << (f - self.address_bits)

    def stages(self, m: Module, pipeline: Pipeline, *, significand: Value, **along: Value) -> SimpleNamespace:
        row, rest = significand[self.rest_bits :], significand[: self.rest_bits]
        stage = self.table.read(m, pipeline, row, row=row, **({"rest": rest} if self.rest_bits else {}), **along)
        kept = carry(stage, ["row", "correction", *along])
        above = Const(0, 1)
        if self.rest_bits:
            pieces = [slice(start, start + _PIECE) for start in range(0, self.rest_bits, _PIECE)]
            greater = Cat(stage.rest[piece] > stage.limit[piece] for piece in pieces)
            equal = Cat(stage.rest[piece] == stage.limit[piece] for piece in pieces)
            stage = pipeline.stage(greater=greater, equal=equal, **kept)
            above = stage.greater[0]
            if len(pieces) > 1:
                for i in range(1, len(pieces)):
                    above = stage.greater[i] | (stage.equal[i] & above)
                stage = pipeline.stage(above=above, **carry(stage, kept))
                above = stage.above
        log = Signal(self.format.frac_bits + 1)
        m.d.comb += log.eq(self._linear(stage.row) + stage.correction + above)
        return pipeline.stage(log=log, **carry(stage, along))


def logarithm(format: LNSFormat, bits: int, *, rom: str = "block") -> Logarithm:
    """Return the gates for the logarithms of a format, of significands with so many bits behind the leading one.

    Raises
    ------
    ValueError
        `rom` is no place for a table; or the format has over 12 fraction bits and the significands are too wide for it,
        see :mod:`.normalization`.
    """
    if min(format.frac_bits, bits) <= MAX_TABLED_FRAC_BITS:
        return ThresholdLogarithm(format, bits, rom=rom)
    from .normalization import NormalizingLogarithm

    return NormalizingLogarithm(format, bits, rom=rom)
