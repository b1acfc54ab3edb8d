"""Every operand that a unit can have: gates against golden model on all cores, in blocks that outlast an interrupt."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

import hdl
import xlnstorch
from hdl.unit import Unit
from xlnstorch import kernels
from xlnstorch.cache import cache_folder
from xlnstorch.files import replacing

from . import golden, payloads
from .batch import Batch
from .sequences import is_sequential
from .stimulus import Vectors

__all__ = ["Found", "Space", "verify_space"]

#: The most vectors there may be: about an hour of two cores.
MAX_VECTORS = 1 << 35
# What is kept when a run is interrupted: a fraction of a second of work.
_BLOCK = 1 << 22
# What the golden model gets at once: its intermediate results fit into a core's cache.
_CHUNK = 1 << 16
_SAVE_SECONDS = 5.0


class Space:
    """All operands of all operations of a unit, in order.

    What an operation does not use of the operands (:meth:`hdl.Unit.operands_of`) is noise.

    Parameters
    ----------
    unit : Unit

    Raises
    ------
    ValueError
        There are more than :data:`MAX_VECTORS`, or the unit sums several payloads, of which there is no end.
    """

    def __init__(self, unit: Unit):
        self.unit = unit
        if is_sequential(unit):
            raise ValueError(f"{unit.name} sums any number of payloads, so no stimulus of it is exhaustive")
        self._used = [
            {name: payloads.width(layout) for name, layout in unit.operands_of(operation).items()}
            for operation in unit.operations
        ]
        sizes = [1 << sum(used.values()) for used in self._used]
        #: Where the vectors of each operation begin, and at the end how many there are in all.
        self.starts = [0, *itertools.accumulate(sizes)]
        if len(self) > MAX_VECTORS:
            largest = max(self._used, key=lambda used: sum(used.values()))
            name = list(unit.operations)[self._used.index(largest)]
            raise ValueError(
                f"exhaustive takes at most 2**{MAX_VECTORS.bit_length() - 1} vectors, but the operands of {name} of "
                f"{unit.name} have {sum(largest.values())} bits"
            )

    def __len__(self) -> int:
        return self.starts[-1]

    def chunks(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield pieces of a range of indices, begin and end, each within one operation."""
        edges = [*range(first, end, _CHUNK), end, *(start for start in self.starts if first < start < end)]
        return itertools.pairwise(sorted(set(edges)))

    def vectors(self, first: int, end: int) -> Vectors:
        """Return the vectors of a range of indices within one operation."""
        op = int(np.searchsorted(self.starts, first, side="right")) - 1
        index = np.arange(first - self.starts[op], end - self.starts[op], dtype=np.int64)
        noise = (index * 0x2545F4914F6CDD1D) ^ 0x1B873593
        operands, place = {}, 0
        # The first operand is the slowest, as one would write the loops.
        for name, layout in reversed(self.unit.operands().items()):
            bits, used = payloads.width(layout), self._used[op].get(name, 0)
            above = noise >> (63 - (bits - used)) if bits > used else 0
            operands[name] = (index >> place & ((1 << used) - 1)) | (above & ((1 << (bits - used)) - 1)) << used
            place += used
        names = self.unit.operands()
        return Vectors(np.full(len(index), op), {name: operands[name] for name in names})


@dataclasses.dataclass
class Found:
    """What a run over a space found.

    Attributes
    ----------
    vectors, earlier : int
        How many were compared, and how many of them by an earlier run that was interrupted.
    mismatches : int
        At the first block with any, the run ends.
    first : tuple or None
        Of the first mismatch: its index, its vectors, the payload expected, and the one that came, None if none did.
    problems : list of str
    seconds : float
    """

    vectors: int = 0
    earlier: int = 0
    mismatches: int = 0
    first: tuple[int, Vectors, int, int | None] | None = None
    problems: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0


def verify_space(
    unit: Unit,
    verilog: str,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
    cores: int | None = None,
    block: int | None = None,
) -> Found:
    """Compare gates with the golden model on all operands that there are.

    Parameters
    ----------
    unit : Unit
    verilog : str
        Its gates.
    progress : callable
        Called with how many are done and how many there are; 0 and 0 while the gates are compiled. What it raises
        ends the run, whose finished blocks are kept: the same call goes on with the others.
    cores : int, optional
        How many processes work; by default as many as this one may use cores.
    block : int, optional
        How many vectors are kept or lost together; by default some seconds' worth.

    Raises
    ------
    ValueError
        From :class:`Space`.
    ToolMissing, BuildFailed
    """
    space = Space(unit)
    total = len(space)
    block = block or _BLOCK
    record = _Record(unit, verilog, block)
    todo = [number for number in range(-(-total // block)) if number not in record.done]
    found = Found(earlier=sum(_size(number, block, total) for number in record.done))
    found.vectors = found.earlier
    Batch(unit, verilog, expected=total, poll=lambda: progress(0, 0)).close()  # compiled here, loaded by all workers
    start = time.monotonic()
    try:
        with _Workers(space, verilog, todo, block, cores or len(os.sched_getaffinity(0))) as workers:
            progress(found.vectors, total)
            for number, part in workers.parts(lambda: progress(found.vectors, total)):
                _merge(found, part)
                if part.mismatches or part.problems:
                    break
                record.add(number)
        if not found.mismatches and not found.problems:
            record.delete()  # so that the next run does all of it again
    finally:
        record.save()
    found.seconds = time.monotonic() - start
    return found


class _Workers:
    """Processes that compare blocks, each with gates of its own; leaving the ``with`` block ends them.

    Threads would wait for each other at every operation of the golden model. They are forked, since a unit may be of a
    type that no other process can import, and do not use threads of torch, which a fork does not have.
    """

    def __init__(self, space: Space, verilog: str, todo: list[int], block: int, count: int):
        context = multiprocessing.get_context("fork")
        position = context.Value("q", 0)
        self._processes, self._ends = [], []
        for _ in range(min(count, len(todo))):
            receive, send = context.Pipe(duplex=False)
            process = context.Process(
                target=_work, args=(space, verilog, todo, block, position, send, [*self._ends, receive]), daemon=True
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads: they are not used there
                process.start()
            send.close()
            self._processes.append(process)
            self._ends.append(receive)

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        for process, end in zip(self._processes, self._ends, strict=True):
            process.join()
            end.close()

    def parts(self, poll: Callable[[], None]) -> Iterator[tuple[int, Found]]:
        """Yield the numbers of blocks and what was found in them, as they come, calling `poll` now and then."""
        working = list(self._ends)
        while working:
            for end in multiprocessing.connection.wait(working, timeout=0.2):
                try:
                    message = end.recv()
                except EOFError:
                    code = self._processes[self._ends.index(end)].exitcode
                    raise RuntimeError(f"a process that compares stopped, with exit code {code}") from None
                if isinstance(message, BaseException):
                    raise message
                if message is None:
                    working.remove(end)
                else:
                    yield message
            poll()


def _work(space: Space, verilog: str, todo: list[int], block: int, position, send, others: list) -> None:
    """Compare blocks, as long as there are some that no other process has taken; in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, where the parent ends this process
    for end in others:
        end.close()
    try:
        torch.set_num_threads(1)
        total = len(space)
        with Batch(space.unit, verilog, expected=total) as batch:
            while True:
                with position.get_lock():
                    index = position.value
                    position.value += 1
                if index >= len(todo):
                    break
                number = todo[index]
                send.send((number, _compare(space, batch, number * block, min(total, (number + 1) * block))))
        send.send(None)
    except Exception as error:
        send.send(error)


def _size(number: int, block: int, total: int) -> int:
    return min(total, (number + 1) * block) - number * block


def _compare(space: Space, batch: Batch, first: int, end: int) -> Found:
    """Compare one block; up to a mismatch, or a problem."""
    found, unit = Found(), space.unit
    for begin, until in space.chunks(first, end):
        vectors = space.vectors(begin, until)
        expected = payloads.to_rows(unit.o.payload.shape(), golden.evaluate(unit, vectors), len(vectors))
        rows = payloads.to_rows(unit.i.payload.shape(), vectors.fields(unit), len(vectors))
        # A block begins with stalls; what is left of it shows that the unit takes a payload in every clock.
        stalls = 1 + begin if begin == first else 0
        outcome = batch.run(rows, stalls=stalls, drain=begin == first)
        wrong = np.flatnonzero(outcome.wrong(expected))
        found.vectors += len(vectors)
        found.mismatches += len(wrong)
        found.problems += outcome.problems
        if not outcome.came.all():
            found.problems.append(f"it stopped: {int((~outcome.came).sum())} of {len(vectors)} results never came")
        elif unit.steady and not stalls and outcome.clocks > len(vectors) // batch.lanes + unit.latency + 8:
            found.problems.append(
                f"it took {outcome.clocks} clocks for {-(-len(vectors) // batch.lanes)} operands that were offered "
                "in every clock"
            )
        if len(wrong):
            at = int(wrong[0])
            one = Vectors(vectors.op[at : at + 1], {name: bits[at : at + 1] for name, bits in vectors.operands.items()})
            got = payloads.integer(outcome.rows[at]) if outcome.came[at] else None
            found.first = (begin + at, one, payloads.integer(expected[at]), got)
        if len(wrong) or found.problems:
            break
    return found


def _merge(found: Found, part: Found) -> None:
    found.vectors += part.vectors
    found.mismatches += part.mismatches
    found.problems += [problem for problem in part.problems if problem not in found.problems]
    if part.first and (found.first is None or part.first[0] < found.first[0]):
        found.first = part.first


class _Record:
    """Which blocks are done, in a file, by a digest of all that decides about them."""

    def __init__(self, unit: Unit, verilog: str, block: int):
        self._path = cache_folder() / "exhaustive" / f"{_digest(unit, verilog, block)}.json"
        self._saved = time.monotonic()
        try:
            self.done = set(json.loads(self._path.read_text()))
        except (OSError, ValueError):
            self.done = set()

    def add(self, number: int) -> None:
        self.done.add(number)
        if time.monotonic() - self._saved > _SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        self._saved = time.monotonic()
        if not self.done:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self._path) as file:
            file.write_text(json.dumps(sorted(self.done)))

    def delete(self) -> None:
        self.done.clear()
        self._path.unlink(missing_ok=True)


def _digest(unit: Unit, verilog: str, block: int) -> str:
    """Return what identifies gates, golden model and bench: another of either, and nothing has been done yet."""
    files = {Path(source) for kind in type(unit).__mro__ if (source := _source_of(kind))}
    for package in (hdl, xlnstorch):
        files |= set(Path(package.__file__).parent.rglob("*.py"))
    files |= set(Path(__file__).parent.glob("*.[cp]*"))
    if module := kernels.compiled():
        files.add(Path(module.__file__))
    digest = hashlib.sha256(json.dumps([verilog, repr(unit.format), list(unit.operations), block]).encode())
    for file in sorted(files):
        if file.is_file():
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:32]


def _source_of(kind: type) -> str | None:
    try:
        return inspect.getsourcefile(kind)
    except TypeError:  # built in
        return None
