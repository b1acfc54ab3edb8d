"""The compiled module, where there is one, and which of its instruction sets is used."""

from __future__ import annotations

try:
    from . import _kernels
except ImportError:  # installed without a compiler
    _kernels = None

__all__ = ["OFF", "choices", "compiled", "current", "use"]

OFF = "off"

_off = _kernels is None


def compiled():
    """Return the compiled module if it is to be used, or None."""
    return None if _off else _kernels


def choices() -> tuple[str, ...]:
    """Return the instruction sets that kernels can use here, the fastest first, and ``"off"``."""
    return (*(_kernels.supported() if _kernels else ()), OFF)


def current() -> str:
    """Return the instruction set that kernels use, or ``"off"``."""
    return OFF if _off else _kernels.chosen()


def use(choice: str) -> None:
    """Use an instruction set from now on, in all threads.

    Parameters
    ----------
    choice : str
        One of :func:`choices`.

    Raises
    ------
    ValueError
        This machine does not have it, or the package was installed without the compiled module.
    """
    global _off
    if choice not in choices():
        raise ValueError(f"kernels must be one of {', '.join(choices())} here, not {choice!r}")
    _off = choice == OFF
    if not _off:
        _kernels.use(choice)
