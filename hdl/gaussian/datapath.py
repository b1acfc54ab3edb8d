"""What the adder's gates offer to a unit that adds, and which gates an adder has."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from types import SimpleNamespace

from amaranth.hdl import Module, Value

from xlnstorch.adders import Adder
from xlnstorch.formats import LNSFormat

from ..memories import check_rom, rom_attributes
from ..pipeline import Pipeline

__all__ = ["GaussianDatapath", "datapath_of"]


class GaussianDatapath(ABC):
    """Stages that turn a distance into the Gaussian logarithm of the format's adder.

    Parameters
    ----------
    format : LNSFormat
    rom : {"block", "luts"}
        Where tables are kept: in block RAM, or in lookup tables.

    Attributes
    ----------
    latency : int
        How many stages :meth:`stages` adds.

    Raises
    ------
    ValueError
        The format cannot have these gates, or `rom` is neither.
    """

    latency: int

    def __init__(self, format: LNSFormat, *, rom: str = "block"):
        self.format = format
        self.rom = check_rom(rom)

    @property
    def memory_attributes(self) -> dict[str, str]:
        """What tells Yosys where to keep a memory."""
        return rom_attributes(self.rom)

    @abstractmethod
    def stages(
        self, m: Module, pipeline: Pipeline, *, d: Value, subtract: Value, silent: Value, **along: Value
    ) -> SimpleNamespace:
        """Add the stages.

        Parameters
        ----------
        m : Module
        pipeline : Pipeline
        d : Value, ``log_bits`` bits
            The distance; it may be anything where `silent`. Where it is 0 and `subtract` is set, nobody looks at the
            result.
        subtract : Value, 1 bit
            Whether ``t(d)`` is wanted, rather than ``s(d)``.
        silent : Value, 1 bit
            The result is to be 0 whatever `d` is.
        **along : Value
            What else to register in each stage.

        Returns
        -------
        SimpleNamespace
            Registers of the last stage: ``gaussian``, unsigned, the magnitude of the logarithm; ``subtract``; and
            those of `along`, by their names.
        """


@functools.singledispatch
def datapath_of(adder: Adder, format: LNSFormat, *, rom: str = "block") -> GaussianDatapath:
    """Return the gates of an adder; a ROM of its table unless the type of the adder has registered others.

    ``@datapath_of.register`` adds those of another package's adder.
    """
    from .rom import RomDatapath

    return RomDatapath(format, rom=rom)
