"""Kernels against the torch path, which other tests hold against the reference: every word and every flag."""

import dataclasses
import itertools
import os
import subprocess
import sys

import pytest
import torch

from xlnstorch import (
    LinearAccumulator,
    LNSFormat,
    LogAccumulator,
    Mitchell,
    Piecewise,
    arithmetic,
    conversions,
    kernels,
    lns8,
    lns16,
    lns24,
    lns32,
    observe,
)
from xlnstorch.kernels import curves, engines
from xlnstorch.override import GaussianFunction

PATHS = kernels.choices()[:-1]
BINARY = ["add", "sub", "mul", "div"]
UNARY = ["neg", "absolute", "relu", "sqrt"]
FORMATS = [
    lns8,
    lns16,
    lns24,
    lns32,
    LNSFormat(5, 0),
    LNSFormat(4, 20),
    LNSFormat(20, 5),
    LNSFormat(29, 23),
    LNSFormat(8, 7, base=1.7),
    LNSFormat(8, 7, adder=Piecewise()),
    LNSFormat(8, 17, adder=Piecewise()),
    LNSFormat(8, 17, adder=Piecewise(degree=2)),
    LNSFormat(8, 17, adder=Piecewise(degree=2, singularity="logarithm")),
    LNSFormat(8, 7, adder=Mitchell()),
    LNSFormat(8, 23, adder=Mitchell()),
    LNSFormat(8, 20, adder=Mitchell(corrections=0)),
]
ACCUMULATORS = [
    LogAccumulator(),
    LogAccumulator(order="tree"),
    LogAccumulator(guard_bits=3),
    LogAccumulator(order="tree", guard_bits=1),
    LinearAccumulator(),
    LinearAccumulator(table_bits=18, frac_bits=4),  # small terms are cut off
    LinearAccumulator(table_bits=28),
    LinearAccumulator(table_bits=23, frac_bits=24),  # registers with no digit to spare
    LinearAccumulator(table_bits=50),
]

pytestmark = pytest.mark.skipif(not PATHS, reason="the package was installed without its compiled module")


def sample(format, *shape, seed=0, near=False):
    """Return random words, one in twenty zero; of all magnitudes, or of some near one."""
    generator = torch.Generator().manual_seed(seed)

    def integers(low, high):
        return torch.randint(low, high, shape, generator=generator)

    if near:
        reach = min(format.bias - 1, 3 << format.frac_bits)
        words = (integers(0, 2) << format.log_bits) | (format.bias + integers(-reach, reach + 1))
    else:
        words = integers(0, 1 << format.width)
    return torch.where(integers(0, 20) == 0, 0, words).to(format.dtype)


def watched(name, format, *operands):
    """Return the words of an operation, and its flags."""
    seen = []
    with observe.observing(seen.append, exact=True):
        words = getattr(arithmetic, name)(format, *operands)
    (operation,) = seen
    assert torch.equal(operation.result, words)
    return words, operation.flags


def assert_same(compute):
    """Compare the tensors that `compute` returns without kernels with those of every instruction set."""
    with kernels.using("off"):
        wanted = compute()
    for path in PATHS:
        with kernels.using(path):
            got = compute()
        for one, other in zip(wanted, got, strict=True):
            assert one.dtype == other.dtype
            assert torch.equal(one, other), path


# Element by element ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "adder", [lns8.adder, Piecewise(), Piecewise(degree=2), Mitchell(), Mitchell(corrections=0)], ids=repr
)
def test_every_pair_of_lns8(adder):
    format = dataclasses.replace(lns8, adder=adder)
    words = format.from_unsigned(torch.arange(256))
    for name in BINARY:
        assert_same(lambda name=name: watched(name, format, words.unsqueeze(1), words))
    for name in UNARY:
        assert_same(lambda name=name: watched(name, format, words))


@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize("format", FORMATS, ids=repr)
def test_random_words(format, near):
    a, b = (sample(format, 20_000, seed=seed, near=near) for seed in (1, 2))
    for name in BINARY:
        assert_same(lambda name=name: watched(name, format, a, b))
        assert_same(lambda name=name: (getattr(arithmetic, name)(format, a, b),))
    for name in UNARY:
        assert_same(lambda name=name: watched(name, format, a))


@pytest.mark.long
@pytest.mark.parametrize("format", [lns16, lns32, LNSFormat(8, 23, adder=Piecewise())], ids=repr)
def test_a_hundred_million_words(format):
    for seed in range(100):
        a, b = (sample(format, 1_000_000, seed=2 * seed + i, near=seed % 2 == 0) for i in (0, 1))
        for name in BINARY:
            assert_same(lambda name=name, a=a, b=b: (getattr(arithmetic, name)(format, a, b),))


@pytest.mark.parametrize(
    "shapes",
    [((), ()), ((5,), ()), ((), (2, 3)), ((3, 1, 4), (2, 1)), ((0, 3), (3,)), ((700,), (3, 1)), ((1, 1), (1,))],
    ids=str,
)
def test_operands_broadcast(shapes):
    a, b = (sample(lns16, *shape, seed=seed) for seed, shape in enumerate(shapes))
    assert_same(lambda: (arithmetic.add(lns16, a, b), arithmetic.div(lns16, b, a)))


def test_any_strides():
    a, b = sample(lns16, 6, 50, 7, seed=1), sample(lns16, 7, 50, 6, seed=2).permute(2, 1, 0)
    for x, y in [(a, b), (a.mT, b.mT), (a[::2, 1::3], b[1::2, ::3]), (a.expand(2, 6, 50, 7), b)]:
        assert_same(lambda x=x, y=y: (arithmetic.sub(lns16, x, y), arithmetic.mul(lns16, y, x)))
    assert arithmetic.add(lns16, a.mT, a.mT).stride() == a.mT.stride()  # as torch keeps them


@pytest.mark.parametrize("path", PATHS)
def test_operands_and_their_neighbours_are_not_changed(path):
    a, b = sample(lns16, 40, seed=1), sample(lns16, 40, seed=2)
    before = a.clone(), b.clone()
    with kernels.using(path):
        arithmetic.add(lns16, a[3:20], b[5:22])
        lns16.accumulator.matmul(lns16, a.view(4, 10), b.view(10, 4))
    assert torch.equal(a, before[0]) and torch.equal(b, before[1])


def test_gradient_of_relu():
    a, grad = sample(lns16, 300, seed=1), sample(lns16, 300, seed=2)
    threshold_backward = torch.ops.aten.threshold_backward.default

    def compute():
        from xlnstorch import LNSTensor

        return (threshold_backward(LNSTensor(grad, lns16), LNSTensor(a, lns16), 0)._words,)

    assert_same(compute)


# Sums -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=repr)
@pytest.mark.parametrize(
    "format", [lns8, lns16, LNSFormat(8, 13), lns32, LNSFormat(8, 17, adder=Piecewise())], ids=repr
)
def test_products_and_sums(format, accumulator, near):
    format = dataclasses.replace(format, accumulator=accumulator)
    a, b = sample(format, 5, 19, seed=1, near=near), sample(format, 2, 19, 70, seed=2, near=near)
    assert_same(
        lambda: (
            accumulator.matmul(format, a, b),
            accumulator.matmul(format, b.mT, a.mT),
            accumulator.sum(format, b, 1),
            accumulator.sum(format, b, -1),
            accumulator.sum(format, a, 0),
        ),
    )


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=repr)
@pytest.mark.parametrize(
    ("rows", "terms", "columns"),
    [
        *[(0, 3, 2), (2, 0, 3), (1, 1, 1), (1, 300, 1), (3, 2, 65), (66, 5, 3), (2, 2048, 3), (1, 5000, 2)],
        *[(3, 8192, 1), (5, 33, 129), (7, 64, 300), (4, 31, 100), (6, 65, 40), (70, 32, 270), (1, 40, 1000)],
    ],
)
def test_shapes_of_products(accumulator, rows, terms, columns):
    format = dataclasses.replace(lns16, accumulator=accumulator)
    a, b = sample(format, rows, terms, seed=1, near=True), sample(format, terms, columns, seed=2, near=True)
    assert_same(lambda: (accumulator.matmul(format, a, b), accumulator.sum(format, b, 0)))


@pytest.mark.long
@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=repr)
@pytest.mark.parametrize(
    "format",
    [
        lns16,
        LNSFormat(8, 7, adder=Piecewise()),
        LNSFormat(8, 7, adder=Mitchell()),
        lns32,
        LNSFormat(8, 23, adder=Piecewise(degree=2)),
        LNSFormat(8, 23, adder=Mitchell()),
    ],
    ids=repr,
)
def test_a_hundred_million_terms(format, accumulator):
    try:
        format = dataclasses.replace(format, accumulator=accumulator)
    except ValueError as error:  # of its guard bits
        pytest.skip(str(error))
    a, b = sample(format, 500, 400, seed=1, near=True), sample(format, 400, 500, seed=2, near=True)
    assert_same(lambda: (accumulator.matmul(format, a, b),))


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=repr)
@pytest.mark.parametrize("zeros", [0.1, 0.3, 0.6, 0.95, 1.0])
@pytest.mark.parametrize("format", [lns16, LNSFormat(8, 13), LNSFormat(8, 17, adder=Piecewise())], ids=repr)
def test_products_of_many_zeros(format, zeros, accumulator):
    format = dataclasses.replace(format, accumulator=accumulator)
    a, b = sample(format, 11, 70, seed=1, near=True), sample(format, 70, 150, seed=2, near=True)
    a[torch.rand(a.shape, generator=torch.Generator().manual_seed(3)) < zeros] = 0
    a[a[:, 1] == 0] |= format.pack(torch.tensor(True), torch.tensor(0))  # a zero may have a sign
    assert_same(lambda: (accumulator.matmul(format, a, b), accumulator.matmul(format, b.mT, a.mT)))


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=repr)
@pytest.mark.parametrize("magnitude", [2.0**-120, 2.0**-64, 2.0**62, 2.0**120])
def test_products_at_the_ends_of_the_range(accumulator, magnitude):
    # Blocks whose products leave the range, just not, or only in their sums.
    format = dataclasses.replace(lns16, accumulator=accumulator)
    values = [torch.randn(40, 40, generator=torch.Generator().manual_seed(seed)) * magnitude for seed in range(3)]
    a, b, one = (conversions.encode(format, value) for value in values)
    small = conversions.encode(format, values[0] / magnitude)
    assert_same(
        lambda: (
            accumulator.matmul(format, a, b),
            accumulator.matmul(format, a, small),
            accumulator.matmul(format, a.abs(), small.abs()),
            accumulator.sum(format, one, 0),
        ),
    )


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=repr)
def test_terms_that_leave_the_range_after_many_that_do_not(accumulator):
    # Products of a later block need comparisons, and so do all that follow.
    format = dataclasses.replace(lns16, accumulator=accumulator)
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(6000, 2, generator=generator, dtype=torch.float64)
    values[2500:2510] *= 2.0**127
    values[4900:4910] *= 2.0**-127
    words = conversions.encode(format, values)
    assert_same(lambda: (accumulator.sum(format, words, 0), accumulator.matmul(format, words.mT[:1], words)))


@pytest.mark.parametrize("path", PATHS)
def test_threads_do_the_same(path):
    a, b = sample(lns16, 150, 90, seed=1, near=True), sample(lns16, 90, 1000, seed=2, near=True)
    c = sample(lns16, 5000, 1000, seed=3)  # enough for three threads
    before = torch.get_num_threads()
    with kernels.using(path):
        alone = lns16.accumulator.matmul(lns16, a, b), arithmetic.add(lns16, c, c.flip(0))
        try:
            torch.set_num_threads(3)
            together = lns16.accumulator.matmul(lns16, a, b), arithmetic.add(lns16, c, c.flip(0))
        finally:
            torch.set_num_threads(before)
    assert all(map(torch.equal, alone, together))


# Conversions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "format",
    [lns8, lns16, lns24, lns32, LNSFormat(5, 0), LNSFormat(29, 23), LNSFormat(10, 16), LNSFormat(8, 26)],
    ids=repr,
)
def test_conversions(format):
    generator = torch.Generator().manual_seed(0)
    exponents = torch.randint(-1074, 1024, (2_000,), generator=generator).double()
    values = torch.randn(6_000, dtype=torch.float64, generator=generator)
    values[:2_000] *= torch.exp2(exponents)
    ends = [0.0, -0.0, float("inf"), -float("inf"), 5e-324, -1e-310, 1.7976931348623157e308, 1.0, -0.5]
    values = torch.cat([values, torch.tensor(ends, dtype=torch.float64)])
    words = sample(format, 5_003, seed=3)

    def compute():
        decoded = conversions.decode(format, words)
        return (
            conversions.encode(format, values),
            conversions.encode(format, values[:6_000].view(60, 100).mT),
            conversions.encode(format, values.float()),
            decoded,
            torch.signbit(decoded),
            conversions.decode(format, words[:5_000].view(50, 100).mT),
        )

    assert_same(compute)
    with kernels.using(PATHS[0]), pytest.raises(ValueError, match="has no word for NaN"):
        conversions.encode(format, torch.tensor([1.0, float("nan"), 2.0]))


@pytest.mark.parametrize(
    "format", [lns8, LNSFormat(4, 3, base=3.0), lns16, LNSFormat(8, 13), lns32, LNSFormat(20, 20)], ids=repr
)
def test_orders(format):
    words = sample(format, 3, 700, seed=1)
    words[0, 0], words[0, 1] = 0, format.from_unsigned(torch.tensor(1 << format.log_bits))
    words = words.mT

    def compute():
        order = arithmetic.order(format, words)
        return order, arithmetic.from_order(format, order), arithmetic.from_order(format, order.mT)

    assert_same(compute)


def test_values_just_beside_a_boundary_are_rounded_right():
    # Of the two float64 next to 2**((2 n + 1) / 2**(f + 1)) one rounds to n and one to n + 1.
    boundaries = torch.exp2((2 * torch.arange(-300, 300, dtype=torch.float64) + 1) / 256)
    infinity = torch.full_like(boundaries, torch.inf)
    values = torch.cat([boundaries, torch.nextafter(boundaries, infinity), torch.nextafter(boundaries, -infinity)])
    assert_same(lambda: (conversions.encode(lns16, values),))


# What the polynomials do not decide -----------------------------------------------------------------------------------


def test_what_is_not_decided_is_computed(monkeypatch):
    monkeypatch.setattr(curves, "_MARGIN", 0.25 / 2**23)  # half of all distances
    format = LNSFormat(8, 23)
    for cached in (curves.constants, engines.engine_of):
        cached.cache_clear()
    a, b = sample(format, 300, seed=1, near=True), sample(format, 300, seed=2, near=True)
    try:
        assert_same(
            lambda: (
                arithmetic.add(format, a, b),
                arithmetic.sub(format, a, b),
                format.accumulator.matmul(format, a.view(30, 10), b.view(10, 30)),
                conversions.encode(format, conversions.decode(format, a)),
            ),
        )
        assert len(engines.engine_of(format)._decided) > 300
    finally:
        for cached in (curves.constants, engines.engine_of):
            cached.cache_clear()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("frac_bits", [5, 8, 13])
def test_polynomials_at_every_distance(path, frac_bits):
    # With so few fraction bits a table is used; here polynomials take its place.
    format = LNSFormat(8, frac_bits)
    engine = engines.Engine(format)
    reach = format.adder.reach(format)
    curve = kernels.compiled().curve(frac_bits, reach)
    engine._core, engine._is_made = engine._compile(curve, is_table=False), True
    d = torch.arange(min(reach + 10, format.max_field))
    a, b = format.pack(torch.zeros_like(d).bool(), d + 1), format.pack(torch.zeros_like(d).bool(), torch.ones_like(d))
    with kernels.using("off"):
        wanted = arithmetic.add(format, a, b), arithmetic.sub(format, b, a)
    with kernels.using(path), pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels.functions, "engine_of", lambda format: engine)
        got = arithmetic.add(format, a, b), arithmetic.sub(format, b, a)
    assert all(map(torch.equal, wanted, got))


@pytest.mark.long
def test_polynomials_at_every_distance_of_lns32():
    reach, block = lns32.adder.reach(lns32), 1 << 22
    for start in range(0, reach + 1, block):
        d = torch.arange(start, min(start + block, reach + 1))
        a = lns32.pack(torch.zeros_like(d).bool(), d + 1)
        one = torch.ones_like(a[:1])
        assert_same(lambda a=a, one=one: (arithmetic.add(lns32, a, one), arithmetic.sub(lns32, a, one)))


# Which are used -------------------------------------------------------------------------------------------------------


def test_what_no_kernel_serves_is_left_to_torch():
    count = itertools.count(0, 2)
    one = torch.ones(2, dtype=torch.int16)
    with kernels.using(PATHS[0]):
        assert kernels.elementwise("add", lns16, one, one) is not None
        assert kernels.elementwise("add", dataclasses.replace(lns16, specials=True), one, one) is None
        assert kernels.elementwise("add", lns16, one.to("meta"), one.to("meta")) is None
        assert kernels.elementwise("add", LNSFormat(8, 40), one.long(), one.long()) is None
        assert kernels.elementwise("mul", LNSFormat(8, 40), one.long(), one.long()) is not None
        words = sample(lns16, 10)
        counted = GaussianFunction(lambda z, s, base: torch.full_like(z, next(count)))  # another number each time
        other = dataclasses.replace(lns16, adder=counted)
        assert kernels.elementwise("add", other, words, words) is None
        with observe.observing(lambda operation: None):  # each addition is to be seen
            assert kernels.product(lns16, lns16, 0, False, one.view(1, 2), one.view(2, 1)) is None
    with kernels.using("off"):
        assert kernels.elementwise("add", lns16, one, one) is None


def test_a_multiplication_does_not_generate_tables(monkeypatch):
    monkeypatch.setattr(Piecewise, "gaussian", lambda *_: pytest.fail("the adder was asked"))
    monkeypatch.setattr(Piecewise, "design", lambda *_: pytest.fail("the adder was designed"))
    format = LNSFormat(8, 19, adder=Piecewise(degree=2))
    words = sample(format, 10)
    with kernels.using(PATHS[0]):
        arithmetic.mul(format, words, words)
        conversions.encode(format, conversions.decode(format, words))


def test_choices():
    assert kernels.current() in kernels.choices()
    assert kernels.choices()[-2:] == ("plain", "off")
    with kernels.using("off"):
        assert kernels.current() == "off" and kernels.compiled() is None
    with pytest.raises(ValueError, match=r"^kernels must be one of .*plain, off here, not 'sse9'$"):
        kernels.use("sse9")


@pytest.mark.parametrize(("choice", "shown"), [("plain", "plain"), ("off", "off")])
def test_choice_by_the_environment(choice, shown):
    code = "import xlnstorch.kernels as kernels; print(kernels.current())"
    environment = {**os.environ, "LNS_KERNELS": choice}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == shown


def test_arguments_are_checked():
    module, engine = kernels.compiled(), engines.engine_of(lns16)
    words, wide = torch.zeros(3, dtype=torch.int16), torch.zeros(3, dtype=torch.int32)
    capsule = torch.utils.dlpack.to_dlpack
    with pytest.raises(ValueError, match="must be of the format's dtype"):
        module.elementwise(engine.core, 0, capsule(words), capsule(wide), capsule(words), None, 1)
    with pytest.raises(ValueError, match="must broadcast to the result"):
        module.elementwise(engine.core, 0, capsule(words), capsule(words[:2]), capsule(words), None, 1)
    with pytest.raises(ValueError, match="another number of operands"):
        module.elementwise(engine.core, 0, capsule(words), None, capsule(words), None, 1)
    with pytest.raises(ValueError, match="must have three dimensions"):
        module.product(engine.core, engine.core, 0, False, None, capsule(words), capsule(words), 1)
    with pytest.raises(ValueError, match="codes must hold the field"):
        module.Format(30, 4, False, module.table(7, torch.zeros(1).long().numpy(), torch.zeros(1).long().numpy()), None)
