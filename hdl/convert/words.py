"""What converters share: which formats they have, and the last stages of those that make words."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Signal, Value, signed

from xlnstorch.formats import LNSFormat

from ..pipeline import Pipeline, carry
from ..unit import Unit
from .closeness import check_frac_bits
from .logarithm import logarithm

__all__ = ["Converter", "WordUnit", "least_exponent"]


def least_exponent(format: LNSFormat) -> int:
    """Return the exponent of two below which every number flushes to zero."""
    return -(1 << (format.int_bits - 1))


class Converter(Unit):
    """A unit between words and other numbers."""

    @classmethod
    def check_format(cls, format: LNSFormat) -> None:
        super().check_format(format)
        check_frac_bits(format)


class WordUnit(Converter):
    """A unit whose result is the word nearest to a number, which is given as significand and exponent.

    Parameters
    ----------
    format : LNSFormat
    significand_bits : int
        Of the number, behind its leading one.
    rom : {"block", "luts"}

    Attributes
    ----------
    rounding_latency : int
        Of :meth:`rounded`.
    """

    def __init__(self, *, format: LNSFormat, significand_bits: int, rom: str):
        self.check_format(format)
        self._logarithm = logarithm(format, significand_bits, rom=rom)
        self.rounding_latency = self._logarithm.latency + 2
        super().__init__(format=format)

    def rounded(
        self, m: Module, pipeline: Pipeline, *, significand: Value, whole: Value, **special: Value
    ) -> SimpleNamespace:
        """Add the stages from a number to the word; return the fields of the result.

        Parameters
        ----------
        significand : Value
            Without the leading one.
        whole : Value, signed
            The exponent, less the least one of the format; any negative one if the number is smaller than all that
            could be a word.
        **special : Value
            The sign, and what else :func:`~hdl.layouts.fit` takes.
        """
        stage = self._logarithm.stages(m, pipeline, significand=significand, whole=whole, **special)
        # The logarithm of the significand is below one, or just that.
        f = self.format.frac_bits
        field = Signal(signed(f + max(len(stage.whole), self.format.int_bits) + 2))
        carried = Signal(signed(len(field) - f))
        m.d.comb += [carried.eq(stage.whole + stage.log[f]), field.eq(Cat(stage.log[:f], carried).as_signed())]
        added = pipeline.stage(field=field, **carry(stage, special))
        return self.fitted(m, pipeline, **vars(added))
