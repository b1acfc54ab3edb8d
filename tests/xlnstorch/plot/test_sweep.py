import dataclasses
from fractions import Fraction

import numpy as np
import pytest
import torch
from lnstesting import exactly

from xlnstorch import LogAccumulator, lns16, lnstensor
from xlnstorch.plot import precision_sweep
from xlnstorch.plot.sweep import _exact_dot
from xlnstorch.reference import Reference

A = np.array([1.5, -0.7, 3.25, 11.0, 0.3])
B = np.array([0.9, 5.1, -2.2, 7.7, 0.6])


def product(a, b):
    return a * b


@pytest.mark.parametrize("frac_bits", [[3], [7, 10, 2]])
def test_the_errors_are_those_of_the_reference(frac_bits):
    data = precision_sweep(product, "lns16", inputs=[A, B], frac_bits=frac_bits)
    assert data.workload == "product"
    assert data.frac_bits.tolist() == sorted(frac_bits)
    for i, f in enumerate(sorted(frac_bits)):
        reference = Reference(8, f)
        errors = []
        for a, b in zip(A.tolist(), B.tolist(), strict=True):
            word, _ = reference.mul(reference.encode(a), reference.encode(b))
            errors.append(abs(reference.decode(word) - a * b) / abs(a * b))
        assert data.lines[0].median[i] == sorted(errors)[2]
        assert data.lines[0].largest[i] == max(errors)


def test_a_named_operation_is_the_function_on_numbers_drawn_from_the_interval():
    interval, seed = (0.5, 8.0), 3
    drawn = []

    def spying(a, b):
        drawn.append((a, b))
        return a + b

    named = precision_sweep("add", frac_bits=[6], samples=500, interval=interval, seed=seed, beside="float16")
    rng = np.random.default_rng(seed)
    inputs = [np.exp2(rng.uniform(-1, 3, 500)) for _ in range(2)]
    own = precision_sweep(spying, inputs=inputs, frac_bits=[6], beside="float16")
    assert named.lines[0].median == own.lines[0].median
    assert named.lines[0].largest == own.lines[0].largest
    assert named.floats[0].largest == own.floats[0].largest
    assert [type(a).__name__ + str(a.dtype) for a, _ in drawn] == [
        "Tensortorch.float64",
        "LNSTensortorch.float64",
        "Tensortorch.float16",
    ]


def test_the_reference_of_a_dot_product_is_exact_where_float64_cancels():
    a = torch.tensor([[1e16, 1.0, -1e16], [0.1, 0.2, 0.3]], dtype=torch.float64)
    b = torch.tensor([[1.0, 0.75, 1.0], [0.3, 0.2, 0.1]], dtype=torch.float64)
    expected = [
        float(sum(Fraction(x) * Fraction(y) for x, y in zip(*rows, strict=True)))
        for rows in zip(a.tolist(), b.tolist(), strict=True)
    ]
    assert _exact_dot(a, b).tolist() == expected
    assert expected[0] == 0.75 != float((a[0] * b[0]).sum())


def test_more_fraction_bits_make_a_dot_product_better_at_the_expected_rate():
    data = precision_sweep("dot", frac_bits=range(4, 13, 4), samples=200, length=16, beside=["bfloat16", "float32"])
    (line,) = data.lines
    assert ((line.median[:-1] / line.median[1:] > 8) & (line.median[:-1] / line.median[1:] < 32)).all()
    assert (line.median < line.largest).all()
    assert [line.label for line in data.floats] == ["bfloat16", "float32"]
    assert 1e-4 < data.floats[0].median[0] < 1e-2
    assert 1e-9 < data.floats[1].median[0] < 1e-6


def test_float32_is_what_numpy_computes():
    data = precision_sweep(product, inputs=[A, B], frac_bits=[5], beside="float32")
    got = A.astype(np.float32) * B.astype(np.float32)
    errors = np.abs(got.astype(np.float64) - A * B) / np.abs(A * B)
    assert data.floats[0].median == np.median(errors)
    assert data.floats[0].largest == errors.max()


def test_inputs_are_rounded_to_a_float_once():
    # By way of float32 this would first become a tie, and then 1.
    value = 1 + 2.0**-8 + 2.0**-40
    data = precision_sweep(lambda x: x * 1, inputs=[[value]], frac_bits=[5], beside="bfloat16")
    assert data.floats[0].largest == (1 + 2.0**-7 - value) / value


def test_a_line_keeps_the_accumulator_and_formats_that_differ_in_fraction_bits_share_one():
    tree = dataclasses.replace(lns16, accumulator=LogAccumulator("tree"))
    data = precision_sweep("dot", ["lns16", "lns32", tree, "lns12"], frac_bits=[6], samples=50, length=200)
    assert [line.label for line in data.lines] == [
        "8 integer bits",
        "8 integer bits, accumulator LogAccumulator(order='tree')",
        "5 integer bits",
    ]
    assert data.lines[1].median < data.lines[0].median
    assert data.lines[2].median == data.lines[0].median


def test_seeds_decide_and_progress_counts():
    seen = []
    first = precision_sweep("mul", frac_bits=[4, 5], samples=50, progress=lambda *x: seen.append(x), beside="float32")
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert np.array_equal(first.lines[0].median, precision_sweep("mul", frac_bits=[4, 5], samples=50).lines[0].median)
    other = precision_sweep("mul", frac_bits=[4, 5], samples=50, seed=1)
    assert not np.array_equal(first.lines[0].median, other.lines[0].median)


def test_an_error_where_zero_is_exact_is_infinite_unless_there_is_none():
    data = precision_sweep(lambda x: x - x, inputs=[A], frac_bits=[5])
    assert data.lines[0].largest == 0.0
    data = precision_sweep(product, inputs=[A, B], reference=lambda a, b: a * b * 0, frac_bits=[5])
    assert data.lines[0].largest == np.inf


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: precision_sweep("sum"),
            ValueError,
            "workload must be one of add, sub, mul, div, dot, not 'sum'",
        ),
        (lambda: precision_sweep(3), TypeError, "workload must be a name or a function of LNSTensors, not 3"),
        (lambda: precision_sweep(product), ValueError, "inputs must be given for a workload that is a function"),
        (
            lambda: precision_sweep("add", inputs=[A, B]),
            ValueError,
            "inputs must be left out for 'add', which draws its own",
        ),
        (lambda: precision_sweep(frac_bits=[41]), ValueError, "frac_bits must be between 0 and 40, not 41"),
        (lambda: precision_sweep(frac_bits=[]), ValueError, "at least one number of fraction bits must be given"),
        (
            lambda: precision_sweep(samples=100_000, length=1000),
            ValueError,
            "samples times length must be at most 10,000,000, not 100,000 times 1,000",
        ),
        (lambda: precision_sweep(length=0), ValueError, "length must be between 1 and 10,000, not 0"),
        (
            lambda: precision_sweep(lambda x: getattr(x, "value", x), inputs=[A]),
            TypeError,
            "workload must return an LNSTensor from LNSTensors, not Tensor",
        ),
        (
            lambda: precision_sweep(product, inputs=[A, B], reference=lambda a, b: (a * b).sum()),
            ValueError,
            "reference must have the shape of the result, (5,), not ()",
        ),
        (
            lambda: precision_sweep(product, inputs=[[], []]),
            ValueError,
            "workload must return at least one number",
        ),
        (
            lambda: precision_sweep("add", "2,3", interval=(1, 100)),
            ValueError,
            "interval must lie within the range of LNSFormat(2, 2), 0.297302 to 3.36359, not from 1 to 100",
        ),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=exactly(message)):
        call()


def test_inputs_may_be_lnstensors():
    x = lnstensor([1.5, 2.5], format=lns16)
    assert precision_sweep(product, inputs=[x, x], frac_bits=[20]).lines[0].largest < 1e-5
