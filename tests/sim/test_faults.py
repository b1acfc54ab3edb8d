"""The bench must be able to fail: faults planted in the gates by subclasses, each found by ``lns verify``."""

import dataclasses
import json
import shlex

import pytest
from amaranth.hdl import Const, ResetSignal, Signal
from lnstesting import Off

import hdl
from hdl.gaussian import datapath_of
from hdl.pipeline import Pipeline
from xlnstorch import Exact
from xlnstorch.adders import ADDERS, GaussianTable
from xlnstorch.cli import main
from xlnstorch.reference import Reference

pytestmark = pytest.mark.sim

REFERENCE = Reference(8, 7)
D = 37  # the distance at which the table is wrong


class WrongTable(hdl.AddSubtract):
    """An adder whose ROM is not what it should be."""

    def __init__(self, *, format):
        super().__init__(format=format)
        table = self._gaussian.table()
        self._gaussian.table = lambda: GaussianTable(*self.spoil(list(table.sums), list(table.differences)))


class WrongTableEntry(WrongTable):
    def spoil(self, sums, differences):
        differences[D] += 1
        return sums, differences


class WrongLastEntries(WrongTable):
    """The last entries that are not zero, of each logarithm; random words hardly ever read them."""

    def spoil(self, sums, differences):
        for entries in (sums, differences):
            last = max(d for d, entry in enumerate(entries) if entry)
            entries[last] = 0
        return sums, differences


class AnotherAdder(hdl.AddSubtract):
    """Gates of the exact adder, whatever the format says."""

    def __init__(self, *, format):
        super().__init__(format=format)
        self._gaussian = datapath_of(Exact(), dataclasses.replace(format, adder=Exact()))


class WrongSign(Pipeline):
    """The sign of a product is negative if that of either factor is."""

    def __init__(self, m, i, o):
        super().__init__(m, i, o)
        self._operands = i.payload

    def stage(self, **values):
        if self.depth == 0:
            values["sign"] = self._operands.a.sign | self._operands.b.sign
        return super().stage(**values)


class SkipsARegister(Pipeline):
    """The sign passes the first stage without a register, so it is that of the next operands."""

    def stage(self, **values):
        registers = super().stage(**values)
        if self.depth == 1:
            registers.sign = values["sign"]
        return registers


class MovesWhileStalled(Pipeline):
    """The first stage's data moves on while a result waits to be taken."""

    def stage(self, **values):
        registers = super().stage(**values)
        if self.depth == 1:
            for name, value in values.items():
                self._m.d.sync += getattr(registers, name).eq(value)
        return registers


class SurvivesReset(Pipeline):
    """What is in flight stays valid through a reset."""

    def stage(self, **values):
        self._before = self.valid
        registers = super().stage(**values)
        kept = Signal(name=f"kept_{self.depth}", reset_less=True)
        with self._m.If(self.advance):
            self._m.d.sync += kept.eq(self._before)
        self.valid = kept
        return registers


class Stops(Pipeline):
    """After some hundred payloads nothing moves any more."""

    def __init__(self, m, i, o):
        super().__init__(m, i, o)
        taken, self._stopped = Signal(10), Signal()
        m.d.comb += self._stopped.eq(taken == 700)
        with m.If(i.valid & i.ready):
            m.d.sync += taken.eq(taken + 1)
        with m.If(self._stopped):
            m.d.comb += [self.advance.eq(0), i.ready.eq(0)]

    def finish(self, payload, when=1):
        super().finish(payload, when)
        with self._m.If(self._stopped):
            self._m.d.comb += self._o.valid.eq(0)


class TakesOneClockMore(Pipeline):
    """A register too many behind the stages that are counted."""

    def finish(self, payload, when=1):
        extra, valid = Signal(payload.shape()), Signal()
        with self._m.If(self.advance):
            self._m.d.sync += [extra.eq(payload), valid.eq(self.valid)]
        self.valid = valid
        super().finish(extra, when)


class ValidWaitsForReady(Pipeline):
    def finish(self, payload, when=1):
        self._m.d.comb += self.advance.eq(~self.valid | self._o.ready)
        super().finish(payload, when)
        self._m.d.comb += self._o.valid.eq(self.valid & self._o.ready)


class ResetsOnlyWhileStalled(Pipeline):
    """A reset does not clear what moves in the same clock."""

    def stage(self, **values):
        before = self.valid
        registers = super().stage(**values)
        kept = Signal(name=f"kept_{self.depth}", reset_less=True)
        with self._m.If(self.advance):
            self._m.d.sync += kept.eq(before)
        with self._m.Elif(ResetSignal()):
            self._m.d.sync += kept.eq(0)
        self.valid = kept
        return registers


class SlowsDown(Pipeline):
    """After some hundred payloads it takes one only every other clock."""

    def __init__(self, m, i, o):
        super().__init__(m, i, o)
        taken, turn = Signal(12), Signal()
        m.d.sync += turn.eq(~turn)
        with m.If(i.valid & i.ready & (taken < 2000)):
            m.d.sync += taken.eq(taken + 1)
        hold = (taken == 2000) & turn
        with m.If(hold):
            m.d.comb += i.ready.eq(0)
        self.valid = i.valid & ~hold


class DropsAfterALongWait(Pipeline):
    """A result that has waited for 40 clocks is lost."""

    def finish(self, payload, when=1):
        waited = Signal(6)
        with self._m.If(self._o.valid & ~self._o.ready):
            self._m.d.sync += waited.eq(waited + 1)
        with self._m.Else():
            self._m.d.sync += waited.eq(0)
        with self._m.If(waited == 40):
            self._m.d.comb += self.advance.eq(1)
        super().finish(payload, when)


class ForgetsOverflow(Pipeline):
    def finish(self, payload, when=1):
        quiet = Signal(payload.shape())
        self._m.d.comb += [quiet.eq(payload), quiet.flags.overflow.eq(Const(0))]
        super().finish(quiet, when)


def with_pipeline(unit, pipeline_class):
    class Faulty(unit):
        def pipeline(self, m):
            return pipeline_class(m, self.i, self.o)

    return Faulty


def run(monkeypatch, capsys, unit, *options):
    """Verify `unit` in the place of the one it derives from; return the exit status and the JSON report."""
    monkeypatch.setitem(hdl.UNITS, unit.name, unit)
    arguments = ["verify", unit.name, "--vectors", "3000", *options]
    status = main([*arguments, "--json"])
    return status, json.loads(capsys.readouterr().out), arguments


def operands(example):
    return [field["bits"] for field in example["operands"].values()]


def expected_and_got(example):
    return [example[name]["word"]["bits"] for name in ("expected", "got")]


def first_mismatch(monkeypatch, capsys, unit):
    status, report, _ = run(monkeypatch, capsys, unit, "--exit-first")
    assert status == 1
    assert report["passed"] is False
    assert sum(result["mismatches"] for result in report["results"]) > 0
    example = report["counterexamples"][0]
    word, flags = getattr(REFERENCE, example["operation"])(*operands(example))
    assert (example["expected"]["word"]["bits"], set(example["expected"]["flags"]["value"])) == (word, set(flags))
    return example


def test_a_wrong_table_entry_is_found_and_shown_in_full(monkeypatch, capsys):
    options = ("--stimulus", "table", "--stimulus", "near-cancelling")
    status, report, arguments = run(monkeypatch, capsys, WrongTableEntry, *options)
    assert status == 1
    assert {result["stimulus"]: result["mismatches"] > 0 for result in report["results"]}["table"]
    for example in report["counterexamples"]:
        (sign_a, field_a), (sign_b, field_b) = ((word >> 15, word & 0x7FFF) for word in operands(example))
        assert abs(field_a - field_b) == D
        assert (sign_a != sign_b) == (example["operation"] == "add")  # a difference of magnitudes either way
        expected, got = expected_and_got(example)
        assert expected - got == 1  # t(d) one too large
        assert expected == getattr(REFERENCE, example["operation"])(*operands(example))[0]

    assert main(arguments) == 1
    shown = capsys.readouterr().out
    example = report["counterexamples"][0]
    fields = {**example["operands"], **{name: example[name]["word"] for name in ("expected", "got")}}
    assert list(fields) == ["a", "b", "expected", "got"]
    for part in (
        *(f"{name:8}  0x{field['bits']:04x}  {field['value']!r}" for name, field in fields.items()),
        f"cycle     {example['cycle']}",
        "seed      0",
        "lns verify add --format lns16 --simulator verilator --seed 0 --vectors 3000",
    ):
        assert part in shown


def test_the_last_entries_of_the_table_are_checked(monkeypatch, capsys):
    _, report, _ = run(monkeypatch, capsys, WrongLastEntries, "--stimulus", "table")
    assert report["results"][0]["mismatches"] == 8  # each logarithm: two operations, two orders, and both signs met


def test_gates_of_another_adder_are_found_and_the_command_says_which_was_asked_for(monkeypatch, capsys):
    monkeypatch.setitem(ADDERS, "off", Off)
    options = ("--adder", "off:by=3,below=9", "--stimulus", "table")
    status, report, _ = run(monkeypatch, capsys, AnotherAdder, *options)
    assert status == 1
    assert report["results"][0]["mismatches"] == (9 + 8) * 4  # the distances below 9, but for x - x
    example = report["counterexamples"][0]
    expected, got = expected_and_got(example)
    assert abs(expected - got) == 3
    command = shlex.split(example["command"])
    assert command[:7] == ["lns", "verify", "add", "--format", "lns16", "--adder", "off:by=3,below=9"]
    assert main([*command[1:], "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["counterexamples"][0] == example


@pytest.mark.parametrize(
    ("pipeline", "problem"),
    [
        (ValidWaitsForReady, "multiply: o.valid stayed low while o.ready was low: it must not wait for it"),
        (ResetsOnlyWhileStalled, "multiply: a result that was in flight came out after a reset"),
        (SlowsDown, "multiply: nothing was taken at cycle "),
        (DropsAfterALongWait, "multiply: o.payload changed at cycle "),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_broken_handshake_reset_or_rate_is_found(pipeline, problem, monkeypatch, capsys):
    unit = with_pipeline(hdl.Multiply, pipeline)
    options = ("--stimulus", "random", "--vectors", "40000", "--exit-first")
    status, report, _ = run(monkeypatch, capsys, unit, *options)
    assert status == 1
    assert report["problems"][0].startswith(problem)


def test_a_wrong_sign_is_found(monkeypatch, capsys):
    example = first_mismatch(monkeypatch, capsys, with_pipeline(hdl.Multiply, WrongSign))
    assert [word >> 15 for word in operands(example)] == [1, 1]
    expected, got = expected_and_got(example)
    assert expected ^ got == 0x8000


def test_a_missing_register_is_found(monkeypatch, capsys):
    example = first_mismatch(monkeypatch, capsys, with_pipeline(hdl.Multiply, SkipsARegister))
    expected, got = expected_and_got(example)
    assert expected ^ got == 0x8000


def test_a_stage_that_ignores_stalls_is_found(monkeypatch, capsys):
    example = first_mismatch(monkeypatch, capsys, with_pipeline(hdl.Multiply, MovesWhileStalled))
    assert example["cycle"] > 64  # the first clocks have no stalls


def test_a_flag_that_is_never_raised_is_found(monkeypatch, capsys):
    example = first_mismatch(monkeypatch, capsys, with_pipeline(hdl.Multiply, ForgetsOverflow))
    assert [example[name]["flags"]["value"] for name in ("expected", "got")] == [["overflow"], []]
    expected, got = expected_and_got(example)
    assert expected == got


@pytest.mark.parametrize("runner", ["cocotb", "batch"])
def test_a_run_may_end_at_the_first_failure(runner, monkeypatch, capsys):
    unit = with_pipeline(hdl.Multiply, WrongSign)
    options = ("--stimulus", "corners", "--stimulus", "random", "--runner", runner)
    _, whole, _ = run(monkeypatch, capsys, unit, *options)
    status, cut, _ = run(monkeypatch, capsys, unit, *options, "--exit-first")
    assert status == 1
    assert cut["counterexamples"] == whole["counterexamples"][:1]
    (row,) = cut["results"]
    assert row["stimulus"] == "corners"
    assert len(whole["results"]) == 2
    if runner == "cocotb":
        assert (row["vectors"], row["mismatches"]) == (cut["counterexamples"][0]["index"] + 1, 1)


def test_what_survives_a_reset_is_found(monkeypatch, capsys):
    status, report, _ = run(monkeypatch, capsys, with_pipeline(hdl.Multiply, SurvivesReset), "--stimulus", "random")
    assert status == 1
    assert report["problems"]


def test_a_unit_that_stops_is_found_and_its_missing_results_counted(monkeypatch, capsys):
    status, report, _ = run(monkeypatch, capsys, with_pipeline(hdl.Multiply, Stops), "--stimulus", "random")
    assert status == 1
    assert any(problem.startswith("multiply: the unit stopped: ") for problem in report["problems"])
    assert report["results"][0]["mismatches"] > 2200


def test_a_latency_other_than_stated_is_found(monkeypatch, capsys):
    unit = with_pipeline(hdl.Multiply, TakesOneClockMore)
    status, report, _ = run(monkeypatch, capsys, unit, "--stimulus", "random")
    assert status == 1
    assert report["results"][0]["mismatches"] == 0  # right, but late
    assert report["problems"][0].startswith("multiply: the result at cycle ")
    stated = hdl.Multiply.latency
    late = f" took {stated + 1} clocks without stalls, not the stated {stated}; again: lns verify multiply "
    assert late in report["problems"][0]
