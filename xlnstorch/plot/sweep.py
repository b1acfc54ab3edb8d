"""How the error of a computation falls with the fraction bits of the format that it is done in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import flint
import numpy as np
import torch

from ..factories import lnstensor
from ..formats import LNSFormat
from ..tensor import LNSTensor
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
from .errors import Progress
from .floats import FLOATS, as_floats, round_to_float

__all__ = ["WORKLOADS", "Sweep", "SweepLine", "precision_sweep"]

Workload = Callable[..., torch.Tensor]

WORKLOADS: dict[str, Workload] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "dot": lambda a, b: (a * b).sum(-1),
}

# Beyond it the float64 reference, and the float64 that a word is decoded to, are no longer far better.
_MAX_FRAC_BITS = 40


@dataclasses.dataclass(frozen=True, eq=False)
class SweepLine:
    """Relative errors of one format.

    Attributes
    ----------
    label : str
        Of the LNS format whose fraction bits vary, or of the floating-point format.
    median, largest : float64 arrays (K,) or (1,)
        Over all elements of the result, for each number of fraction bits; a floating-point format has one of each.
    """

    label: str
    median: np.ndarray
    largest: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Sweep:
    """What :func:`precision_sweep` returns: the numbers of fraction bits, and a line for each format."""

    workload: str
    frac_bits: np.ndarray
    lines: tuple[SweepLine, ...]
    floats: tuple[SweepLine, ...]


def precision_sweep(
    workload: str | Workload = "dot",
    formats: FormatLike | Iterable[FormatLike] = "lns16",
    *,
    inputs: Sequence[object] | None = None,
    reference: Workload | None = None,
    frac_bits: Iterable[int] = range(2, 17),
    beside: str | Iterable[str] = (),
    samples: int = 1000,
    length: int = 64,
    interval: Interval | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Sweep:
    """Measure the relative error of a computation, the rounding of its inputs included, against fraction bits.

    Parameters
    ----------
    workload : str or callable
        ``"add"``, ``"sub"``, ``"mul"`` or ``"div"`` of two numbers, ``"dot"`` of two vectors, or a function of
        LNSTensors that returns an LNSTensor. The same function is called with tensors of the floating-point formats,
        and then does what PyTorch does, which for one sums 16-bit numbers in float32.
    formats : LNSFormat, str, or several
        Each gives its integer bits, adder and accumulator; its fraction bits are replaced.
    inputs : sequence of array-like
        Real inputs of a `workload` that is a function; the named ones draw theirs at random, uniform in the logarithm.
    reference : callable
        Returns what is exact from float64 inputs. By default: the correctly rounded result of a named workload (for
        ``"dot"`` from ball arithmetic), and for a function itself in float64, which cannot show errors near 2**-53.
    frac_bits : iterable of int
        0 to 40.
    beside : str or several
        Of ``"bfloat16"``, ``"float16"`` and ``"float32"``.
    samples, length : int
        How many results a named workload computes, 1 to 100,000, and of how many terms ``"dot"`` has, 1 to 10,000; at
        most 10 million numbers in all.
    interval : (float, float)
        Of what is drawn, within the range of every format; by default from 1/16 to 16, or as much of it as they cover.
    seed : int
        Of what is drawn; below 2**63.
    progress : callable
        Called with what is done and what there is to do.

    Raises
    ------
    TypeError, ValueError
        A parameter is not as above, or `workload` returns something else; the message names it.
    """
    formats, floats = as_formats(formats), as_floats(beside)
    bits = sorted({check_count("frac_bits", f, 0, _MAX_FRAC_BITS) for f in frac_bits})
    if not bits:
        raise ValueError("at least one number of fraction bits must be given")
    # Formats that differ in their fraction bits alone make one line.
    lines_of = {_label(format): [dataclasses.replace(format, frac_bits=f) for f in bits] for format in formats}
    if isinstance(workload, str):
        check_choice("workload", workload, WORKLOADS)
        if inputs is not None:
            raise ValueError(f"inputs must be left out for {workload!r}, which draws its own")
        name, function = workload, WORKLOADS[workload]
        samples, length = check_count("samples", samples, 1, 100_000), check_count("length", length, 1, 10_000)
        if workload != "dot":
            shape = (samples,)
        elif samples * length <= 10_000_000:
            shape = (samples, length)
        else:
            raise ValueError(f"samples times length must be at most 10,000,000, not {samples:,} times {length:,}")
        rng = np.random.default_rng(check_seed(seed))
        range_ = covered_interval(interval, [format for row in lines_of.values() for format in row], (2.0**-4, 2.0**4))
        arrays = [log_uniform(rng, range_, *shape) for _ in range(2)]
        reference = reference or (_exact_dot if workload == "dot" else function)
    else:
        if not callable(workload):
            raise TypeError(f"workload must be a name or a function of LNSTensors, not {workload!r}")
        if not inputs:
            raise ValueError("inputs must be given for a workload that is a function")
        name, function = getattr(workload, "__name__", type(workload).__name__), workload
        arrays = [np.asarray(x, dtype=np.float64) for x in inputs]
        reference = reference or function
    exact = _float64(reference(*(torch.from_numpy(x.copy()) for x in arrays)))
    total, done = len(bits) * len(lines_of) + len(floats), 0

    def measured(result: np.ndarray) -> tuple[float, float]:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)
        return _relative_errors(result, exact)

    lines = [
        SweepLine(label, *np.array([measured(_in_lns(function, arrays, format)) for format in row]).T)
        for label, row in lines_of.items()
    ]
    others = [SweepLine(n, *np.array([measured(_in_float(function, arrays, n))]).T) for n in floats]
    return Sweep(name, np.array(bits), tuple(lines), tuple(others))


def _label(format: LNSFormat) -> str:
    """Return what is fixed while the fraction bits vary: integer bits, and what is not the default."""
    parts = [f"{format.int_bits} integer bits"]
    default = LNSFormat(format.int_bits, format.frac_bits)
    for field in ("adder", "accumulator", "base"):
        if getattr(format, field) != getattr(default, field):
            parts.append(f"{field} {getattr(format, field)!r}")
    return ", ".join(parts)


def _in_lns(function: Workload, arrays: list[np.ndarray], format: LNSFormat) -> np.ndarray:
    result = function(*(lnstensor(x, format=format) for x in arrays))
    if not isinstance(result, LNSTensor):
        raise TypeError(f"workload must return an LNSTensor from LNSTensors, not {type(result).__name__}")
    return result.value.numpy()


def _in_float(function: Workload, arrays: list[np.ndarray], name: str) -> np.ndarray:
    return _float64(function(*(torch.from_numpy(round_to_float(name, x)).to(FLOATS[name]) for x in arrays)))


def _float64(result: object) -> np.ndarray:
    if isinstance(result, torch.Tensor):
        result = result.detach().to(torch.float64).numpy()
    return np.asarray(result, dtype=np.float64)


def _relative_errors(result: np.ndarray, exact: np.ndarray) -> tuple[float, float]:
    """Return the median and the largest relative error; of something where zero is exact it is infinite."""
    if result.shape != exact.shape:
        raise ValueError(f"reference must have the shape of the result, {result.shape}, not {exact.shape}")
    if exact.size == 0:
        raise ValueError("workload must return at least one number")
    difference = np.abs(result - exact)
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.where(difference == 0, 0.0, difference / np.abs(exact))
    return float(np.median(errors)), float(errors.max())


def _exact_dot(a: torch.Tensor, b: torch.Tensor) -> np.ndarray:
    """Return the dot products of the rows, each the nearest float64."""
    with flint.ctx.workprec(512):
        return np.array(
            [
                float(sum((flint.arb(x) * flint.arb(y) for x, y in zip(*pair, strict=True)), flint.arb(0)))
                for pair in zip(a.tolist(), b.tolist(), strict=True)
            ]
        )
