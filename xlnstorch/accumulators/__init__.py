"""Accumulators: how a format forms sums and dot products; their order and precision are part of the format."""

from .accumulator import Accumulator
from .linear import LinearAccumulator
from .logarithmic import LogAccumulator
from .names import ACCUMULATORS, named_accumulator

__all__ = ["ACCUMULATORS", "Accumulator", "LinearAccumulator", "LogAccumulator", "named_accumulator"]
