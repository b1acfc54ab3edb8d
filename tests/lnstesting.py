"""What several test files of the golden model use."""

import dataclasses
import functools
import math
import re

import torch

from xlnstorch import Exact, LNSFormat, LNSTensor, LogAccumulator, arithmetic, conversions, lns8, lns16, lnstensor
from xlnstorch.reference import Reference

#: A narrow and a common format, one in int64 without a table, and one that sums in another order.
FORMATS = [lns8, lns16, LNSFormat(29, 23), LNSFormat(8, 7, accumulator=LogAccumulator("tree"))]


@dataclasses.dataclass(frozen=True)
class Off(Exact):
    """An adder that is wrong: each logarithm is so many units too large, at all distances below a limit."""

    by: int = 1
    below: int = 20

    def check(self, format):
        if self.below > format.max_field:
            raise ValueError(f"below must be at most {format.max_field} for {format.name}, not {self.below}")

    def gaussian(self, format, d, subtract):
        return super().gaussian(format, d, subtract) + torch.where(subtract, -self.by, self.by) * (d < self.below)

    def reach(self, format):
        return max(super().reach(format), self.below)

    def corners(self, format):
        return (self.below,)


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


def summed(format, terms):
    """Return the words of a sum in the order of the format's accumulator."""
    terms = list(terms)
    if format.accumulator.order == "sequential":
        return add(format, *terms)
    while len(terms) > 1:
        pairs = [arithmetic.add(format, x, y) for x, y in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[2 * len(pairs) :]
    return terms[0]


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


class Number:
    """A number of lns16 in the reference arithmetic, to write down by hand which LNS operations give a result.

    Each of Python's operators is one LNS operation; a plain number beside a Number is encoded.
    """

    reference = Reference(lns16.int_bits, lns16.frac_bits)

    def __init__(self, value=None, *, word=None):
        self.word = value.word if isinstance(value, Number) else self.reference.encode(value) if word is None else word

    def _apply(self, operation, *others):
        return Number(word=getattr(self.reference, operation)(self.word, *(Number(x).word for x in others))[0])

    def __add__(self, other):
        return self._apply("add", other)

    def __sub__(self, other):
        return self._apply("sub", other)

    def __mul__(self, other):
        return self._apply("mul", other)

    def __truediv__(self, other):
        return self._apply("div", other)

    def __rtruediv__(self, other):
        return Number(other) / self

    def __neg__(self):
        return self._apply("neg")

    def __pow__(self, n):
        return Number(word=self.reference.pow(self.word, n)[0])

    def sqrt(self):
        return self._apply("sqrt")


def numbers(x):
    """Return the elements of an lns16 LNSTensor as (nested lists of) Numbers."""

    def wrap(words):
        return [wrap(row) for row in words] if isinstance(words, list) else Number(word=words)

    return wrap(x.words.tolist())


def total(terms):
    """Return the sum of Numbers in the order of lns16's accumulator: left to right, from the first."""
    return functools.reduce(Number.__add__, terms)


def check_numbers(result, expected):
    """Assert that a result is an LNSTensor of exactly these (nested lists of) Numbers."""

    def unwrap(x):
        return [unwrap(row) for row in x] if isinstance(x, (list, tuple)) else x.word

    assert type(result) is LNSTensor and result.format == lns16
    assert result.words.tolist() == unwrap(expected)


#: A format in which rounding hides nothing: one rounding errs by at most 2**-41 ln 2, or 3.2e-13.
WIDE = LNSFormat(12, 40)


def check_wide(result, expected, roundings=1000):
    """Assert that a result in WIDE is the float64 one, to within so many roundings of its largest element."""
    assert type(result) is LNSTensor and result.format == WIDE
    assert result.shape == expected.shape
    scale = float(expected.abs().max())
    assert float((result.value - expected).abs().max()) <= roundings * 2.0**-41 * math.log(2.0) * scale


def check_against_float64(compute, *values, roundings=1000):
    """Assert that a function of tensors, and its gradients, are in WIDE what they are in float64.

    The gradients that come in are no ones but 0.25, 0.5, 0.75, ..., so that a backward pass has to use them.
    """
    mine = [leaf(value, WIDE) for value in values]
    plain = [x.value.requires_grad_() for x in mine]
    result, expected = compute(*mine), compute(*plain)
    check_wide(result.detach(), expected.detach(), roundings)
    incoming = torch.arange(1.0, expected.numel() + 1, dtype=torch.float64).reshape(expected.shape) / 4
    grads = torch.autograd.grad(result, mine, lnstensor(incoming, format=WIDE))
    for grad, expected_grad in zip(grads, torch.autograd.grad(expected, plain, incoming), strict=True):
        check_wide(grad, expected_grad, roundings)
