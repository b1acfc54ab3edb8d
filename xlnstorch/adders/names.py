"""Adders by the names that a command line gives them."""

from __future__ import annotations

from ..parameters import named
from .adder import Adder
from .exact import Exact
from .mitchell import Mitchell
from .piecewise import Piecewise

__all__ = ["ADDERS", "named_adder"]

#: The adders by name; each a frozen dataclass whose fields are its parameters.
ADDERS: dict[str, type[Adder]] = {"exact": Exact, "piecewise": Piecewise, "mitchell": Mitchell}


def named_adder(text: str) -> Adder:
    """Return the adder that a command line names: a name, with parameters after a colon if there are any.

    Parameters
    ----------
    text : str
        A key of :data:`ADDERS`, as in ``exact``, or with parameters as in ``piecewise:degree=2,error=0.5``. For every
        adder of these types ``named_adder(adder.name) == adder``.

    Raises
    ------
    ValueError
        No such adder or parameter, or a value out of its range; the message says what is accepted.
    """
    return named("adder", text, ADDERS)
