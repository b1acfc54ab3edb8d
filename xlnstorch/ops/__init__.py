"""What each aten operator does to LNSTensors, by family; importing this package fills the registry."""

from ..tensor import LNSTensor
from . import (  # each fills its part of the registry
    attention,
    comparison,
    convolution,
    creation,
    derived,
    distances,
    embedding,
    functions,
    indexing,
    losses,
    matmul,
    ordering,
    pointwise,
    pooling,
    random,
    reduction,
    sampling,
    views,
)
from ._registry import dispatch, float_fallbacks, keep_format, registered

LNSTensor._dispatch = staticmethod(dispatch)

__all__ = [
    "attention",
    "comparison",
    "convolution",
    "creation",
    "derived",
    "dispatch",
    "distances",
    "embedding",
    "float_fallbacks",
    "functions",
    "indexing",
    "keep_format",
    "losses",
    "matmul",
    "ordering",
    "pointwise",
    "pooling",
    "random",
    "reduction",
    "registered",
    "sampling",
    "views",
]
