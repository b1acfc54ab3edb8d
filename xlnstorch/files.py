"""Files that appear, or are replaced, only when they are complete."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["check_writable", "replacing"]


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give the name of a new file that takes the place of another, or appears there, when the block has ended.

    If the block raises, nothing is left of it. Of a link what it names is replaced, not the link.

    Raises
    ------
    OSError
        The file cannot be written; the message is a sentence with its path.
    """
    with _aside(path) as file:
        yield file
        file.replace(os.path.realpath(path))


def check_writable(path: str | Path, suffixes: Sequence[str] = ()) -> None:
    """Raise OSError, with the same sentence, if a file cannot be written; leave no trace of having tried.

    Parameters
    ----------
    path : str or Path
    suffixes : sequence of str
        One of which its name must end in, if there are any.
    """
    path, target = Path(path), Path(os.path.realpath(path))
    if suffixes and path.suffix.lower() not in suffixes:
        raise _error(path, f"its name must end in {' or '.join(suffixes)}")
    if not target.parent.is_dir():
        raise _error(path, "its folder does not exist")
    if target.is_dir():
        raise _error(path, "it is a folder")
    with _aside(path) as file:
        file.touch(exist_ok=False)


@contextlib.contextmanager
def _aside(path: str | Path) -> Iterator[Path]:
    target = Path(os.path.realpath(path))
    file = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        yield file
    except OSError as error:
        if error.strerror is None:  # it is such a sentence already, of another file
            raise
        raise _error(path, error.strerror, type(error)) from None
    finally:
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)


def _error(path: str | Path, reason: str, kind: type[OSError] = OSError) -> OSError:
    return kind(f"{str(path)!r} cannot be written: {reason}")
