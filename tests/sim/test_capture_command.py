"""``lns capture`` runs scripts as Python does, and writes what they compute or nothing."""

import json
import os
import pty
import subprocess
import sys

import pytest

from sim import Trace
from xlnstorch import lns8, lns16
from xlnstorch.cli import main

SCRIPT = """
import sys
import beside  # in the script's folder
import torch
from xlnstorch import lns8, lnstensor

print("arguments:", *sys.argv[1:])
x = lnstensor([1.5, -2.0, beside.three], format=lns8, requires_grad=True)
(x.relu() * x).sum().backward()
if __name__ == "__main__" and sys.argv[1:2] == ["fail"]:
    raise ValueError("no more")
if sys.argv[1:2] == ["exit"]:
    sys.exit(eval(sys.argv[2]))
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "beside.py").write_text("three = 3.0\n")
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    yield file
    sys.modules.pop("beside", None)


def test_the_operations_are_written_and_summed_up(script, tmp_path, capsys):
    argv, path, trace = list(sys.argv), list(sys.path), tmp_path / "trace.npz"
    assert main(["capture", "-o", str(trace), "--format", "lns8", str(script), "1", "--epochs", "-o", "x"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "arguments: 1 --epochs -o x\n"
    assert [line.split() for line in captured.out.splitlines()] == [
        ["operation", "count", "of"],
        ["mul", "9", "aten.mul.Tensor,", "aten.mul.Tensor", "(backward)"],
        ["add", "5", "aten.add.Tensor", "(backward),", "aten.sum.default"],
        ["relu", "3", "aten.relu.default"],
        ["relu_grad", "3", "aten.threshold_backward.default", "(backward)"],
        [],
        f"wrote 20 operations of lns8 in {trace.stat().st_size:,} bytes to {str(trace)!r}".split(),
    ]
    loaded = Trace.load(trace)
    assert (loaded.format, loaded.counts) == (lns8, {"mul": 9, "add": 5, "relu": 3, "relu_grad": 3})
    assert (sys.argv, sys.path) == (argv, path)


def test_json_is_one_object(script, tmp_path, capsys):
    trace = tmp_path / "trace.npz"
    arguments = ["--format", "lns8", "--json", str(script)]
    assert main(["capture", "-o", str(trace), *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {"mul": 9, "add": 5, "relu": 3, "relu_grad": 3}
    assert (found["schema"], found["operations"], found["bytes"]) == (1, 20, trace.stat().st_size)
    assert [found[key] for key in ("format", "adder", "accumulator", "specials")] == ["lns8", "exact", "log", False]
    assert found["sources"]["relu"] == ["aten.relu.default"]
    assert found["versions"] == Trace.load(trace).versions


@pytest.mark.parametrize("arguments", [["exit", "0"], ["exit", "None"]], ids=" ".join)
def test_a_script_may_end_itself(arguments, script, tmp_path):
    assert main(["capture", "-o", str(tmp_path / "trace.npz"), "--format", "lns8", str(script), *arguments]) == 0


@pytest.mark.parametrize(
    ("arguments", "last"), [(["exit", "3"], "exit status 3"), (["exit", "'enough'"], "enough")], ids=str
)
def test_a_script_that_ends_itself_with_an_error_writes_nothing(arguments, last, script, tmp_path, capsys):
    trace = tmp_path / "trace.npz"
    assert main(["capture", "-o", str(trace), "--format", "lns8", str(script), *arguments]) == 1
    assert capsys.readouterr().err.splitlines()[1:] == [
        last,
        f"lns capture: the script {str(script)!r} failed; nothing is written",
    ]
    assert not trace.exists()


def test_a_script_that_raises_gives_its_own_traceback_and_writes_nothing(script, tmp_path, capsys):
    trace = tmp_path / "trace.npz"
    assert main(["capture", "-o", str(trace), "--format", "lns8", str(script), "fail"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    shown = captured.err.splitlines()[1:]
    assert shown[:2] == ["Traceback (most recent call last):", f'  File "{script}", line 11, in <module>']
    assert shown[-2:] == [
        "ValueError: no more",
        f"lns capture: the script {str(script)!r} failed; nothing is written",
    ]
    assert [name for name in os.listdir(tmp_path) if "npz" in name] == []


def test_a_script_that_is_no_python_says_where(script, tmp_path, capsys):
    script.write_text("x = (\n")
    assert main(["capture", "-o", str(tmp_path / "trace.npz"), str(script)]) == 1
    shown = capsys.readouterr().err
    assert f'File "{script}", line 1' in shown
    assert "SyntaxError: '(' was never closed" in shown
    assert "runpy" not in shown


def test_a_script_that_computes_nothing_in_the_format_is_told_of_what_it_does(script, tmp_path, capsys):
    trace = tmp_path / "trace.npz"
    assert main(["capture", "-o", str(trace), str(script)]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"lns capture: the script {str(script)!r} computed no operation of lns16, but 20 of lns8; nothing is written"
    )
    script.write_text("")
    assert main(["capture", "-o", str(trace), str(script)]) == 2
    assert capsys.readouterr().err == (
        f"lns capture: the script {str(script)!r} computed no operation of lns16; nothing is written\n"
    )
    assert not trace.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["x.py", "-o", "x.npz"],
            "-o FILE is missing before SCRIPT; what stands after it are the script's own arguments",
        ),
        (["-o", "x.npz", "none.py"], "the script 'none.py' does not exist or is no file"),
        (["-o", "x.npz", "."], "the script '.' does not exist or is no file"),
        (["-o", "x.bin", "x.py"], "'x.bin' cannot be written: its name must end in .npz"),
        (["-o", "none/x.npz", "x.py"], "'none/x.npz' cannot be written: its folder does not exist"),
        (["-o", "/proc/x.npz", "x.py"], "'/proc/x.npz' cannot be written: No such file or directory"),
        (
            ["-o", "x.npz", "--adder", "nearest", "x.py"],
            "adder must be one of exact, piecewise, mitchell, not 'nearest'",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2_before_the_script_runs(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("raise SystemExit('it ran')")
    assert main(["capture", *arguments]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"lns capture: {message}\n")
    assert os.listdir(tmp_path) == ["x.py"]


def test_an_interrupt_ends_it_with_status_130_and_writes_nothing(script, tmp_path, capsys):
    script.write_text("raise KeyboardInterrupt")
    assert main(["capture", "-o", str(tmp_path / "trace.npz"), str(script)]) == 130
    assert capsys.readouterr().err == "lns capture: interrupted\n"
    assert not (tmp_path / "trace.npz").exists()


def test_a_terminal_shows_progress(script, tmp_path):
    leader, follower = pty.openpty()
    script.write_text("import time\nfrom xlnstorch import lns16, ones\nones(7, format=lns16) * 2\ntime.sleep(1)\n")
    command = [sys.executable, "-m", "xlnstorch.cli", "capture", "-o", str(tmp_path / "trace.npz"), str(script)]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, env=environment, text=True) as process:
        os.close(follower)
        shown = b""
        while True:
            try:
                shown += os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
        out = process.stdout.read()
    os.close(leader)
    assert process.returncode == 0
    assert b"7 operations" in shown
    assert "wrote 7 operations of lns16" in out
    assert Trace.load(tmp_path / "trace.npz").format == lns16
