"""Sums of products in gates, as a format's accumulator forms them: what the units that sum are made of."""

from .datapath import SumDatapath, sum_datapath_of
from .linear import LinearSum
from .sequential import SequentialSum
from .steps import LogSteps
from .tree import TreeSum
from .unit import SumUnit

__all__ = [
    "LinearSum",
    "LogSteps",
    "SequentialSum",
    "SumDatapath",
    "SumUnit",
    "TreeSum",
    "sum_datapath_of",
]
