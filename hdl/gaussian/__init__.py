"""Gaussian logarithms in gates: for each adder the stages of a pipeline that turn a distance into its integer."""

from .datapath import GaussianDatapath, datapath_of
from .mitchell import MitchellDatapath
from .piecewise import PiecewiseDatapath
from .rom import RomDatapath

__all__ = ["GaussianDatapath", "MitchellDatapath", "PiecewiseDatapath", "RomDatapath", "datapath_of"]
