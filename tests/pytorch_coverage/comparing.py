"""The same computation in LNS and in float64, and how far apart the two may be.

The format is wide, so that a wrong result is told from a rounded one: 40 fraction bits, u = 2**-41 ln 2 = 3.2e-13 for
the relative error of one rounding. Operands are encoded, and float64 gets the decoded words, so that both start from
the same numbers. The tolerance of an element is

    1024 u |element| + 64 u largest + 64 (change of the tensor when each operand moves by u)

where largest is the largest element of the tensor or, for a gradient, of the incoming ones. The last term, measured in
float64, is the condition of the computation (a sum that cancels loses as much in LNS as in floats); it is capped at a
millionth of the largest element.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from xlnstorch import LNSFormat, LNSTensor, lnstensor

WIDE = LNSFormat(12, 40)
UNIT = math.log(2) * 2.0**-41


class Mismatch(AssertionError):
    """An LNS result that is not the float64 one."""


@dataclasses.dataclass
class Outcome:
    """What became of one entry of a database.

    ``forward`` and ``backward`` are ``"pass"``, ``"refused: …"`` with the operator that is missing, ``"wrong: …"``, or
    None where there is nothing to compare.
    """

    forward: str | None = None
    backward: str | None = None
    samples: int = 0

    def note(self, direction: str, outcome: str) -> None:
        """Keep the worst outcome of all samples: wrong, refused, pass."""
        rank = ["pass", "refused", "wrong"]
        known = getattr(self, direction)
        if known is None or rank.index(outcome.split(":")[0]) > rank.index(known.split(":")[0]):
            setattr(self, direction, outcome)


def is_number(x: Any) -> bool:
    """Whether an argument is a float64 tensor that an LNSTensor can stand for."""
    return isinstance(x, torch.Tensor) and x.dtype == torch.float64 and x.layout == torch.strided


def shared(samples: list, most: int | None) -> list:
    """Return all samples, or about `most` of them, evenly spaced."""
    return samples if most is None else samples[:: max(1, len(samples) // most)]


def encodable(x: Any) -> bool:
    """Whether LNS has a word for each number of an argument; there is none for NaN."""
    return not (is_number(x) and bool(torch.isnan(x).any()))


def to_lns(x: Any) -> Any:
    """Return an argument with float64 tensors as LNSTensors; other tensors are copied."""
    if not isinstance(x, torch.Tensor):
        return x
    if not is_number(x):
        return x.detach().clone()
    return lnstensor(x.detach(), format=WIDE).requires_grad_(x.requires_grad)


def to_float(x: Any, moved: float = 0.0) -> Any:
    """Return an argument with LNSTensors as the float64 of their words, each moved by up to `moved` of itself."""
    if not isinstance(x, torch.Tensor):
        return x
    if not isinstance(x, LNSTensor):
        return x.clone()
    value = x.detach().value
    if moved:
        value = value * (1.0 + moved * torch.empty_like(value).uniform_(-1, 1, generator=_moves))
    return value.requires_grad_(x.requires_grad)


_moves = torch.Generator().manual_seed(0)


def compare(got: Any, want: Any, spread: float, where: str, incoming: float | None = None, slack: float = 1.0) -> None:
    """Raise :class:`Mismatch` where an LNS result differs from the float64 one by more than it may.

    `incoming` is the largest of a gradient's incoming gradients.
    """
    if not isinstance(want, torch.Tensor):
        if isinstance(want, float):
            if not math.isclose(got, want, rel_tol=1024 * UNIT, abs_tol=64 * spread):
                raise Mismatch(f"{where}: {got} instead of {want}")
        elif got != want:
            raise Mismatch(f"{where}: {got!r} instead of {want!r}")
        return
    want = want.detach()
    if not isinstance(got, torch.Tensor) or got.shape != want.shape:
        raise Mismatch(f"{where}: shape {tuple(getattr(got, 'shape', ()))} instead of {tuple(want.shape)}")
    if want.dtype == torch.float64:
        if isinstance(got, LNSTensor):
            got = got.detach().value
        elif not where.startswith("gradient") or bool(got.any()):
            # Gradients that are zero whatever is computed, PyTorch makes without looking at any operand.
            raise Mismatch(f"{where}: a plain tensor instead of an LNSTensor")
    if got.dtype != want.dtype:
        raise Mismatch(f"{where}: dtype {got.dtype} instead of {want.dtype}")
    if want.dtype != torch.float64:
        if not torch.equal(got, want):
            raise Mismatch(f"{where}: {got.reshape(-1)[:4]} instead of {want.reshape(-1)[:4]}")
        return
    # NaN has no word: what is undefined in float64 is zero in LNS, with the invalid flag, and not compared.
    finite = want.isfinite()
    infinite = want.isinf()
    if not torch.equal(got[infinite], want[infinite]):
        raise Mismatch(f"{where}: {got[infinite][0].item()} instead of {want[infinite][0].item()}")
    if not bool(finite.any()):
        return
    got, want = got[finite], want[finite]
    largest = max(float(want.abs().max()), incoming or 0.0)
    allowed = 1024 * UNIT * want.abs() + 64 * UNIT * largest + min(64 * spread, 1e-6 * max(largest, 1e-6))
    wrong = ~((got - want).abs() <= slack * allowed + 1e-300)
    if bool(wrong.any()):
        raise Mismatch(f"{where}: {got[wrong][0].item()} instead of {want[wrong][0].item()}")


def spread_of(results: list[Any], moved: list[list[Any]]) -> list[float]:
    """Return for each result how much it changed when the operands moved."""
    spreads = []
    for i, result in enumerate(results):
        spread = 0.0
        if isinstance(result, torch.Tensor) and result.dtype == torch.float64:
            for other in moved:
                if isinstance(other[i], torch.Tensor) and other[i].shape == result.shape:
                    change = (other[i].detach() - result.detach()).abs()
                    change = change[change.isfinite()]
                    spread = max(spread, float(change.max()) if change.numel() else 0.0)
        spreads.append(spread)
    return spreads


def verdict(error: Exception) -> str:
    """Return an error as an outcome: refused where it is a clear refusal of LNS, with what is missing; else wrong."""
    text = str(error)
    if isinstance(error, ValueError) and "has no word for NaN" in text:
        return "refused: it works with NaN"
    if isinstance(error, NotImplementedError) and " cannot give " in text:
        return "refused: another dtype"
    if isinstance(error, NotImplementedError) and " has no LNS implementation" in text:
        return "refused: " + text.split(" has no LNS implementation")[0].rsplit(": ", 1)[-1]
    if isinstance(error, RuntimeError) and "does not support dense gradients" in text:
        return "refused: sparse gradients"
    return f"wrong: {type(error).__name__}: {text}"[:300]


def run_both(
    outcome: Outcome, compute: Callable, arguments: Any, slack: float = 1.0, floor: float = 0.0, seed: int = 1
) -> None:
    """Compute in LNS and in float64, forward and backward, compare, and note what came out.

    Parameters
    ----------
    outcome : Outcome
    compute : callable
        Takes the arguments, as one structure.
    arguments : structure of Tensor
        With LNSTensors.
    slack : float
        What the tolerance is multiplied by, for a computation whose condition the operands do not show.
    floor : float
        What the largest element of a result is taken to be at least.
    """
    outcome.samples += 1

    def in_float(moved: float = 0.0) -> tuple[list, list]:
        given = tree_map(lambda x: to_float(x, moved), arguments)
        torch.manual_seed(seed)
        return tree_leaves(compute(given)), tree_leaves(given)

    try:
        want, given = in_float()
    except Exception:
        return  # the sample is not for this machine, or expects an error
    try:
        torch.manual_seed(seed)
        got = tree_leaves(compute(arguments))
        if len(got) != len(want):
            raise Mismatch(f"{len(got)} results instead of {len(want)}")
        moved = []
        for _ in range(2):
            with contextlib.suppress(RuntimeError):  # a little more than 1 may not be allowed
                moved.append(in_float(UNIT))
        spreads = spread_of(want, [results for results, _ in moved])
        for i, (g, w, spread) in enumerate(zip(got, want, spreads, strict=True)):
            compare(g, w, spread, f"result {i}", floor or None, slack)
    except Exception as error:
        outcome.note("forward", verdict(error))
        return
    outcome.note("forward", "pass")

    pairs = [i for i, w in enumerate(want) if isinstance(w, torch.Tensor) and w.requires_grad and is_number(w)]
    leaves = tree_leaves(arguments)
    wrt = [i for i, x in enumerate(given) if isinstance(x, torch.Tensor) and x.requires_grad]
    if not pairs or not wrt:
        return
    generator = torch.Generator().manual_seed(seed)
    grads = [
        lnstensor(torch.randn(want[i].shape, dtype=torch.float64, generator=generator), format=WIDE) for i in pairs
    ]

    def differentiate(results, inputs, gradients):
        return torch.autograd.grad([results[i] for i in pairs], [inputs[i] for i in wrt], gradients, allow_unused=True)

    try:
        want_grads = differentiate(want, given, [to_float(g) for g in grads])
    except Exception:
        return
    try:
        got_grads = differentiate(got, leaves, grads)
        moved_grads = [differentiate(results, inputs, [to_float(g, UNIT) for g in grads]) for results, inputs in moved]
        incoming = max((float(g.value.abs().max()) for g in grads if g.numel()), default=0.0)
        spreads = spread_of(list(want_grads), [list(m) for m in moved_grads])
        for i, (g, w, spread) in enumerate(zip(got_grads, want_grads, spreads, strict=True)):
            if (g is None) != (w is None):
                raise Mismatch(f"gradient {i}: {'none' if g is None else 'some'}")
            if w is not None:
                compare(g, w, spread, f"gradient {i}", incoming, slack)
    except Exception as error:
        outcome.note("backward", verdict(error))
        return
    outcome.note("backward", "pass")
