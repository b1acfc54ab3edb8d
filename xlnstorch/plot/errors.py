"""How wrong single results are: the error of operations, and of rounding, against exact arithmetic.

What is exact is computed in ball arithmetic (Arb, through python-flint) at 256 bits, of which at most 100 can cancel,
and then rounded to float64 once; so an error shown is right to a float64's last place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import flint
import numpy as np
import torch

from .. import arithmetic, conversions
from ..formats import LNSFormat
from .checks import (
    FormatLike,
    Interval,
    as_formats,
    check_choice,
    check_count,
    check_seed,
    covered_interval,
    log_uniform,
)
from .floats import as_floats, round_to_float

__all__ = ["OPERATIONS", "ErrorMap", "RoundingErrors", "error_map", "rounding_errors"]

OPERATIONS = ("add", "sub", "mul", "div")
SIGNS = ("++", "+-", "-+", "--")

Progress = Callable[[int, int], None]

_PRECISION = 256
_DEFAULT_INTERVAL = (2.0**-4, 2.0**4)
_REPORT_EVERY = 1000


@dataclasses.dataclass(frozen=True, eq=False)
class ErrorMap:
    """The error of an operation over a grid of operands.

    Attributes
    ----------
    format : LNSFormat
    operation : {"add", "sub", "mul", "div"}
    signs : {"++", "+-", "-+", "--"}
        Of the two operands.
    a, b : float64 arrays (N,), (M,)
        Magnitudes of the operands.
    a_words, b_words : int64 arrays (N,), (M,)
        The operands as hardware shows them.
    words : int64 array (N, M)
        The results, of ``a[i]`` and ``b[j]``.
    error : float64 array (N, M)
        How many units of the last place of the logarithm the result lies above the exact one, in magnitude; NaN where
        the exact result is out of the format's range, infinite where the result has the wrong sign, or is zero and
        should not be, or the other way round.
    """

    format: LNSFormat
    operation: str
    signs: str
    a: np.ndarray
    b: np.ndarray
    a_words: np.ndarray
    b_words: np.ndarray
    words: np.ndarray
    error: np.ndarray


def error_map(
    format: FormatLike = "lns16",
    operation: str = "add",
    *,
    signs: str = "++",
    interval: Interval | None = None,
    points: int = 256,
    seed: int = 0,
    progress: Progress | None = None,
) -> ErrorMap:
    """Compute an operation in a format, with the format's own adder, over a grid of operand pairs.

    Parameters
    ----------
    format : LNSFormat or str
    operation : {"add", "sub", "mul", "div"}
    signs : {"++", "+-", "-+", "--"}
        Of the first and the second operand.
    interval : (float, float)
        Magnitudes of both operands; by default from 1/16 to 16, or as much of it as the format covers.
    points : int
        Operands on each axis: all words of the interval if they are no more, else one drawn at random from each of so
        many equal stretches of the logarithm; 2 to 2,000. A regular choice would meet some distances of two logarithms
        again and again, and others never.
    seed : int
        Of that choice; below 2**63.
    progress : callable
        Called now and then with what is done and what there is to do.

    Raises
    ------
    TypeError, ValueError
        A parameter is not as above, or `interval` leaves the format's range or is shorter than a step of it; the
        message names it.
    """
    (format,) = as_formats([format])
    check_choice("operation", operation, OPERATIONS)
    check_choice("signs", signs, SIGNS)
    points = check_count("points", points, 2, 2000)
    rng = np.random.default_rng(check_seed(seed))
    low, high = covered_interval(interval, [format], _DEFAULT_INTERVAL)
    ends = conversions.encode(format, torch.tensor([low, high], dtype=torch.float64)).tolist()
    if ends[0] == ends[1]:
        raise ValueError(f"interval must be longer than a step of {format}, not from {low:g} to {high:g}")
    fields_a, fields_b = (_strata(rng, *ends, points) for _ in signs)
    negative_a, negative_b = (torch.tensor(sign == "-") for sign in signs)
    a = format.pack(negative_a, fields_a)[:, None]
    b = format.pack(negative_b, fields_b)[None, :]
    words = getattr(arithmetic, operation)(format, a, b)
    return ErrorMap(
        format,
        operation,
        signs,
        conversions.decode(format, a).abs().flatten().numpy(),
        conversions.decode(format, b).abs().flatten().numpy(),
        format.to_unsigned(a).flatten().numpy(),
        format.to_unsigned(b).flatten().numpy(),
        format.to_unsigned(words).numpy(),
        _errors(format, operation, a, b, words, progress or (lambda *_: None)),
    )


def _strata(rng: np.random.Generator, first: int, last: int, points: int) -> torch.Tensor:
    """Return a field of each of `points` equal stretches from `first` to `last`, or all of them."""
    count = last - first + 1
    if count <= points:
        return torch.arange(first, last + 1)
    bounds = first + np.arange(points + 1) * count // points
    return torch.from_numpy(rng.integers(bounds[:-1], bounds[1:]))


def _errors(
    format: LNSFormat, operation: str, a: torch.Tensor, b: torch.Tensor, words: torch.Tensor, progress: Progress
) -> np.ndarray:
    """Return the errors of `words`, for operands other than zero."""
    (sign_a, field_a), (sign_b, field_b) = format.unpack(a), format.unpack(b)
    sign, field = format.unpack(words)
    log_a, log_b = field_a - format.bias, field_b - format.bias
    # The exact logarithm as an integer and the rest, at most a half.
    if operation in ("mul", "div"):
        exact_sign = sign_a ^ sign_b
        whole = log_a + log_b if operation == "mul" else log_a - log_b
        rest = np.zeros(whole.shape)
        cancelled = torch.zeros_like(exact_sign)
    else:
        sign_b = sign_b ^ (operation == "sub")
        d, subtract = (log_a - log_b).abs(), sign_a ^ sign_b
        exact_sign = torch.where(log_a >= log_b, sign_a, sign_b)
        change, rest = _gaussian(format, d.numpy(), subtract.expand(d.shape).numpy(), progress)
        whole = torch.maximum(log_a, log_b) + torch.from_numpy(change)
        cancelled = subtract & (d == 0)
    error = (field - format.bias - whole).numpy() - rest
    zero = (field == 0).numpy()
    cancelled = cancelled.numpy()
    wrong = np.where(cancelled, ~zero, zero | (sign != exact_sign).numpy())
    error = np.where(cancelled, 0.0, error)
    above = (whole - (format.max_finite_field - format.bias)).numpy() + rest
    below = (whole - (1 - format.bias)).numpy() + rest
    outside = ((above > 0) | (below < 0)) & ~cancelled
    return np.where(outside, np.nan, np.where(wrong, np.inf, error))


def _gaussian(
    format: LNSFormat, d: np.ndarray, subtract: np.ndarray, progress: Progress
) -> tuple[np.ndarray, np.ndarray]:
    """Return ``log(1 ± base**-d)`` in units of the last place as nearest integers and the rest; 0 where it is infinite.

    A grid has few distances, so each is computed once.
    """
    keys, where = np.unique(2 * d + subtract, return_inverse=True)
    whole, rest = np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys))
    with flint.ctx.workprec(_PRECISION):
        ln_unit = flint.arb(format.base).log() / 2**format.frac_bits
        for i, key in enumerate(keys.tolist()):
            if i % _REPORT_EVERY == 0:
                progress(i, len(keys))
            distance = -(key // 2) * ln_unit
            if key == 1:
                continue
            log = (-distance.expm1()).log() if key % 2 else distance.exp().log1p()
            units = log / ln_unit
            nearest = (units.mid() + 0.5).floor().unique_fmpz()
            whole[i], rest[i] = int(nearest), float(units - nearest)
    progress(len(keys), len(keys))
    return whole[where].reshape(d.shape), rest[where].reshape(d.shape)


@dataclasses.dataclass(frozen=True, eq=False)
class RoundingErrors:
    """Relative errors of rounding numbers to formats.

    Attributes
    ----------
    labels : tuple of str
        The LNS formats, then the floating-point formats.
    samples : float64 array (N,)
        What was rounded.
    errors : float64 array (labels, N)
        ``(rounded - sample) / sample``.
    """

    labels: tuple[str, ...]
    samples: np.ndarray
    errors: np.ndarray


def rounding_errors(
    formats: FormatLike | Iterable[FormatLike] = "lns16",
    *,
    beside: str | Iterable[str] = (),
    interval: Interval | None = None,
    samples: int = 10_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> RoundingErrors:
    """Round random numbers, uniform in the logarithm, to formats.

    Parameters
    ----------
    formats : LNSFormat, str, or several
    beside : str or several
        Of ``"bfloat16"``, ``"float16"`` and ``"float32"``.
    interval : (float, float)
        Magnitudes above zero within the range of all `formats`; by default from 1/16 to 16, or as much as they cover.
    samples : int
        2 to 1,000,000.
    seed : int
        Below 2**63.
    progress : callable
        Called now and then with what is done and what there is to do.

    Raises
    ------
    TypeError, ValueError
        A parameter is not as above, or `interval` leaves a format's range; the message names it.
    """
    formats, floats = as_formats(formats), as_floats(beside)
    samples = check_count("samples", samples, 2, 1_000_000)
    rng = np.random.default_rng(check_seed(seed))
    values = log_uniform(rng, covered_interval(interval, formats, _DEFAULT_INTERVAL), samples)
    total = samples * len(formats)
    report = progress or (lambda *_: None)
    errors = [
        _rounding_errors(format, values, lambda done, i=i: report(i * samples + done, total))
        for i, format in enumerate(formats)
    ]
    # The difference of a number and its neighbour is exact in float64.
    errors += [(round_to_float(name, values) - values) / values for name in floats]
    return RoundingErrors((*map(repr, formats), *floats), values, np.array(errors))


def _rounding_errors(format: LNSFormat, values: np.ndarray, progress: Callable[[int], None]) -> np.ndarray:
    _, fields = format.unpack(conversions.encode(format, torch.from_numpy(values)))
    errors = np.empty(len(values))
    with flint.ctx.workprec(_PRECISION):
        ln_unit = flint.arb(format.base).log() / 2**format.frac_bits
        for i, (value, log) in enumerate(zip(values.tolist(), (fields - format.bias).tolist(), strict=True)):
            if i % _REPORT_EVERY == 0:
                progress(i)
            errors[i] = float((log * ln_unit - flint.arb(value).log()).expm1())
    progress(len(values))
    return errors
