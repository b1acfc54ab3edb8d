"""The levels of verification that an FPGA adds: the netlist after synthesis, after place and route, and the bitstream.

Each is kept by a digest of all that it is made from. It is what :mod:`fpga.flow` measures: made by the same passes,
with the same registers moved into block RAMs, at the same places.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import hdl
from sim.levels import Level, Unavailable
from sim.payloads import width
from sim.simulators import BuildFailed, ToolMissing
from xlnstorch import cache

from . import _child, cells, flow, netlists, output_registers
from .flow import DEVICES, require_tools, to_rtlil, tool_versions
from .netlists import Gates
from .runner import DoesNotFit, Runner

__all__ = ["Bitstream", "Routed", "Synthesized", "icebox_files", "icebox_vlog"]

# Of place and route; that of `lns adders` too.
_SEED = 1
# Of a unit: clock, reset, and valid and ready of two streams.
_CONTROLS = 6


class _OnDevice(Level):
    """A level with cells of a device."""

    devices = tuple(DEVICES)
    #: Whether there are pins yet.
    pins: ClassVar[bool] = True

    def check(self, unit: hdl.Unit) -> None:
        super().check(unit)
        device = DEVICES[self.device]
        require_tools([device])
        needed = width(unit.i.payload.shape()) + width(unit.o.payload.shape()) + _CONTROLS
        if self.pins and needed > device.pins:
            raise self._unavailable(unit.name, f"it needs {needed} pins, and the {device.title} has {device.pins}")

    def source(self, unit: hdl.Unit) -> str:
        return to_rtlil(unit)

    def verilog(self, name: str, source: str, poll: Callable[[], None]) -> str:
        gates = self._gates(name, source, poll)
        if missing := cells.missing_models(self.device, gates.cells):
            raise self._unavailable(
                name, f"its netlist has {' and '.join(missing)}, of which Yosys has no simulation model"
            )
        return gates.verilog + "\n" + cells.models(self.device, gates.cells)

    def _gates(self, name: str, source: str, poll: Callable[[], None]) -> Gates:
        if kept := cache.load("levels", self._digest(self.name, source)):
            return Gates(**kept)
        with Runner() as runner:
            try:
                found = runner.gates(source, DEVICES[self.device], self.name, _SEED, poll)
            except BuildFailed as failure:
                raise BuildFailed(f"{name}: {failure}") from None
            except DoesNotFit as reason:
                raise self._unavailable(name, f"it does not fit: {reason}") from None
        for level, gates in found.items():
            cache.store("levels", self._digest(level, source), dataclasses.asdict(gates))
        return found[self.name]

    def _unavailable(self, name: str, reason: str) -> Unavailable:
        return Unavailable(f"{name} has no level {self.name} on {self.device}: {reason}")

    def _digest(self, level: str, source: str) -> str:
        device = DEVICES[self.device]
        files = [Path(module.__file__) for module in (_child, cells, flow, netlists, output_registers)]
        if level == Bitstream.name:
            files += icebox_files()
        sources = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
        return cache.digest([source, level, dataclasses.asdict(device), _SEED, tool_versions(device), sources])


class Synthesized(_OnDevice):
    """The netlist that Yosys makes, with the registers that :mod:`fpga.output_registers` moves."""

    name = "synth"
    pins = False


class Routed(_OnDevice):
    """The netlist that nextpnr writes: cells packed, constants folded, buffers and pins added."""

    name = "route"


class Bitstream(_OnDevice):
    """The bitstream, read back: what icestorm says that its bits do."""

    name = "bitstream"
    devices = ("ice40",)
    options = ("board", "clock", "baud", "seeds")
    impossible: ClassVar[dict[str, str]] = {
        "ecp5": "no public program turns a bitstream of an ECP5 back into a netlist; its last level is route"
    }

    def __new__(cls, device: str | None = None, *, board: str | None = None, **options: object) -> Level:
        """Return the level of a unit on the pins of a device, or, with a board, that of the unit on the board."""
        if board is not None:
            from .board_bitstream import BoardBitstream

            if device is not None:
                raise ValueError(f"a board has its device; leave out {device!r}")
            return BoardBitstream(board, **options)
        if options:
            raise ValueError(f"{next(iter(options))} is of a board's bitstream; name the board")
        return super().__new__(cls)

    def check(self, unit: hdl.Unit) -> None:
        super().check(unit)
        icebox_vlog()


def icebox_vlog() -> str:
    """Return the path of icestorm's program, or raise ToolMissing."""
    program = shutil.which("icebox_vlog")
    if program is None:
        raise ToolMissing(
            "the level bitstream needs icebox_vlog, which is not on the path; "
            "install with: apt-get install fpga-icestorm"
        )
    return program


def icebox_files() -> list[Path]:
    """Return what icestorm's program consists of, or raise ToolMissing."""
    program = Path(icebox_vlog()).resolve()
    return [program, *sorted(program.parent.glob("icebox*.py"))]
