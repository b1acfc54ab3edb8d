"""Between words and other numbers in gates: floating point, fixed point, and the logarithms that it takes."""

from .antilogarithm import Antilogarithm, antilogarithm
from .fixed import FromFixed, ToFixed
from .floats import FromFloat, ToFloat
from .layouts import FixedLayout, FloatLayout
from .logarithm import Logarithm, logarithm
from .shifts import Denormalizer, Normalizer

__all__ = [
    "Antilogarithm",
    "Denormalizer",
    "FixedLayout",
    "FloatLayout",
    "FromFixed",
    "FromFloat",
    "Logarithm",
    "Normalizer",
    "ToFixed",
    "ToFloat",
    "antilogarithm",
    "logarithm",
]
