"""Correct rounding, held against the reference in base 2 and against mpmath in the other bases."""

import math
import random

import mpmath
import pytest
import torch

from xlnstorch import exact
from xlnstorch.exact import LogScale, nearest_integer
from xlnstorch.reference import Reference

mp = mpmath.MPContext()
mp.dps = 60  # far more than a float64 that is not chosen with malice can need

BASES = (3.0, 4.0, 10.0, 1.0001)


def doubles(values):
    return torch.tensor(values, dtype=torch.float64)


def nearest(real):
    """The nearest integer to an mpmath number, half to even where 60 digits see a half."""
    floor = int(mp.floor(real))
    rest = real - floor - mp.mpf(1) / 2
    if abs(rest) < mp.mpf(10) ** -30:
        return floor + (floor & 1)
    return floor + (rest > 0)


def interesting_d(scale, rng, count):
    reach = scale.gaussian_reach
    ds = [*range(1, 20), *range(reach - 20, reach + 20), scale._steps, 2 * scale._steps]
    ds += [int(2 ** rng.uniform(0, math.log2(reach))) for _ in range(count)]
    ds += [rng.randrange(1, reach + 2) for _ in range(count)]
    return [d for d in ds if d > 0]


@pytest.mark.parametrize("frac_bits", range(8))
def test_gaussian_logarithms_for_every_d(frac_bits):
    scale, reference = LogScale.of(frac_bits), Reference(8, frac_bits)
    d = torch.arange((frac_bits + 4) * 2**frac_bits)
    sums = [reference.gaussian_sum(i) for i in d.tolist()]
    differences = [reference.gaussian_difference(i) for i in d[1:].tolist()]
    assert scale.gaussian_sum(d).tolist() == sums
    assert scale.gaussian_difference(d[1:]).tolist() == differences
    assert scale.gaussian_reach == max(sums.index(0), differences.index(0) + 1)


@pytest.mark.parametrize("frac_bits", [10, 16, 23, 30])
def test_gaussian_logarithms_for_a_sample(frac_bits):
    scale, reference = LogScale.of(frac_bits), Reference(8, frac_bits)
    ds = interesting_d(scale, random.Random(frac_bits), 300)
    assert scale.gaussian_sum(torch.tensor([0, *ds])).tolist() == [reference.gaussian_sum(d) for d in (0, *ds)]
    assert scale.gaussian_difference(torch.tensor(ds)).tolist() == [reference.gaussian_difference(d) for d in ds]


def hard_floats(frac_bits, rng, count):
    """Floats of every size, and those that lie next to a boundary between two logarithms."""
    values = [1.0, math.nextafter(1, 0), math.nextafter(1, 2), 2.0, 0.5, 3.0, 5e-324, 1.5e-323, 2.0**-1022]
    values += [math.nextafter(2.0**-1022, 0), 1.7976931348623157e308, 2.0**1023, 1e300, 1e-300, 1 / 3]
    values += [rng.random() * 2.0 ** rng.randrange(-1074, 1024) for _ in range(count)]
    values += [1 + rng.uniform(-1, 1) * 2.0**-k for k in range(53)]  # where a logarithm is a small difference
    for _ in range(count):
        half = rng.randrange(-(2**frac_bits) * 300, 2**frac_bits * 300) + mp.mpf(1) / 2
        middle = float(mp.mpf(2) ** (half / 2**frac_bits))
        values += [math.nextafter(middle, 0), middle, math.nextafter(middle, math.inf)]
    return [value for value in values if value > 0]


@pytest.mark.parametrize("frac_bits", [0, 3, 7, 10, 16, 23, 30, 40])
def test_log(frac_bits):
    reference = Reference(12, frac_bits)
    values = hard_floats(frac_bits, random.Random(frac_bits), 300)
    expected = [reference.encode(value) - reference.bias for value in values]
    assert LogScale.of(frac_bits).log(doubles(values)).tolist() == expected


def test_log_keeps_the_shape():
    assert LogScale.of(7).log(doubles([[1.0, 2.0], [4.0, 0.5]])).tolist() == [[0, 128], [256, -128]]
    assert LogScale.of(7).log(torch.empty(0, 3, dtype=torch.float64)).shape == (0, 3)


def test_exp_of_every_lns16_word():
    reference = Reference(8, 7)
    expected = [reference.decode(field) for field in range(1, 1 << 15)]
    assert LogScale.of(7).exp(torch.arange(1, 1 << 15) - reference.bias).tolist() == expected


@pytest.mark.parametrize("frac_bits", [10, 12])
def test_exp_of_every_fraction(frac_bits):
    reference = Reference(12, frac_bits)
    log = torch.arange(2**frac_bits) + (torch.arange(2**frac_bits) * 7919 % 2000 - 1000 << frac_bits)
    assert LogScale.of(frac_bits).exp(log).tolist() == [reference.decode(e + reference.bias) for e in log.tolist()]


@pytest.mark.parametrize("frac_bits", [0, 1, 7, 12, 16])
def test_exp_at_the_ends_of_float64(frac_bits):
    steps, reference, rng = 2**frac_bits, Reference(12, frac_bits), random.Random(frac_bits)
    logs = [whole * steps + part for whole in (-1077, -1076, -1075, -1074, -1073, -1023, -1022) for part in (-1, 0, 1)]
    logs += [1024 * steps - 1, 1024 * steps, 1024 * steps + 1, 2047 * steps, -2047 * steps]
    logs += [rng.randrange(-1080 * steps, -1020 * steps + 1) for _ in range(200)]
    assert LogScale.of(frac_bits).exp(torch.tensor(logs)).tolist() == [
        reference.decode(e + reference.bias) for e in logs
    ]


def test_exp_far_out_of_range():
    logs = torch.tensor([2**51, -(2**51), 2**51 - 1, 1 - 2**51])
    for base in (2.0, 3.0):
        assert LogScale.of(0, base).exp(logs).tolist() == [math.inf, 0.0, math.inf, 0.0]


@pytest.mark.parametrize("frac_bits", [17, 23, 30, 40, 48])
def test_exp_above_16_fraction_bits(frac_bits):
    steps, reference, rng = 2**frac_bits, Reference(12, frac_bits), random.Random(frac_bits)
    logs = [0, 1, -1, steps - 1, steps, *(rng.randrange(-1080 * steps, 1024 * steps) for _ in range(500))]
    # The exponent of what lies just below a power of two is not to be had from a float64 logarithm.
    wholes = (-1074, -1022, 1024, *(rng.randrange(-1000, 1000) for _ in range(40)))
    logs += [whole * steps + part for whole in wholes for part in (-5, -1, 0, 1, 3)]
    expected = [reference.decode(log + reference.bias) for log in logs]
    assert LogScale.of(frac_bits).exp(torch.tensor(logs)).tolist() == expected
    assert [LogScale.of(frac_bits).exp_exact(log) for log in logs] == expected


def test_exp_asks_a_ball_where_double_double_cannot_tell(monkeypatch):
    scale, logs = LogScale.of(20), torch.arange(-(2**21), 2**21, 30011)
    values = scale.exp(logs)
    # As if every rest were half a unit in the last place.
    high, low = scale._significand(logs)
    monkeypatch.setattr(scale, "_significand", lambda log: (high, low.sign() * 2.0**-53))
    asked = []
    monkeypatch.setattr(exact, "nearest_integer", lambda *args: asked.append(args) or nearest_integer(*args))
    assert torch.equal(scale.exp(logs), values)
    assert len(asked) == int((low != 0).sum()) > 130


def test_integer():
    steps, reference, rng = 2**20, Reference(12, 20), random.Random(8)
    logs = [0, steps, -steps, -steps - 1, 1 - steps, 64 * steps - 1, 64 * steps, 63 * steps, 2**31 - 1, -(2**31)]
    logs += [rng.randrange(-70 * steps, 70 * steps) for _ in range(500)]
    for shift in (0, -5, 7, 40):
        integers = LogScale.of(20).integer(torch.tensor(logs), shift).tolist()
        assert [n % 2**64 for n in integers] == [
            reference.decode_fixed(log + reference.bias, shift, 64, signed=False)[0] for log in logs
        ]


def through(monkeypatch, *, many):
    """Settle nothing by estimates, but in double-double, if they are that many, or else in balls; list the latter."""
    asked = []
    monkeypatch.setattr(exact, "nearest_integer", lambda *args: asked.append(args) or nearest_integer(*args))
    monkeypatch.setattr(exact, "_MARGIN", 1e300)
    monkeypatch.setattr(exact, "_MANY", many)
    monkeypatch.setattr(exact, "_CHUNK", 100)
    return asked


@pytest.mark.parametrize("frac_bits", [0, 3, 7, 16, 23, 31, 40, 48])
def test_estimates_double_double_and_balls_agree(monkeypatch, frac_bits):
    scale, rng = LogScale.of(frac_bits), random.Random(1)
    values = doubles(hard_floats(frac_bits, rng, 50))
    d = torch.tensor([*interesting_d(scale, rng, 100), *(whole << frac_bits for whole in (30, 50, 53, 54, 70))])

    def results():
        return scale.log(values), scale.gaussian_sum(d), scale.gaussian_difference(d)

    fast = results()
    asked = through(monkeypatch, many=0)
    assert all(torch.equal(a, b) for a, b in zip(fast, results(), strict=True))
    # Unproved are the three d above 53 octaves, and s of a small odd d, which at 48 fraction bits is half an integer to
    # within 2**-48 of a unit.
    assert len(asked) == 6 if frac_bits < 48 else 6 < len(asked) < 60
    asked.clear()
    asked = through(monkeypatch, many=10**9)
    assert all(torch.equal(a, b) for a, b in zip(fast, results(), strict=True))
    assert len(asked) > len(values) + 2 * len(d) - 50  # all but the few whose estimate is exactly zero


@pytest.mark.parametrize("frac_bits", [0, 1, 7, 30, 48])
def test_double_double_proves_nothing_wrong(frac_bits):
    # Whatever floor an estimate gives: what is called proved is right, and what is near is proved.
    scale, reference, rng = LogScale.of(frac_bits), Reference(12, frac_bits), random.Random(9)
    values = [rng.uniform(0.5, 1) for _ in range(200)]
    right = torch.tensor([reference.encode(value) - reference.bias for value in values])
    zero = torch.zeros_like(right)
    for error in (-1000, -9, -2, -1, 0, 1, 2, 9, 1000):
        result, proved = scale._compare((doubles(values), zero.to(torch.float64)), right + error, zero)
        assert torch.equal(result[proved], right[proved])
        if error in (-1, 0) or (abs(error) < 10 and frac_bits > 7):
            assert bool(proved.all())


@pytest.mark.parametrize("base", [2.0, *BASES])
@pytest.mark.parametrize("frac_bits", [3, 23])
def test_estimates_are_far_better_than_the_margin(monkeypatch, base, frac_bits):
    scale, rng, seen = LogScale(frac_bits, base), random.Random(2), []
    settle = exact._settle
    monkeypatch.setattr(exact, "_settle", lambda estimate, *rest: seen.append(estimate) or settle(estimate, *rest))
    unit = mp.log(base) / 2**frac_bits

    def check(truths):
        for estimate, truth in zip(seen.pop().tolist(), truths, strict=True):
            assert abs(estimate - truth) <= abs(truth) * exact._MARGIN / 2

    values = hard_floats(7, rng, 30)
    scale.log(doubles(values))
    check([mp.log(math.frexp(x)[0] if base == 2.0 else x) / unit for x in values])
    ds = interesting_d(scale, rng, 50)
    scale.gaussian_sum(torch.tensor(ds))
    check([mp.log1p(mp.exp(-d * unit)) / unit for d in ds])
    scale.gaussian_difference(torch.tensor(ds))
    check([-mp.log(-mp.expm1(-d * unit)) / unit for d in ds])


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("frac_bits", [0, 1, 7, 23])
def test_other_bases(base, frac_bits):
    scale, rng = LogScale.of(frac_bits, base), random.Random(3)
    unit = mp.log(base) / 2**frac_bits
    values = hard_floats(7, rng, 50)
    assert scale.log(doubles(values)).tolist() == [nearest(mp.log(x) / unit) for x in values]
    ds = interesting_d(scale, rng, 50)
    assert scale.gaussian_sum(torch.tensor(ds)).tolist() == [nearest(mp.log1p(mp.exp(-d * unit)) / unit) for d in ds]
    expected = [nearest(-mp.log(-mp.expm1(-d * unit)) / unit) for d in ds]
    assert scale.gaussian_difference(torch.tensor(ds)).tolist() == expected
    logs = [round(rng.uniform(-700, 700) / float(unit)) for _ in range(50)]
    assert scale.exp(torch.tensor(logs)).tolist() == [float(mp.exp(log * unit)) for log in logs]
