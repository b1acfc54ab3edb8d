"""Sound units that are built otherwise than ours must pass: the bench may ask for no more than the handshake and the
stated latency."""

from types import SimpleNamespace

import pytest
from amaranth.hdl import Array, Mux, Signal

import hdl
from hdl.pipeline import Pipeline
from sim.verify import verify
from xlnstorch import lns8

pytestmark = pytest.mark.sim


class Elastic(Pipeline):
    """Each stage moves by itself, so that bubbles close up while the output stands still."""

    def __init__(self, m, i, o):
        self._m, self._o, self.valid, self.depth = m, o, i.valid, 0
        self._moves = Signal(name="moves_1")
        m.d.comb += i.ready.eq(self._moves)

    def stage(self, **values):
        self.depth += 1
        moves, self._moves = self._moves, Signal(name=f"moves_{self.depth + 1}")
        valid = Signal(name=f"valid_{self.depth}")
        registers = {name: self._register(name, value) for name, value in values.items()}
        self._m.d.comb += moves.eq(~valid | self._moves)
        with self._m.If(moves):
            self._m.d.sync += valid.eq(self.valid)
            self._m.d.sync += [registers[name].eq(value) for name, value in values.items()]
        self.valid = valid
        return SimpleNamespace(**registers)

    def finish(self, payload, when=1):
        super().finish(payload, when)
        self._m.d.comb += self._moves.eq(self._o.ready)


class Buffered(Pipeline):
    """A buffer of four results at the output, which adds no latency while it is empty."""

    def finish(self, payload, when=1):
        m, o, wide = self._m, self._o, payload.as_value()
        slots = Array(Signal(len(wide), name=f"slot_{index}") for index in range(4))
        first, last, level = Signal(2), Signal(2), Signal(3)
        empty, room = level == 0, level != 4
        push, pop = self.valid & room & ~(empty & o.ready), ~empty & o.ready
        m.d.comb += self.advance.eq(~self.valid | room)
        m.d.comb += [o.valid.eq(self.valid | ~empty), o.payload.eq(Mux(empty, wide, slots[first]))]
        with m.If(push):
            m.d.sync += [slots[last].eq(wide), last.eq(last + 1)]
        with m.If(pop):
            m.d.sync += first.eq(first + 1)
        m.d.sync += level.eq(level + push - pop)


@pytest.mark.parametrize("pipeline_class", [Elastic, Buffered])
def test_a_sound_pipeline_of_another_kind_passes(pipeline_class):
    class Other(hdl.SquareRoot):  # of stages alone, without registers beside them
        def pipeline(self, m):
            return pipeline_class(m, self.i, self.o)

    report = verify([Other], lns8, stimuli=["random"], vectors=12_000)
    assert report.passed, (report.problems, report.counterexamples)
