"""Processes of our own: waited for, and ended with all that they have started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable

__all__ = ["end", "wait_for"]


def wait_for(process: subprocess.Popen, poll: Callable[[], None] | None = None) -> int:
    """Return the exit status of a process, which leads a session of its own.

    Parameters
    ----------
    process : Popen
    poll : callable, optional
        Called now and then. If it raises, or an interrupt comes, the process is ended.
    """
    try:
        while True:
            try:
                return process.wait(timeout=0.2 if poll else None)
            except subprocess.TimeoutExpired:
                poll()
    finally:
        if process.poll() is None:
            end(process)


def end(process: subprocess.Popen) -> None:
    """End a process and those that it has started."""
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
