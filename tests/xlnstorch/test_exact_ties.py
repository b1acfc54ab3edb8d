"""The few results that lie exactly halfway, all of them in bases other than 2, and the elementary functions."""

import math
import random

import flint
import mpmath
import pytest
import torch

from xlnstorch.exact import LogScale, nearest_integer, round_shift

mp = mpmath.MPContext()
mp.dps = 60


def doubles(values):
    return torch.tensor(values, dtype=torch.float64)


def test_gaussian_ties_go_to_even():
    assert LogScale.of(0, 4.0).gaussian_sum(torch.tensor([0])).tolist() == [0]  # log4(2) = 1/2
    assert LogScale.of(1, 16.0).gaussian_sum(torch.tensor([0])).tolist() == [0]
    assert LogScale.of(0, 4.0).gaussian_sum(torch.tensor([1])).tolist() == [0]  # log4(5/4)
    assert LogScale.of(0, 16.0).gaussian_reach == 1


@pytest.mark.parametrize(
    ("frac_bits", "base", "value", "log"),
    [
        (0, 4.0, 2.0, 0),
        (0, 4.0, 8.0, 2),
        (0, 4.0, 32.0, 2),
        (0, 4.0, 128.0, 4),
        (0, 4.0, 0.5, 0),
        (0, 4.0, 0.125, -2),
        (0, 4.0, 2.0**1023, 512),
        (0, 4.0, 2.0**-1023, -512),
        (1, 16.0, 2.0, 0),
        (1, 16.0, 8.0, 2),
        (0, 2.25, 1.5, 0),
        (0, 2.25, 3.375, 2),
        (0, 100.0, 10.0, 0),
        (0, 100.0, 1000.0, 2),
        (6, 2.0**128, 2.0, 0),
        (7, 2.0**256, 2.0, 0),
    ],
)
def test_log_ties_go_to_even(frac_bits, base, value, log):
    assert LogScale.of(frac_bits, base).log(doubles([value])).tolist() == [log]


def test_exp_ties_go_to_even():
    assert LogScale.of(0, 3.0).exp(torch.tensor([33, 34])).tolist() == [3.0**33, float(3**34)]  # 54 bits, odd
    assert LogScale.of(1, 25.0).exp(torch.tensor([22, 23])).tolist() == [5.0**22, float(5**23)]  # 54 bits, odd
    assert LogScale.of(1, 4.0).exp(torch.tensor([-1075, -1074, -1073])).tolist() == [0.0, 5e-324, 1e-323]


def test_rescale_ties_go_to_even():
    log = torch.tensor([-3, -2, -1, 0, 1, 2, 3, 4, 5])
    assert LogScale.of(1).rescale(log, LogScale.of(0)).tolist() == [-2, -1, 0, 0, 0, 1, 2, 2, 2]
    assert LogScale.of(0).rescale(log, LogScale.of(2)).tolist() == [4 * e for e in log.tolist()]
    assert LogScale.of(0).rescale(log, LogScale.of(0, 4.0)).tolist() == [-2, -1, 0, 0, 0, 1, 2, 2, 2]


def test_rescale_between_bases():
    rng = random.Random(5)
    logs = [rng.randrange(-(2**30), 2**30) for _ in range(100)]
    for source, target in ((LogScale.of(7), LogScale.of(7, 3.0)), (LogScale.of(0, 1.0001), LogScale.of(23))):
        factor = mp.log(source.base) / 2**source.frac_bits / (mp.log(target.base) / 2**target.frac_bits)
        expected = [int(mp.nint(log * factor)) for log in logs]
        assert source.rescale(torch.tensor(logs), target).tolist() == expected


@pytest.mark.parametrize("bits", [0, 1, 2, 5])
def test_round_shift(bits):
    values = list(range(-200, 200))
    assert round_shift(torch.tensor(values), bits).tolist() == [round(value / 2**bits) for value in values]


def test_round_shift_by_more_than_a_word():
    assert round_shift(torch.tensor([2**62, -(2**62)]), 62).tolist() == [1, -1]
    assert round_shift(torch.tensor([2**61, 3 * 2**60, -(2**61)]), 62).tolist() == [0, 1, 0]
    assert round_shift(torch.tensor([2**62, -(2**62)]), 63).tolist() == [0, 0]


def test_nearest_integer():
    assert nearest_integer(lambda: flint.arb(7) / 3) == 2
    assert nearest_integer(lambda: flint.arb(-8) / 3) == -3
    close = flint.fmpq(5, 2) + flint.fmpq(1, 2**3000)  # needs more than 3000 bits
    assert nearest_integer(lambda: flint.arb(close)) == 3
    assert nearest_integer(lambda: flint.arb(flint.fmpq(5, 2) - flint.fmpq(1, 2**3000))) == 2
    root = lambda: flint.arb(2).sqrt() ** 2 / 4  # noqa: E731  exactly one half, which no ball can show
    asked = []
    assert nearest_integer(root, lambda n: asked.append(n) or True) == 0
    assert nearest_integer(lambda: root() + 1, lambda n: asked.append(n) or True) == 2
    assert asked == [0, 1]


def test_nearest_integer_gives_up_on_an_unproved_tie():
    with pytest.raises(ArithmeticError) as caught:
        nearest_integer(lambda: flint.arb(2).sqrt() ** 2 / 4)
    assert str(caught.value) == ("a logarithm lies within 2**-65536 of a rounding boundary; this should not happen")


@pytest.mark.parametrize("frac_bits", [3, 7, 23])
def test_log_of_exp(frac_bits):
    scale, rng = LogScale.of(frac_bits), random.Random(frac_bits)
    unit = mp.log(2) / 2**frac_bits
    logs = [0, 1, -1, *(rng.randrange(-40 * 2**frac_bits, 8 * 2**frac_bits) for _ in range(200))]
    signs = [rng.random() < 0.5 for _ in logs]
    expected = [
        int(mp.nint((-1) ** sign * mp.mpf(2) ** (mp.mpf(log) / 2**frac_bits) / unit))
        for sign, log in zip(signs, logs, strict=True)
    ]
    assert scale.log_of_exp(torch.tensor(signs), torch.tensor(logs)).tolist() == expected


def test_log_of_exp_is_clamped():
    logs = torch.tensor([63, 63, 2000, 2000, -2000])
    signs = torch.tensor([False, True, False, True, False])
    assert LogScale.of(0).log_of_exp(signs, logs).tolist() == [2**62, -(2**62), 2**62, -(2**62), 0]


@pytest.mark.parametrize("frac_bits", [3, 7, 23, 48])
def test_log_of_log(frac_bits):
    scale, rng = LogScale.of(frac_bits), random.Random(frac_bits)
    unit = mp.log(2) / 2**frac_bits
    near_one = round(1 / float(unit))  # ln(x) near 1, whose own logarithm is near zero
    logs = [1, -1, near_one - 1, near_one, near_one + 1, -near_one]
    logs += [near_one + math.ceil(near_one * rng.uniform(0, 0.001)) for _ in range(100)]
    logs += [rng.choice((-1, 1)) * math.ceil(2 ** rng.uniform(0, min(frac_bits + 8, 51))) for _ in range(200)]
    expected = [int(mp.nint(mp.log(abs(log) * unit) / unit)) for log in logs]
    assert scale.log_of_log(torch.tensor(logs)).tolist() == expected
