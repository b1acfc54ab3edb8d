import os

import pytest

from xlnstorch import cache


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LNS_CACHE", str(tmp_path))
    return tmp_path / "a/b"


def test_what_is_stored_is_loaded(folder):
    value = {"x": [1, 2.5, None, "ü"]}
    assert cache.load("a/b", "key") is None
    cache.store("a/b", "key", value)
    assert cache.load("a/b", "key") == value
    assert cache.load("a/b", "other") is None
    cache.store("a/b", "key", 7)
    assert cache.load("a/b", "key") == 7
    assert [file.name for file in folder.iterdir()] == ["key.json"]


def test_what_is_not_what_was_written_is_not_loaded(folder):
    cache.store("a/b", "key", {"x": 12})
    (file,) = folder.iterdir()
    text = file.read_text()
    for wrong in ("", text[:-1], text.replace("12", "13"), '{"value": 1}', "[1]", "null", "\udcff"):
        file.write_text(wrong, errors="surrogateescape")
        assert cache.load("a/b", "key") is None
    file.write_text(text)
    assert cache.load("a/b", "key") == {"x": 12}
    file.rename(file.with_name("other.json"))
    assert cache.load("a/b", "other") is None


def test_a_write_that_fails_leaves_the_old_file_and_no_other(folder, monkeypatch):
    cache.store("a/b", "key", 1)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cache.store("a/b", "key", 2)
    assert cache.load("a/b", "key") == 1
    assert [file.name for file in folder.iterdir()] == ["key.json"]


def test_a_digest_depends_on_the_parts_and_not_on_the_order_of_keys():
    assert cache.digest({"a": 1, "b": [2]}) == cache.digest({"b": [2], "a": 1})
    assert cache.digest(["a", "b"]) != cache.digest(["ab"])
    assert len(cache.digest(None)) == 32
