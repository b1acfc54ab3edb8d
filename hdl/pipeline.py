"""The pipeline between two streams: who moves when, and nothing of what is computed."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Module, Shape, Signal, Value
from amaranth.lib import data, stream

__all__ = ["Pipeline"]


class Pipeline:
    """Registers between an input and an output stream, all of which move in the clocks in which `advance` is set.

    The pipeline moves whenever its output is free or being taken, so it accepts one payload a clock and stands still,
    bubbles included, while a valid result waits. ``i.ready`` therefore follows ``o.ready`` without a register, and
    ``valid`` never waits for ``ready``. A reset empties the pipeline.

    Parameters
    ----------
    m : Module
        Where the registers are added.
    i, o : stream.Interface
        Where payloads enter (seen from the component) and results leave.

    Attributes
    ----------
    advance : Signal
        Whether all stages move at the end of this clock; the enable of any other clocked thing in the pipeline.
    depth : int
        Stages so far: the latency in clocks.
    """

    def __init__(self, m: Module, i: stream.Interface, o: stream.Interface):
        self._m = m
        self._o = o
        self._valid = i.valid
        self.advance = Signal()
        self.depth = 0
        m.d.comb += [self.advance.eq(~o.valid | o.ready), i.ready.eq(self.advance)]

    def stage(self, **values: Value | data.View) -> SimpleNamespace:
        """Add one stage that registers `values`; return the registers by the same names."""
        self.depth += 1
        valid = Signal(name=f"valid_{self.depth}")
        registers = {name: self._register(name, value) for name, value in values.items()}
        with self._m.If(self.advance):
            self._m.d.sync += valid.eq(self._valid)
            self._m.d.sync += [registers[name].eq(value) for name, value in values.items()]
        self._valid = valid
        return SimpleNamespace(**registers)

    def _register(self, name: str, value):
        # Data needs no reset: nobody looks at it while valid is clear.
        shape = value.shape() if isinstance(value, data.View) else Shape.cast(Value.cast(value).shape())
        return Signal(shape, name=f"{name}_{self.depth}", reset_less=True)

    def finish(self, payload) -> None:
        """Connect the last stage to the output stream."""
        self._m.d.comb += [self._o.valid.eq(self._valid), self._o.payload.eq(payload)]
