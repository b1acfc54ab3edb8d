"""Traces in files: what comes back is what was written, and anything else is one sentence."""

import dataclasses
import io
import json
import os
import zipfile

import numpy as np
import pytest
import torch

import xlnstorch
from sim import Trace, capture
from xlnstorch import LinearAccumulator, LNSFormat, LogAccumulator, Mitchell, lns8, lns12, lns16, lns24, lnstensor
from xlnstorch.adders import Exact


def traced(format=lns16):
    x = lnstensor([1.5, -2.0, 0.0, 4.0], format=format, requires_grad=True)
    with capture(format) as trace:
        y = (x * x + x).relu() / 3.0
        y.exp().sum().backward()
    return trace


def same(a, b):
    assert (a.format, a.counts, a.versions, a.names) == (b.format, b.counts, b.versions, b.names)
    for name in a.names:
        one, other = a[name], b[name]
        assert (one.starts, one.sources) == (other.starts, other.sources)
        for mine, its in zip(one.columns, other.columns, strict=True):
            assert mine.dtype == its.dtype
            assert mine.tolist() == its.tolist()


@pytest.mark.parametrize(
    "format",
    [
        lns8,
        dataclasses.replace(lns12, specials=True),
        dataclasses.replace(lns16, accumulator=LogAccumulator(order="tree", guard_bits=2)),
        dataclasses.replace(lns16, accumulator=LinearAccumulator(frac_bits=12)),
        dataclasses.replace(lns24, adder=Mitchell()),
        LNSFormat(44, 8, base=3.0),
    ],
    ids=str,
)
def test_what_is_loaded_is_what_was_saved(format, tmp_path):
    trace = traced(format)
    assert len(trace) > 20
    path = tmp_path / "trace.npz"
    trace.save(path)
    loaded = Trace.load(path)
    same(trace, loaded)
    assert trace.path == loaded.path == path
    assert loaded.versions["torch"] == torch.__version__
    assert list(loaded.versions) == ["lns-coverify", "torch", "numpy"]
    loaded.save(tmp_path / "again.npz")
    same(trace, Trace.load(str(tmp_path / "again.npz")))


def test_a_trace_without_operations_is_one_too(tmp_path):
    trace = Trace(lns16)
    trace.save(tmp_path / "empty.npz")
    same(trace, Trace.load(tmp_path / "empty.npz"))


def test_a_trace_cut_short_anywhere_is_refused(tmp_path):
    path, cut = tmp_path / "trace.npz", tmp_path / "cut.npz"
    traced().save(path)
    whole = path.read_bytes()
    for length in range(2, len(whole), 61):
        cut.write_bytes(whole[:length])
        with pytest.raises(ValueError) as caught:
            Trace.load(cut)
        assert str(caught.value) == f"the trace {str(cut)!r} is damaged or not complete"


def test_a_byte_changed_anywhere_is_found_or_means_nothing(tmp_path):
    path, changed = tmp_path / "trace.npz", tmp_path / "changed.npz"
    trace = traced()
    trace.save(path)
    whole = path.read_bytes()
    refused = 0
    for place in range(2, len(whole), 19):
        changed.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        try:
            loaded = Trace.load(changed)
        except ValueError as error:
            refused += 1
            assert str(error) in (
                f"the trace {str(changed)!r} is damaged or not complete",
                f"{str(changed)!r} is not a trace that lns capture wrote",  # the header's name
            )
        else:  # such as the time of a member
            same(trace, loaded)
    assert refused > len(whole) / 19 / 2


def test_what_is_no_trace_is_refused(tmp_path):
    text, empty, other, folder = (tmp_path / name for name in ("a.npz", "b.npz", "c.npz", "d.npz"))
    text.write_text("a trace")
    empty.touch()
    np.savez(other, x=np.zeros(3))
    folder.mkdir()
    for path in (text, empty, other):
        with pytest.raises(ValueError) as caught:
            Trace.load(path)
        assert str(caught.value) == f"{str(path)!r} is not a trace that lns capture wrote"
    missing = tmp_path / "e.npz"
    for path, reason in ((folder, "Is a directory"), (missing, "No such file or directory")):
        with pytest.raises(OSError) as caught:
            Trace.load(path)
        assert str(caught.value) == f"the trace {str(path)!r} cannot be read: {reason}"


def rewritten(path, header=None, **arrays):
    """Write a trace again with another header, and other arrays; None is left out."""
    with np.load(path) as archive:
        members = dict(archive)
    members |= {name.replace("__", "/"): values for name, values in arrays.items()}
    described = json.loads(members["header"].tobytes())
    (header or (lambda _: None))(described)
    members["header"] = np.frombuffer(json.dumps(described).encode(), np.uint8)
    np.savez(path, **{name: values for name, values in members.items() if values is not None})


def test_a_trace_of_a_later_schema_is_refused_whatever_else_it_holds(tmp_path):
    path = tmp_path / "trace.npz"
    traced().save(path)

    def later(header):
        header.update(schema=2)
        del header["format"]

    rewritten(path, later)
    with pytest.raises(ValueError) as caught:
        Trace.load(path)
    assert (
        str(caught.value) == f"the trace {str(path)!r} has the schema 2, of a later version; this version reads up to 1"
    )


def test_a_format_that_is_not_known_here_is_named(tmp_path):
    path = tmp_path / "trace.npz"
    traced().save(path)
    rewritten(path, lambda header: header["format"].update(adder="spline:knots=4"))
    with pytest.raises(ValueError) as caught:
        Trace.load(path)
    assert str(caught.value).startswith(
        f"the format of the trace {str(path)!r} is not known here: adder must be one of exact, piecewise, mitchell"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"mul__b": None},
        {"mul__a": np.zeros(3, np.uint16)},
        {"mul__result": np.zeros(12, np.int64)},
        {"mul__a": np.full(12, 1 << 12, np.uint16)},
        {"mul__flags": np.full(12, 16, np.uint8)},
        {"mul__starts": np.array([1])},
        {"mul__sources": np.array([99])},
        {"mul__a": np.zeros((12, 1), np.uint16)},
        {"header": lambda header: header["counts"].update(mul=1)},
        {"header": lambda header: header["counts"].clear()},
        {"header": lambda header: header.update(format=[])},
        {"header": lambda header: header.update(operands={"mul": "two"})},
        {"header": lambda header: header.pop("versions")},
        {"header": lambda header: header.update(schema="later")},
    ],
)
def test_columns_that_do_not_fit_each_other_are_refused(change, tmp_path):
    path = tmp_path / "trace.npz"
    x = lnstensor([1.5] * 12, format=lns12)
    with capture(lns12) as trace:
        x * x
    trace.save(path)
    rewritten(path)
    Trace.load(path)
    rewritten(path, **change)
    with pytest.raises(ValueError) as caught:
        Trace.load(path)
    assert str(caught.value) == f"the trace {str(path)!r} is damaged or not complete"


class Trap:
    """What makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def test_nothing_is_unpickled(tmp_path):
    path, folder = tmp_path / "trace.npz", str(tmp_path / "folder")
    traced().save(path)
    with np.load(path) as archive:
        members = dict(archive)
    with zipfile.ZipFile(path, "w") as archive:
        for name, values in members.items():
            out = io.BytesIO()
            np.save(out, np.array([Trap(folder)], object) if name == "mul/a" else values, allow_pickle=True)
            archive.writestr(f"{name}.npy", out.getvalue())
    with pytest.raises(ValueError, match=r"is damaged or not complete$"):
        Trace.load(path)
    assert not os.path.exists(folder)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("trace.npy", "its name must end in .npz"),
        ("none/trace.npz", "its folder does not exist"),
        ("folder.npz", "it is a folder"),
    ],
)
def test_where_no_trace_can_be_written(path, reason, tmp_path):
    (tmp_path / "folder.npz").mkdir()
    path = str(tmp_path / path)
    with pytest.raises(OSError) as caught:
        traced().save(path)
    assert str(caught.value) == f"{path!r} cannot be written: {reason}"
    assert os.listdir(tmp_path) == ["folder.npz"]


def test_a_failed_save_leaves_what_was_there_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "trace.npz"
    first = traced()
    first.save(path)

    def fail(out, **arrays):
        out.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numpy.savez_compressed", fail)
    with pytest.raises(OSError) as caught:
        traced(lns8).save(path)
    assert str(caught.value) == f"{str(path)!r} cannot be written: No space left on device"
    assert os.listdir(tmp_path) == ["trace.npz"]
    same(first, Trace.load(path))


def test_a_link_is_kept_and_what_it_names_is_replaced(tmp_path):
    target, link = tmp_path / "target.npz", tmp_path / "link.npz"
    link.symlink_to(target)
    traced().save(link)
    assert link.is_symlink()
    same(traced(), Trace.load(target))


def test_a_format_that_no_name_stands_for_cannot_be_saved(tmp_path):
    class Own(Exact):
        @property
        def name(self):
            return "own"

    format = dataclasses.replace(lns8, adder=Own())
    with capture(format) as trace:
        xlnstorch.ones(2, format=format) * 2
    with pytest.raises(ValueError, match=r"cannot be saved: no name stands for its adder and accumulator$"):
        trace.save(tmp_path / "trace.npz")
    assert os.listdir(tmp_path) == []
