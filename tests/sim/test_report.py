import dataclasses
import io

import pytest
from rich.console import Console

from sim.report import describe, print_report
from sim.results import Counterexample, Report, Result

RESULT = Result("add", "lns16", "exact", "rtl", "verilator", "captured", 41_391, 0, 2.0)
EXAMPLE = Counterexample(
    unit="add",
    format="lns16",
    operation="sub",
    stimulus="captured",
    index=17,
    source="aten.mm.default (backward)",
    a=0x4000,
    b=1,
    a_value=1.0,
    b_value=2.95e-39,
    expected_word=0x4000,
    expected_value=1.0,
    expected_flags=[],
    got_word=0,
    got_value=0.0,
    got_flags=["underflow", "invalid"],
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
    example = dataclasses.replace(EXAMPLE, got_word=None, got_value=None, got_flags=None, format="8,10")
    lines = describe(example).splitlines()
    assert lines[5] == "  got       unknown bits"
    assert lines[2] == "  a         0x04000  1.0"  # as wide as the word, of 19 bits


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_table_fits_the_terminal_and_nothing_of_it_is_cut(width):
    text = printed(Report(3, [RESULT]), width)
    assert "add   lns16   captured   41,391           0     20,696" in text
    assert "…" not in text
    assert "passed: 41,391 results equal the golden model bit for bit" in text


def test_the_verdict_names_the_adder_as_it_is_written():
    text = printed(Report(3, [dataclasses.replace(RESULT, adder="odd:at=[one]")]), 200)
    assert "(odd:at=[one] adder, rtl in verilator, seed 3)" in text  # brackets are text, not markup


def test_a_failure_shows_problems_the_first_mismatch_and_the_count():
    wrong = dataclasses.replace(RESULT, mismatches=5)
    text = printed(Report(3, [RESULT, wrong], [EXAMPLE, EXAMPLE], ["add: it [stopped]"]), 200)
    assert "add: it [stopped]" in text  # brackets are text, not markup
    assert text.count("first mismatch") == text.count("cycle     4711") == 1
    assert "failed: 5 of 82,782 results differ (exact adder, rtl in verilator, seed 3)" in text
