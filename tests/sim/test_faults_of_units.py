"""Faults planted in units with one operand, in converters, and in those of which not each payload brings a result."""

from types import SimpleNamespace

import pytest
from amaranth.hdl import Signal

import hdl
from hdl.pipeline import Pipeline
from sim.verify import verify
from xlnstorch import lns8, lns16

pytestmark = pytest.mark.sim


class RoundsHalvesUp(hdl.SquareRoot):
    """A root of which halves are rounded up, even to an odd logarithm."""

    def datapath(self, m, pipeline, operands):
        results = super().datapath(m, pipeline, operands)
        even_half = operands.a.field[0] & ~operands.a.field[1]
        added = pipeline.branch().delay(self.latency, half=even_half).half & results.word.field.any()
        word = Signal(results.word.shape())
        m.d.comb += [word.sign.eq(results.word.sign), word.field.eq(results.word.field + added)]
        return SimpleNamespace(word=word, flags=results.flags)


class IgnoresTheLastBit(hdl.UNITS["from_float"]):
    """A float is taken for the even one below it."""

    def datapath(self, m, pipeline, operands):
        even = Signal(operands.a.shape())
        m.d.comb += [even.eq(operands.a), even.fraction[0].eq(0)]
        return super().datapath(m, pipeline, SimpleNamespace(a=even))


class Dot(hdl.DotProduct):
    def __init__(self, *, format):
        super().__init__(format=format, lanes=2)


class SwallowsALast(Dot):
    """In one channel the last beat of a vector is a beat like any other."""

    def datapath(self, m, pipeline, operands):
        fields = {name: operands[name] for name in self.operands()}
        fields["last"] = operands.last & (operands.channel != 5)
        return super().datapath(m, pipeline, SimpleNamespace(**fields))


class NamesAnotherChannel(Dot):
    def datapath(self, m, pipeline, operands):
        results = super().datapath(m, pipeline, operands)
        results.channel = results.channel ^ (results.channel == 3)
        return results


class AddsToAnotherChannel(Dot):
    """Channels 6 and 7 have one running sum."""

    def datapath(self, m, pipeline, operands):
        fields = {name: operands[name] for name in self.operands()}
        fields["channel"] = operands.channel & ~(operands.channel == 7)
        return super().datapath(m, pipeline, SimpleNamespace(**fields))


class OneClockMore(Pipeline):
    """A register too many behind the stages that are counted."""

    def finish(self, payload, when=1):
        extra, valid = Signal(payload.shape()), Signal()
        with self._m.If(self.advance):
            self._m.d.sync += [extra.eq(payload), valid.eq(self.valid & when)]
        self.valid = valid
        super().finish(extra)


class TakesOneClockMore(Dot):
    def pipeline(self, m):
        return OneClockMore(m, self.i, self.o, accept=self._accept)


class TakesABeatEveryOtherClock(Dot):
    def pipeline(self, m):
        turn = Signal()
        m.d.sync += turn.eq(~turn)
        return Pipeline(m, self.i, self.o, accept=self._accept & turn)


class LosesALoad(hdl.MatrixVector):
    """The last row cannot be loaded while the tile is the second."""

    def __init__(self, *, format):
        super().__init__(format=format, rows=2, lanes=2, columns=4)

    def datapath(self, m, pipeline, operands):
        fields = {name: operands[name] for name in (*self.operands(), "op")}
        fields["row"] = operands.row & ~operands.tile
        return super().datapath(m, pipeline, SimpleNamespace(**fields))


def test_a_wrong_rounding_of_a_root_is_found():
    report = verify([RoundsHalvesUp], lns16, stimuli=["random"], vectors=1000)
    assert 90 < report.results[0].mismatches < 160  # a quarter of the positive half
    example = report.counterexamples[0]
    assert list(example.operands) == ["a"]
    assert example.operands["a"].bits & 3 == 1
    assert example.got["word"].bits - example.expected["word"].bits == 1


def test_a_float_taken_for_its_neighbour_is_found_where_the_word_changes():
    report = verify([IgnoresTheLastBit], lns16, stimuli=["rounding"], vectors=1000)
    assert report.results[0].mismatches > 50
    example = report.counterexamples[0]
    assert (example.operands["a"].width, example.operands["a"].bits & 1) == (32, 1)
    assert abs(example.got["word"].bits - example.expected["word"].bits) == 1
    # Among floats at random hardly any is so near.
    assert verify([IgnoresTheLastBit], lns16, stimuli=["random"], vectors=1000).results[0].mismatches < 5


def test_a_sound_dot_product_passes():
    assert verify([Dot], lns8, stimuli=["near-cancelling"], vectors=1000).passed


def test_a_swallowed_last_beat_is_found():
    report = verify([SwallowsALast], lns8, stimuli=["near-cancelling"], vectors=1000)
    assert report.results[0].mismatches > 20
    assert any(problem.startswith("dot: the unit stopped: ") for problem in report.problems)


def test_a_wrong_channel_is_found_and_all_beats_are_shown():
    report = verify([NamesAnotherChannel], lns8, stimuli=["near-cancelling"], vectors=1000)
    assert 0 < report.results[0].mismatches < report.results[0].vectors / 4
    example = report.counterexamples[0]
    assert (example.expected["channel"].bits, example.got["channel"].bits) == (3, 2)
    channel = example.operands["channel"].bits  # of each beat, if there are several
    assert set(channel if isinstance(channel, list) else [channel]) == {3}
    assert example.expected["word"] == example.got["word"]


def test_a_sum_in_another_channel_is_found():
    report = verify([AddsToAnotherChannel], lns8, stimuli=["random"], vectors=1000)
    assert report.results[0].mismatches > 20


def test_a_latency_other_than_stated_is_found_where_not_each_payload_brings_a_result():
    report = verify([TakesOneClockMore], lns8, stimuli=["near-cancelling"], vectors=1000)
    assert report.results[0].mismatches == 0
    stated = Dot(format=lns8).latency
    assert f" took {stated + 1} clocks without stalls, not the stated {stated}; " in report.problems[0]


def test_a_lower_rate_is_found_where_not_each_payload_brings_a_result():
    report = verify([TakesABeatEveryOtherClock], lns8, stimuli=["near-cancelling"], vectors=1000)
    assert report.results[0].mismatches == 0
    assert report.problems[0].startswith("dot: nothing was taken at cycle ")


def test_a_row_that_is_not_loaded_is_found():
    report = verify([LosesALoad], lns8, stimuli=["random"], vectors=1000)
    assert report.results[0].mismatches > 50
