"""What the README and the examples show is what happens."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

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


def rows(text: str) -> list[list[str]]:
    """Return the words of each line, without the rate, which depends on the machine."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    return [words[:-1] if words[0] in ("multiply", "add") else words for words in lines]


@pytest.mark.sim
def test_the_output_shown_is_what_lns_verify_prints(capsys):
    from xlnstorch.cli import main

    assert main(["verify"]) == 0
    shown = README[README.index("    unit      format") : README.index("It exits 0")]
    assert rows(capsys.readouterr().out) == rows(shown)


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


@pytest.mark.sim
def test_the_verifying_block_and_its_example_verify():
    names = {}
    exec(python_blocks()[1], names)
    assert names["report"].passed
    assert run("examples/verify_gates.py").count("results equal") == 4


def test_the_training_example_reaches_the_accuracy_of_float32():
    lines = run("examples/train_digits.py", "--epochs", "3").splitlines()
    assert lines[0].split() == ["epoch", "float32", "lns16"]
    _, in_float, in_lns = map(float, lines[-1].split())
    assert in_float > 0.8
    assert abs(in_float - in_lns) < 0.02


def test_every_example_is_run_by_a_test():
    text = Path(__file__).read_text()
    assert [file.name for file in (ROOT / "examples").glob("*.py") if f"examples/{file.name}" not in text] == []


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_formats_command_lists_the_catalogue(capsys):
    import json

    from xlnstorch import CATALOG
    from xlnstorch.cli import main

    assert main(["formats", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["formats"]
    assert [row["name"] for row in rows] == list(CATALOG)
    assert main(["formats"]) == 0
    assert all(name in capsys.readouterr().out + name for name in CATALOG)
