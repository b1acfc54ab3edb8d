import argparse
import io
import json
import os
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot
from rich.console import Console

from xlnstorch import plot
from xlnstorch.cli import main
from xlnstorch.plot import command, output

KINDS = {
    "spacing": ["--beside", "float16", "--relative"],
    "heatmap": ["--format", "lns8", "--format", "4,2", "--op", "sub", "--signs=-+", "--points", "30"],
    "staircase": ["--interval", "-2", "2"],
    "distribution": ["--scale", "log", "--points", "20"],
    "rounding": ["--points", "200", "--beside", "bfloat16"],
    "sweep": ["--op", "mul", "--points", "50", "--frac-bits", "3", "6"],
}


def starts(data: bytes, suffix: str) -> bool:
    return data.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_draws(kind, tmp_path, capsys):
    file = tmp_path / "plot.png"
    assert main(["plot", kind, *KINDS[kind], "-o", str(file)]) == 0
    assert capsys.readouterr() == ("", "")
    assert starts(file.read_bytes(), "png")
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_every_file_kind_is_the_same_twice(suffix, tmp_path):
    files = [tmp_path / f"{name}.{suffix}" for name in "ab"]
    for file in files:
        assert main(["plot", "staircase", "--output", str(file)]) == 0
    first, second = (file.read_bytes() for file in files)
    assert starts(first, suffix)
    assert first == second


def test_an_image_on_standard_output(capsysbinary):
    assert main(["plot", "staircase", "-o", "-"]) == 0
    captured = capsysbinary.readouterr()
    assert starts(captured.out, "png")
    assert captured.err == b""


def test_a_link_is_followed_and_a_file_replaced(tmp_path):
    file, link = tmp_path / "real.svg", tmp_path / "link.svg"
    file.write_text("old")
    link.symlink_to(file)
    assert main(["plot", "staircase", "-o", str(link)]) == 0
    assert link.is_symlink()
    assert starts(file.read_bytes(), "svg")


def test_heat_maps_of_several_formats_share_their_colours():
    small, large = (plot.error_map("lns8", points=8) for _ in range(2))
    large.error[3, 4] = 7.0
    large.error[0, 0] = np.inf
    figure = command._draw(argparse.Namespace(kind="heatmap"), [small, large])
    panels = [ax for ax in figure.axes if ax.get_title()]
    assert [ax.collections[0].get_clim() for ax in panels] == [(-7.0, 7.0)] * 2


PAGE = (Path(__file__).parents[3] / "docs" / "plots.md").read_text()


@pytest.mark.parametrize("line", re.findall(r"^    lns (plot .*)$", PAGE, flags=re.MULTILINE))
def test_every_command_of_the_page_draws(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fewer = [] if "staircase" in line else ["--points", "40"]
    assert main([*shlex.split(line), *fewer]) == 0
    assert [file.name for file in tmp_path.iterdir()] == [line.split()[-1]]


def test_the_python_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(block, names)
    pyplot.close("all")
    assert starts((tmp_path / "error.png").read_bytes(), "png")
    assert len(names["data"].lines) == 2


# Numbers -----------------------------------------------------------------------------------------------------------


def numbers(capsys, *arguments):
    assert main(["plot", *arguments, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.count("\n") == 1
    return json.loads(captured.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


FIELDS = {
    "spacing": {"interval", "lines"},
    "heatmap": {"panels"},
    "staircase": {"interval", "stairs"},
    "distribution": {"formats", "edges", "counts", "scale"},
    "rounding": {"labels", "samples", "errors"},
    "sweep": {"workload", "frac_bits", "lines", "floats"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_prints_its_numbers(kind, capsys):
    report = numbers(capsys, kind, *KINDS[kind])
    assert (report.pop("schema"), report.pop("kind")) == (1, kind)
    assert set(report) == FIELDS[kind]


def test_the_numbers_are_those_of_the_functions(capsys):
    (panel,) = numbers(
        capsys, "heatmap", "--format", "lns8", "--op", "div", "--interval", "0.01", "200", "--seed", "4"
    )["panels"]
    data = plot.error_map("lns8", "div", interval=(0.01, 200), seed=4)
    assert np.array_equal(np.array(panel["error"], dtype=float), data.error, equal_nan=True)
    assert np.isnan(data.error).any()
    assert panel["words"] == data.words.tolist()
    assert panel["format"] == {
        "name": "lns8",
        "int_bits": 4,
        "frac_bits": 3,
        "specials": False,
        "base": 2.0,
        "adder": "Exact()",
        "accumulator": "LogAccumulator(order='sequential')",
    }
    report = numbers(capsys, "sweep", "--op", "dot", "--length", "3", "--points", "20", "--frac-bits", "4", "5")
    data = plot.precision_sweep("dot", length=3, samples=20, frac_bits=[4, 5])
    assert report["lines"] == [
        {
            "label": "8 integer bits",
            "median": data.lines[0].median.tolist(),
            "largest": data.lines[0].largest.tolist(),
        }
    ]
    report = numbers(capsys, "spacing", "--format", "lns8", "--points", "7", "--interval", "1", "4")
    assert report["lines"][0]["spacing"] == plot.spacing("lns8", points=7, interval=(1, 4)).lines[0].spacing.tolist()
    report = numbers(capsys, "distribution", "--points", "5", "--interval", "-1", "3")
    assert report["counts"] == plot.number_histogram(bins=5, interval=(-1, 3)).counts.tolist()
    report = numbers(capsys, "rounding", "--points", "5", "--seed", "3")
    assert report["errors"] == plot.rounding_errors(samples=5, seed=3).errors.tolist()


def test_infinities_are_words_and_missing_values_null():
    assert command._plain(np.array([[np.inf, -np.inf], [np.nan, 1.5]])) == [["inf", "-inf"], [None, 1.5]]
    assert command._plain(np.array([1, 2])) == [1, 2]


def test_numbers_and_a_file_together(capsys, tmp_path):
    assert numbers(capsys, "staircase", "-o", str(tmp_path / "a.svg"))["kind"] == "staircase"
    assert (tmp_path / "a.svg").exists()


# What goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["spacing"], "give -o FILE to draw, --json to print the numbers, or both"),
        (
            ["spacing", "-o", "-", "--json"],
            "standard output cannot take both the image of -o - and the numbers of --json",
        ),
        (["spacing", "-o", "a.jpg"], "'a.jpg' cannot be written: its name must end in .png or .svg or .pdf"),
        (["spacing", "-o", "no/such/a.png"], "'no/such/a.png' cannot be written: its folder does not exist"),
        (["spacing", "-o", "/proc/a.png"], "'/proc/a.png' cannot be written: No such file or directory"),
        (["spacing", "--json", "--beside", "x"], "beside must be one of bfloat16, float16, float32, not 'x'"),
        (["spacing", "--json", "--interval", "0", "1"], "interval must be of magnitudes above zero, not from 0"),
        (["heatmap", "--json", "--op", "pow"], "operation must be one of add, sub, mul, div, not 'pow'"),
        (["heatmap", "--json", "--signs=x"], "signs must be one of ++, +-, -+, --, not 'x'"),
        (["heatmap", "--json", "--seed", "-1"], "seed must be at least 0 and below 2**63, not -1"),
        (["distribution", "--json", "--points", "0"], "bins must be between 1 and 10,000, not 0"),
        (["sweep", "--json", "--op", "pow"], "workload must be one of add, sub, mul, div, dot, not 'pow'"),
        (["sweep", "--json", "--frac-bits", "5", "4"], "at least one number of fraction bits must be given"),
        (
            ["staircase", "--json", "--format", "lns7"],
            "format must be one of lns8, lns12, lns16, lns16e5, lns24, lns32, or the widths int_bits,frac_bits such as "
            "8,7; not 'lns7'",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(arguments, message, capsys):
    assert main(["plot", *arguments]) == 2
    assert capsys.readouterr() == ("", f"lns plot: {message}\n")


def test_a_folder_is_not_a_file(tmp_path, capsys):
    folder = tmp_path / "a.png"
    folder.mkdir()
    assert main(["plot", "spacing", "-o", str(folder)]) == 2
    assert capsys.readouterr().err == f"lns plot: {str(folder)!r} cannot be written: it is a folder\n"


@pytest.mark.parametrize("arguments", [[], ["pie"], ["staircase", "--seed", "1"], ["spacing", "--points", "x"]])
def test_usage_errors_are_argparses(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["plot", *arguments])
    assert "usage: lns" in capsys.readouterr().err


def test_no_image_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["plot", "spacing", "-o", "-"]) == 2
    assert capsys.readouterr().err == "lns plot: standard output is a terminal; redirect it, or name a file\n"


def test_without_matplotlib_numbers_are_printed_and_drawing_exits_3(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert numbers(capsys, "staircase")["kind"] == "staircase"
    monkeypatch.setattr(command, "_compute", lambda *args: pytest.fail("computed"))
    assert main(["plot", "staircase", "-o", str(tmp_path / "a.png")]) == 3
    message = "drawing needs matplotlib, which is not installed: pip install matplotlib"
    assert capsys.readouterr() == ("", f"lns plot: {message}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stage", ["compute", "draw", "rename"])
def test_an_interrupt_leaves_the_old_file_and_no_other(stage, tmp_path, capsys, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    file = tmp_path / "a.png"
    file.write_text("old")
    if stage == "compute":
        monkeypatch.setattr(command, "_compute", interrupted)
    elif stage == "draw":
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", interrupted)
    else:
        monkeypatch.setattr(output.Path, "replace", interrupted)
    assert main(["plot", "staircase", "-o", str(file)]) == 130
    assert capsys.readouterr() == ("", "lns plot: interrupted\n")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path, capsys, monkeypatch):
    def full(self, data):
        self.touch()
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(output.Path, "write_bytes", full)
    file = tmp_path / "a.png"
    assert main(["plot", "staircase", "-o", str(file)]) == 2
    assert capsys.readouterr().err == f"lns plot: {str(file)!r} cannot be written: No space left on device\n"
    assert list(tmp_path.iterdir()) == []


# Progress ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("after", "shown"), [(-1.0, True), (1e9, False)])
def test_a_terminal_shows_a_bar_for_long_work_only(after, shown, monkeypatch, capsys):
    screen = io.StringIO()
    monkeypatch.setattr("rich.console.Console", lambda **options: Console(file=screen, force_terminal=True, width=100))
    monkeypatch.setattr(command, "_BAR_AFTER", after)
    assert main(["plot", "sweep", *KINDS["sweep"], "--json"]) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    assert ("sweep: computing" in text) == shown
    assert ("4/4" in text) == shown
    assert json.loads(capsys.readouterr().out)["kind"] == "sweep"
