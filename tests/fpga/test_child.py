import os
from pathlib import Path

import pytest

from fpga._child import _compiled


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("YOWASP_CACHE_DIR", "set back afterwards")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "job"))
    (tmp_path / "job").mkdir()
    return tmp_path / "programs/ice40-1"


def compile_there(text):
    Path(os.environ["YOWASP_CACHE_DIR"], "program").write_text(text)


def test_what_is_compiled_is_kept_and_then_found(kept, tmp_path):
    with _compiled(kept):
        compile_there("compiled")
        assert not kept.exists()
    assert (kept / "program").read_text() == "compiled"
    with _compiled(kept):
        assert os.environ["YOWASP_CACHE_DIR"] == str(kept)
    assert list((tmp_path / "job").iterdir()) == []


def test_the_first_of_two_processes_that_compile_stays(kept, tmp_path):
    with _compiled(kept):
        compile_there("second")
        with _compiled(kept):
            compile_there("first")
    assert (kept / "program").read_text() == "first"
    assert list((tmp_path / "job").iterdir()) == []


def test_what_was_interrupted_is_not_kept(kept, tmp_path):
    with pytest.raises(KeyboardInterrupt), _compiled(kept):
        compile_there("half")
        raise KeyboardInterrupt
    assert not kept.exists()
    assert list((tmp_path / "job").iterdir()) == []
