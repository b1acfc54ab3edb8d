"""The accumulators written a second time, on top of :mod:`xlnstorch.reference`: Python integers, slow, obviously right.

Nothing is shared with the package beside that module. Every addition of words is a call of ``Reference.add``, whatever
integers that uses.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterable
from fractions import Fraction

from .reference import Reference, Result, _decide, _iv, _log2, _power_of_two

__all__ = ["dot", "linear_sum", "logarithmic_sum"]


def logarithmic_sum(
    reference: Reference, words: Iterable[int], order: str = "sequential", guard_bits: int = 0
) -> Result:
    """Return the sum, made of additions with `guard_bits` more fraction bits, and all flags raised on the way.

    The order is ``"sequential"``, left to right from the first term, or ``"tree"``: neighbours first, then the
    neighbours among the sums; an odd last one moves up as it is. The logarithm is rounded at the end, half to even.
    Infinities and NaN are those of the wide format until then.
    """
    wide = _with_frac_bits(reference, reference.frac_bits + guard_bits)
    terms = []
    for word in words:
        if word == reference.nan:
            terms.append(wide.nan)
            continue
        sign, e = reference._split(word)
        terms.append(0 if e is None else wide._join(sign, e * 2**guard_bits)[0])
    if order == "sequential":
        total, raised = wide.sum(terms)
    else:
        total, raised = _tree(wide, terms)
    if total == wide.nan:
        return reference.nan, raised
    sign, e = wide._split(total)
    if e is None:
        return 0, raised
    word, flags = reference._join(sign, e if e == math.inf else round(Fraction(e, 2**guard_bits)))
    return word, raised | flags


def _tree(reference: Reference, words: list[int]) -> Result:
    raised: frozenset[str] = frozenset()
    while len(words) > 1:
        level = []
        for i in range(0, len(words) - 1, 2):
            total, flags = reference.add(words[i], words[i + 1])
            level.append(total)
            raised |= flags
        words = level + ([words[-1]] if len(words) % 2 else [])
    return (words[0] if words else 0), raised


def _with_frac_bits(reference: Reference, frac_bits: int) -> Reference:
    """Return a reference like this one, with whatever else it adds by, that has so many fraction bits."""
    other = copy.copy(reference)
    Reference.__init__(other, reference.int_bits, frac_bits, reference.specials)
    return other


def linear_sum(
    reference: Reference, words: Iterable[int], table_bits: int | None = None, frac_bits: int | None = None
) -> Result:
    """Return the word nearest to the sum of the words' fixed-point numbers, and the flags of that rounding.

    A word's number is its antilogarithm with the significand rounded to `table_bits` fraction bits (by default those of
    the format and 4), of whose magnitude bits beyond `frac_bits` are dropped (by default none). With NaN among the
    words the sum is NaN, else with an infinity infinite; two that are opposite are invalid.
    """
    words = list(words)
    if reference.nan in words:
        return reference.nan, frozenset()
    infinite = {sign for sign, e in map(reference._split, words) if e == math.inf}
    if len(infinite) == 2:
        return reference._invalid()
    if infinite:
        return reference._saturated(infinite.pop()), frozenset()
    if table_bits is None:
        table_bits = reference.frac_bits + 4
    total = Fraction(0)
    for word in words:
        sign, e = reference._split(word)
        if e is not None:
            whole, fraction = divmod(e, reference.steps)
            magnitude = _antilogarithm(reference.frac_bits, fraction, table_bits) * Fraction(2) ** (whole - table_bits)
            if frac_bits is not None:
                magnitude = Fraction(int(magnitude * 2**frac_bits), 2**frac_bits)
            total += sign * magnitude
    if total == 0:
        return 0, frozenset()
    return reference._join(1 if total > 0 else -1, _nearest_log(reference.frac_bits, abs(total)))


@functools.lru_cache(maxsize=1 << 18)
def _antilogarithm(frac_bits: int, fraction: int, table_bits: int) -> int:
    """Return the integer nearest to ``2**(fraction / 2**frac_bits + table_bits)``."""
    exponent = Fraction(fraction, 2**frac_bits) + table_bits
    return _decide(lambda: _power_of_two(exponent), round)


@functools.lru_cache(maxsize=1 << 18)
def _nearest_log(frac_bits: int, magnitude: Fraction) -> int:
    """Return the integer nearest to ``2**frac_bits log2(magnitude)``; it is never half way between two."""
    return _decide(lambda: 2**frac_bits * _log2(_iv.mpf(magnitude.numerator) / magnitude.denominator), round)


def dot(reference: Reference, a: Iterable[int], b: Iterable[int], summed: Callable[[list[int]], Result]) -> Result:
    """Return ``summed`` of the products of two sequences of equal length, and all flags raised on the way."""
    products = [reference.mul(x, y) for x, y in zip(a, b, strict=True)]
    total, raised = summed([word for word, _ in products])
    return total, raised.union(*(flags for _, flags in products))
