"""What every arithmetic unit has: two streams, a latency, and the golden expressions it must equal."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import ClassVar

from amaranth.hdl import Module, ShapeLike, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from xlnstorch.formats import LNSFormat

from .layouts import FlagsLayout, WordLayout, fit
from .pipeline import Pipeline

__all__ = ["Unit"]


class Unit(wiring.Component):
    """An arithmetic unit between two streams, one result a clock, in order.

    Subclasses set `name`, `operations` and `latency`, say in :meth:`operands` and :meth:`results` what the payloads
    hold, if that is not two words and a word with flags, and build the datapath in :meth:`datapath`.

    Parameters
    ----------
    format : LNSFormat
        Of the operands and the result. Its base must be 2.

    Members
    -------
    i : ``In(stream.Signature(...))``
        The operands, by default ``a`` and ``b``, words; above them ``op``, the index into `operations`, if there is
        more than one.
    o : ``Out(stream.Signature(...))``
        The result, by default ``word``, and ``flags``.

    Attributes
    ----------
    name : str
        What the command line calls the unit.
    operations : dict
        For each operation, in the order of opcodes, its golden function: an expression of the operands, which are
        tensors as their layouts make them (words are LNSTensors), in the order of :meth:`operands`. It returns the
        tensor of the first result, whose flags are those that the arithmetic reports; or a dict with a tensor for each
        result, and with the flags, where it has them, as a dict of tensors.
    latency : int
        Clocks from the acceptance of operands to the result, while nothing stalls; where it depends on the format, a
        property of the instance.
    steady : bool
        Whether the latency is always just this and operands are taken in every clock, as it is by default; if not, the
        latency is the longest.
    sources : str
        Verilog of the modules that are instances in it and nothing of Amaranth's, empty by default.

    Raises
    ------
    TypeError, ValueError
        The format is not an LNSFormat, or one that the unit cannot be built for; the message says what it needs.
    """

    name: ClassVar[str]
    operations: ClassVar[dict[str, Callable]]
    latency: ClassVar[int]
    steady: ClassVar[bool] = True
    sources: ClassVar[str] = ""

    def __init__(self, *, format: LNSFormat):
        if not hasattr(self, "operations"):
            raise TypeError(f"{type(self).__name__} is not a unit: it has no operations")
        self.check_format(format)
        self._format = format
        operands = self.operands()
        if len(self.operations) > 1:
            operands["op"] = unsigned(ceil_log2(len(self.operations)))
        super().__init__(
            {
                "i": In(stream.Signature(data.StructLayout(operands))),
                "o": Out(stream.Signature(data.StructLayout(self.results()))),
            }
        )

    @property
    def format(self) -> LNSFormat:
        """The word format."""
        return self._format

    @classmethod
    def check_format(cls, format: LNSFormat) -> None:
        """Raise if the unit cannot be built for `format`; cheap, so that callers can ask before they start."""
        if not isinstance(format, LNSFormat):
            raise TypeError(f"format must be an LNSFormat such as xlnstorch.lns16, not {format!r}")
        if format.base != 2.0:
            raise ValueError(f"a hardware format must have base 2, not {format.base}")

    def operands(self) -> dict[str, ShapeLike]:
        """Return the fields of the input payload, the lowest first, without the opcode."""
        return {"a": WordLayout(self.format), "b": WordLayout(self.format)}

    def results(self) -> dict[str, ShapeLike]:
        """Return the fields of the output payload, the lowest first."""
        return {"word": WordLayout(self.format), "flags": FlagsLayout()}

    def operands_of(self, operation: str) -> dict[str, ShapeLike]:
        """Return the operands that an operation uses, as it sees them, in the low bits of these fields; else all."""
        return self.operands()

    def results_of(self, operation: str) -> dict[str, ShapeLike]:
        """Return the fields of the output payload, the lowest first, as an operation fills it; else as all do."""
        return self.results()

    def datapath(self, m: Module, pipeline: Pipeline, operands: data.View) -> SimpleNamespace:
        """Add the stages that turn `operands` into the fields of the result, and return these, from the last stage.

        Where not every payload brings a result there is also ``when``, 1 bit, whether this one does.
        A unit made of other units calls their datapaths, on its own pipeline or on branches of it.
        """
        raise NotImplementedError(f"{type(self).__name__} must define datapath")

    def fitted(self, m: Module, pipeline: Pipeline, **before) -> SimpleNamespace:
        """Add the last stage of most datapaths: saturate and flush, as :func:`~hdl.layouts.fit` does with `before`."""
        word, flags = Signal(WordLayout(self.format)), Signal(FlagsLayout())
        fit(m, self.format, **before, result=word, flags=flags)
        return pipeline.stage(word=word, flags=flags)

    def pipeline(self, m: Module) -> Pipeline:
        """Return the pipeline that the stages are added to."""
        return Pipeline(m, self.i, self.o)

    def elaborate(self, platform) -> Module:
        m = Module()
        pipeline = self.pipeline(m)
        results = self.datapath(m, pipeline, self.i.payload)
        payload = Signal(self.o.payload.shape())
        m.d.comb += [payload[name].eq(getattr(results, name)) for name in self.results()]
        pipeline.finish(payload, when=getattr(results, "when", 1))
        if pipeline.depth != self.latency:
            raise RuntimeError(
                f"{type(self).__name__} states a latency of {self.latency} but has {pipeline.depth} stages"
            )
        return m
