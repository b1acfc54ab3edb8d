"""Boards: synthesis, place and route (:mod:`fpga.flow`), bitstreams, and the host of a board at a serial port.

:mod:`fpga.levels` hands netlists, and an iCE40's bitstream read back, to the bench of :mod:`sim`.
"""

from __future__ import annotations

import importlib

# Imported when they are asked for: a command that needs none of them need not wait.
_MODULES = {"Board": "host", "BoardError": "link", "SimulatedBoard": "simulated_board", "connect": "host"}

__all__ = ["Board", "BoardError", "SimulatedBoard", "connect"]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
