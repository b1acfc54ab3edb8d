"""What several test files of the golden model use."""

import functools
import re

import torch

from xlnstorch import LNSFormat, LNSTensor, LogAccumulator, arithmetic, conversions, lns8, lns16, lnstensor

#: A narrow and a common format, one in int64 without a table, and one that sums in another order.
FORMATS = [lns8, lns16, LNSFormat(29, 23), LNSFormat(8, 7, accumulator=LogAccumulator("tree"))]


def exactly(text):
    """Return a pattern that matches the whole text of an error."""
    return f"^{re.escape(text)}$"


def leaf(data, format=lns16):
    return lnstensor(data, format=format, requires_grad=True)


def word(format, number):
    """Return the word nearest to a number, as a scalar tensor."""
    return torch.tensor(conversions.encode_scalar(format, number), dtype=format.dtype)


def add(format, *terms):
    """Return the words of a sum, left to right."""
    return functools.reduce(functools.partial(arithmetic.add, format), terms)


def check(result, format, words):
    """Assert that a result is an LNSTensor of exactly these words."""
    assert type(result) is LNSTensor
    assert result.format == format
    assert result._words.dtype == format.dtype
    assert result.shape == words.shape == result._words.shape
    assert torch.equal(result._words, words)


def randn(*shape, seed, format=lns16):
    values = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return lnstensor(values, format=format)


def sample(format, *shape, seed=0):
    """Return numbers whose sums are worth adding, with zeros, ones and both ends of the range among them."""
    generator = torch.Generator().manual_seed(seed)
    words = conversions.encode(format, torch.randn(*shape, dtype=torch.float64, generator=generator))
    top = 1 << format.log_bits
    corners = [0, 0, 1, top | 1, format.bias, top | format.bias, format.max_field, top | format.max_field]
    corners = format.from_unsigned(torch.tensor(corners))
    picks = corners[torch.randint(len(corners), shape, generator=generator)]
    return LNSTensor(torch.where(torch.rand(*shape, generator=generator) < 0.4, picks, words), format)
