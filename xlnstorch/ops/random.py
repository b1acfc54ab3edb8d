"""Random numbers: what torch draws in float64, each as its nearest word; the same seed gives the same words."""

from __future__ import annotations

import torch

from .. import conversions
from ..tensor import LNSTensor
from ._registry import aten, common_format, only_lns, register


def value_of(x):
    """Return the numbers that an operand stands for."""
    return x.value if isinstance(x, LNSTensor) else x


@register(
    aten.bernoulli.default,
    aten.bernoulli.p,
    aten.binomial.default,
    aten.poisson.default,
    aten.multinomial.default,
    aten._standard_gamma.default,
    aten._sample_dirichlet.default,
    aten.normal.Tensor_float,
    aten.normal.float_Tensor,
    aten.normal.Tensor_Tensor,
)
def drawn(func, *args, **kwargs):
    """Draw with the decoded parameters."""
    format = common_format(func, *args)
    values = func(*(value_of(x) for x in args), **kwargs)
    return LNSTensor(conversions.encode(format, values), format) if values.dtype == torch.float64 else values


@register(
    aten.bernoulli_.float,
    aten.bernoulli_.Tensor,
    aten.cauchy_.default,
    aten.exponential_.default,
    aten.geometric_.default,
    aten.log_normal_.default,
    aten.normal_.default,
    aten.random_.default,
    aten.random_.to,
    getattr(aten.random_, "from"),
    aten.uniform_.default,
)
def drawn_in_place(func, self, *args, **kwargs):
    common_format(func, self, *args)
    values = func(torch.empty(self.shape, dtype=torch.float64, device=self.device), *map(value_of, args), **kwargs)
    only_lns(func, self)._words.copy_(conversions.encode(self.format, values))
    return self


@register(aten.rand_like.default, aten.randn_like.default, aten.randint_like.default, aten.randint_like.low_dtype)
def drawn_like(func, self, *args, **kwargs):
    values = func(torch.empty(self.shape, dtype=torch.float64, device=self.device), *args, **kwargs)
    return LNSTensor(conversions.encode(self.format, values), self.format) if values.dtype == torch.float64 else values


@register(aten.rrelu_with_noise.default)
def rrelu_with_noise(func, self, noise, lower=0.125, upper=1 / 3, training=False, generator=None):
    if not training:
        noise._words.fill_(conversions.encode_scalar(self.format, 1.0))
        return aten.leaky_relu(self, (lower + upper) / 2)
    # One draw for each number that is not positive, in order, as torch does.
    slopes = torch.ones(self.shape, dtype=torch.float64, device=self.device)
    below = aten.le(self, 0)
    slopes[below] = slopes[below].uniform_(lower, upper, generator=generator)
    only_lns(func, noise)._words.copy_(conversions.encode(self.format, slopes))
    return aten.mul(self, noise)
