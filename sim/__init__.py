"""Co-verification: the gates run against the golden model on the same words."""

from __future__ import annotations

import importlib

# Imported when they are asked for: a command that needs none of them need not wait.
_MODULES = {
    "SimulatedUnit": "simulated",
    "Trace": "traces",
    "capture": "traces",
    "hardware_function": "simulated",
    "verify_gradients": "gradients",
}

__all__ = ["SimulatedUnit", "Trace", "capture", "hardware_function", "verify_gradients"]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
