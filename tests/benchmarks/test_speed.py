"""The benchmark of the golden model's speed: what it prints, and that no work becomes slower beside float32."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from xlnstorch import kernels

FILE = Path(__file__).parents[2] / "benchmarks/speed.py"
speed = SimpleNamespace(**runpy.run_path(str(FILE), run_name="speed"))
QUICK = ["--rounds", "3", "--seconds", "0.01", "--threads", "1"]


def test_json_has_every_figure(capsys):
    status = speed.main([*QUICK, "--only", "scalars", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == 1
    assert report["kernels"] == kernels.current()
    (row,) = report["rows"]
    assert (row["work"], row["threads"], row["rate"], row["target"]) == ("one addition of scalars", 1, "µs", 25.0)
    assert set(row["figures"]) == {"ours", "float32", "bfloat16"}
    assert set(row["times_as_fast_as"]) == {"float32", "bfloat16"}
    assert all(figure > 0 for figure in row["figures"].values())
    assert row["reached"] == (row["figures"]["ours"] <= 25.0)
    assert status == (0 if row["reached"] else 1)


def test_the_table_has_a_line_for_each_work(capsys):
    speed.main([*QUICK, "--only", "10⁶ elements, lns16"])
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["work", "threads", "target"]
    assert [line.split(",")[0] for line in lines] == ["add", "mul"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "nothing"], "--only must be part of a title, not 'nothing'"),
        (["--only", "memory", "--check"], "--only must be part of a title, not 'memory'"),
        (["--check", "--write-baseline"], "argument --write-baseline: not allowed with argument --check"),
        (["--peer", "/no/such"], "--peer must be a virtual environment, not /no/such; --make-peer makes one"),
        (["--rounds", "0"], "--rounds must be at least 1, not 0"),
        (["--threads", "0"], "--threads must be at least 1, not 0"),
    ],
)
def test_bad_arguments_get_a_sentence(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        speed.main(arguments)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.endswith(f"error: {message}\n")


def test_an_element_takes_the_memory_of_its_word(capsys):
    assert speed.main([*QUICK, "--only", "memory", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["figures"] == {"ours": 2.0, "float32": 4.0, "bfloat16": 2.0}
    assert row["reached"]


@pytest.fixture
def baseline():
    if not speed.baseline_file().exists():
        pytest.skip(f"no baseline for this machine: {speed.baseline_file().name}")
    return json.loads(speed.baseline_file().read_text())


@pytest.mark.slow
def test_nothing_is_a_quarter_slower_beside_float32_than_the_baseline(baseline):
    # The adder of lns32 piecewise takes a minute to generate: --check has it.
    works = [work for work in speed.WORKS if "piecewise" not in work.title and work.rate != "B"]
    assert speed.worse(works, baseline) == []


@pytest.mark.slow
def test_kernels_that_are_slower_are_worse(baseline):
    (work,) = (work for work in speed.WORKS if work.title == "mul, 10⁶ elements, lns16")
    with kernels.using("off"):
        (sentence,) = speed.worse([work], baseline, seconds=0.5)
    assert sentence.startswith("mul, 10⁶ elements, lns16: 0.")
    assert sentence.endswith("in the baseline")


def test_a_ratio_is_of_best_times(monkeypatch):
    (work,) = (work for work in speed.WORKS if work.title == "one addition of scalars")
    times = iter([4.0, 1.0, 2.0, 3.0, 5.0, 2.0, 1.0, 0.5])
    patched = SimpleNamespace(**runpy.run_path(str(FILE), run_name="speed"))
    monkeypatch.setitem(patched.best_ratio.__globals__, "seconds_of", lambda run, least: next(times))
    assert patched.best_ratio(work, 0.0) == 0.5  # the best of three rounds: 2 and 1
    assert list(times) == [1.0, 0.5]


def test_a_work_without_a_baseline_is_told():
    assert speed.worse(speed.WORKS[:1], {}) == ["matmul 256³, lns16: not in the baseline"]


def test_a_machine_without_a_baseline_is_told(monkeypatch, capsys):
    monkeypatch.setitem(speed.main.__globals__, "baseline_file", lambda: Path("/no/such/speed_none.json"))
    with pytest.raises(SystemExit) as stopped:
        speed.main(["--check"])
    assert stopped.value.code == 2
    assert "there is no baseline speed_none.json; make one with --write-baseline" in capsys.readouterr().err


def test_a_baseline_is_written_and_checked(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(speed.main.__globals__, "baseline_file", lambda: tmp_path / "speed.json")
    monkeypatch.setitem(speed.main.__globals__, "best_ratio", lambda work, seconds, enough=None: 0.25)
    assert speed.main(["--write-baseline", "--only", "scalars"]) == 0
    assert json.loads((tmp_path / "speed.json").read_text()) == {"one addition of scalars": 0.25}
    assert speed.main(["--check", "--only", "scalars"]) == 0
    assert speed.main(["--write-baseline", "--only", "mul, 10"]) == 0
    assert len(json.loads((tmp_path / "speed.json").read_text())) == 2
    monkeypatch.setitem(speed.main.__globals__, "best_ratio", lambda work, seconds, enough=None: 0.18)
    assert speed.main(["--check", "--only", "scalars"]) == 1
    assert capsys.readouterr().err == "one addition of scalars: 0.18 of float32's speed, 0.25 in the baseline\n"


def test_figures_are_rates_or_times():
    by_title = {work.title: work for work in speed.WORKS}
    matmul, add = by_title["matmul 256³, lns16"], by_title["add, 10⁶ elements, lns16"]
    row = speed._row(matmul, 1, {"ours": [0.01, 0.004, 0.005], "float32": [0.001, 0.001, 0.001]})
    assert row["figures"]["ours"] == pytest.approx(256**3 / 0.005 / 1e9)
    assert row["times_as_fast_as"] == {"float32": pytest.approx(0.2)}
    assert row["reached"] is True
    assert speed._row(matmul, 1, {"ours": [0.006]})["reached"] is False
    assert speed._row(add, 1, {"ours": [0.0009]})["figures"] == {"ours": pytest.approx(0.9)}
    assert speed._row(add, 1, {"ours": [0.0011]})["reached"] is False
