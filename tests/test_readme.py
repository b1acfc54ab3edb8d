"""What the README and the examples show is what happens."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from hdl import UNITS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_two_command_lines_are_there():
    lines = [line.strip() for line in README.splitlines() if line.startswith("    pip install")]
    assert [re.sub(r"\s*#.*", "", line) for line in lines] == [
        "pip install -r requirements.txt && lns verify",
        "pip install -r requirements-dev.txt && pytest",
    ]


def test_every_page_is_linked_and_every_link_leads_somewhere():
    links = set(re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", README))
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= links
    assert [link for link in links if not (ROOT / link).exists()] == []


def rows(text: str) -> list[list[str]]:
    """Return the words of each line, without the rate, which depends on the machine."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    return [words[:-1] if words[0] in UNITS else words for words in lines]


@pytest.mark.sim
def test_the_board_runs():
    identity, *lines = run("examples/board.py").splitlines()
    assert "alu:converters=none of lns12 (exact adder), build " in identity
    results = [f"{operation}: 1,000 results equal PyTorch's" for operation in ("add", "mul")]
    assert lines == [*results, "self-test: add True, mul True"]


@pytest.fixture(params=[pytest.param(True, marks=pytest.mark.long), False], ids=["simulated", "counted"])
def gates(request, monkeypatch):
    """The gates as they are, or in their place what they are to give: the set-up itself runs ``lns verify``."""
    from sim.runs import BenchRun

    def simulate(run, gates, progress):
        segments = [{"received": len(segment), "mismatches": 0, "first": None} for segment in run.segments]
        return {"segments": segments, "seconds": [1.0] * len(segments), "problems": [], "cut": False}

    if not request.param:
        monkeypatch.setattr(BenchRun, "build", lambda *arguments: None)
        monkeypatch.setattr(BenchRun, "simulate", simulate)


@pytest.mark.sim
def test_the_output_shown_is_what_lns_verify_prints(gates, capsys):
    from xlnstorch.cli import main

    assert main(["verify"]) == 0
    printed = rows(capsys.readouterr().out)
    shown = rows(README[README.index("    unit        format") : README.index("It exits 0")])
    assert len(shown) > 10
    # A line with an ellipsis stands for those of some units.
    assert [words for words in shown if words != ["…"]] == [words for words in printed if words in shown]


def test_the_training_block_trains():
    import torch
    from sklearn.datasets import load_digits

    from xlnstorch import LNSTensor, lns16

    digits = load_digits()
    names = {"images": torch.tensor(digits.data[:32] / 16), "labels": torch.tensor(digits.target[:32])}
    exec(python_blocks()[0], names)
    grad = names["model"][0].weight.grad
    assert isinstance(grad, LNSTensor)
    assert grad.format == lns16
    assert bool((grad.words != 0).any())


def test_the_block_about_adders_adds():
    from xlnstorch import lnstensor

    names = {}
    exec(python_blocks()[1], names)
    assert lnstensor([1.0, 2.0, 4.0], format=names["format"]).sum().item() == pytest.approx(7.0, rel=1e-6)


@pytest.mark.sim
def test_the_verifying_block_and_its_example_verify():
    names = {}
    exec(python_blocks()[2], names)
    assert names["report"].passed
    assert run("examples/verify_gates.py").count("results equal") == 4


def test_the_epoch_is_captured_as_it_says(tmp_path, capsys):
    from sim import Trace
    from xlnstorch.cli import main

    trace = tmp_path / "epoch.npz"
    assert main(["capture", "-o", str(trace), str(ROOT / "examples/digits_epoch.py"), "--steps", "1"]) == 0
    assert re.match(r"1 steps: loss \d\.\d{3}, then \d\.\d{3}\n", capsys.readouterr().err)
    assert Trace.load(trace).counts["mul"] == 48_028


def test_the_training_example_reaches_the_accuracy_of_float32():
    lines = run("examples/train_digits.py", "--epochs", "2").splitlines()
    assert lines[0].split() == ["epoch", "float32", "lns16"]
    _, in_float, in_lns = map(float, lines[-1].split())
    assert in_float > 0.8
    assert abs(in_float - in_lns) < 0.02


def compare_models(*arguments: str) -> dict:
    return json.loads(run("examples/compare_models.py", "--json", *arguments))


def test_the_comparison_trains_every_model_in_every_format_and_draws(tmp_path):
    drawing = tmp_path / "accuracy.png"
    result = compare_models("--epochs", "1", "--images", "24", "--plot", str(drawing))
    assert [result[key] for key in ("epochs", "seed", "images", "sums")] == [1, 0, 24, "tree"]
    assert list(result["accuracy"]) == ["mlp", "cnn", "transformer"]
    for name, accuracies in result["accuracy"].items():
        assert list(accuracies) == list(result["seconds"][name]) == ["float32", "lns16", "lns12"]
        for (accuracy,) in accuracies.values():
            assert accuracy in [right / 6 for right in range(7)]
    assert drawing.read_bytes().startswith(b"\x89PNG")


def test_the_comparison_prints_a_row_an_epoch():
    table = run(
        "examples/compare_models.py", "--models", "mlp", "--formats", "lns16e5", "--epochs", "2", "--images", "160"
    )
    head, *rows = [line.split() for line in table.splitlines()]
    assert head == ["mlp", "epoch", "float32", "lns16e5"]
    assert [row[0] for row in rows] == ["1", "2", "s"]
    # So much precision that no digit of so few is read in another way.
    assert all(row[1] == row[2] for row in rows[:2])


@pytest.mark.long
def test_lns16_trains_to_within_one_percentage_point_of_float32():
    result = compare_models("--formats", "lns16")
    last = {name: {format: a[-1] for format, a in runs.items()} for name, runs in result["accuracy"].items()}
    assert all(runs["float32"] > 0.9 for runs in last.values()), last
    assert all(abs(runs["lns16"] - runs["float32"]) <= 0.01 for runs in last.values()), last
    for name, runs in last.items():
        shown = re.search(rf"^\| {name} \| (\S+) \| (\S+) \|", README, flags=re.MULTILINE)
        # Initial weights and float32 sums may differ in their last bits between machines.
        assert [100 * runs["float32"], 100 * runs["lns16"]] == pytest.approx([float(x) for x in shown.groups()], abs=1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--models", "mlp,rnn"], "argument --models: 'rnn' is not one of mlp, cnn, transformer"),
        (["--formats", "lns9"], "argument --formats: 'lns9' is not one of lns8, lns12, lns16, lns16e5, lns24, lns32"),
        (["--epochs", "0"], "argument --epochs: must be a whole number of at least 1, not '0'"),
    ],
)
def test_what_the_comparison_refuses(arguments, text, monkeypatch, capsys):
    file = str(ROOT / "examples/compare_models.py")
    monkeypatch.setattr(sys, "argv", [file, *arguments])
    with pytest.raises(SystemExit) as info:
        runpy.run_path(file, run_name="__main__")
    assert info.value.code == 2
    printed = capsys.readouterr()
    assert printed.err.splitlines()[-1] == f"compare_models.py: error: {text}"
    assert printed.out == ""


def accumulator_error(*arguments: str) -> str:
    return run("examples/accumulator_error.py", "--jobs", "1", *arguments)


def test_the_errors_of_accumulators_are_measured_and_drawn(tmp_path):
    drawing = tmp_path / "errors.svg"
    shown = accumulator_error(
        "--formats", "lns8,lns16", "--lengths", "64,1,1024", "--draws", "3", "--seed", "5", "--json", "-o", str(drawing)
    )
    result = json.loads(shown)
    assert (result["lengths"], result["draws"], result["seed"]) == ([1, 64, 1024], 3, 5)
    accumulators = ["sequential", "tree", "4 guard bits", "linear"]
    assert {name: list(lines) for name, lines in result["lns"].items()} == dict.fromkeys(
        ("lns8", "lns16"), accumulators
    )
    ones = {(name, label): errors["ones"] for name, row in result["lns"].items() for label, errors in row.items()}
    # Where sums of ones stall: at 2**4.5 and 2**8.53125; lns8 ends at 2**7.875, and bfloat16 stalls at 256.
    assert ones["lns8", "sequential"] == pytest.approx([0, 1 - 2**4.5 / 64, 1 - 2**4.5 / 1024], abs=1e-14)
    assert ones["lns16", "sequential"] == pytest.approx([0, 1 - 2 ** (-1 / 128), 1 - 2**8.53125 / 1024], abs=1e-14)
    for label in accumulators[1:]:
        assert ones["lns8", label] == pytest.approx([0, 0, 1 - 2**7.875 / 1024], abs=1e-14)
    assert ones["lns16", "tree"] == ones["lns16", "linear"] == [0, 0, 0]
    assert result["float"]["bfloat16"]["ones"] == [0, 0, 0.75] and result["float"]["float16"]["ones"] == [0, 0, 0]
    dots = {(name, label): errors["dots"] for name, row in result["lns"].items() for label, errors in row.items()}
    assert all(errors[0] < 1e-15 and 0 < errors[1] < 1 for errors in dots.values())
    assert dots["lns16", "linear"][2] < dots["lns16", "sequential"][2]
    assert drawing.read_text().startswith("<?xml")


def test_the_errors_of_accumulators_are_printed():
    table = accumulator_error("--formats", "lns8", "--lengths", "1,32", "--draws", "1").splitlines()
    assert [line.split() for line in (table[0], table[1])] == [
        ["sum", "of", "ones", "32"],
        ["lns8,", "sequential", "2.9e-01"],
    ]
    assert [line.rsplit("  ", 1)[0].strip() for line in table[7:]] == [
        "dot product",
        "lns8, sequential",
        "lns8, tree",
        "lns8, 4 guard bits",
        "lns8, linear",
        "bfloat16",
        "float16",
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--formats", "lns9"], "argument --formats: 'lns9' is not one of lns8, lns12, lns16, lns16e5, lns24, lns32"),
        (["--lengths", "4,0"], "argument --lengths: must be a whole number of at least 1, not '0'"),
        (["-o", "errors.gif"], "'errors.gif' cannot be written: its name must end in .png or .svg or .pdf"),
    ],
)
def test_what_the_measurement_of_accumulators_refuses(arguments, text, monkeypatch, capsys):
    file = str(ROOT / "examples/accumulator_error.py")
    monkeypatch.setattr(sys, "argv", [file, *arguments])
    with pytest.raises(SystemExit) as info:
        runpy.run_path(file, run_name="__main__")
    assert info.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"accumulator_error.py: error: {text}"


def test_every_example_is_run_by_a_test():
    text = Path(__file__).read_text()
    assert [file.name for file in (ROOT / "examples").glob("*.py") if f"examples/{file.name}" not in text] == []


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_formats_command_lists_the_catalogue(capsys):
    from xlnstorch import CATALOG
    from xlnstorch.cli import main

    assert main(["formats", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["formats"]
    assert [row["name"] for row in rows] == list(CATALOG)
    assert main(["formats"]) == 0
    assert all(name in capsys.readouterr().out + name for name in CATALOG)
