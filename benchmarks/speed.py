"""How fast the golden model is beside what a user would pick instead, measured side by side in one run.

Beside it are PyTorch's own float32 and bfloat16 and, in a virtual environment of its own, the xlnstorch package from
PyPI (1.0.0), the faster of its ``ideal`` and ``tab`` implementations. Each round times all of them one after the other,
so that what else the machine does falls on all alike; shown are medians, and ratios are medians of those of the rounds.

    python benchmarks/speed.py                   # one thread and all threads; with the peer, if it was made
    python benchmarks/speed.py --make-peer DIR   # make the virtual environment, which fetches a torch of its own
    python benchmarks/speed.py --peer DIR --json > speed.json
    python benchmarks/speed.py --check           # whether anything is slower beside float32 than the baseline has it

Baselines, in ``benchmarks/baselines``, are of one processor, its kernels and a version of torch, on one thread: the
best time of float32 over ours, the lowest of three such ratios from one pass after the other. Exit status: 0 done; 1 a
target of one thread is missed or, with ``--check``, a ratio is worse by a quarter; 2 the arguments are wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import xlnstorch
from xlnstorch import Exact, LNSFormat, Piecewise, convert, kernels, lns16, lns32, lnstensor
from xlnstorch.cli import results_console

Run = Callable[[], object]
Tensor = Callable[[torch.Tensor], torch.Tensor]
PEER = Path(__file__).with_name("speed_peer.py")
BASELINES = Path(__file__).parent / "baselines"

#: How much worse than the baseline a ratio may be.
TOLERANCE = 0.25


@dataclasses.dataclass(frozen=True)
class Work:
    """One row.

    Attributes
    ----------
    title : str
    format : LNSFormat
    make : callable
        Given a function that turns float64 tensors into those of a library, returns what is timed.
    amount : float
        What one run does, in the unit of `rate`.
    rate : str
        ``"G/s"`` for multiply-adds a second, ``"ms"`` or ``"µs"`` for the time of a run, ``"B"`` for the bytes of an
        element, which what is made returns instead of being timed.
    target : float
        At least this rate, or at most this time or memory.
    peer : str or None
        The peer's name for the work; None if it has nothing like it.
    plain : bool
        Whether PyTorch's own floats do the same.
    """

    title: str
    format: LNSFormat
    make: Callable[[Tensor], Run]
    amount: float
    rate: str
    target: float
    peer: str | None = None
    plain: bool = True


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def _matmul(tensor: Tensor) -> Run:
    a, b = tensor(_random(256, 256)), tensor(_random(256, 256).flip(0))
    return lambda: a @ b


def _add(tensor: Tensor) -> Run:
    a, b = tensor(_random(1_000_000)), tensor(_random(1_000_000).flip(0))
    return lambda: a + b


def _multiply(tensor: Tensor) -> Run:
    a, b = tensor(_random(1_000_000)), tensor(_random(1_000_000).flip(0))
    return lambda: a * b


def _scalar(tensor: Tensor) -> Run:
    a, b = tensor(torch.tensor(1.5, dtype=torch.float64)), tensor(torch.tensor(2.5, dtype=torch.float64))
    return lambda: a + b


def _memory(tensor: Tensor) -> Run:
    x = tensor(_random(1000))
    held = x._words if isinstance(x, xlnstorch.LNSTensor) else x
    return lambda: held.untyped_storage().nbytes() / x.numel()


def _convolution(tensor: Tensor) -> Run:
    images, weight = tensor(_random(4, 16, 32, 32)), tensor(_random(32, 16, 3, 3))
    return lambda: torch.nn.functional.conv2d(images, weight, padding=1)


def _training_step(tensor: Tensor) -> Run:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    images = tensor(_random(64, 784))
    if isinstance(images, xlnstorch.LNSTensor):
        convert(model, images.format)
    else:
        model.to(images.dtype)
    labels = torch.arange(64) % 10
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


_GAUSSIAN_23 = LNSFormat(29, 23, adder=Exact())
WORKS = (
    Work("matmul 256³, lns16", lns16, _matmul, 256**3, "G/s", 3.0, "matmul 7"),
    Work("matmul 256³, lns32 piecewise", LNSFormat(8, 23, adder=Piecewise()), _matmul, 256**3, "G/s", 0.5, "matmul 23"),
    Work("matmul 256³, f=23 exact", _GAUSSIAN_23, _matmul, 256**3, "G/s", 0.2, "matmul 23"),
    Work("matmul 256³, lns32 exact", lns32, _matmul, 256**3, "G/s", 0.2, "matmul 23"),
    Work("add, 10⁶ elements, lns16", lns16, _add, 1, "ms", 1.0, "add 7"),
    Work("add, 10⁶ elements, f=23", _GAUSSIAN_23, _add, 1, "ms", 8.0, "add 23"),
    Work("mul, 10⁶ elements, lns16", lns16, _multiply, 1, "ms", 0.6, "mul 7"),
    Work("MLP 784-128-10, batch 64, one training step, lns16", lns16, _training_step, 1, "ms", 6.0, "step 7"),
    Work("conv2d 4×16×32×32 → 32, 3×3, lns16", lns16, _convolution, 4 * 32 * 32 * 32 * 144, "G/s", 1.5, "conv 7"),
    Work("one addition of scalars", lns16, _scalar, 1, "µs", 25.0, "scalar 7"),
    Work("memory of an element, lns16", lns16, _memory, 1, "B", 2.0, "memory 7"),
)


def seconds_of(run: Run, least: float) -> float:
    """Return how long a run takes, as the mean of as many as take `least` seconds."""
    count, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < least or not count:
        run()
        count += 1
    return passed / count


class Peer:
    """The xlnstorch package from PyPI, in a process of its own that answers one line with another."""

    def __init__(self, folder: Path):
        # Its C++ extension finds torch's symbols only if they are global.
        environment = {**os.environ, "TORCH_USE_RTLD_GLOBAL": "1"}
        self._process = subprocess.Popen(
            [folder / "bin" / "python", PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def seconds(self, work: str, threads: int, least: float) -> float:
        """Return the time of one run of a work, with the faster of its implementations."""
        self._process.stdin.write(json.dumps({"work": work, "threads": threads, "least": least}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the peer stopped, with exit code {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        """End it."""
        self._process.stdin.close()
        self._process.wait()


def make_peer(folder: Path) -> None:
    """Make a virtual environment with the xlnstorch package of PyPI."""
    venv.create(folder, with_pip=True)
    torch_version = torch.__version__.split("+")[0]
    packages = ["xlnstorch==1.0.0", f"torch=={torch_version}", "numpy"]
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", *packages], check=True)


def measure(works, threads: int, rounds: int, least: float, peer: Peer | None, advance: Run) -> list[dict]:
    """Return a row of figures for each work."""
    torch.set_num_threads(threads)
    rows = []
    for work in works:
        runs = {"ours": work.make(lambda values, work=work: lnstensor(values, format=work.format))}
        if work.plain:
            runs["float32"] = work.make(lambda values: values.float())
            runs["bfloat16"] = work.make(lambda values: values.bfloat16())
        for run in runs.values():
            run()
        taken: dict[str, list[float]] = {name: [] for name in runs}
        if peer and work.peer:
            peer.seconds(work.peer, threads, 0.0)
            taken["peer"] = []
        for _ in range(rounds):
            for name, times in taken.items():
                if name == "peer":
                    times.append(peer.seconds(work.peer, threads, least))
                else:
                    times.append(runs[name]() if work.rate == "B" else seconds_of(runs[name], least))
            advance()
        rows.append(_row(work, threads, taken))
    return rows


def _row(work: Work, threads: int, taken: dict[str, list[float]]) -> dict:
    figures = {name: _figure(work, statistics.median(times)) for name, times in taken.items()}
    ratios = {
        name: statistics.median(other / ours for other, ours in zip(times, taken["ours"], strict=True))
        for name, times in taken.items()
        if name != "ours"
    }
    reached = figures["ours"] >= work.target if work.rate == "G/s" else figures["ours"] <= work.target
    return {
        "work": work.title,
        "threads": threads,
        "rate": work.rate,
        "target": work.target,
        "reached": reached,
        "figures": figures,
        "times_as_fast_as": ratios,
    }


def _figure(work: Work, seconds: float) -> float:
    if work.rate == "G/s":
        return work.amount / seconds / 1e9
    return seconds * {"B": 1, "ms": 1e3, "µs": 1e6}[work.rate]


def baseline_file() -> Path:
    """Return the file of this machine's baseline."""
    name = "_".join(["speed", kernels.current(), f"torch-{torch.__version__.split('+')[0]}", _processor()])
    return BASELINES / f"{re.sub(r'[^a-zA-Z0-9_.]+', '-', name).strip('-')}.json"


def best_ratio(work: Work, seconds: float, enough: float = float("inf")) -> float:
    """Return float32's time over ours, each the best that was seen, on one thread.

    What else the machine does makes times longer and never shorter; so it is tried again, for so many `seconds`, until
    the ratio is `enough`.
    """
    torch.set_num_threads(1)
    ours = work.make(lambda values: lnstensor(values, format=work.format))
    floats = work.make(lambda values: values.float())
    ours(), floats()
    best = [float("inf"), float("inf")]
    start, rounds = time.perf_counter(), 0
    while rounds < 3 or (best[1] / best[0] < enough and time.perf_counter() - start < seconds):
        for i, run in enumerate((ours, floats)):
            best[i] = min(best[i], seconds_of(run, 0.01))
        rounds += 1
    return best[1] / best[0]


def worse(works: Iterable[Work], baseline: dict[str, float], seconds: float = 20.0) -> list[str]:
    """Return a sentence for each work that is not in the baseline, or whose ratio is worse by more than a quarter."""
    sentences = []
    for work in works:
        before = baseline.get(work.title)
        if before is None:
            sentences.append(f"{work.title}: not in the baseline")
            continue
        enough = before * (1 - TOLERANCE)
        if (ratio := best_ratio(work, seconds, enough)) < enough:
            sentences.append(f"{work.title}: {ratio:.3g} of float32's speed, {before:.3g} in the baseline")
    return sentences


def table_of(rows: list[dict]) -> Table:
    """Return the rows as a table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("work")
    columns = ("threads", "", "target", "ours", "float32", "bfloat16", "xlnstorch 1.0.0", "times as fast")
    for title in columns:
        table.add_column(title, justify="right")
    for row in rows:
        figures, ratio = row["figures"], row["times_as_fast_as"].get("peer")
        shown = [f"{figures[name]:.3g}" if name in figures else "" for name in ("ours", "float32", "bfloat16", "peer")]
        target = f"{'≥' if row['rate'] == 'G/s' else '≤'} {row['target']:g}"
        table.add_row(
            row["work"], str(row["threads"]), row["rate"], target, *shown, "" if ratio is None else f"{ratio:.0f}"
        )
    return table


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table or JSON, and exit 1 if a target of one thread is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--peer", type=Path, metavar="DIR", help="a virtual environment with xlnstorch 1.0.0")
    parser.add_argument("--make-peer", type=Path, metavar="DIR", help="make such an environment first, and use it")
    parser.add_argument("--only", metavar="TEXT", default="", help="only works whose titles contain this")
    parser.add_argument("--rounds", type=int, default=7, help="how often each is timed (7)")
    parser.add_argument("--seconds", type=float, default=0.1, help="how long each takes in a round (0.1)")
    parser.add_argument("--threads", type=int, nargs="*", help="numbers of threads; by default 1 and all cores")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    baseline = parser.add_mutually_exclusive_group()
    baseline.add_argument("--check", action="store_true", help="compare with the baseline; exit 1 if anything is worse")
    baseline.add_argument("--write-baseline", action="store_true", help="keep what is found as this machine's baseline")
    args = parser.parse_args(arguments)
    timed = args.check or args.write_baseline
    works = [work for work in WORKS if args.only in work.title and not (timed and work.rate == "B")]
    if not works:
        parser.error(f"--only must be part of a title, not {args.only!r}")
    for name, values in [("--rounds", [args.rounds]), ("--threads", args.threads or [])]:
        if any(value < 1 for value in values):
            parser.error(f"{name} must be at least 1, not {min(values)}")
    if timed:
        return _with_baseline(works, args.write_baseline, parser)
    if args.make_peer:
        make_peer(args.make_peer)
    folder = args.make_peer or args.peer
    if folder and not (folder / "bin" / "python").exists():
        parser.error(f"--peer must be a virtual environment, not {folder}; --make-peer makes one")
    peer = Peer(folder) if folder else None
    counts = args.threads or sorted({1, len(os.sched_getaffinity(0))})
    rows = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=len(counts) * len(works) * args.rounds)
        for threads in counts:
            rows += measure(works, threads, args.rounds, args.seconds, peer, lambda: progress.advance(task))
    if peer:
        peer.close()
    if args.json:
        about = {"kernels": kernels.current(), "torch": torch.__version__, "processor": _processor()}
        sys.stdout.write(json.dumps({"schema": 1, **about, "rows": rows}) + "\n")
    else:
        results_console().print(table_of(rows))
    return 0 if all(row["reached"] for row in rows if row["threads"] == 1) else 1


def _with_baseline(works: list[Work], writes: bool, parser: argparse.ArgumentParser) -> int:
    file = baseline_file()
    if writes:
        kept = json.loads(file.read_text()) if file.exists() else {}
        passes = [[best_ratio(work, 5.0) for work in works] for _ in range(3)]
        found = {work.title: round(min(ratios), 4) for work, *ratios in zip(works, *passes, strict=True)}
        file.write_text(json.dumps({**kept, **found}, indent=1, ensure_ascii=False) + "\n")
        return 0
    if not file.exists():
        parser.error(f"there is no baseline {file.name}; make one with --write-baseline")
    sentences = worse(works, json.loads(file.read_text()))
    for sentence in sentences:
        sys.stderr.write(f"{sentence}\n")
    return 1 if sentences else 0


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


if __name__ == "__main__":
    sys.exit(main())
