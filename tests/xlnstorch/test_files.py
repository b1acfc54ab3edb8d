"""A file is whole, or as it was."""

import pytest
from lnstesting import exactly

from xlnstorch.files import check_writable, replacing


def test_it_appears_when_it_is_complete(tmp_path):
    target = tmp_path / "a.txt"
    with replacing(target) as file:
        file.write_text("new")
        assert not target.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert target.read_text() == "new"


def test_what_raises_leaves_the_old_one(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(target) as file:
        file.write_text("half")
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert target.read_text() == "old"


def test_a_link_stays_a_link(tmp_path):
    target, link = tmp_path / "a.txt", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    with replacing(link) as file:
        file.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_where_nothing_can_be_written(tmp_path):
    check_writable(tmp_path / "a.txt")
    check_writable(tmp_path / "a.TXT", [".npz", ".txt"])
    assert not list(tmp_path.iterdir())
    for path, reason in (
        (tmp_path / "a.csv", "its name must end in .npz or .txt"),
        (tmp_path / "none" / "a.txt", "its folder does not exist"),
        (tmp_path, "its name must end in .npz or .txt"),
        ("/proc/a.txt", "No such file or directory"),
    ):
        with pytest.raises(OSError, match=exactly(f"{str(path)!r} cannot be written: {reason}")):
            check_writable(path, [".npz", ".txt"])
    with pytest.raises(OSError, match=exactly(f"{str(tmp_path)!r} cannot be written: it is a folder")):
        check_writable(tmp_path)
    for use in (check_writable, lambda path: replacing(path).__enter__().write_text("")):
        with pytest.raises(OSError, match=r"cannot be written|No such file"):
            use("/proc/a.txt")
