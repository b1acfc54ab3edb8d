"""Pairs of float64, against exact rationals and balls."""

import random
from fractions import Fraction

import flint
import pytest
import torch

from xlnstorch.double_double import PowersOfTwo, add, multiply, two_sum

U = Fraction(1, 2**53)


def pairs(rng, count, signs=(1, -1)):
    """Numbers of about 106 bits and many sizes: the high parts, and the low ones."""
    highs = [rng.choice(signs) * rng.uniform(1, 2) * 2.0 ** rng.randrange(-60, 60) for _ in range(count)]
    lows = [float(Fraction(high) * U / 2 * Fraction(rng.uniform(-1, 1))) for high in highs]
    exact = [Fraction(high) + Fraction(low) for high, low in zip(highs, lows, strict=True)]
    return (torch.tensor(highs, dtype=torch.float64), torch.tensor(lows, dtype=torch.float64)), exact


def fractions(pair):
    high, low = pair
    assert torch.equal(high + low, high)  # the high part is the number's nearest float64
    return [Fraction(a) + Fraction(b) for a, b in zip(high.tolist(), low.tolist(), strict=True)]


def worst(results, truths):
    """The largest relative error in units of 2**-106."""
    return max(abs(result / truth - 1) / U**2 for result, truth in zip(results, truths, strict=True))


def test_two_sum_is_exact():
    rng = random.Random(1)
    (a, _), exact_a = pairs(rng, 500)
    (b, _), exact_b = pairs(rng, 500)
    sums = fractions(two_sum(a, b))
    assert sums == [Fraction(x) + Fraction(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert exact_a != a.tolist() and exact_b != b.tolist()


def test_add_and_multiply():
    rng = random.Random(2)
    x, exact_x = pairs(rng, 3000, signs=(1,))
    y, exact_y = pairs(rng, 3000, signs=(1,))
    assert worst(fractions(add(x, y)), [a + b for a, b in zip(exact_x, exact_y, strict=True)]) < 4
    y, exact_y = pairs(rng, 3000)
    products = [a * b for a, b in zip(exact_x, exact_y, strict=True)]
    assert 1 < worst(fractions(multiply(x, y)), products) < 7


@pytest.mark.parametrize("bits", [0, 1, 7, 13, 16, 17, 24, 26, 27, 40, 49, 52])
def test_powers_of_two(bits):
    rng, powers = random.Random(bits), PowersOfTwo.of(bits)
    xs = [1, (1 << bits) - 1, *(rng.randrange(1 << bits) for _ in range(300))]
    xs += [int(2 ** rng.uniform(0, bits)) for _ in range(300)]  # where the power is near 1
    xs = [x for x in xs if 0 < x < 1 << bits] or [0]
    # The bits above do not matter.
    tensor = torch.tensor(xs) + (torch.arange(len(xs)) - 300 << bits)
    with flint.ctx.workprec(300):
        for function, offset in ((powers.power, 0), (powers.less_one, 1)):
            high, low = function(tensor)
            assert torch.equal(high + low, high)
            for x, a, b in zip(xs, high.tolist(), low.tolist(), strict=True):
                truth = (flint.arb.const_log2() * x / 2**bits).exp() - offset
                error = abs(flint.arb(a) + flint.arb(b) - truth)
                assert error <= abs(truth) * PowersOfTwo.ERROR / 4


def test_powers_of_two_are_exact_at_whole_numbers():
    for bits in (0, 5, 16, 23, 49):
        whole = torch.tensor([-3, 0, 1, 5]) << bits
        assert [part.tolist() for part in PowersOfTwo.of(bits).power(whole)] == [[1.0] * 4, [0.0] * 4]
        assert [part.tolist() for part in PowersOfTwo.of(bits).less_one(whole)] == [[0.0] * 4, [0.0] * 4]


def test_tables_are_kept():
    assert PowersOfTwo.of(23) is PowersOfTwo.of(23)
