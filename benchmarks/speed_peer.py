"""The peer's side of benchmarks/speed.py: runs in an environment where xlnstorch is the package from PyPI (1.0.0).

Answers each line of standard input, ``{"work": "matmul 7", "threads": 1, "least": 0.1}``, with the seconds of one run,
of the faster of its two implementations of the Gaussian logarithms, ``ideal`` and ``tab``; or for ``"memory 7"`` with
the bytes of an element. Nothing of this repository is imported, since it has the same name.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
import time

import torch
from xlnstorch.operators.implementations import tab

import xlnstorch

# A table for more fraction bits takes gigabytes.
_MOST_TABLED = 15


def _random(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def _make(work, tensor, frac_bits):
    if work == "matmul":
        a, b = tensor(_random(256, 256)), tensor(_random(256, 256).flip(0))
        return lambda: torch.matmul(a, b)
    if work in ("add", "mul"):
        a, b = tensor(_random(1_000_000)), tensor(_random(1_000_000).flip(0))
        return (lambda: a + b) if work == "add" else (lambda: a * b)
    if work == "scalar":
        a, b = tensor(torch.tensor(1.5, dtype=torch.float64)), tensor(torch.tensor(2.5, dtype=torch.float64))
        return lambda: a + b
    if work == "conv":
        images, weight = tensor(_random(4, 16, 32, 32)), tensor(_random(32, 16, 3, 3))
        return lambda: torch.nn.functional.conv2d(images, weight, padding=1)
    if work == "step":
        return _training_step(tensor(_random(64, 784)), frac_bits)
    raise ValueError(f"no such work: {work!r}")


def _training_step(images, frac_bits):
    class Model(xlnstorch.nn.LNSModule):
        def __init__(self):
            super().__init__()
            given = {"weight_f": frac_bits, "bias_f": frac_bits}
            self.first, self.second = (
                xlnstorch.nn.LNSLinear(784, 128, **given),
                xlnstorch.nn.LNSLinear(128, 10, **given),
            )

        def forward(self, x):
            return self.second(torch.nn.functional.relu(self.first(x)))

    model, labels = Model(), torch.arange(64) % 10
    optimizer = xlnstorch.optim.LNSSGD(model.lns_parameters(), lr=0.125, momentum=0.9)

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


@functools.cache
def _runs(name):
    """Return what does a work, for each implementation that can."""
    work, frac_bits = name.split()
    frac_bits = int(frac_bits)
    runs = {}
    for implementation in ("ideal", "tab"):
        if implementation == "tab" and frac_bits > _MOST_TABLED:
            continue
        runs[implementation] = _make(work, lambda values: xlnstorch.lnstensor(values, f=frac_bits), frac_bits)
    return runs, frac_bits


@functools.cache
def _use_table(frac_bits):
    tab.get_table("table", f=frac_bits)


def _seconds(name, least):
    if name.startswith("memory"):
        return _memory(int(name.split()[1]))
    times = []
    runs, frac_bits = _runs(name)
    for implementation, run in runs.items():
        if implementation == "tab":
            _use_table(frac_bits)
        xlnstorch.set_default_sbdb_implementation(implementation)
        count, start = 0, time.perf_counter()
        while (passed := time.perf_counter() - start) < least or not count:
            run()
            count += 1
        times.append(passed / count)
    return min(times)


def _memory(frac_bits):
    """Return how many bytes an element has in the tensors that one of the package's holds."""
    x = xlnstorch.lnstensor(_random(1000), f=frac_bits)
    held = [value for value in vars(x).values() if isinstance(value, torch.Tensor) and value.numel() == 1000]
    return sum(value.untyped_storage().nbytes() for value in held) / 1000


def main():
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the package prints is no answer
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # it writes its table there
        for line in sys.stdin:
            asked = json.loads(line)
            torch.set_num_threads(asked["threads"])
            answers.write(json.dumps(_seconds(asked["work"], asked["least"])) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
