"""Accumulators by the names that a command line gives them."""

from __future__ import annotations

from ..parameters import named
from .accumulator import Accumulator
from .linear import LinearAccumulator
from .logarithmic import LogAccumulator

__all__ = ["ACCUMULATORS", "named_accumulator"]

#: The accumulators by name; each a frozen dataclass whose fields are its parameters.
ACCUMULATORS: dict[str, type[Accumulator]] = {"log": LogAccumulator, "linear": LinearAccumulator}


def named_accumulator(text: str) -> Accumulator:
    """Return the accumulator that a command line names: a name, with parameters after a colon if there are any.

    Parameters
    ----------
    text : str
        A key of :data:`ACCUMULATORS`, as in ``linear``, or with parameters as in ``log:order=tree,guard_bits=2``. For
        every accumulator of these types ``named_accumulator(accumulator.name) == accumulator``.

    Raises
    ------
    ValueError
        No such accumulator or parameter, or a value out of its range; the message says what is accepted.
    """
    return named("accumulator", text, ACCUMULATORS)
