"""What was tried is counted by bins, what can be and was not is a hole, and runs can be added up."""

import dataclasses
import json

import numpy as np
import pytest

import hdl
from sim.coverage import STALLS, Coverage, merge_file, read_code, read_file
from sim.segments import STIMULI, Segment, has_segment, make_segment
from sim.stimulus import Vectors, sum_distances
from sim.verify import verify
from xlnstorch import lns8, lns16, lns24, lnstensor
from xlnstorch.adders import Piecewise
from xlnstorch.cli import main

SPECIAL = dataclasses.replace(lns8, specials=True)


def one(unit, op, result, flags=0, **operands):
    columns = {name: np.array([bits]) for name, bits in operands.items()}
    return Segment(
        "by hand", Vectors(np.array([op]), columns), {"word": np.array([result]), "flags": np.array([flags])}
    )


def covered(unit, count=2000, stimuli=STIMULI[:-1]):
    found = Coverage.of(unit.name, unit)
    for stimulus in stimuli:
        if has_segment(stimulus, unit, None):
            found.add(unit, make_segment(stimulus, unit, 0, count, None))
    return found


@pytest.mark.parametrize(
    "format, bits, name",
    [
        (lns8, 0x00, "zero"),
        (lns8, 0x80, "zero"),
        (lns8, 0x01, "+smallest"),
        (lns8, 0xFF, "-largest"),
        (lns8, 0x3F, "+below one"),
        (lns8, 0xC0, "-one"),
        (lns8, 0x41, "+above one"),
        (SPECIAL, 0x80, "NaN"),
        (SPECIAL, 0xFF, "-infinity"),
        (SPECIAL, 0x7E, "+largest"),
    ],
)
def test_classes_of_words(format, bits, name):
    unit = hdl.Square(format=format)
    found = Coverage.of("square", unit)
    found.add(unit, one(unit, 0, bits, flags=0b0011, a=bits))
    assert dict(found.groups["classes"].hits) == {f"square: {name} -> {name}, overflow and underflow": 1}


def test_what_can_be_is_what_happens_in_a_small_format():
    group = Coverage.of("multiply", hdl.Multiply(format=lns16)).groups["classes"]
    assert "mul: zero, +one -> zero" in group.possible
    assert "mul: -largest, +largest -> -largest, overflow" in group.possible
    assert "mul: +below one, -smallest -> zero, underflow" in group.possible
    assert not any("+one, +one -> -one" in name for name in group.possible)
    assert not any("zero_divide" in name for name in group.possible)
    assert group.holes == sorted(group.possible)


@pytest.mark.parametrize(
    "unit", [hdl.Multiply, hdl.Divide, hdl.SquareRoot, hdl.Signs, hdl.Compare, hdl.MinMax, hdl.Relu]
)
@pytest.mark.parametrize("format", [lns8, SPECIAL, lns16], ids=["lns8", "specials", "lns16"])
def test_the_bench_leaves_no_holes(unit, format):
    assert covered(unit(format=format)).groups["classes"].holes == []


def test_an_adder_reads_its_whole_table():
    groups = covered(hdl.AddSubtract(format=lns16), 5000).groups
    assert groups["table"].holes == groups["distances"].holes == []
    assert groups["table"].total == 2 * lns16.adder.reach(lns16) - 1
    classes = groups["classes"]
    assert len(classes.holes) < 0.1 * classes.total
    few = covered(hdl.AddSubtract(format=lns16), 100, ["random"]).groups
    assert len(few["table"].holes) > 1000
    assert "t 1" in few["table"].holes


def test_segments_are_entries_where_the_adder_has_some():
    format = dataclasses.replace(lns24, adder=Piecewise(2))
    unit = hdl.AddSubtract(format=format)
    corners = [corner for corner in format.adder.corners(format) if 0 < corner < format.adder.reach(format)]
    group = covered(unit, 100, ["random"]).groups["table"]
    # A first segment that is nothing but zero is never read by a difference.
    assert group.total == 2 * (len(set(corners)) + 1) - (1 in corners)
    start = corners[5]
    d = np.array([start - 1, start])
    found = Coverage.of("add", unit)
    found._add_distances(format, d, np.array([False, True]))
    first, second = (int(name.split()[1]) for name in found.groups["table"].hits)
    assert second == first + 1


@pytest.mark.parametrize(
    "operation, words, expected",
    [
        ("add", (5.0, 2.0), ("2", False)),
        ("add", (-5.0, 2.0), ("2", True)),
        ("sub", (5.0, 2.0), ("2", True)),
        ("sub", (-5.0, 2.0), ("2", False)),
        ("add", (0.0, 2.0), None),
        ("mac", (2.0, 3.0, 6.0), ("0", False)),
        ("mac", (2.0, -3.0, 6.0), ("0", True)),
        ("mac", (2.0, 0.0, 6.0), None),
        ("mac", (2.0, 3.0, 0.0), None),
    ],
)
def test_distances_of_sums(operation, words, expected):
    operands = {
        name: lns16.to_unsigned(lnstensor([value], format=lns16).words).numpy()
        for name, value in zip("abc", words, strict=False)
    }
    d, subtract = sum_distances(lns16, operation, operands)
    if expected is None:
        assert d.size == 0
    else:
        assert subtract.tolist() == [expected[1]]
        exact = abs(int(operands["a"][0] & 0x7FFF) - int(operands["b"][0] & 0x7FFF)) if operation != "mac" else 0
        assert d.tolist() == [exact]


def test_an_operation_on_three_words_or_on_floats_has_no_holes_but_is_counted():
    for unit in (hdl.MultiplyAdd(format=lns8), hdl.ToFixed(format=lns8)):
        group = covered(unit, 100, ["random"]).groups["classes"]
        assert not group.possible
        assert group.hits.total() == 100


def test_a_sum_of_several_payloads_has_classes_of_results():
    group = covered(hdl.DotProduct(format=lns8, lanes=2), 500, ["random"]).groups["classes"]
    assert {name.split(":")[0] for name in group.hits} == {"dot"}
    assert "dot: +above one" in group.hits


def test_the_alu_sees_each_operation_as_it_is():
    unit = hdl.ALU(format=lns8, converters=("float16",))
    group = covered(unit, 2000, ["corners"]).groups["classes"]
    assert "compare: +one, -one -> greater" in group.hits
    assert "from_float16: NaN -> zero, invalid" in group.hits
    assert "to_float16: +one -> +finite" in group.hits
    assert not [hole for hole in group.holes if hole.split(":")[0] in ("mul", "div", "neg", "compare", "relu_grad")]


# Files ----------------------------------------------------------------------------------------------------------------


def test_runs_are_added_up_in_a_file(tmp_path):
    file = tmp_path / "coverage.json"
    unit = hdl.Multiply(format=lns16)
    first, second = covered(unit, 50, ["random"]), covered(unit, 50, ["saturation"])
    alone = [len(each.groups["classes"].holes) for each in (first, second)]
    both = set(first.groups["classes"].hits) | set(second.groups["classes"].hits)
    assert merge_file(file, [first]) == [first]
    (merged,) = merge_file(file, [second])
    assert set(merged.groups["classes"].hits) == both
    assert len(merged.groups["classes"].holes) < min(alone)
    assert read_file(file) == [merged]
    # Another format is another entry.
    assert len(merge_file(file, [covered(hdl.Multiply(format=lns8), 50, ["random"])])) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["coverage.json"]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"schema": 2, "coverage": []}', '{"schema": 1}', '{"schema": 1, "coverage": [{}]}']
)
def test_another_file_stays_as_it_is(tmp_path, capsys, text):
    file = tmp_path / "mine.json"
    file.write_text(text)
    assert main(["verify", "multiply", "--coverage", str(file)]) == 2
    assert f"'{file}' is not a file of lns verify --coverage" in capsys.readouterr().err
    assert file.read_text() == text
    assert main(["verify", "multiply", "--coverage", str(tmp_path / "no" / "c.json")]) == 2
    assert "c.json' cannot be written: its folder does not exist" in capsys.readouterr().err


def test_lines_and_toggles_are_read(tmp_path):
    keys = "\x01f\x02top.v\x01l\x02{}\x01n\x027\x01t\x02{}\x01page\x02v_{}/top\x01o\x02{}\x01h\x02top"
    entries = [(keys.format(3, "line", "line", "block"), 5), (keys.format(4, "line", "line", "block"), 0)]
    entries += [(keys.format(9, "toggle", "toggle", "a[3]:0->1"), 0), (keys.format(9, "user", "user", "x"), 0)]
    file = tmp_path / "coverage.dat"
    file.write_text("# SystemC::Coverage-3\n" + "".join(f"C '{key}' {count}\n" for key, count in entries))
    assert read_code(file) == {
        "line": {"hit": 1, "of": 2, "missed": ["block at line 4"]},
        "toggle": {"hit": 0, "of": 1, "missed": ["a[3]:0->1 at line 9"]},
    }


def test_lines_need_the_bench_in_verilator():
    with pytest.raises(ValueError, match="not by the runner batch"):
        verify([hdl.Square], lns8, runner="batch", code_coverage=True)
    with pytest.raises(ValueError, match="not by icarus"):
        verify([hdl.Square], lns8, simulator="icarus", code_coverage=True)


@pytest.mark.sim
def test_a_run_of_the_command(tmp_path, capsys):
    file = tmp_path / "coverage.json"
    command = [*"verify relu --format lns8 --stimulus random --vectors 300 --coverage".split(), str(file)]
    assert main([*command, "--code-coverage"]) == 0
    out = capsys.readouterr().out
    assert "coverage" in out
    assert "toggles of its Verilog were hit" in out
    assert main([*command, "--seed", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    (relu,) = report["coverage"]
    assert sum(relu["groups"]["classes"]["hits"].values()) == 600
    assert set(relu["groups"]["stalls"]["hits"]) < set(STALLS)  # it is too short for some
    assert "taken, taken" in relu["groups"]["stalls"]["hits"]
    assert relu["groups"]["classes"]["holes"]
    assert report["code_coverage"] == {}


@pytest.mark.sim
def test_the_batch_runner_stalls_in_every_way():
    report = verify([hdl.Relu], lns8, stimuli=["random"], runner="batch", coverage=True)
    (relu,) = report.coverage
    stalls = relu.groups["stalls"]
    assert set(stalls.hits) == set(STALLS)
    assert stalls.holes == []
    assert min(stalls.hits.values()) > 100


def test_of_all_operands_there_is_nothing_to_count(monkeypatch):
    monkeypatch.setattr("sim.verify._run_all", None)
    with pytest.raises(ValueError, match=r"^the stimulus exhaustive is all operands, of which no coverage is counted$"):
        verify([hdl.Relu], lns8, stimuli=["random", "exhaustive"], coverage=True)
