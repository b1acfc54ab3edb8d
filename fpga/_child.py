"""The process that implements one unit: ``python -m fpga._child FOLDER``; see :mod:`fpga.runner`."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .flow import DEVICES, implement, tool_versions


def main() -> None:
    """Do what ``job.json`` in the folder says, and write ``result.json``."""
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text())
    device = DEVICES[job["device"]]
    versions = (tool_versions(device)[f"yowasp-nextpnr-{device.name}"], importlib.metadata.version("wasmtime"))
    with _compiled_nextpnr(Path(job["programs"], "-".join((device.name, *versions)))):
        found = implement((folder / "unit").read_text(), device, job["seeds"], str(folder / "log"), job["language"])
    (folder / "result.json").write_text(json.dumps([dataclasses.asdict(one) for one in found]))


@contextlib.contextmanager
def _compiled_nextpnr(kept: Path) -> Iterator[None]:
    """Let YoWASP find nextpnr compiled in the folder `kept`, or keep there what it compiles.

    YoWASP itself writes over a file that another process may have mapped. Here a folder appears with all that is in it.
    """
    if kept.is_dir():
        os.environ["YOWASP_CACHE_DIR"] = str(kept)
        yield
        return
    with tempfile.TemporaryDirectory() as aside:  # in the job's folder, which is on the same disk
        os.environ["YOWASP_CACHE_DIR"] = aside
        yield
        kept.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # another process was first
            os.rename(aside, kept)
        os.makedirs(aside, exist_ok=True)  # for TemporaryDirectory to remove


if __name__ == "__main__":
    main()
