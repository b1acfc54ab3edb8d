"""Parameters behind a name on a command line, as in ``piecewise:degree=2,error=0.5``, and the other way round."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Collection, Mapping

__all__ = ["name_of", "named", "split_names", "split_parameters"]

_T = typing.TypeVar("_T")
# What an error calls a value of a type; no text is a wrong one.
_TYPES = {int: "an integer", float: "a number"}


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


def split_names(text: str) -> tuple[str, ...]:
    """Return the names in ``name+name``, which is the value of a parameter that takes several; none of ``none``."""
    return () if text == "none" else tuple(text.split("+"))


def named(what: str, text: str, types: Mapping[str, type[_T]]) -> _T:
    """Return what a text names: a dataclass of a name, with the values of its fields after a colon if there are any.

    Parameters
    ----------
    what : str
        What all of `types` are, for the errors: ``"adder"``.
    text : str
    types : mapping
        Dataclasses by name. Their fields are integers, numbers or texts, and may have the default None.

    Raises
    ------
    ValueError
        No such name or field, or a value that is none of its type or that the dataclass refuses; the message says what
        is accepted.
    """
    name, _, rest = text.partition(":")
    if name not in types:
        raise ValueError(f"{what} must be one of {', '.join(types)}, not {name!r}")
    known = [field.name for field in dataclasses.fields(types[name])]
    values = {}
    for key, value in split_parameters(f"{what} {name}", rest, known).items():
        kind = _type_of(types[name], key)
        try:
            values[key] = kind(value)
        except ValueError:
            raise ValueError(f"{key} of the {what} {name} must be {_TYPES[kind]}, not {value!r}") from None
    return types[name](**values)


def name_of(name: str, value: object) -> str:
    """Return a name with those fields of a dataclass that are not the default, as :func:`named` reads it."""
    parameters = [
        f"{field.name}={getattr(value, field.name)}"
        for field in dataclasses.fields(value)
        if getattr(value, field.name) != field.default
    ]
    return name + (":" + ",".join(parameters) if parameters else "")


def _type_of(owner: type, field: str) -> type:
    """Return the type of a field, that beside None if it may be None."""
    hint = typing.get_type_hints(owner)[field]
    (found,) = [kind for kind in typing.get_args(hint) or (hint,) if kind is not type(None)]
    return found
