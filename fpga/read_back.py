"""A board's bitstream as gates again: what an iCE40 does that is configured with it, clock and UART pins included.

icestorm says what the bits do. Of the board only the names of its pins are used.
"""

from __future__ import annotations

import re

from sim.simulators import BuildFailed

from . import cells
from .clocking import Clock
from .netlists import cells_of

__all__ = ["board_of_chip"]

_PINS = re.compile(r"^set_io (\S+) \S+$", re.MULTILINE)
_PLL = re.compile(r"^(SB_PLL40_(?:PAD|CORE)) #\((.*?)^\);$", re.MULTILINE | re.DOTALL)
_DIVIDER = re.compile(r"\.(DIVR|DIVF|DIVQ|FILTER_RANGE)\(\d+'b([01]+)\)")
# An oscillator is nothing that a simulator has: the clock that comes in is the one that goes out.
_PLL_MODEL = """
module {cell} (
  input {reference}, EXTFEEDBACK, BYPASS, RESETB, LATCHINPUTVALUE, SDI, SCLK, input [7:0] DYNAMICDELAY,
  output PLLOUTCORE, PLLOUTGLOBAL, LOCK, SDO
);
  parameter {parameters};
  assign PLLOUTCORE = {reference};
  assign PLLOUTGLOBAL = {reference};
  assign LOCK = RESETB;
  assign SDO = 1'b0;
endmodule
"""
_PARAMETERS = (
    *("FEEDBACK_PATH", "DELAY_ADJUSTMENT_MODE_FEEDBACK", "DELAY_ADJUSTMENT_MODE_RELATIVE", "PLLOUT_SELECT"),
    *("SHIFTREG_DIV_MODE", "FDA_FEEDBACK", "FDA_RELATIVE", "DIVR", "DIVF", "DIVQ", "FILTER_RANGE"),
    *("ENABLE_ICEGATE", "TEST_MODE"),
)


def board_of_chip(chip: str, pins: str, clock: Clock) -> str:
    """Return the Verilog that a simulated board is made of: ``top`` with the ports ``clk``, ``rx`` and ``tx``.

    A PLL is a wire: ``clk`` is the clock of the gates. That its dividers are those wanted is checked.

    Parameters
    ----------
    chip : str
        What :func:`~fpga.netlists.read_chip` says of the configuration.
    pins : str
        The constraints of the design (PCF).
    clock : Clock
        What the PLL should make.

    Raises
    ------
    BuildFailed
        The PLL is not as it should be.
    """
    names = _PINS.findall(pins)
    rx, tx = (next(name for name in names if name.endswith(f"__{end}__io")) for end in ("rx", "tx"))
    (clk,) = set(names) - {rx, tx}
    chip, pll = _with_pll(chip, clk, clock)
    types = [name for name in cells_of(chip) if not name.startswith("SB_PLL40")]
    top = f"""module top (input clk, input rx, output tx);
  wire line;
  assign tx = line;
  chip chip (.{clk}(clk), .{rx}(rx), .{tx}(line));
endmodule
"""
    # An output that is never let go of is written like one that could be.
    return top + chip.replace("1'bz", "1'b1") + pll + cells.models("ice40", types)


def _with_pll(chip: str, pin: str, clock: Clock) -> tuple[str, str]:
    """Return the chip with its PLL joined to the pin of the clock, and the model of the PLL, if there is one."""
    found = _PLL.search(chip)
    dividers = {name: int(bits, 2) for name, bits in _DIVIDER.findall(found[2])} if found else None
    if dividers != clock.pll:
        raise BuildFailed(f"the PLL in the bitstream must have {clock.pll}, not {dividers}")
    if not found:
        return chip, ""
    reference = "PACKAGEPIN" if found[1].endswith("PAD") else "REFERENCECLK"
    # icestorm leaves the PLL's own pad open.
    chip = re.sub(r"\.PACKAGEPIN\(\w+\)", f".PACKAGEPIN({pin})", chip)
    return chip, _PLL_MODEL.format(
        cell=found[1], reference=reference, parameters=", ".join(f"{p} = 0" for p in _PARAMETERS)
    )
