"""LNS arithmetic in gates: Amaranth components for the formats and tables of :mod:`xlnstorch`."""

from .add import AddSubtract
from .layouts import FlagsLayout, WordLayout
from .multiply import Multiply
from .unit import Unit
from .verilog import to_verilog

__all__ = ["UNITS", "AddSubtract", "FlagsLayout", "Multiply", "Unit", "WordLayout", "to_verilog"]

#: The units by the name that the command line gives them.
UNITS: dict[str, type[Unit]] = {unit.name: unit for unit in (Multiply, AddSubtract)}
