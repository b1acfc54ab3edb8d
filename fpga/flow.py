"""Synthesis, and place and route: the cells and the clock that a unit has on a device.

RTLIL goes to Yosys (pyosys) in process, the netlist to nextpnr (YoWASP). The ports go to pins that nextpnr chooses, and
paths from and to pins are not counted: the clock is that between registers. Nothing here imports torch, so that
:mod:`fpga._child` starts quickly.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from amaranth.back import rtlil

from .output_registers import move_output_registers

if TYPE_CHECKING:
    from hdl import Unit

__all__ = [
    "CONFIGURATION",
    "DEVICES",
    "ROUTED",
    "Clock",
    "Device",
    "Implementation",
    "Netlist",
    "implement",
    "memory_bits",
    "place_and_route",
    "require_tools",
    "synthesize",
    "to_rtlil",
    "tool_versions",
]

#: What :func:`place_and_route` keeps.
ROUTED = "routed.json"
CONFIGURATION = "configuration"

_MEMORY = re.compile(r"^\s*memory width (\d+) size (\d+) ", flags=re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Device:
    """An FPGA, and what Yosys and nextpnr must be told about it.

    Attributes
    ----------
    name, title : str
        The family, as the command line and the programs call it, and the device.
    luts, block_rams, dsps, pins : int
        How many it has.
    ram_bits : int
        Of a block RAM.
    synthesis : str
        The pass of Yosys.
    arguments : tuple of str
        Of nextpnr.
    configuration : str or None
        The argument with which nextpnr writes a file that a bitstream is made of, and read back from.
    cells : dict
        For ``luts``, ``registers``, ``block_rams`` and ``dsps`` the prefixes of the types of cells that count, each
        with the number that it counts for.
    """

    name: str
    title: str
    luts: int
    block_rams: int
    dsps: int
    pins: int
    ram_bits: int
    synthesis: str
    arguments: tuple[str, ...]
    configuration: str | None
    cells: dict[str, dict[str, int]]

    def count(self, kind: str, cells: dict[str, int]) -> int:
        """Return how many of a kind there are among the cells of a netlist."""
        return sum(
            number * weight
            for cell, number in cells.items()
            for prefix, weight in self.cells[kind].items()
            if cell.startswith(prefix)
        )

    def area(self, luts: int, block_rams: int, dsps: int) -> float:
        """Return an area in LUT4, a block RAM or a DSP counting as many as the device has for each of them."""
        return sum(
            used * self.luts / there
            for used, there in ((luts, self.luts), (block_rams, self.block_rams), (dsps, self.dsps))
            if used
        )


#: The devices by name. An iCE40 carry lies beside the LUT that it feeds; a CCU2C of an ECP5 is two LUT4 with the carry
#: between them. The HX8K has no DSP, so its multipliers are LUTs; on the ECP5 Yosys makes multipliers of two bits and
#: more a MULT18X18D.
DEVICES: dict[str, Device] = {
    device.name: device
    for device in (
        Device(
            name="ice40",
            title="iCE40 HX8K",
            luts=7680,
            block_rams=32,
            dsps=0,
            pins=206,
            ram_bits=4096,
            synthesis="synth_ice40 -top top",
            arguments=("--hx8k", "--package", "ct256", "--pcf-allow-unconstrained"),
            configuration="--asc",
            cells={
                "luts": {"SB_LUT4": 1},
                "registers": {"SB_DFF": 1},
                "block_rams": {"SB_RAM40_4K": 1},
                "dsps": {"SB_MAC16": 1},
            },
        ),
        Device(
            name="ecp5",
            title="ECP5-25k, speed grade 6",
            luts=24288,
            block_rams=56,
            dsps=28,
            pins=197,
            ram_bits=18432,
            synthesis="synth_ecp5 -top top",
            arguments=("--25k", "--package", "CABGA381", "--speed", "6", "--lpf-allow-unconstrained"),
            configuration=None,
            cells={
                "luts": {"LUT4": 1, "CCU2C": 2},
                "registers": {"TRELLIS_FF": 1},
                "block_rams": {"DP16KD": 1},
                "dsps": {"MULT18X18D": 1},
            },
        ),
    )
}


@dataclasses.dataclass(frozen=True)
class Netlist:
    """What synthesis makes: the number of cells of each type, and the netlist as the text that nextpnr reads."""

    cells: dict[str, int]
    json: str


@dataclasses.dataclass(frozen=True)
class Clock:
    """The highest clock in MHz, or why there is none."""

    mhz: float | None
    reason: str | None = None


@dataclasses.dataclass(frozen=True)
class Implementation:
    """A unit on a device.

    Attributes
    ----------
    luts, registers, block_rams, dsps : int or None
        Cells after synthesis; None if there was none.
    mhz : float or None
        The highest clock; None if the unit could not be placed and routed.
    reason : str or None
        Why something is None.
    """

    luts: int | None
    registers: int | None
    block_rams: int | None
    dsps: int | None
    mhz: float | None
    reason: str | None = None


def to_rtlil(unit: Unit) -> str:
    """Return RTLIL of a unit, whose top module is ``top``: the same text each time, and free of paths."""
    return rtlil.convert(unit, name="top", emit_src=False)


def memory_bits(rtlil: str) -> int:
    """Return the bits of all memories in RTLIL."""
    return sum(int(width) * int(size) for width, size in _MEMORY.findall(rtlil))


def synthesize(unit: Unit | str, device: Device, log: str = os.devnull, language: str = "rtlil") -> Netlist:
    """Synthesize a unit, or its source, whose top module is ``top``; what Yosys prints is added to a file.

    Registers behind an ECP5's block RAMs move into them, see :mod:`fpga.output_registers`.

    Yosys numbers new cells by a counter of the process, and what nextpnr does depends on their names. So the same
    unit has the same clock again only in a process that has synthesized nothing before; and where Yosys gives up, it
    ends the process. :class:`~fpga.runner.Runner` starts one for each.

    Parameters
    ----------
    unit : Unit or str
    device : Device
    log : str
        The file.
    language : {"rtlil", "verilog"}
        Of the source.
    """
    from pyosys import libyosys

    with tempfile.TemporaryDirectory(prefix="lns-") as folder:
        source, written = Path(folder, "unit"), Path(folder, "netlist.json")
        source.write_text(unit if isinstance(unit, str) else to_rtlil(unit))
        design = libyosys.Design()
        # Registers that may start with anything (hdl.fitting) set and clear on every device.
        anything = "setattr -unset init a:any_init"
        for command in (f'read_{language} "{source}"', anything, device.synthesis, f'write_json "{written}"'):
            design.run_pass(f'tee -q -a "{log}" {command}')
        netlist = json.loads(written.read_text())
        top = netlist["modules"]["top"]
        move_output_registers(top)
        return Netlist(dict(Counter(cell["type"] for cell in top["cells"].values())), json.dumps(netlist))


def place_and_route(netlist: Netlist, device: Device, seed: int = 1, keep: Path | None = None) -> Clock:
    """Place and route a netlist.

    That it does not fit into the device is a :class:`Clock` without a frequency, with what nextpnr says.

    Parameters
    ----------
    seed : int
        Of the placer's random choices, 0 to 2**31 - 1.
    keep : Path, optional
        A folder for what nextpnr ends with: the netlist, :data:`ROUTED`, and, where `device` has one, the
        configuration, :data:`CONFIGURATION`. If it does not fit there is nothing.

    Raises
    ------
    RuntimeError
        nextpnr stopped without saying why.
    """
    module = importlib.import_module(f"yowasp_nextpnr_{device.name}")
    program = getattr(module, f"run_nextpnr_{device.name}")
    with tempfile.TemporaryDirectory(prefix="lns-") as folder:
        Path(folder, "netlist.json").write_text(netlist.json)
        files = ["--json", "netlist.json", "--report", "report.json", "--log", "log", "--quiet"]
        if keep:
            files += ["--write", ROUTED, *([device.configuration, CONFIGURATION] if device.configuration else [])]
        with contextlib.chdir(folder):  # the program sees this folder, whatever else it sees
            status = program([*device.arguments, *files, "--seed", str(seed), "--freq", "250", "--timing-allow-fail"])
        if status == 130:  # it has caught the interrupt
            raise KeyboardInterrupt
        if status:
            log = Path(folder, "log").read_text().splitlines()
            errors = [line.removeprefix("ERROR: ") for line in log if line.startswith("ERROR: ")]
            if not errors:
                raise RuntimeError(f"nextpnr-{device.name} stopped with status {status}")
            return Clock(None, errors[0])
        clocks = json.loads(Path(folder, "report.json").read_text())["fmax"].values()
        for file in (ROUTED, CONFIGURATION):
            if Path(folder, file).is_file():
                shutil.move(Path(folder, file), keep)
    if not clocks:
        return Clock(None, "there is no path between registers")
    return Clock(min(clock["achieved"] for clock in clocks))


def implement(
    unit: Unit | str,
    device: Device,
    seeds: Iterable[int] = (1,),
    log: str = os.devnull,
    language: str = "rtlil",
) -> list[Implementation]:
    """Synthesize a unit, or its source, in this process, and place and route it with each of the seeds.

    See :func:`synthesize` on its parameters, and on doing it twice.
    """
    netlist = synthesize(unit, device, log, language)
    counts = {kind: device.count(kind, netlist.cells) for kind in device.cells}
    clocks = [place_and_route(netlist, device, seed) for seed in seeds]
    return [Implementation(**counts, mhz=clock.mhz, reason=clock.reason) for clock in clocks]


def require_tools(devices: Iterable[Device]) -> None:
    """Raise ToolMissing, with the command that installs it, if a program for one of the devices is missing."""
    from sim.simulators import ToolMissing

    for device in devices:
        for module, package in _tools(device).items():
            if importlib.util.find_spec(module) is None:
                raise ToolMissing(f"{package} is not installed; install with: pip install {package}")


def tool_versions(device: Device) -> dict[str, str]:
    """Return the version of each package that a device needs, by name."""
    return {package: importlib.metadata.version(package) for package in _tools(device).values()}


def _tools(device: Device) -> dict[str, str]:
    """Module and package."""
    return {"pyosys": "pyosys", f"yowasp_nextpnr_{device.name}": f"yowasp-nextpnr-{device.name}"}
