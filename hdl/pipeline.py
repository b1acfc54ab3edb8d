"""The pipeline between two streams: who moves when, and nothing of what is computed."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace

from amaranth.hdl import Module, Shape, Signal, Value, ValueCastable
from amaranth.lib import stream

__all__ = ["Pipeline", "carry"]


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
    accept : Value, 1 bit, optional
        Whether the payload that is offered can be taken in this clock; by default every one can.

    Attributes
    ----------
    advance : Signal
        Whether all stages move at the end of this clock; the enable of any other clocked thing in the pipeline.
    valid : Value
        Whether the last stage so far holds a payload; before the first stage, whether one is taken in.
    depth : int
        Stages so far: the latency in clocks.
    """

    def __init__(self, m: Module, i: stream.Interface, o: stream.Interface, accept: Value | int = 1):
        self._m = m
        self._o = o
        self.advance = Signal()
        self.valid = _both(i.valid, accept)
        self.depth = 0
        m.d.comb += [self.advance.eq(~o.valid | o.ready), i.ready.eq(_both(self.advance, accept))]

    def branch(self, m: Module | None = None) -> Pipeline:
        """Return a pipeline beside this one: it moves with it, has its own depth from 0, and no ends of its own.

        Its registers are added to `m`, a submodule, if one is given: several of one unit's datapath need one each.
        """
        other = object.__new__(type(self))
        other.__dict__ = {**self.__dict__, "_m": m or self._m, "_o": None, "valid": None, "depth": 0}
        return other

    def stage(self, **values: Value | ValueCastable) -> SimpleNamespace:
        """Add one stage that registers `values`; return the registers by the same names."""
        self.depth += 1
        registers = {name: self._register(name, value) for name, value in values.items()}
        with self._m.If(self.advance):
            self._m.d.sync += [registers[name].eq(value) for name, value in values.items()]
            if self.valid is not None:
                valid = Signal(name=f"valid_{self.depth}")
                self._m.d.sync += valid.eq(self.valid)
                self.valid = valid
        return SimpleNamespace(**registers)

    def delay(self, stages: int, **values: Value | ValueCastable) -> SimpleNamespace:
        """Add so many stages that only register `values`; return the last ones, or `values` if there are none."""
        registers = SimpleNamespace(**values)
        for _ in range(stages):
            registers = self.stage(**vars(registers))
        return registers

    def _register(self, name: str, value):
        # Data needs no reset: nobody looks at it while valid is clear.
        shape = value.shape() if isinstance(value, ValueCastable) else Shape.cast(Value.cast(value).shape())
        return Signal(shape, name=f"{name}_{self.depth}", reset_less=True)

    def finish(self, payload, when: Value | int = 1) -> None:
        """Connect the last stage to the output stream; only where `when` does it bring a result."""
        self._m.d.comb += [self._o.valid.eq(_both(self.valid, when)), self._o.payload.eq(payload)]


def carry(stage: SimpleNamespace, names: Iterable[str]) -> dict[str, Value]:
    """Return registers of a stage by their names, to be registered once more."""
    return {name: getattr(stage, name) for name in names}


def _both(valid: Value, condition: Value | int) -> Value:
    return valid if isinstance(condition, int) and condition == 1 else valid & condition
