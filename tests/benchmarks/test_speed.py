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
