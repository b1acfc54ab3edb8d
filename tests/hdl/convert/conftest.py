"""Holds converters against the reference and the golden model."""

import itertools

import numpy as np
import pytest
import torch
from amaranth.hdl import Cat, Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.pipeline import Pipeline
from xlnstorch.observe import FLAGS


def _int64(integers):
    return np.array([x - (x >> 63 << 64) for x in integers], dtype=np.int64)


@pytest.fixture
def check(run_unit):
    """Assert that a unit gives, for each integer on its input wires, what `expected` says: the result's bits, flags.

    The golden expression must say the same.
    """

    def check(unit, operands, expected):
        operands = list(operands)
        _, received = run_unit(unit, operands)
        assert len(received) == len(operands)
        (name, layout), _ = unit.results().items()
        mask = (1 << layout.size) - 1

        (expression,) = unit.operations.values()
        golden = expression(unit.operands()["a"].tensor(_int64(operands)))
        results = layout.integers(golden[name]).tolist()
        raised = [golden["flags"].get(flag, torch.zeros(len(operands), dtype=torch.bool)).tolist() for flag in FLAGS]

        for operand, (_, got), result, *flags in zip(operands, received, results, *raised, strict=True):
            want, want_flags = expected(operand)
            got_flags = {flag for bit, flag in enumerate(FLAGS) if got >> layout.size >> bit & 1}
            assert (hex(got & mask), got_flags) == (hex(want), set(want_flags)), hex(operand)
            golden_flags = set(itertools.compress(FLAGS, flags))
            assert (hex(result & mask), golden_flags) == (hex(want), set(want_flags)), hex(operand)

    return check


class _Stages(wiring.Component):
    """Stages between two streams."""

    def __init__(self, gates, argument, argument_bits, result, result_bits):
        self._gates, self._argument, self._result = gates, argument, result
        super().__init__(
            {
                "i": In(stream.Signature(data.StructLayout({argument: argument_bits}))),
                "o": Out(stream.Signature(data.StructLayout({result: result_bits}))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        pipeline = Pipeline(m, self.i, self.o)
        stage = self._gates.stages(m, pipeline, **{self._argument: self.i.payload[self._argument]})
        assert pipeline.depth == self._gates.latency
        pipeline.finish(Cat(getattr(stage, self._result)))
        return m


@pytest.fixture
def run_stages(run_unit):
    """Return what logarithms or antilogarithms in gates make of some integers."""

    def run(gates, argument, argument_bits, result, result_bits, integers):
        _, received = run_unit(_Stages(gates, argument, argument_bits, result, result_bits), integers)
        assert len(received) == len(integers)
        return [got for _, got in received]

    return run
