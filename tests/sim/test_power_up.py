"""Registers start with anything, unknown in Icarus and random in Verilator, and only a reset may be relied upon."""

import shutil

import pytest
from amaranth.hdl import Signal

import hdl
from hdl.pipeline import Pipeline
from sim.verify import verify
from xlnstorch import lns8

pytestmark = pytest.mark.sim

SIMULATORS = [
    "verilator",
    pytest.param(
        "icarus", marks=pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")
    ),
]


class NeverReset(hdl.Square):
    """The lowest bit of a result depends on a register that nothing but the configuration of an FPGA sets."""

    def datapath(self, m, pipeline, operands):
        results = super().datapath(m, pipeline, operands)
        kept, word = Signal(32, reset_less=True), Signal.like(results.word)
        m.d.sync += kept.eq(kept)
        m.d.comb += word.as_value().eq(results.word.as_value() ^ kept.any())
        results.word = word
        return results


class ResetLess(Pipeline):
    """Whether a stage holds a payload is not reset."""

    def stage(self, **values):
        valid, self.valid = self.valid, None
        registers = super().stage(**values)
        if valid is not None:
            self.valid = Signal(reset_less=True)
            with self._m.If(self.advance):
                self._m.d.sync += self.valid.eq(valid)
        return registers


class ValidIsNotReset(hdl.Square):
    def pipeline(self, m):
        return ResetLess(m, self.i, self.o)


@pytest.mark.parametrize("simulator", SIMULATORS)
def test_a_result_that_depends_on_the_state_at_power_up_is_found(simulator):
    report = verify([NeverReset], lns8, stimuli=["corners"], simulator=simulator)
    assert not report.passed
    assert report.results[0].mismatches == report.results[0].vectors
    (example,) = report.counterexamples
    assert (example.got is None) == (simulator == "icarus")


@pytest.mark.parametrize("simulator", SIMULATORS)
def test_a_valid_that_is_not_reset_is_found(simulator):
    report = verify([ValidIsNotReset], lns8, stimuli=["corners"], simulator=simulator)
    assert report.problems


def test_another_seed_is_another_state():
    """Two runs of the same seed start alike; and 32 bits that start at random are hardly ever all zero."""
    reports = [verify([NeverReset], lns8, stimuli=["corners"], seed=seed) for seed in (0, 0, 1, 2)]
    assert not any(report.passed for report in reports)
    assert reports[0].counterexamples[0].got == reports[1].counterexamples[0].got
