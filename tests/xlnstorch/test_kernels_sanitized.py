"""Kernels touch no memory but that of their operands and results: with the compiler's sanitizers, on exact buffers."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import xlnstorch
from xlnstorch import kernels

FOLDER = Path(xlnstorch.__file__).parent / "kernels"
DRIVER = Path(__file__).with_name("sanitized_kernels.cpp")
COMPILER = shutil.which(os.environ.get("CXX", "g++"))
# Gathers of the wider sets are instructions that no sanitizer sees; those of the plain one are ordinary loads.
FLAGS = {
    "plain": [],
    "avx2": ["-mavx2", "-mfma"],
    "avx512": ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma"],
}


def run(tmp_path, path, folder=FOLDER):
    program = tmp_path / "sanitized"
    options = ["-std=c++20", "-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wno-psabi"]
    command = [COMPILER, *options, *FLAGS[path], f"-DLNS_ISA={path}", f"-I{folder}", str(DRIVER), "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return subprocess.run([program], capture_output=True, text=True, timeout=120)


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize("path", ["plain", pytest.param("avx2", marks=pytest.mark.long), "avx512"])
def test_no_memory_is_touched_outside(tmp_path, path):
    if path not in (*kernels.choices(), "plain"):
        pytest.skip(f"this machine has no {path}")
    done = run(tmp_path, path)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
def test_a_read_beyond_the_end_would_be_seen(tmp_path):
    folder = tmp_path / "kernels"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    source = (folder / "codes.h").read_text()
    sound = "for (int64_t i = 0; i < count; ++i) codes[i] = code_of(from[i * stride]);"
    assert source.count(sound) == 1
    (folder / "codes.h").write_text(source.replace(sound, sound.replace("from[i * stride]", "from[(i + 1) * stride]")))
    done = run(tmp_path, "plain", folder)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
