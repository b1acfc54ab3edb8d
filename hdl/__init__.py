"""LNS arithmetic in gates: Amaranth components for the formats and tables of :mod:`xlnstorch`."""

from .add import AddSubtract
from .alu import ALU
from .compare import Compare
from .convert import FromFixed, FromFloat, ToFixed, ToFloat
from .divide import Divide
from .dot import DotProduct
from .layouts import FlagsLayout, WordLayout
from .matvec import MatrixVector
from .minmax import MinMax
from .multiply import Multiply
from .multiply_add import MultiplyAdd
from .relu import Relu
from .signs import Signs
from .sqrt import SquareRoot
from .square import Square
from .unit import Unit
from .verilog import to_verilog

__all__ = [
    "ALU",
    "UNITS",
    "AddSubtract",
    "Compare",
    "Divide",
    "DotProduct",
    "FlagsLayout",
    "FromFixed",
    "FromFloat",
    "MatrixVector",
    "MinMax",
    "Multiply",
    "MultiplyAdd",
    "Relu",
    "Signs",
    "Square",
    "SquareRoot",
    "ToFixed",
    "ToFloat",
    "Unit",
    "WordLayout",
    "to_verilog",
]

#: The units by the name that the command line gives them.
UNITS: dict[str, type[Unit]] = {
    unit.name: unit
    for unit in (
        *(Multiply, Divide, Square, SquareRoot, AddSubtract, MultiplyAdd, Signs, Compare, MinMax, Relu, ALU),
        *(FromFloat, ToFloat, FromFixed, ToFixed, DotProduct, MatrixVector),
    )
}
