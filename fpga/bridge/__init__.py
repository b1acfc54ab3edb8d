"""The bridge between a serial line and a unit: frames, commands, and the gates that read and answer them.

:mod:`fpga.bridge.protocol` is what gates and host share; ``docs/board.md`` describes it byte for byte.
"""

from .bridge import Bridge
from .protocol import Command, ErrorKind, Identity, Status

__all__ = ["Bridge", "Command", "ErrorKind", "Identity", "Status"]
