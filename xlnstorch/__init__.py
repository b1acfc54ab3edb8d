"""Logarithmic number system arithmetic in PyTorch: the golden model, to the bit, with reference gradients."""

import torch as _torch

from . import autograd, optim
from .accumulators import Accumulator, LinearAccumulator, LogAccumulator, named_accumulator
from .adders import Adder, Exact, GaussianTable, Mitchell, Piecewise, named_adder
from .anomaly import AnomalyError, detect_anomaly
from .autograd import LNSFunction
from .catalog import CATALOG, lns8, lns12, lns16, lns16e5, lns24, lns32, named_format, software_format
from .compat import align_lnstensor_bases, format_lnstensor_operands, from_xlns, implicit_conversion, to_xlns
from .conversions import LNS_ZERO
from .convert import convert, to_float
from .factories import (
    empty,
    empty_like,
    from_words,
    full,
    full_like,
    lnstensor,
    ones,
    ones_like,
    rand,
    rand_like,
    randn,
    randn_like,
    zeros,
    zeros_like,
)
from .formats import LNSFormat
from .observe import FlagCounts, flags
from .ops import float_fallbacks, keep_format
from .override import (
    GaussianFunction,
    get_default_implementation_key,
    get_implementation,
    implements,
    override_adder,
    override_implementation,
)
from .tensor import LNSTensor, _rebuild

# What a saved LNSTensor is made of, so that torch.load reads it with its safe default, weights_only=True.
_torch.serialization.add_safe_globals(
    [_rebuild, LNSFormat, Exact, Mitchell, Piecewise, LinearAccumulator, LogAccumulator]
)

__all__ = [
    "CATALOG",
    "LNS_ZERO",
    "Accumulator",
    "Adder",
    "AnomalyError",
    "Exact",
    "FlagCounts",
    "GaussianFunction",
    "GaussianTable",
    "LNSFormat",
    "LNSFunction",
    "LNSTensor",
    "LinearAccumulator",
    "LogAccumulator",
    "Mitchell",
    "Piecewise",
    "align_lnstensor_bases",
    "autograd",
    "convert",
    "detect_anomaly",
    "empty",
    "empty_like",
    "flags",
    "float_fallbacks",
    "format_lnstensor_operands",
    "from_words",
    "from_xlns",
    "full",
    "full_like",
    "get_default_implementation_key",
    "get_implementation",
    "implements",
    "implicit_conversion",
    "keep_format",
    "lns8",
    "lns12",
    "lns16",
    "lns16e5",
    "lns24",
    "lns32",
    "lnstensor",
    "named_accumulator",
    "named_adder",
    "named_format",
    "ones",
    "ones_like",
    "optim",
    "override_adder",
    "override_implementation",
    "rand",
    "rand_like",
    "randn",
    "randn_like",
    "software_format",
    "to_float",
    "to_xlns",
    "zeros",
    "zeros_like",
]
