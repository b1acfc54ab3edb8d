"""Building bitstreams: with steps that only seem to be done, and for each board once in earnest."""

import base64
import functools
import hashlib
import json
import os
import threading
from pathlib import Path

import pytest
from lnstesting import exactly

from fpga import bitstream
from fpga.bitstream import TimingNotMet, TooLarge, build, check_folder, write_folder
from fpga.boards import named_board
from fpga.design import Design
from fpga.runner import Runner
from hdl import Multiply
from xlnstorch import lns8
from xlnstorch.cache import cache_folder
from xlnstorch.cli import CommandError

MHZ = {1: 40.0, 2: 50.0, 3: 50.0}


@functools.cache
def design(board="icebreaker", mhz=24, seeds=1):
    return Design.of(Multiply(format=lns8), named_board(board), mhz=mhz, seeds=seeds)


@pytest.fixture
def steps(tmp_path, monkeypatch):
    """Keep results in a new folder; do no step, but return a list of those that would be done."""
    done = []

    def step(self, step, source, device, job, poll=None):
        done.append((step, source[:9], job.get("seed")))
        if step == "synthesize":
            return {"netlist": "a netlist", "cells": {"luts": 12, "registers": 34, "block_rams": 5, "dsps": 0}}
        if step == "pack":
            return {"bitstream": base64.b64encode(source.encode()).decode()}
        mhz = {"clk": {"achieved": MHZ[job["seed"]], "constraint": 24.0}}
        used = {"ICESTORM_LC": [40, 5280], "SB_I2C": [0, 2]}
        return {"used": used, "clocks": mhz, "paths": [], "configuration": f"of seed {job['seed']}"}

    monkeypatch.setenv("LNS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Runner, "step", step)
    return done


def test_the_steps_end_in_a_bitstream_and_a_manifest(steps):
    said = []
    built = build(design(), progress=said.append)
    assert steps == [
        ("synthesize", "# Automat", None),
        ("place and route", "a netlist", 1),
        ("pack", "of seed 1", None),
    ]
    assert built.bitstream == b"of seed 1"
    assert [text.split(" in ")[0] for text in said] == [
        "synthesizing",
        "synthesized",
        "placing and routing with seed 1",
        "placed and routed with seed 1",
        "packed",
    ]
    manifest = json.loads(built.files["manifest.json"])
    assert manifest["schema"] == 1 and manifest["digest"] == design().digest
    assert manifest["cells"] == {"luts": 12, "registers": 34, "block_rams": 5, "dsps": 0}
    assert manifest["used"] == {"ICESTORM_LC": {"used": 40, "of": 5280}}
    assert (manifest["seed"], manifest["seeds"]) == (1, {"1": 40.0})
    assert (manifest["clock"]["mhz"], manifest["clock"]["reached_mhz"]) == (24.0, 40.0)
    assert manifest["bitstream"] == {"file": "top.bin", "bytes": 9, "sha256": hashlib.sha256(b"of seed 1").hexdigest()}
    assert built.files["top.bin"] == b"of seed 1"
    assert built.files["critical_path.txt"].decode().endswith("24.00 MHz are met\n")


def test_the_fastest_seed_is_kept_and_of_equals_the_first(steps):
    built = build(design(seeds=3))
    assert built.bitstream == b"of seed 2"
    assert (built.manifest["seed"], built.manifest["seeds"]) == (2, {"1": 40.0, "2": 50.0, "3": 50.0})


def test_what_was_built_is_found_by_its_digest(steps):
    first, count = build(design()), len(steps)
    said = []
    assert build(design(), progress=said.append) == first
    assert said == [f"built before: digest {design().digest}"]
    assert len(steps) == count
    build(design(mhz=30))
    assert len(steps) > count


def test_a_clock_that_is_not_reached_is_an_error_with_the_path_and_the_same_again(steps, monkeypatch):
    monkeypatch.setitem(MHZ, 1, 20.0)
    for _ in range(2):
        with pytest.raises(TimingNotMet) as caught:
            build(design())
        assert str(caught.value).splitlines() == [
            "multiply of lns8 does not reach 24.00 MHz on the icebreaker (MHz: 20.00 with seed 1); ask for a lower "
            "--clock, or try more --seeds",
            "the longest path of the clock clk takes 0.00 ns, which allows 20.00 MHz; 24.00 MHz are not met",
        ]
        assert caught.value.exit_code == 4
    assert len(steps) == 3


@pytest.mark.parametrize(
    ("used", "needs"),
    [
        (
            {"ICESTORM_LC": [6001, 5280], "ICESTORM_RAM": [31, 30], "SB_IO": [3, 39]},
            "it needs 6,001 of 5,280 ICESTORM_LC, 721 too many and 31 of 30 ICESTORM_RAM, 1 too many",
        ),
        ({"ICESTORM_LC": [5279, 5280]}, "nextpnr says: there is no room"),
    ],
)
def test_what_does_not_fit_says_by_how_much(steps, monkeypatch, used, needs):
    sound = Runner.step

    def step(self, step, *rest):
        return {"used": used, "reason": "there is no room"} if "place" in step else sound(self, step, *rest)

    monkeypatch.setattr(Runner, "step", step)
    with pytest.raises(TooLarge) as caught:
        build(design())
    assert str(caught.value) == f"multiply of lns8 does not fit into the icebreaker: {needs}"
    assert caught.value.exit_code == 2
    assert not (cache_folder() / "bitstreams").exists()


# The folder ----------------------------------------------------------------------------------------------------------


def test_the_folder_appears_as_a_whole_and_replaces_an_earlier_one(tmp_path):
    folder = tmp_path / "out"
    check_folder(folder)
    assert list(tmp_path.iterdir()) == []
    write_folder(folder, {"manifest.json": b"1", "top.bin": b"2"})
    write_folder(folder, {"manifest.json": b"3"})
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {"manifest.json": b"3"}
    assert list(tmp_path.iterdir()) == [folder]


def test_if_it_cannot_be_written_the_earlier_one_stays(tmp_path, monkeypatch):
    folder = tmp_path / "out"
    write_folder(folder, {"manifest.json": b"1"})
    sound = os.rename

    def rename(source, target):
        if Path(source).name == "new":
            raise OSError(28, "No space left on device")
        sound(source, target)

    monkeypatch.setattr(bitstream.os, "rename", rename)
    with pytest.raises(OSError, match="No space left"):
        write_folder(folder, {"manifest.json": b"2"})
    assert (folder / "manifest.json").read_bytes() == b"1"
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thesis.tex").write_text("")
    (tmp_path / "locked").mkdir()
    wanted = "output must be a new or empty folder, or one of an earlier bitstream, not "
    for name, text in (
        ("full", f"{wanted}{str(tmp_path / 'full')!r}"),
        ("file", f"output must be a folder, not the file {str(tmp_path / 'file')!r}"),
        ("no/out", f"the folder of {str(tmp_path / 'no/out')!r} does not exist"),
    ):
        with pytest.raises(CommandError, match=exactly(text)):
            check_folder(tmp_path / name)
    check_folder(tmp_path / "locked")  # empty


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(bitstream.tempfile, "mkdtemp", refuse)
    with pytest.raises(CommandError, match=exactly(f"{str(tmp_path / 'out')!r} cannot be written: Permission denied")):
        check_folder(tmp_path / "out")


# In earnest ----------------------------------------------------------------------------------------------------------


@pytest.mark.synth
@pytest.mark.parametrize(
    ("board", "mhz", "size", "cells"),
    [
        ("icebreaker", 24, 104_090, ("ICESTORM_LC", "ICESTORM_PLL")),
        ("ice40-hx8k", 50, 135_100, ("ICESTORM_LC", "ICESTORM_PLL")),
        ("ulx3s-25f", 50, None, ("TRELLIS_COMB", "EHXPLLL")),
    ],
)
def test_each_board_has_a_bitstream_and_the_same_one_again(board, mhz, size, cells, tmp_path, monkeypatch):
    programs = cache_folder() / "fpga/programs"
    made = design(board, mhz)
    first = build(made)
    assert size is None or len(first.bitstream) == size
    assert first.manifest["clock"]["reached_mhz"] >= mhz
    assert set(cells) <= set(first.manifest["used"])
    assert first.path.count("\n") > 3 and "top.bridge." in first.path
    if board == "ice40-hx8k":  # as the other iCE40
        return
    # In another cache, but with the programs that YoWASP has compiled.
    (tmp_path / "fpga").mkdir()
    (tmp_path / "fpga/programs").symlink_to(programs)
    monkeypatch.setenv("LNS_CACHE", str(tmp_path))
    assert build(made).files == first.files


@pytest.mark.synth
def test_a_poll_that_raises_ends_the_build(tmp_path, monkeypatch):
    monkeypatch.setenv("LNS_CACHE", str(tmp_path))
    asked = threading.Event()

    def poll():
        asked.set()
        raise InterruptedError

    with pytest.raises(InterruptedError):
        build(design(), poll=poll)
    assert asked.is_set()
    assert list((tmp_path / "fpga").iterdir()) == []
