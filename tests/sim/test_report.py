import dataclasses
import io

import pytest
from rich.console import Console

from sim.report import describe, print_report
from sim.results import Counterexample, Field, Report, Result

RESULT = Result("add", "lns16", "exact", "log", False, "rtl", "verilator", "cocotb", "captured", 41_391, 0, 2.0)
EXAMPLE = Counterexample(
    unit="add",
    format="lns16",
    operation="sub",
    stimulus="captured",
    index=17,
    source="aten.mm.default (backward)",
    operands={"a": Field(16, 0x4000, 1.0), "b": Field(16, 1, 2.95e-39)},
    expected={"word": Field(16, 0x4000, 1.0), "flags": Field(4, 0, [])},
    got={"word": Field(16, 0, 0.0), "flags": Field(4, 6, ["underflow", "invalid"])},
    cycle=4711,
    seed=3,
    command="lns verify add --format lns16 --simulator verilator --seed 3 --vectors 20000",
)


def printed(report, width):
    console = Console(file=io.StringIO(), width=width)
    print_report(report, console)
    return console.file.getvalue()


def test_a_counterexample_is_shown_in_full():
    assert describe(EXAMPLE).splitlines() == [
        "  unit      add, lns16, operation sub",
        "  stimulus  captured, vector 17, from aten.mm.default (backward)",
        "  a         0x4000  1.0",
        "  b         0x0001  2.95e-39",
        "  expected  0x4000  1.0  flags: none",
        "  got       0x0000  0.0  flags: underflow, invalid",
        "  cycle     4711",
        "  seed      3",
        "  again     lns verify add --format lns16 --simulator verilator --seed 3 --vectors 20000",
    ]


def test_unknown_bits_are_said_to_be():
    lines = describe(dataclasses.replace(EXAMPLE, got=None)).splitlines()
    assert lines[5] == "  got       unknown bits"


def test_fields_are_shown_as_wide_as_they_are_by_their_names_and_arrays_in_brackets():
    example = dataclasses.replace(
        EXAMPLE,
        operands={
            "weights": Field(19, [[1, 2], [3, 0x40000]], [[0.5, 0.25], ["nan", -1.0]]),
            "channel": Field(2, 3, 3),
        },
        expected={"less": Field(1, 1, True), "more": Field(1, 0, False)},
        got={"word": Field(8, [1, 2], [1.0, 2.0]), "flags": Field(4, [0, 3], [[], ["overflow", "underflow"]])},
    )
    assert describe(example).splitlines()[2:6] == [
        "  weights   [[0x00001  0.5, 0x00002  0.25], [0x00003  nan, 0x40000  -1.0]]",
        "  channel   0x3  3",
        "  expected  0x1  True  more: 0x0  False",
        "  got       [0x01  1.0, 0x02  2.0]  flags: [none; overflow, underflow]",
    ]


def test_the_verdict_says_that_there_are_infinities_and_nan():
    text = printed(Report(3, [dataclasses.replace(RESULT, specials=True)]), 200)
    assert "(exact adder, infinities and NaN, rtl in verilator, seed 3)" in text


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_table_fits_the_terminal_and_nothing_of_it_is_cut(width):
    text = printed(Report(3, [RESULT]), width)
    assert "add   lns16   captured   41,391           0     20,696" in text
    assert "…" not in text
    assert "passed: 41,391 results equal the golden model bit for bit" in text


def test_the_verdict_names_the_adder_as_it_is_written():
    text = printed(Report(3, [dataclasses.replace(RESULT, adder="odd:at=[one]")]), 200)
    assert "(odd:at=[one] adder, rtl in verilator, seed 3)" in text  # brackets are text, not markup


def test_the_verdict_names_another_accumulator_than_the_default():
    text = printed(Report(3, [dataclasses.replace(RESULT, accumulator="log:order=tree", specials=True)]), 200)
    assert "(exact adder, log:order=tree accumulator, infinities and NaN, rtl in verilator, seed 3)" in text


def test_a_failure_shows_problems_the_first_mismatch_and_the_count():
    wrong = dataclasses.replace(RESULT, mismatches=5)
    text = printed(Report(3, [RESULT, wrong], [EXAMPLE, EXAMPLE], ["add: it [stopped]"]), 200)
    assert "add: it [stopped]" in text  # brackets are text, not markup
    assert text.count("first mismatch") == text.count("cycle     4711") == 1
    assert "failed: 5 of 82,782 results differ (exact adder, rtl in verilator, seed 3)" in text
