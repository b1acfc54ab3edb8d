"""The gates as a function of arrays, against the golden model; and that what goes wrong in them shows."""

import numpy as np
import pytest
from amaranth.hdl import Module, Signal

import hdl
from hdl.pipeline import Pipeline
from sim import golden, payloads
from sim.batch import Batch
from sim.coverage import STALLS
from sim.stimulus import generate
from xlnstorch import lns8

pytestmark = pytest.mark.sim


def rows_of(unit, stimulus="random", count=3000):
    vectors = generate(stimulus, unit, seed=1, count=count)
    op = {"op": vectors.op} if len(unit.operations) > 1 else {}
    sent = payloads.to_rows(unit.i.payload.shape(), {**vectors.operands, **op}, len(vectors))
    columns = golden.evaluate(unit, vectors)
    return sent, payloads.to_rows(unit.o.payload.shape(), columns, len(next(iter(columns.values()))))


@pytest.mark.parametrize("stalls", [0, 1, 2**64 - 1])
@pytest.mark.parametrize("expected", [0, 10**9], ids=["a lane", "lanes"])
def test_results_are_those_of_the_golden_model(expected, stalls):
    unit = hdl.MinMax(format=lns8)
    sent, wanted = rows_of(unit)
    with Batch(unit, expected=expected) as gates:
        assert gates.lanes == (8 if expected else 1)
        for _ in range(2):  # the gates are as they were
            outcome = gates.run(sent, stalls=stalls, drain=True)
            assert np.array_equal(outcome.rows, wanted)
            assert outcome.came.all()
            assert outcome.unasked == 0
        clocks = gates.run(sent, stalls=stalls).clocks
        counted = gates.run(sent, stalls=stalls, count_ends=True)
    full = -(-len(sent) // gates.lanes) + unit.latency + 1
    assert clocks > full + 50 if stalls else clocks == full
    ends, each = counted.ends, len(sent)
    assert not outcome.ends
    assert sum(ends.values()) == gates.lanes * counted.clocks
    assert sum(count for name, count in ends.items() if name.startswith("taken")) == each
    assert sum(count for name, count in ends.items() if name.endswith("taken")) == each
    assert set(ends) == set(STALLS if stalls else ("idle, nothing", "idle, taken", "taken, nothing", "taken, taken"))


def test_a_few_payloads_for_many_lanes():
    unit = hdl.MinMax(format=lns8)
    sent, wanted = rows_of(unit)
    with Batch(unit, expected=10**9) as gates:
        for count in (0, 1, 5, 8, 9):
            outcome = gates.run(sent[:count])
            assert np.array_equal(outcome.rows, wanted[:count])
            assert outcome.came.all()


def test_a_sum_of_several_payloads():
    unit = hdl.DotProduct(format=lns8, lanes=3)
    sent, wanted = rows_of(unit)
    assert len(sent) > len(wanted)
    with Batch(unit, expected=10**9) as gates:
        assert gates.lanes == 1
        for stalls in (0, 5):
            outcome = gates.run(sent, len(wanted), stalls=stalls, drain=True)
            assert np.array_equal(outcome.rows, wanted)
            assert outcome.unasked == 0


class Stops(Pipeline):
    """From the hundredth result on there is no other."""

    def finish(self, payload, when=1):
        count = Signal(range(101))
        with self._m.If(self._o.valid & self._o.ready & (count < 100)):
            self._m.d.sync += count.eq(count + 1)
        super().finish(payload, (count < 100) & when)


class Twice(Pipeline):
    """Each result comes twice."""

    def finish(self, payload, when=1):
        again, held = Signal(), Signal(payload.shape())
        first = self.valid
        self._m.d.comb += [self._o.valid.eq(first | again), self._o.payload.eq(payload)]
        with self._m.If(again):
            self._m.d.comb += self._o.payload.eq(held)
        with self._m.If(self._o.ready):
            self._m.d.sync += [again.eq(first & ~again), held.eq(payload)]


def with_pipeline(kind):
    class Square(hdl.Square):
        def pipeline(self, m: Module) -> Pipeline:
            return kind(m, self.i, self.o)

    return Square(format=lns8)


def test_a_unit_that_stops():
    unit = with_pipeline(Stops)
    sent, wanted = rows_of(unit)
    with Batch(unit) as gates:
        outcome = gates.run(sent)
    assert outcome.came.tolist() == [True] * 100 + [False] * (len(sent) - 100)
    assert np.array_equal(outcome.rows[:100], wanted[:100])


def test_results_that_nothing_asked_for():
    unit = with_pipeline(Twice)
    sent, _ = rows_of(unit)
    with Batch(unit) as gates:
        assert gates.run(sent[:1], drain=True).unasked > 0


def test_what_it_does_not_take():
    unit = hdl.MinMax(format=lns8)
    gates = Batch(unit, expected=10**9)
    with pytest.raises(ValueError, match=r"rows must have the shape \(n, 1\), not \(3, 2\)"):
        gates.run(np.zeros((3, 2), dtype=np.uint64))
    with pytest.raises(ValueError, match="each payload of minmax brings a result: 2 cannot come of 3"):
        gates.run(np.zeros((3, 1), dtype=np.uint64), 2)
    gates.close()
    gates.close()
    with pytest.raises(ValueError, match="closed"):
        gates.run(np.zeros((3, 1), dtype=np.uint64))
