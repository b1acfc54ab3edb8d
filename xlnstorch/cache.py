"""Results that took long to compute, kept in files by a digest of everything that went into them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path

__all__ = ["cache_folder", "digest", "load", "store"]


def cache_folder() -> Path:
    """Where results are kept: ``$LNS_CACHE``, else ``lns`` in the user's cache folder. Deleting it is always safe."""
    if os.environ.get("LNS_CACHE"):
        return Path(os.environ["LNS_CACHE"]).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "lns"


def digest(parts: object) -> str:
    """Return 32 hexadecimal digits that identify `parts`, which JSON must be able to hold."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def load(kind: str, key: str) -> object | None:
    """Return what was stored under a digest; None if there is nothing, or not what was written."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        kept = json.loads(_file(kind, key).read_text())
        if kept["digest"] == digest([key, kept["value"]]):
            return kept["value"]
    return None


def store(kind: str, key: str, value: object) -> None:
    """Keep `value`, which JSON must be able to hold. The file appears, or is replaced, only when all of it is there.

    Raises
    ------
    OSError
        The cache folder cannot be written.
    """
    file = _file(kind, key)
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=file.parent, prefix=".writing-")
    try:
        with open(handle, "w") as out:
            json.dump({"digest": digest([key, value]), "value": value}, out)
        os.replace(aside, file)
    except BaseException:
        os.unlink(aside)
        raise


def _file(kind: str, key: str) -> Path:
    return cache_folder() / kind / f"{key}.json"
