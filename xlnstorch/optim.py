"""Multiplicative optimizers: they multiply a parameter by a factor, which in LNS adds to its logarithm.

The sign of a parameter never changes and zero stays zero, so initialise no parameter with zeros that has to learn.
All other optimizers are those of ``torch.optim``, which work on LNSTensors as they are.

Rounding of a step. The factor is computed in `state_format`, where every operation rounds as the arithmetic page says
and ``exp`` and ``2 ** x`` are the nearest words. Its logarithm is then rounded once, to the nearest unit of the
parameter's format (half to even), and added, which is exact up to the ends of the range: above them the parameter
saturates, below them it keeps its smallest magnitude, since no factor would bring it back from zero. A factor within
half a unit of one therefore changes nothing: in ``lns16``, where a unit is 0.54 %, a relative change below 0.27 %.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch

from .accumulators import LogAccumulator
from .catalog import software_format
from .factories import lnstensor
from .formats import LNSFormat
from .tensor import LNSTensor

__all__ = ["HybridMul", "Madam", "Mul", "SignMul"]

_STATE_FRACTION_BITS = 23


class _Multiplicative(torch.optim.Optimizer):
    """What the optimizers of this module share: a step, given the factor that :meth:`_factor` computes."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with hyperparameters of their own, as in ``torch.optim``."""
        super().add_param_group(param_group)
        try:
            self._check(self.param_groups[-1])
        except BaseException:
            del self.param_groups[-1]
            raise

    def _check(self, group: dict[str, Any]) -> None:
        _check_number(group, "lr", least=0.0)
        _check_number(group, "weight_decay", least=0.0)
        state_format = group["state_format"]
        if state_format is not None and not isinstance(state_format, LNSFormat):
            raise TypeError(f"state_format must be an LNSFormat or None, not {state_format!r}")
        for p in group["params"]:
            if not isinstance(p, LNSTensor):
                raise TypeError(
                    f"parameters of {type(self).__name__} must be LNSTensors, not {type(p).__name__} of {p.dtype}; "
                    "xlnstorch.convert(model, format) converts a model"
                )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; return what `closure`, if given, returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._multiply(p, group)
        return loss

    def _multiply(self, p: LNSTensor, group: dict[str, Any]) -> None:
        wide = _state_format(p, group)
        weight, grad = lnstensor(p, format=wide), lnstensor(p.grad, format=wide)
        state = self.state[p]
        factor = self._factor(group, state, weight, -grad if group["maximize"] else grad)
        if group["weight_decay"]:
            factor = factor * (1 - _scalar(group, "lr", wide) * _scalar(group, "weight_decay", wide))
        scaled = p * lnstensor(factor, format=p.format)
        sign, field = p.format.unpack(p._words)
        smallest = LNSTensor(p.format.pack(sign, torch.ones_like(field)), p.format)
        scaled = torch.where((scaled == 0) & (field != 0), smallest, scaled)
        if "max" in state:
            limit = lnstensor(state["max"], format=p.format)
            scaled = torch.minimum(torch.maximum(scaled, -limit), limit)
        p.copy_(scaled)

    def _factor(self, group: dict[str, Any], state: dict[str, Any], weight: LNSTensor, grad: LNSTensor) -> LNSTensor:
        raise NotImplementedError


class Madam(_Multiplicative):
    r"""Madam: the factor is the exponential of a gradient normalised by its running root mean square.

    With g the gradient, t the step and ``clamp`` to ±`g_bound`::

        v = beta v + (1 - beta) g**2
        n = clamp(g / sqrt(v / (1 - beta**t) + eps))
        p = p exp(-lr n sign(p)), clamped to ±p_scale times the root mean square that p began with

    Parameters
    ----------
    params : iterable
        LNSTensors, or dicts that make parameter groups.
    lr : float
        Learning rate, at least 0: how far the logarithm moves for a gradient of typical size.
    beta : float
        Decay of the running mean of squares, above 0 and below 1.
    eps : float
        Added to that mean, at least 0; the paper has none.
    p_scale : float
        Bound of a parameter, at least 0, in units of its first root mean square.
    g_bound : float
        Bound of the normalised gradient, at least 0.
    use_pow : bool
        Multiply by ``exp(-x)``, as the paper does, or else by its first order ``1 - x``. The latter changes the sign
        of a parameter where ``lr * g_bound`` exceeds 1.
    weight_decay : float
        Decoupled: the factor is multiplied by ``1 - lr * weight_decay``. The paper bounds parameters instead.
    maximize : bool
        Go up the gradient.
    state_format : LNSFormat
        In which the factor is computed and the running mean kept. By default the software format ``f=23``, or the
        parameter's own where that has as many fraction bits or another base than 2.

    Raises
    ------
    TypeError, ValueError
        A parameter that is not an LNSTensor, or a hyperparameter out of range; the message shows it.

    References
    ----------
    J. Bernstein, J. Zhao, M. Meister, M.-Y. Liu, A. Anandkumar, Y. Yue, "Learning compositional functions via
    multiplicative weight updates", NeurIPS 2020, arXiv:2006.14560, algorithm 1. In LNS: J. Zhao et al., "LNS-Madam:
    low-precision training in logarithmic number system using multiplicative weight update", arXiv:2106.13914.

    Examples
    --------
    >>> import torch, xlnstorch
    >>> p = xlnstorch.lnstensor([2.0, -2.0], format=xlnstorch.lns16, requires_grad=True)
    >>> before = p.words
    >>> p.sum().backward()
    >>> xlnstorch.optim.Madam([p], lr=0.1).step()
    >>> p.words - before  # -0.1 / ln(2) and 0.1 / ln(2), in units of 2**-7
    tensor([-18,  18])
    """

    def __init__(
        self,
        params,
        lr: float = 0.01,
        beta: float = 0.999,
        eps: float = 1e-8,
        p_scale: float = 3.0,
        g_bound: float = 10.0,
        use_pow: bool = True,
        *,
        weight_decay: float = 0.0,
        maximize: bool = False,
        state_format: LNSFormat | None = None,
    ):
        defaults = dict(lr=lr, beta=beta, eps=eps, p_scale=p_scale, g_bound=g_bound, use_pow=use_pow)
        super().__init__(
            params, dict(defaults, weight_decay=weight_decay, maximize=maximize, state_format=state_format)
        )

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        for name in ("eps", "p_scale", "g_bound"):
            _check_number(group, name, least=0.0)
        if not 0.0 < _check_number(group, "beta", least=0.0) < 1.0:
            raise ValueError(f"beta must be above 0 and below 1, not {group['beta']!r}")
        for p in group["params"]:
            wide = _state_format(p, group)
            if _scalar(group, "beta", wide) == 1:
                raise ValueError(f"beta must be below 1 in the state's format, but {group['beta']!r} is 1 in {wide}")

    def _factor(self, group, state, weight, grad):
        lr, beta, eps, bound = (_scalar(group, name, weight.format) for name in ("lr", "beta", "eps", "g_bound"))
        if not state:
            state["step"] = 0
            state["max"] = _bound(group, weight)
            state["exp_avg_sq"] = torch.zeros_like(weight)
        state["step"] += 1
        mean = state["exp_avg_sq"].mul_(beta).add_((1 - beta) * (grad * grad))
        normed = grad / torch.sqrt(mean / (1 - beta ** state["step"]) + eps)
        normed = torch.minimum(torch.maximum(normed, -bound), bound)
        change = -(lr * normed * torch.sign(weight))
        return torch.exp(change) if group["use_pow"] else 1 + change


class Mul(_Multiplicative):
    """The factor depends on the gradient as it is.

    ``2 ** (-lr g sign(p))`` with `use_pow`; else ``1 + lr |g|`` where p has to grow, and its reciprocal where it has
    to shrink.

    Parameters
    ----------
    params, lr, weight_decay, maximize, state_format
        As in :class:`Madam`.
    use_pow : bool
        Which of the two factors.

    Raises
    ------
    TypeError, ValueError
        As :class:`Madam`.

    References
    ----------
    The ``LNSMul`` of the xlnstorch package, version 1.0.0.
    """

    def __init__(
        self,
        params,
        lr: float = 0.01,
        use_pow: bool = False,
        *,
        weight_decay: float = 0.0,
        maximize: bool = False,
        state_format: LNSFormat | None = None,
    ):
        defaults = dict(lr=lr, use_pow=use_pow, weight_decay=weight_decay)
        super().__init__(params, dict(defaults, maximize=maximize, state_format=state_format))

    def _factor(self, group, state, weight, grad):
        change = _scalar(group, "lr", weight.format) * grad
        if group["use_pow"]:
            return torch.exp2(-(change * torch.sign(weight)))
        return _against(grad, weight, 1 + torch.abs(change))


class SignMul(_Multiplicative):
    """The factor depends on the signs only: a constant where p has to grow, its reciprocal where it has to shrink.

    The constant is ``2 ** lr`` with `use_pow`, else ``1 + lr``; where the gradient is zero nothing happens. In LNS a
    step of a unit in the last place is ``lr = 2 ** -frac_bits`` with `use_pow`.

    Parameters
    ----------
    params, lr, p_scale, weight_decay, maximize, state_format
        As in :class:`Madam`.
    use_pow : bool
        Which of the two constants.

    Raises
    ------
    TypeError, ValueError
        As :class:`Madam`.

    References
    ----------
    The ``LNSSignMul`` of the xlnstorch package, version 1.0.0.
    """

    def __init__(
        self,
        params,
        lr: float = 0.01,
        p_scale: float = 10.0,
        use_pow: bool = False,
        *,
        weight_decay: float = 0.0,
        maximize: bool = False,
        state_format: LNSFormat | None = None,
    ):
        defaults = dict(lr=lr, p_scale=p_scale, use_pow=use_pow, weight_decay=weight_decay)
        super().__init__(params, dict(defaults, maximize=maximize, state_format=state_format))

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        _check_number(group, "p_scale", least=0.0)

    def _factor(self, group, state, weight, grad):
        if not state:
            state["max"] = _bound(group, weight)
        lr = _scalar(group, "lr", weight.format)
        grown = torch.exp2(lr) if group["use_pow"] else 1 + lr
        factor = _against(grad, weight, grown)
        return torch.where(grad == 0, torch.ones_like(factor), factor)


class HybridMul(_Multiplicative):
    """A factor by cases: gentle where p shrinks or where p or its gradient is small, else as gradient descent.

    ``1 / (1 + lr |g|)`` where the signs of p and g agree, and where either is smaller than `lr`;
    elsewhere ``max(2 ** lr, 1 + lr |g / p|)``, the latter being what gradient descent does to p.

    Parameters
    ----------
    params, lr, weight_decay, maximize, state_format
        As in :class:`Madam`.

    Raises
    ------
    TypeError, ValueError
        As :class:`Madam`.

    References
    ----------
    The ``LNSHybridMul`` of the xlnstorch package, version 1.0.0.
    """

    def __init__(
        self,
        params,
        lr: float = 0.01,
        *,
        weight_decay: float = 0.0,
        maximize: bool = False,
        state_format: LNSFormat | None = None,
    ):
        defaults = dict(lr=lr, weight_decay=weight_decay, maximize=maximize, state_format=state_format)
        super().__init__(params, defaults)

    def _factor(self, group, state, weight, grad):
        lr = _scalar(group, "lr", weight.format)
        size, push = torch.abs(weight), lr * torch.abs(grad)
        gentle = (torch.sign(grad) == torch.sign(weight)) | (torch.abs(grad) < lr) | (size < lr)
        divisor = torch.where(gentle, torch.ones_like(size), size)  # no division by zero where nothing comes of it
        return torch.where(gentle, 1 / (1 + push), torch.maximum(torch.exp2(lr), 1 + push / divisor))


# ----------------------------------------------------------------------------------------------------------------------


def _check_number(group: dict[str, Any], name: str, least: float) -> float:
    value = group[name]
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be a number, not {value!r}") from None
    if not least <= number < math.inf:
        raise ValueError(f"{name} must be finite and at least {least:g}, not {value!r}")
    return number


def _state_format(p: LNSTensor, group: dict[str, Any]) -> LNSFormat:
    if group["state_format"] is not None:
        return group["state_format"]
    own = p.format
    if own.frac_bits >= _STATE_FRACTION_BITS or own.base != 2.0:
        return own
    return dataclasses.replace(software_format(_STATE_FRACTION_BITS), specials=own.specials)


def _scalar(group: dict[str, Any], name: str, format: LNSFormat) -> LNSTensor:
    return lnstensor(float(group[name]), format=format)


def _against(grad: LNSTensor, weight: LNSTensor, factor: LNSTensor) -> LNSTensor:
    """Return `factor`, or its reciprocal where going against the gradient is to shrink the weight."""
    return torch.where(torch.sign(grad) == torch.sign(weight), 1 / factor, factor)


def _bound(group: dict[str, Any], weight: LNSTensor) -> LNSTensor:
    """Return `p_scale` times the root mean square of `weight`, summed in a tree: a sequential sum may stall."""
    tree = dataclasses.replace(weight.format, accumulator=LogAccumulator("tree"))
    squares = lnstensor(weight * weight, format=tree)
    return lnstensor(_scalar(group, "p_scale", tree) * torch.sqrt(squares.mean()), format=weight.format)
