import dataclasses
import functools
import operator

import mpmath
import numpy as np
import pytest
import torch
from lnstesting import exactly

from xlnstorch import Exact, LNSFormat, arithmetic, lns8, lns12, lns16, lns32
from xlnstorch.plot import error_map, rounding_errors
from xlnstorch.reference import Reference

OPERATORS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv}

# Far above what 300 bits leave of a difference that is zero.
NOISE = mpmath.mpf(2) ** -180


@dataclasses.dataclass(frozen=True)
class Planted(Exact):
    """The exact adder with one wrong entry."""

    d: int = 17
    subtract: bool = False
    by: int = 3

    def gaussian(self, format, d, subtract):
        wrong = (d == self.d) & (subtract == self.subtract)
        return super().gaussian(format, d, subtract) + torch.where(wrong, self.by, 0)


@functools.cache
def value(format, word):
    """Return what a word means, to 300 bits."""
    sign, field = word >> format.log_bits, word & format.max_field
    if field == 0:
        return mpmath.mpf(0)
    with mpmath.workprec(300):
        return (-1) ** sign * mpmath.power(format.base, mpmath.mpf(field - format.bias) / 2**format.frac_bits)


def recomputed(format, operation, a, b, word):
    """Return the error of `word` as the result of an operation on two words, pair by pair in mpmath."""
    with mpmath.workprec(300):
        exact = OPERATORS[operation](value(format, a), value(format, b))
        if exact == 0:
            return 0.0 if word == 0 else np.inf
        if not value(format, 1) * (1 - NOISE) <= abs(exact) <= value(format, format.max_field) * (1 + NOISE):
            return np.nan
        result = value(format, word)
        if result == 0 or (result > 0) != (exact > 0):
            return np.inf
        e = (word & format.max_field) - format.bias
        error = e - mpmath.log(abs(exact), format.base) * 2**format.frac_bits
        return float(error) if abs(error) > NOISE else 0.0


def recomputed_map(data):
    return np.array(
        [
            [
                recomputed(data.format, data.operation, a, b, word)
                for b, word in zip(data.b_words.tolist(), row, strict=True)
            ]
            for a, row in zip(data.a_words.tolist(), data.words.tolist(), strict=True)
        ]
    )


# The heat map ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", OPERATORS)
@pytest.mark.parametrize("signs", ["++", "+-", "-+", "--"])
def test_every_cell_is_what_the_reference_and_mpmath_say(operation, signs):
    data = error_map(lns8, operation, signs=signs, interval=(0.00426, 234), points=25, seed=1)
    reference = Reference(4, 3)
    for a, row in zip(data.a_words.tolist(), data.words.tolist(), strict=True):
        for b, word in zip(data.b_words.tolist(), row, strict=True):
            assert word == getattr(reference, operation)(a, b)[0]
    assert data.error.shape == (25, 25)
    assert np.array_equal(data.error, recomputed_map(data), equal_nan=True)
    for words, magnitudes, sign in ((data.a_words, data.a, signs[0]), (data.b_words, data.b, signs[1])):
        assert [reference.decode(word) for word in words.tolist()] == [
            x if sign == "+" else -x for x in magnitudes.tolist()
        ]


@pytest.mark.parametrize("operation", ["add", "sub"])
@pytest.mark.parametrize(
    "format",
    # In base 4 the logarithm of 2 lies half way between two numbers.
    [lns16, lns32, LNSFormat(4, 48), LNSFormat(1, 2), LNSFormat(6, 3, base=2.5), LNSFormat(8, 0, base=4)],
    ids=repr,
)
def test_every_precision_and_base_is_as_exact(format, operation):
    data = error_map(format, operation, points=12, seed=3)
    assert np.array_equal(data.error, recomputed_map(data), equal_nan=True)
    assert 0 < np.nanmax(np.abs(data.error)) <= 0.5


def test_products_have_no_error_and_no_value_out_of_range():
    data = error_map(lns12, "mul")
    assert (data.error == 0).all()


def test_a_planted_wrong_entry_shows_in_its_cells_and_in_no_other():
    plain = error_map(lns8, points=64)
    data = error_map(dataclasses.replace(lns8, adder=Planted()), points=64)
    d = np.abs(plain.a_words[:, None] - plain.b_words[None, :])
    assert np.array_equal(data.words, np.where(d == 17, plain.words + 3, plain.words))
    assert (d == 17).sum() == 2 * (64 - 17)
    assert np.array_equal(data.error[d != 17], plain.error[d != 17])
    assert np.allclose(data.error[d == 17], plain.error[d == 17] + 3, rtol=0, atol=1e-14)
    assert np.array_equal(
        error_map(dataclasses.replace(lns8, adder=Planted(subtract=True)), points=64).error, plain.error
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("d", [1, 50, 501])
def test_a_wrong_entry_shows_even_where_the_grid_leaves_words_out(d, seed):
    format = dataclasses.replace(lns16, adder=Planted(d, subtract=True))
    data = error_map(format, "sub", seed=seed)
    assert data.error.shape == (256, 256)
    wrong = np.abs(data.error) > 1
    assert np.array_equal(wrong, np.abs(data.a_words[:, None] - data.b_words[None, :]) == d)
    assert wrong.any()


def test_a_result_that_no_number_of_units_describes_is_infinite():
    data = error_map(dataclasses.replace(lns8, adder=Planted(by=-1000)), points=64)
    infinite = np.isinf(data.error)
    assert np.array_equal(infinite, np.abs(data.a_words[:, None] - data.b_words[None, :]) == 17)
    assert (data.words[infinite] == 0).all()


def test_a_result_of_the_wrong_sign_is_infinite(monkeypatch):
    right = arithmetic.mul
    monkeypatch.setattr(arithmetic, "mul", lambda format, a, b: arithmetic.neg(format, right(format, a, b)))
    assert np.isposinf(error_map(lns8, "mul", points=8).error).all()


def test_the_grid_is_all_words_or_one_of_each_stretch():
    low, high = lns16.bias - 512, lns16.bias + 512
    assert error_map(lns16, points=1025).a_words.tolist() == list(range(low, high + 1))
    data = error_map(lns16, points=41, seed=5)
    for words in (data.a_words, data.b_words):
        assert [(word - low) * 41 // 1025 for word in words.tolist()] == list(range(41))
    assert not np.array_equal(data.a_words, data.b_words)
    again, other = error_map(lns16, points=41, seed=5), error_map(lns16, points=41, seed=6)
    assert np.array_equal(again.error, data.error)
    assert not np.array_equal(other.a_words, data.a_words)


def test_progress_ends_with_everything_done():
    seen = []
    error_map("lns12", progress=lambda *counts: seen.append(counts))
    assert seen[0][0] == 0
    assert seen[-1][0] == seen[-1][1]
    assert 256 <= seen[-1][1] <= 513  # distances, each once


# Errors of rounding ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", [lns8, lns16, lns32], ids=repr)
def test_each_rounding_error_is_the_nearest_float64(format):
    data = rounding_errors(format, samples=60, seed=4)
    reference = Reference(format.int_bits, format.frac_bits)
    for x, error in zip(data.samples.tolist(), data.errors[0].tolist(), strict=True):
        with mpmath.workprec(300):
            assert error == float((value(format, reference.encode(x)) - mpmath.mpf(x)) / mpmath.mpf(x))


def test_rounding_errors_reach_their_bound_and_no_further():
    data = rounding_errors(["lns8", "lns16"], beside=["bfloat16", "float16", "float32"], samples=5000)
    assert data.labels == ("lns8", "lns16", "bfloat16", "float16", "float32")
    assert data.errors.shape == (5, 5000)
    # Half a unit of the logarithm; half a last place of a significand just above 1.
    bounds = [2 ** (1 / 16) - 1, 2 ** (1 / 256) - 1, 2.0**-8 / (1 + 2.0**-8), 2.0**-11, 2.0**-24]
    largest = np.abs(data.errors).max(axis=1)
    assert (largest <= bounds).all()
    assert (largest > 0.95 * np.array(bounds)).all()
    assert np.array_equal(data.errors[4], (data.samples.astype(np.float32) - data.samples) / data.samples)


def test_samples_are_uniform_in_the_logarithm_and_follow_the_seed():
    samples = rounding_errors("lns8", interval=(0.25, 64.0), samples=4000, seed=1).samples
    counts, _ = np.histogram(np.log2(samples), bins=8, range=(-2, 6))
    assert (np.abs(counts - 500) < 100).all()
    assert np.array_equal(samples, rounding_errors("lns16", interval=(0.25, 64.0), samples=4000, seed=1).samples)
    assert not np.array_equal(samples, rounding_errors("lns8", interval=(0.25, 64.0), samples=4000, seed=2).samples)


# What is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: error_map(operation="pow"), ValueError, "operation must be one of add, sub, mul, div, not 'pow'"),
        (lambda: error_map(signs="+"), ValueError, "signs must be one of ++, +-, -+, --, not '+'"),
        (lambda: error_map(points=5000), ValueError, "points must be between 2 and 2,000, not 5,000"),
        (lambda: error_map(seed=-1), ValueError, "seed must be at least 0 and below 2**63, not -1"),
        (lambda: error_map(seed="x"), TypeError, "seed must be an integer, not 'x'"),
        (
            lambda: error_map("lns8", interval=(1, 1.01)),
            ValueError,
            "interval must be longer than a step of lns8, not from 1 to 1.01",
        ),
        (
            lambda: error_map("lns8", interval=(0.001, 1)),
            ValueError,
            "interval must lie within the range of lns8, 0.0042598 to 234.753, not from 0.001 to 1",
        ),
        (
            lambda: rounding_errors(["lns16", "lns12"], interval=(1, 1e5)),
            ValueError,
            "interval must lie within the range of lns12, 1.54249e-05 to 64830, not from 1 to 100000",
        ),
        (lambda: rounding_errors(samples=1), ValueError, "samples must be between 2 and 1,000,000, not 1"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=exactly(message)):
        call()
