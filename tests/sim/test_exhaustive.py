"""All operands that there are: none left out, none twice, and a single wrong one is found."""

import itertools
import json
import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from amaranth.hdl import Shape, Signal

import hdl
from hdl.pipeline import Pipeline
from sim import exhaustive, golden, payloads
from sim.batch import Batch
from sim.exhaustive import Space, verify_space
from sim.stimulus import Vectors
from sim.verify import verify
from xlnstorch import LNSFormat, lns8, lns16
from xlnstorch.cli import main

TINY = LNSFormat(2, 2)  # words of 5 bits


def pairs_of(unit):
    return sum(
        1 << sum(Shape.cast(layout).width for layout in unit.operands_of(operation).values())
        for operation in unit.operations
    )


def test_a_space_has_each_combination_once():
    unit = hdl.AddSubtract(format=TINY)
    space = Space(unit)
    assert space.starts == [0, 1 << 10, 2 << 10]
    seen = []
    for begin, end in space.chunks(0, len(space)):
        vectors = space.vectors(begin, end)
        seen += list(zip(vectors.op, vectors.operands["a"], vectors.operands["b"], strict=True))
    assert seen == list(itertools.product(range(2), range(32), range(32)))


def test_operands_without_effect_are_noise():
    space = Space(hdl.Signs(format=TINY))
    assert space.starts == [0, 32, 64, 64 + 1024]
    negated = space.vectors(0, 32).operands
    assert negated["a"].tolist() == list(range(32))
    assert len(set(negated["b"].tolist())) > 8
    assert ((negated["b"] >= 0) & (negated["b"] < 32)).all()


def test_an_operand_in_the_low_bits_of_a_field():
    unit = hdl.ALU(format=lns8, converters=("float16",))
    space, names = Space(unit), list(unit.operations)
    assert len(space) == pairs_of(unit)
    begin = space.starts[names.index("mul")]
    vectors = space.vectors(begin, begin + 70000)
    assert set(vectors.op) == {names.index("mul")}
    assert (vectors.operands["a"] & 0xFF).tolist() == [index >> 8 & 0xFF for index in range(70000)]
    assert vectors.operands["b"].tolist() == [index & 0xFF for index in range(70000)]
    assert len(set((vectors.operands["a"] >> 8).tolist())) > 100  # noise above the word


@pytest.mark.parametrize("unit", [hdl.AddSubtract(format=lns8), hdl.Signs(format=TINY), hdl.Square(format=lns16)])
def test_pieces_do_not_cross_operations(unit):
    space = Space(unit)
    pieces = [
        piece for first in range(0, len(space), 1000) for piece in space.chunks(first, min(first + 1000, len(space)))
    ]
    assert [begin for begin, _ in pieces] == [0, *(end for _, end in pieces[:-1])]
    assert pieces[-1][1] == len(space)
    for begin, end in pieces:
        assert np.unique(space.vectors(begin, end).op).size == 1


@pytest.mark.parametrize(
    "unit, message",
    [
        (hdl.MultiplyAdd(format=lns16), r"at most 2\*\*35 vectors, but the operands of mac of mac have 48 bits"),
        (hdl.DotProduct(format=lns8), "dot sums any number of payloads"),
    ],
)
def test_too_many(unit, message):
    with pytest.raises(ValueError, match=message):
        Space(unit)


def test_the_command_line_says_why_not(capsys):
    assert main(["verify", "mac", "--format", "lns16", "--stimulus", "exhaustive"]) == 2
    assert "the operands of mac of mac have 48 bits" in capsys.readouterr().err
    assert main(["verify", "add", "--stimulus", "exhaustive", "--simulator", "icarus"]) == 2
    assert "the stimulus exhaustive needs the simulator verilator, not icarus" in capsys.readouterr().err
    assert main(["verify", "add", "--stimulus", "exhaustive", "--waves", "x.vcd"]) == 2
    assert "the stimulus exhaustive writes no waves; leave out 'x.vcd'" in capsys.readouterr().err
    assert main(["verify", "add", "--runner", "by hand"]) == 2
    assert "runner must be one of cocotb, batch, not 'by hand'" in capsys.readouterr().err


# Every unit that has an end, at lns8; of floats those of 16 bits.
UNITS = [
    hdl.Multiply,
    hdl.Divide,
    hdl.AddSubtract,
    hdl.Square,
    hdl.SquareRoot,
    hdl.Signs,
    hdl.Compare,
    hdl.MinMax,
    hdl.Relu,
    hdl.ToFloat,
    hdl.FromFixed,
    hdl.ToFixed,
]


@pytest.mark.sim
@pytest.mark.parametrize("specials", [False, True], ids=["", "specials"])
def test_every_unit_at_lns8(specials):
    import dataclasses

    format = dataclasses.replace(lns8, specials=specials)
    units = [unit(format=format) for unit in UNITS]
    units += [hdl.FromFloat(format=format, dtype=dtype) for dtype in (torch.float16, torch.bfloat16)]
    report = verify(units, format, stimuli=["exhaustive"])
    assert report.passed, report.to_json()
    assert [result.vectors for result in report.results] == [len(Space(unit)) for unit in units]
    assert {result.runner for result in report.results} == {"batch"}


@pytest.mark.sim
@pytest.mark.slow
def test_multiply_add_and_the_alu_at_lns8():
    """2**24 operands of a multiply-add, and as many and all pairs of the ALU's other operations."""
    units = [hdl.MultiplyAdd(format=lns8), hdl.ALU(format=lns8, converters=("float16", "bfloat16", "fixed"))]
    report = verify(units, lns8, stimuli=["exhaustive"])
    assert report.passed, report.to_json()
    assert report.results[0].vectors == 1 << 24
    assert report.results[1].vectors == pairs_of(units[1])


def floats_around_every_boundary(format):
    """Return the bits of floats of 32 bits: all signs, exponents and leading fraction bits, and where a word ends.

    The words nearest to numbers of an octave change at ``2**frac_bits`` places in it; up to two units from each of them
    are among the floats of every exponent, and of each of 2**9 leading parts of the fraction the two ends and one more.
    A conversion that depends on less than that is right everywhere; all 2**32 floats are for `lns verify`.
    """
    steps = 1 << format.frac_bits
    boundaries = np.round((2 ** ((np.arange(steps) + 0.5) / steps) - 1) * 2.0**23).astype(np.int64)
    near = (boundaries[:, None] + np.arange(-2, 3)).ravel()
    leading = (np.arange(1 << 9)[:, None] << 14 | np.array([0, 1, 0x2A5A, 0x3FFF])).ravel()
    return (np.arange(1 << 9)[:, None] << 23 | np.concatenate([near, leading])).ravel()


class TakesTwoFloatsForOne(hdl.FromFloat):
    """The last bit of the fraction is ignored."""

    def datapath(self, m, pipeline, operands):
        even = Signal(operands.a.shape())
        m.d.comb += [even.eq(operands.a), even.fraction[0].eq(0)]
        return super().datapath(m, pipeline, SimpleNamespace(a=even))


@pytest.mark.sim
@pytest.mark.parametrize("kind, right", [(hdl.FromFloat, True), (TakesTwoFloatsForOne, False)])
def test_floats_of_32_bits_at_lns8(kind, right):
    unit, bits = kind(format=lns8, dtype=torch.float32), floats_around_every_boundary(lns8)
    assert len(bits) == 512 * (5 * 8 + 4 * 512)
    vectors = Vectors(np.zeros_like(bits), {"a": bits})
    sent = payloads.to_rows(unit.i.payload.shape(), vectors.fields(unit), len(bits))
    expected = payloads.to_rows(unit.o.payload.shape(), golden.evaluate(unit, vectors), len(bits))
    with Batch(unit) as gates:
        outcomes = [gates.run(sent, stalls=stalls, drain=True) for stalls in (0, 1)]
    for outcome in outcomes:
        assert not outcome.unasked
        wrong = np.flatnonzero(outcome.wrong(expected))
        # Of the floats next to a boundary a few are odd and on the other side of it than their even neighbour.
        assert len(wrong) == 0 if right else 0 < len(wrong) < len(bits) / 500
        assert (bits[wrong] & 1).all()


class OneWrong(hdl.Multiply):
    """Of all products of two words one has its lowest bit wrong."""

    PAIR = (0x5A, 0x33)

    def datapath(self, m, pipeline, operands):
        at = Signal()
        m.d.comb += at.eq((operands.a.as_value() == self.PAIR[0]) & (operands.b.as_value() == self.PAIR[1]))
        wrong = pipeline.branch().delay(self.latency, at=at).at
        results = super().datapath(m, pipeline, operands)
        word = Signal.like(results.word)
        m.d.comb += word.as_value().eq(results.word.as_value() ^ wrong)
        results.word = word
        return results


@pytest.mark.sim
def test_one_wrong_result_of_all_is_found(monkeypatch):
    monkeypatch.setattr(exhaustive, "_BLOCK", 1 << 13)
    report = verify([OneWrong], lns8, stimuli=["exhaustive"])
    assert not report.passed
    (example,) = report.counterexamples
    assert tuple(example.operands[name].bits for name in "ab") == OneWrong.PAIR
    assert example.index == OneWrong.PAIR[0] << 8 | OneWrong.PAIR[1]
    assert example.got["word"].bits == example.expected["word"].bits ^ 1
    assert sum(result.mismatches for result in report.results) == 1
    json.dumps(report.to_json())


class Lossy(Pipeline):
    """A result is lost where it waits for long."""

    def finish(self, payload, when=1):
        waited = Signal(2)
        self._m.d.sync += waited.eq(0)
        with self._m.If(self._o.valid & ~self._o.ready):
            self._m.d.sync += waited.eq(waited + (waited != 3))
        super().finish(payload, (waited != 3) & when)


class LosesResults(hdl.Multiply):
    def pipeline(self, m):
        return Lossy(m, self.i, self.o)


@pytest.mark.sim
def test_stalls_are_part_of_it():
    report = verify([LosesResults], lns8, stimuli=["exhaustive"])
    assert not report.passed


@pytest.mark.sim
def test_an_interrupted_run_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr("sim.exhaustive.cache_folder", lambda: tmp_path)
    unit = hdl.Divide(format=lns8)
    verilog, block = hdl.to_verilog(unit), 1 << 11

    def interrupt(done, total):
        if total and done >= total // 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify_space(unit, verilog, block=block, progress=interrupt, cores=1)
    (record,) = (tmp_path / "exhaustive").iterdir()
    done = json.loads(record.read_text())
    assert 8 <= len(done) < 32

    # Other gates are another run.
    multiply = hdl.Multiply(format=lns8)
    other = verify_space(multiply, hdl.to_verilog(multiply), block=block)
    assert (other.earlier, other.vectors) == (0, 1 << 16)

    def only_others(self, begin, end, of=Space.vectors):
        assert begin // block not in done
        return of(self, begin, end)

    with monkeypatch.context() as patch:
        patch.setattr(Space, "vectors", only_others)
        found = verify_space(unit, verilog, block=block)
    assert (found.earlier, found.vectors, found.mismatches) == (len(done) * block, 1 << 16, 0)
    assert not record.exists()
    # Once it is done, it can be done again.
    assert verify_space(unit, verilog, block=block).earlier == 0


@pytest.mark.sim
def test_what_goes_wrong_in_a_process_is_raised_here(monkeypatch):
    unit = hdl.Square(format=TINY)

    def fail(self, begin, end):
        raise ValueError("by design")

    with monkeypatch.context() as patch:
        patch.setattr(Space, "vectors", fail)
        with pytest.raises(ValueError, match="by design"):
            verify_space(unit, hdl.to_verilog(unit))
        patch.setattr(Space, "vectors", lambda self, begin, end: os._exit(7))
        with pytest.raises(RuntimeError, match="a process that compares stopped"):
            verify_space(unit, hdl.to_verilog(unit))
    before = torch.get_num_threads()
    assert verify_space(unit, hdl.to_verilog(unit)).vectors == 32
    assert torch.get_num_threads() == before
