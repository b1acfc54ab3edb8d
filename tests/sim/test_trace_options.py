"""``lns verify --trace``: the saved operations go through the gates, in the format that they are of."""

import dataclasses
import json

import numpy as np
import pytest

from sim import Trace, capture
from sim.verify import verify
from sim.workloads import digits_epoch
from xlnstorch import LogAccumulator, Mitchell, lns8, lns12, lns16, lnstensor
from xlnstorch.cli import main


@pytest.fixture
def saved(tmp_path):
    def save(format, change=None):
        x = lnstensor([1.5, -2.0, 0.0, 4.0], format=format)
        with capture(format) as trace:
            x * x + x
        if change:
            change(trace)
        path = tmp_path / "trace.npz"
        trace.save(path)
        return str(path)

    return save


def not_built(monkeypatch):
    monkeypatch.setattr("sim.simulators.Simulator.build", lambda *args: pytest.fail("built"))


@pytest.mark.sim
@pytest.mark.parametrize("runner", ["cocotb", "batch"])
def test_the_format_is_that_of_the_trace_unless_another_is_asked_for(runner, saved, capsys):
    format = dataclasses.replace(lns12, adder=Mitchell(), accumulator=LogAccumulator(order="tree"), specials=True)
    arguments = ["--stimulus", "captured", "--trace", saved(format), "--runner", runner, "--json"]
    assert main(["verify", "multiply", "add", *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    shown = ("unit", "format", "adder", "accumulator", "specials", "stimulus", "vectors", "mismatches")
    assert [[result[key] for key in shown] for result in report["results"]] == [
        [unit, "lns12", format.adder.name, "log:order=tree", True, "captured", 4, 0] for unit in ("multiply", "add")
    ]


@pytest.mark.parametrize(
    ("asked", "wanted", "own"),
    [
        (["--format", "lns16"], "lns16", "lns8"),
        (["--specials"], "LNSFormat(4, 3, specials=True)", "lns8"),
        (["--adder", "mitchell"], f"LNSFormat(4, 3, adder={Mitchell()!r})", "lns8"),
    ],
    ids=str,
)
def test_a_trace_of_another_format_than_asked_for_is_refused(asked, wanted, own, saved, capsys, monkeypatch):
    not_built(monkeypatch)
    assert main(["verify", "multiply", "--trace", saved(lns8), *asked]) == 2
    assert capsys.readouterr().err == f"lns verify: the trace must be of {wanted}, not {own}\n"


def test_bad_traces_are_one_sentence_and_exit_2(saved, tmp_path, capsys, monkeypatch):
    not_built(monkeypatch)
    path, missing = saved(lns8), str(tmp_path / "none.npz")
    cut = tmp_path / "cut.npz"
    cut.write_bytes((tmp_path / "trace.npz").read_bytes()[:-40])
    for arguments, message in [
        (["--trace", missing], f"the trace {missing!r} cannot be read: No such file or directory"),
        (["--trace", str(cut)], f"the trace {str(cut)!r} is damaged or not complete"),
        (["--trace", __file__], f"{__file__!r} is not a trace that lns capture wrote"),
        (["--trace", path, "--stimulus", "random"], "a trace is for the stimulus captured, not random"),
        (["sqrt", "--trace", path], "the trace has no operation of sqrt: sqrt"),
    ]:
        assert main(["verify", *arguments]) == 2
        captured = capsys.readouterr()
        assert (captured.out, captured.err) == ("", f"lns verify: {message}\n")


@pytest.mark.sim
@pytest.mark.parametrize("runner", ["cocotb", "batch"])
def test_a_wrong_result_in_a_trace_is_found_and_the_command_names_the_file(runner, saved, capsys):
    def spoil(trace):
        words = np.array([lns8.bias, lns8.bias + 3], np.uint8)
        trace.add("mul", "aten.mul.Tensor (backward)", 2, (words, words, words, np.zeros(2, np.uint8)))

    path = saved(lns8, spoil)
    arguments = ["--stimulus", "captured", "--trace", path]
    assert main(["verify", "multiply", *arguments, "--runner", runner, "--json"]) == 1
    (example,) = json.loads(capsys.readouterr().out)["counterexamples"]
    assert (example["index"], example["source"]) == (5, "aten.mul.Tensor (backward)")
    assert example["expected"]["word"]["bits"] == lns8.bias + 3
    assert example["got"]["word"]["bits"] == lns8.bias + 6
    assert example["command"].startswith("lns verify multiply --format lns8 --simulator verilator --seed 0 ")
    assert example["command"].endswith(f" --stimulus captured --trace {path}")


@pytest.mark.sim
def test_steps_of_an_epoch_pass_through_the_gates_of_the_alu(tmp_path, capsys):
    replay(tmp_path / "steps.npz", 3, capsys)


@pytest.mark.sim
@pytest.mark.long
def test_an_epoch_passes_through_the_gates_of_the_alu(tmp_path, capsys):
    assert replay(tmp_path / "epoch.npz", None, capsys) > 11_000_000


def replay(path, steps, capsys):
    with capture(lns16) as trace:
        _, losses = digits_epoch(lns16, seed=0, steps=steps)
    assert len(losses) == (steps or 113)
    trace.save(path)
    assert main(["verify", "alu", "--stimulus", "captured", "--trace", str(path), "--runner", "batch", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    counts = Trace.load(path).counts
    assert report["not_replayed"] == {name: counts.pop(name) for name in ("exp", "log")}
    assert [(result["vectors"], result["mismatches"]) for result in report["results"]] == [(counts.total(), 0)]
    assert set(counts) == {"mul", "add", "sub", "div", "square", "sqrt", "neg", "min", "relu", "relu_grad"}
    return counts.total()


@pytest.mark.sim
def test_a_long_trace_is_replayed_in_parts(monkeypatch, saved, capsys):
    monkeypatch.setattr("sim.runs._PART", 3)
    path = saved(lns8)
    done = []

    def verified(*arguments):
        return verify(["add"], lns8, stimuli=["captured"], trace=Trace.load(path), runner="batch", **dict(arguments))

    assert verified(("progress", lambda *at: done.append(at))).passed
    assert [at for at in done if at[1]] == [("add", 3, 4), ("add", 4, 4), ("add", 4, 4)]

    def spoil(trace):
        record = trace["add"]
        record.result[1] ^= 1
        record.result[3] ^= 1

    path = saved(lns8, spoil)
    report = verified()
    assert [(result.vectors, result.mismatches) for result in report.results] == [(4, 2)]
    assert [example.index for example in report.counterexamples] == [1]
    monkeypatch.setattr("sim.runs._PART", 1)
    again = verified()
    assert again.counterexamples == report.counterexamples
    assert again.results[0].mismatches == 2
