"""Adders: which integers stand for the Gaussian logarithms ``log(1 ± base**-d)``, exactly or within a stated error.

Each is one description, from parameters to tables and widths, that has two uses: :meth:`Adder.gaussian` evaluates it on
torch integers, and :mod:`hdl.gaussian` builds its gates.
"""

from .adder import Adder, AdderCost
from .exact import Exact
from .mitchell import Mitchell
from .names import ADDERS, named_adder
from .piecewise import Piecewise
from .quality import AdderQuality, measure
from .table import GaussianTable

__all__ = [
    "ADDERS",
    "Adder",
    "AdderCost",
    "AdderQuality",
    "Exact",
    "GaussianTable",
    "Mitchell",
    "Piecewise",
    "measure",
    "named_adder",
]
