"""The antilogarithm of a fraction, exact to any bit: a table, or what :mod:`.products` does.

:func:`antilogarithm` chooses between them and gives an object with a ``latency`` and with ``stages`` for a pipeline.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import SimpleNamespace

from amaranth.hdl import Module, Signal, Value

from xlnstorch.formats import LNSFormat

from ..memories import check_rom
from ..pipeline import Pipeline
from .logarithm import MAX_TABLED_FRAC_BITS
from .tables import Table, floor_of_power

__all__ = ["Antilogarithm", "TableAntilogarithm", "antilogarithm"]


class Antilogarithm(ABC):
    """Stages that turn the fraction of a logarithm into a significand.

    ``2**(fraction / 2**frac_bits + bits)`` is an integer where the fraction is zero and irrational elsewhere. So with
    the integer part of it, and "not zero" for all bits that follow, it can be rounded exactly at any bit; and there is
    no tie in rounding it to the nearest integer.

    Parameters
    ----------
    format : LNSFormat
        Whose ``frac_bits`` are the unit of the fraction.
    bits : int
        Of the significand, behind the leading one.
    nearest : bool
        Whether the significand is the nearest integer, up to ``2**(bits + 1)``, or by default the integer part.
    rom : {"block", "luts"}
        Where tables are kept.

    Attributes
    ----------
    latency : int
        How many stages :meth:`stages` adds.
    """

    latency: int

    def __init__(self, format: LNSFormat, bits: int, *, nearest: bool = False, rom: str = "block"):
        self.format = format
        self.bits = bits
        self.nearest = nearest
        self.rom = check_rom(rom)

    @abstractmethod
    def stages(self, m: Module, pipeline: Pipeline, *, fraction: Value, **along: Value) -> SimpleNamespace:
        """Add the stages.

        Parameters
        ----------
        m : Module
        pipeline : Pipeline
        fraction : Value, ``frac_bits`` bits
        **along : Value
            What else to register in each stage.

        Returns
        -------
        SimpleNamespace
            Registers of the last stage: ``significand``, unsigned, ``bits + 1`` bits, or one more where it is the
            nearest one and can reach ``2**(bits + 1)``; and those of `along`, by their names.
        """


class TableAntilogarithm(Antilogarithm):
    """A table with an entry for each fraction, for any width of the significand. Latency 2 clocks."""

    latency = Table.latency

    def __init__(self, format: LNSFormat, bits: int, *, nearest: bool = False, rom: str = "block"):
        super().__init__(format, bits, nearest=nearest, rom=rom)
        powers = (floor_of_power(i, format.frac_bits, bits + nearest) for i in range(1 << format.frac_bits))
        significands = [(power + 1) >> 1 if nearest else power for power in powers]
        # The leading one is not kept, unless the last ones are rounded up to two.
        self._leading = max(significands) < 2 << bits
        mask = (1 << bits) - 1 if self._leading else -1
        self.table = Table({"significand": [significand & mask for significand in significands]}, rom)

    def stages(self, m: Module, pipeline: Pipeline, *, fraction: Value, **along: Value) -> SimpleNamespace:
        stage = self.table.read(m, pipeline, fraction, **along)
        if self._leading:
            significand = Signal(self.bits + 1)
            m.d.comb += significand.eq(stage.significand | 1 << self.bits)
            stage.significand = significand
        return stage


def antilogarithm(format: LNSFormat, bits: int, *, nearest: bool = False, rom: str = "block") -> Antilogarithm:
    """Return the gates for the antilogarithms of a format, as significands with so many bits behind the leading one.

    Raises
    ------
    ValueError
        `rom` is no place for a table; or the format has over 12 fraction bits and the significands are too wide for it,
        see :mod:`.products`.
    """
    if format.frac_bits <= MAX_TABLED_FRAC_BITS:
        return TableAntilogarithm(format, bits, nearest=nearest, rom=rom)
    from .products import ProductAntilogarithm

    return ProductAntilogarithm(format, bits, nearest=nearest, rom=rom)
