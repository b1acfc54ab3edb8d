"""Parameters behind a name on a command line, as in ``piecewise:degree=2,error=0.5``."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["split_parameters"]


def split_parameters(what: str, text: str, known: Collection[str]) -> dict[str, str]:
    """Return the texts of the parameters in ``name=value,name=value``, or none of an empty text.

    Parameters
    ----------
    what : str
        What has them, for the errors: ``"adder piecewise"``.
    text : str
    known : collection of str
        The names that are accepted.

    Raises
    ------
    ValueError
        Another name, or one without a value or given twice; the message says what is accepted.
    """
    given: dict[str, str] = {}
    for part in text.split(",") if text else ():
        key, equals, value = part.partition("=")
        if key not in known:
            takes = f"takes {', '.join(known)}" if known else "takes no parameters"
            raise ValueError(f"the {what} {takes}, not {key!r}")
        if not equals or key in given:
            raise ValueError(f"the parameter {key} of the {what} must be given once, as {key}=VALUE")
        given[key] = value
    return given
