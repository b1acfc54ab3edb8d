"""What each aten operator does to LNSTensors, by family; importing this package fills the registry."""

from . import comparison, creation, functions, indexing, matmul, pointwise, reduction, views
from ._registry import dispatch, float_fallbacks, registered

__all__ = [
    "comparison",
    "creation",
    "dispatch",
    "float_fallbacks",
    "functions",
    "indexing",
    "matmul",
    "pointwise",
    "reduction",
    "registered",
    "views",
]
