"""Logarithmic number system arithmetic in PyTorch: the golden model, to the bit, with reference gradients."""

import torch as _torch

from . import autograd
from .accumulators import Accumulator, LogAccumulator
from .adders import Adder, Exact, GaussianTable
from .autograd import LNSFunction
from .catalog import CATALOG, lns8, lns12, lns16, lns16e5, lns24, lns32, named_format, software_format
from .conversions import LNS_ZERO
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
from .observe import flags
from .ops import float_fallbacks
from .tensor import LNSTensor, _rebuild

# What a saved LNSTensor is made of, so that torch.load reads it with its safe default, weights_only=True.
_torch.serialization.add_safe_globals([_rebuild, LNSFormat, Exact, LogAccumulator])

__all__ = [
    "CATALOG",
    "LNS_ZERO",
    "Accumulator",
    "Adder",
    "Exact",
    "GaussianTable",
    "LNSFormat",
    "LNSFunction",
    "LNSTensor",
    "LogAccumulator",
    "autograd",
    "empty",
    "empty_like",
    "flags",
    "float_fallbacks",
    "from_words",
    "full",
    "full_like",
    "lns8",
    "lns12",
    "lns16",
    "lns16e5",
    "lns24",
    "lns32",
    "lnstensor",
    "named_format",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randn",
    "randn_like",
    "software_format",
    "zeros",
    "zeros_like",
]
