"""Traces in files: ``.npz``, with the format, the versions of what computed them, and where each operation came from.

A file holds, as arrays of NumPy, a header, which is JSON in UTF-8, and for each kind of operation its columns:
``mul/a``, ``mul/b``, ``mul/result``, ``mul/flags``, and ``mul/starts`` and ``mul/sources``, from which element on which
of the header's sources is meant.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xlnstorch.accumulators import named_accumulator
from xlnstorch.adders import named_adder
from xlnstorch.files import check_writable, replacing
from xlnstorch.formats import LNSFormat
from xlnstorch.observe import FLAGS

if TYPE_CHECKING:
    from .traces import Trace

__all__ = ["SCHEMA", "SUFFIXES", "read", "write"]

#: Of the files that are written; later ones are refused.
SCHEMA = 1
#: What the name of a file must end in.
SUFFIXES = (".npz",)
_KIND = "lns trace"
_HEADER = "header"
_OPERANDS = "abcdefgh"

# What reading a file that was changed somewhere may raise.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, TypeError, AttributeError),
    *(NotImplementedError, RuntimeError, IndexError, OverflowError, MemoryError, SyntaxError),
)


def write(trace: Trace, path: Path) -> None:
    """Write a trace; see :meth:`~sim.traces.Trace.save`."""
    check_writable(path, SUFFIXES)
    sources: dict[str, int] = {}
    arrays = {}
    for name in trace.names:
        record = trace[name]
        numbers = [sources.setdefault(source, len(sources)) for source in record.sources]
        for key, column in zip((*_OPERANDS[: len(record.operands)], "result", "flags"), record.columns, strict=True):
            arrays[f"{name}/{key}"] = column
        arrays[f"{name}/starts"] = np.array(record.starts, np.int64)
        arrays[f"{name}/sources"] = np.array(numbers, np.int64)
    header = {
        "kind": _KIND,
        "schema": SCHEMA,
        "format": _describe(trace.format),
        "versions": trace.versions,
        "counts": trace.counts,
        "operands": {name: len(trace[name].operands) for name in trace.names},
        "sources": list(sources),
    }
    arrays[_HEADER] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with replacing(path) as file, file.open("xb") as out:
        np.savez_compressed(out, **arrays)


def read(path: Path) -> Trace:
    """Return the trace in a file; see :meth:`~sim.traces.Trace.load`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise type(error)(f"the trace {str(path)!r} cannot be read: {error.strerror or error}") from None
    foreign = ValueError(f"{str(path)!r} is not a trace that lns capture wrote")
    damaged = ValueError(f"the trace {str(path)!r} is damaged or not complete")
    if not content.startswith(b"PK"):
        raise foreign
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
        if f"{_HEADER}.npy" not in archive.namelist():
            raise foreign
        header = json.loads(_array(archive, _HEADER).tobytes())
        if header["kind"] != _KIND:
            raise foreign
        schema = int(header["schema"])
    except _DAMAGE as error:
        raise foreign if error is foreign else damaged from None
    if schema > SCHEMA:
        raise ValueError(
            f"the trace {str(path)!r} has the schema {schema}, of a later version; this version reads up to {SCHEMA}"
        )
    try:
        return _trace(archive, header)
    except _UnknownFormat as error:
        raise ValueError(f"the format of the trace {str(path)!r} is not known here: {error}") from None
    except _DAMAGE:
        raise damaged from None


def _trace(archive: zipfile.ZipFile, header: dict) -> Trace:
    """Return the trace in an archive whose header has been read; anything odd raises one of _DAMAGE."""
    from .traces import Trace, word_dtype

    trace = Trace(_format_of(header["format"]))
    trace.versions = {str(name): str(version) for name, version in header["versions"].items()}
    words = word_dtype(trace.format)
    lengths = Counter()
    for name, operands in header["operands"].items():
        *columns, flags = (_array(archive, f"{name}/{key}") for key in (*_OPERANDS[: int(operands)], "result", "flags"))
        starts, numbers = (_array(archive, f"{name}/{key}").tolist() for key in ("starts", "sources"))
        count = lengths[name] = len(flags)
        shapes = {(column.dtype, column.shape) for column in columns}
        ends = [*starts[1:], count]
        if shapes != {(words, (count,))} or (flags.dtype, flags.shape) != (np.uint8, (count,)):
            raise ValueError("columns differ")
        if any(column.max(initial=0) >> trace.format.width for column in columns) or flags.max() >> len(FLAGS):
            raise ValueError("a word or flags are too large")
        if starts[0] != 0 or any(start >= end for start, end in zip(starts, ends, strict=True)):
            raise ValueError("sources are out of order")
        for start, end, number in zip(starts, ends, numbers, strict=True):
            piece = tuple(column[start:end] for column in (*columns, flags))
            trace.add(name, header["sources"][number], end - start, piece)
    trace.counts = Counter({str(name): int(count) for name, count in header["counts"].items()})
    if any(trace.counts[name] != length for name, length in lengths.items()):
        raise ValueError("counts differ")
    return trace


def _array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """Return an array of an archive: all of its bytes are read, and so their checksum compared, before it is made."""
    return np.lib.format.read_array(io.BytesIO(archive.read(f"{name}.npy")), allow_pickle=False)


class _UnknownFormat(Exception):
    """Why the format that a header describes cannot be made."""


def _describe(format: LNSFormat) -> dict:
    """Return a format as JSON."""
    plain = {name: getattr(format, name) for name in ("int_bits", "frac_bits", "specials", "base")}
    described = {**plain, "adder": format.adder.name, "accumulator": format.accumulator.name}
    try:
        same = _format_of(described) == format
    except _UnknownFormat:  # another package's
        same = False
    if not same:
        raise ValueError(f"a trace of {format} cannot be saved: no name stands for its adder and accumulator")
    return described


def _format_of(described: dict) -> LNSFormat:
    values = dict(described)
    try:
        adder, accumulator = named_adder(values.pop("adder")), named_accumulator(values.pop("accumulator"))
        return LNSFormat(**values, adder=adder, accumulator=accumulator)
    except (ValueError, TypeError) as error:
        raise _UnknownFormat(str(error)) from None
