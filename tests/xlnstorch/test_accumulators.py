"""Sums and dot products, whose order is part of the result."""

import random

import pytest
import torch

from xlnstorch import Accumulator, LNSFormat, LogAccumulator, lns8, lns12, lns16, lns32, software_format
from xlnstorch.observe import flags, observing
from xlnstorch.reference import Reference

SEQUENTIAL, TREE = LogAccumulator(), LogAccumulator("tree")
FORMATS = [lns8, lns16, lns32, software_format(23)]


def reference_of(format):
    return Reference(format.int_bits, format.frac_bits)


def tree_sum(reference, words):
    """Neighbours first, an odd last one moves up: written with slices of lists, to be compared with the tensors."""
    words = list(words)
    while len(words) > 1:
        words = [
            reference.add(*words[i : i + 2])[0] if i + 1 < len(words) else words[i] for i in range(0, len(words), 2)
        ]
    return words[0] if words else 0


def random_words(format, rng, *shape):
    """Words of numbers around one, so that no term is lost beside the others, with an occasional zero."""
    spread = 3 << format.frac_bits

    def word():
        if rng.random() < 0.1:
            return 0
        return format.bias + rng.randrange(-spread, spread + 1) + (rng.randrange(2) << format.log_bits)

    count = torch.Size(shape).numel()
    return torch.tensor([word() for _ in range(count)], dtype=torch.int64).reshape(shape)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 8, 13, 64])
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_sums(format, length):
    words = random_words(format, random.Random(length), 5, length)
    reference, tensor = reference_of(format), format.from_unsigned(words)
    sequential, tree = SEQUENTIAL.sum(format, tensor, 1), TREE.sum(format, tensor, 1)
    assert sequential.dtype == tree.dtype == format.dtype
    assert format.to_unsigned(sequential).tolist() == [reference.sum(row)[0] for row in words.tolist()]
    assert format.to_unsigned(tree).tolist() == [tree_sum(reference, row) for row in words.tolist()]


def test_the_orders_differ():
    words = random_words(lns16, random.Random(0), 20, 16)
    tensor = lns16.from_unsigned(words)
    assert not torch.equal(SEQUENTIAL.sum(lns16, tensor, 1), TREE.sum(lns16, tensor, 1))
    assert not torch.equal(SEQUENTIAL.sum(lns16, tensor, 1), SEQUENTIAL.sum(lns16, tensor.flip(1), 1))


@pytest.mark.parametrize("accumulator", [SEQUENTIAL, TREE], ids=str)
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2])
def test_sum_over_any_dimension(accumulator, dim):
    tensor = lns16.from_unsigned(random_words(lns16, random.Random(1), 3, 4, 5))
    expected = accumulator.sum(lns16, tensor.movedim(dim, -1).reshape(-1, tensor.shape[dim]), 1)
    result = accumulator.sum(lns16, tensor, dim)
    assert result.shape == tensor.sum(dim).shape
    assert torch.equal(result.reshape(-1), expected)


@pytest.mark.parametrize("accumulator", [SEQUENTIAL, TREE], ids=str)
def test_sum_of_nothing_is_zero(accumulator):
    for shape, dim, result_shape in (((0,), 0, ()), ((3, 0), 1, (3,)), ((3, 0), 0, (0,)), ((0, 2), 0, (2,))):
        result = accumulator.sum(lns16, torch.empty(shape, dtype=torch.int16), dim)
        assert (result.shape, result.dtype) == (result_shape, torch.int16)
        assert not result.any()


@pytest.mark.parametrize("accumulator", [SEQUENTIAL, TREE], ids=str)
def test_sum_does_not_share_memory(accumulator):
    words = lns16.from_unsigned(torch.tensor([[0x4000]]))
    accumulator.sum(lns16, words, 1).zero_()
    assert int(words) == 0x4000


@pytest.mark.parametrize("accumulator", [SEQUENTIAL, TREE], ids=str)
def test_sum_does_not_produce_negative_zero(accumulator):
    words = lns16.from_unsigned(torch.tensor([0x8000, 0x8000, 0x8000]))
    for length in (3, 2, 1):
        assert accumulator.sum(lns16, words[:length], 0) == 0


@pytest.mark.parametrize(
    ("format", "stalled", "ones"),
    [
        (lns8, 0x64, 20),  # 22.6
        (lns12, 0x5E2, 162),  # 184.98
        (lns16, 0x4444, 323),  # 369.97
    ],
    ids=str,
)
def test_sum_of_ones_stalls(format, stalled, ones):
    terms = torch.full((2 * ones,), format.bias, dtype=format.dtype)
    assert SEQUENTIAL.sum(format, terms, 0) == stalled
    assert SEQUENTIAL.sum(format, terms[:ones], 0) == stalled
    assert SEQUENTIAL.sum(format, terms[: ones - 1], 0) < stalled
    reference = reference_of(format)
    assert reference.sum([format.bias] * 2 * ones)[0] == stalled
    # The next one lies at the reach of the sum: s(d) is zero there, and not just before.
    d = stalled - format.bias
    assert (reference.gaussian_sum(d), reference.gaussian_sum(d - 1)) == (0, 1)


def test_tree_of_ones_does_not_stall():
    terms = torch.full((1024,), lns16.bias, dtype=torch.int16)
    assert TREE.sum(lns16, terms, 0) == 0x4000 + 10 * 128
    assert TREE.sum(lns16, terms[:1000], 0) > 0x4444  # and with odd terms that move up


@pytest.mark.parametrize("format", [lns8, lns16, lns32], ids=str)
def test_matmul(format):
    rng, reference = random.Random(2), reference_of(format)
    a, b = random_words(format, rng, 4, 9), random_words(format, rng, 9, 3)
    columns = list(zip(*b.tolist(), strict=True))
    sequential = SEQUENTIAL.matmul(format, format.from_unsigned(a), format.from_unsigned(b))
    assert sequential.dtype == format.dtype
    expected = [[reference.dot(row, column)[0] for column in columns] for row in a.tolist()]
    assert format.to_unsigned(sequential).tolist() == expected
    expected = [
        [tree_sum(reference, [reference.mul(x, y)[0] for x, y in zip(row, column, strict=True)]) for column in columns]
        for row in a.tolist()
    ]
    tree = TREE.matmul(format, format.from_unsigned(a), format.from_unsigned(b))
    assert format.to_unsigned(tree).tolist() == expected


@pytest.mark.parametrize("accumulator", [SEQUENTIAL, TREE], ids=str)
def test_matmul_of_batches_and_of_nothing(accumulator):
    rng = random.Random(3)
    a = lns16.from_unsigned(random_words(lns16, rng, 2, 1, 4, 5))
    b = lns16.from_unsigned(random_words(lns16, rng, 3, 5, 2))
    result = accumulator.matmul(lns16, a, b)
    assert result.shape == (2, 3, 4, 2)
    for i in range(2):
        for j in range(3):
            assert torch.equal(result[i, j], accumulator.matmul(lns16, a[i, 0], b[j]))
    nothing = accumulator.matmul(lns16, a[..., :0], b[:, :0])
    assert (nothing.shape, nothing.dtype) == ((2, 3, 4, 2), torch.int16)
    assert not nothing.any()


def test_every_step_is_observed():
    words = lns16.from_unsigned(random_words(lns16, random.Random(4), 6))
    for accumulator in (SEQUENTIAL, TREE):
        names = []
        with observing(lambda operation: names.extend([operation.name] * operation.result.numel())):  # noqa: B023
            accumulator.sum(lns16, words, 0)
            accumulator.matmul(lns16, words.reshape(2, 3), words.reshape(3, 2))
        assert (names.count("add"), names.count("mul")) == (5 + 8, 12)
    with flags() as counts:
        SEQUENTIAL.sum(lns16, lns16.from_unsigned(torch.tensor([0x7FFF, 0x7FFF, 0xFFFF])), 0)
    assert (counts.operations, counts.overflow, counts.underflow) == (2, 1, 0)


def test_errors():
    with pytest.raises(ValueError) as caught:
        LogAccumulator("random")
    assert str(caught.value) == "order must be 'sequential' or 'tree', not 'random'"
    with pytest.raises(TypeError):
        Accumulator()
    assert repr(TREE) == "LogAccumulator(order='tree')"
    assert LNSFormat(8, 7, accumulator=TREE).accumulator is TREE
