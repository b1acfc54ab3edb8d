"""Every operation, words and flags, against the reference."""

import dataclasses
import itertools
import random

import pytest
import torch

from xlnstorch import LNSFormat, arithmetic, lns8, lns12, lns16, lns16e5, lns24, lns32, software_format
from xlnstorch.observe import FLAGS, observing
from xlnstorch.reference import Reference

pytestmark = pytest.mark.usefixtures("kernel")

BINARY = ("mul", "div", "add", "sub")
TINY = [LNSFormat(1, 1), LNSFormat(2, 0), LNSFormat(1, 4), LNSFormat(3, 2)]
LARGE = [lns12, lns16, lns16e5, lns24, lns32, software_format(23), software_format(0), software_format(48)]
WITH_SPECIALS = [dataclasses.replace(format, specials=True) for format in (*TINY, lns8)]
LARGE += [dataclasses.replace(format, specials=True) for format in (lns16, lns32, software_format(23))]
POWERS = (-(2**40), -129, -3, -2, -1, 0, 1, 2, 3, 4, 7, 127, 128, 2**40, 2**62)


def reference_of(format):
    return Reference(format.int_bits, format.frac_bits, format.specials)


def watched(format, call, *operands):
    """Return the results of an operation as unsigned words with sets of flags, as the reference gives them."""
    seen = []
    with observing(seen.append):
        result = call(format, *(format.from_unsigned(torch.tensor(words)) for words in operands))
    assert result.dtype == format.dtype
    (operation,) = seen
    assert operation.format is format
    assert torch.equal(operation.result, result)
    for words, operand in zip(operands, operation.operands, strict=True):
        assert format.to_unsigned(operand).tolist() == words
    flags = [frozenset(name for bit, name in enumerate(FLAGS) if bits >> bit & 1) for bits in operation.flags.tolist()]
    return list(zip(format.to_unsigned(result).tolist(), flags, strict=True))


def corners(format):
    """Words where something happens: both zeros, the ends of the range, one, and their neighbours."""
    steps, largest, one = 1 << format.frac_bits, format.max_field, format.bias
    fields = {
        0,
        1,
        2,
        3,
        largest,
        largest - 1,
        largest - 2,
        one,
        one - 1,
        one + 1,
        one + steps,
        one - steps,
        one // 2,
        one + one // 2,
    }
    fields = {field for field in fields if 0 <= field <= largest}
    return sorted(fields | {field + (1 << format.log_bits) for field in fields})


def pairs(format, rng, count):
    words = corners(format)
    chosen = list(itertools.product(words, words))
    reach = format.scale.gaussian_reach
    for _ in range(count):
        a = rng.randrange(1 << format.width)
        chosen.append((a, rng.randrange(1 << format.width)))
        # Nearly as large as a, of either sign, so that the Gaussian logarithms come into play.
        field = (a & format.max_field) + rng.choice((-1, 1)) * int(2 ** (rng.random() * (reach.bit_length() + 1)))
        chosen.append((a, min(max(field, 0), format.max_field) | rng.randrange(2) << format.log_bits))
    return [list(side) for side in zip(*chosen, strict=True)]


def check_binary(format, name, a, b):
    expected = [getattr(reference_of(format), name)(x, y) for x, y in zip(a, b, strict=True)]
    assert watched(format, getattr(arithmetic, name), a, b) == expected


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("format", [*TINY, lns8, *WITH_SPECIALS], ids=str)
def test_binary_operations_on_every_pair(format, name):
    every = range(1 << format.width)
    a, b = (list(side) for side in zip(*itertools.product(every, every), strict=True))
    check_binary(format, name, a, b)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("format", LARGE, ids=str)
def test_binary_operations_on_corners_and_a_sample(format, name):
    check_binary(format, name, *pairs(format, random.Random(name), 300))


def unary_words(format):
    if format.width <= 16:
        return list(range(1 << format.width))
    rng = random.Random(format.width)
    return [*corners(format), *(rng.randrange(1 << format.width) for _ in range(500))]


@pytest.mark.parametrize("format", [*TINY, lns8, *WITH_SPECIALS, *LARGE], ids=str)
def test_unary_operations(format):
    reference, words = reference_of(format), unary_words(format)
    assert watched(format, arithmetic.sqrt, words) == [reference.sqrt(word) for word in words]
    tensor = format.from_unsigned(torch.tensor(words))
    for call, expected in (
        (arithmetic.neg, reference.neg),
        (arithmetic.absolute, reference.abs),
        (arithmetic.relu, reference.relu),
    ):
        result = call(format, tensor)
        assert result.dtype == format.dtype
        assert format.to_unsigned(result).tolist() == [expected(word)[0] for word in words]


@pytest.mark.parametrize("n", [n for n in POWERS if n != 0])
@pytest.mark.parametrize("format", [LNSFormat(3, 2), lns8, lns16, lns32, software_format(23), *WITH_SPECIALS], ids=str)
def test_power(format, n):
    reference = reference_of(format)
    words = unary_words(format)[:: 1 if format.width < 16 else 7] + corners(format)
    result = watched(format, lambda format, a: arithmetic.power(format, a, n), words)
    assert result == [reference.pow(word, n) for word in words]


@pytest.mark.parametrize("n", [2**63 - 1, 2**63, -(2**63), 2**64 + 1, -(2**70) - 1])
def test_power_with_an_exponent_beyond_int64(n):
    words = corners(lns16)
    result = watched(lns16, lambda format, a: arithmetic.power(format, a, n), words)
    assert result == [reference_of(lns16).pow(word, n) for word in words]


def test_power_zero_is_one():
    words = lns16.from_unsigned(torch.tensor(corners(lns16)))
    assert (arithmetic.power(lns16, words, 0) == 0x4000).all()


@pytest.mark.parametrize("format", [*TINY, lns8, *WITH_SPECIALS], ids=str)
def test_order_of_every_pair(format):
    reference, every = reference_of(format), range(1 << format.width)
    words = format.from_unsigned(torch.arange(1 << format.width))
    order = arithmetic.order(format, words)
    assert order.dtype == torch.float64
    signs = torch.sign(order.unsqueeze(1) - order.unsqueeze(0)).tolist()
    unordered = order.isnan().unsqueeze(1) | order.isnan().unsqueeze(0)
    compared = [
        [None if nan else sign for sign, nan in zip(*row, strict=True)]
        for row in zip(signs, unordered.tolist(), strict=True)
    ]
    assert compared == [[reference.compare(a, b) for b in every] for a in every]
    back = format.to_unsigned(arithmetic.from_order(format, order)).tolist()
    assert back == [reference.maximum(word, word)[0] for word in every]


@pytest.mark.parametrize("format", [*TINY, lns8], ids=str)
def test_compare_key_orders_every_pair(format):
    reference = reference_of(format)
    keys = arithmetic.compare_key(format, format.from_unsigned(torch.arange(1 << format.width)))
    order = torch.sign(keys.unsqueeze(1) - keys.unsqueeze(0)).tolist()
    every = range(1 << format.width)
    assert order == [[reference.compare(a, b) for b in every] for a in every]


def test_known_words_and_flags():
    none = frozenset()
    assert watched(lns16, arithmetic.mul, [0x4080, 0x7FFF, 0x8001], [0xC080, 0x4080, 0x3F80]) == [
        (0xC100, none),
        (0x7FFF, {"overflow"}),
        (0x0000, {"underflow"}),
    ]
    assert watched(lns16, arithmetic.div, [0xC000, 0x8000, 0x0000], [0x8000, 0x0000, 0xC000]) == [
        (0xFFFF, {"zero_divide"}),
        (0x0000, {"invalid"}),
        (0x0000, none),
    ]
    assert watched(lns16, arithmetic.add, [0x4000, 0x4000, 0x0080], [0x4080, 0xC000, 0x807F]) == [
        (0x40CB, none),
        (0x0000, none),
        (0x0000, {"underflow"}),
    ]
    assert watched(lns16, arithmetic.sqrt, [0x4001, 0x4003, 0xC000]) == [
        (0x4000, none),
        (0x4002, none),
        (0x0000, {"invalid"}),
    ]


def test_known_words_and_flags_with_specials():
    format, none = dataclasses.replace(lns16, specials=True), frozenset()
    inf, minus_inf, nan, largest, one = 0x7FFF, 0xFFFF, 0x8000, 0x7FFE, 0x4000
    table = [
        (arithmetic.mul, inf, 0xC000, minus_inf, none),
        (arithmetic.mul, 0, minus_inf, nan, {"invalid"}),
        (arithmetic.mul, nan, 0, nan, none),
        (arithmetic.mul, largest, 0xC080, minus_inf, {"overflow"}),
        (arithmetic.mul, largest, one, largest, none),
        (arithmetic.div, 0xC000, 0, minus_inf, {"zero_divide"}),
        (arithmetic.div, 0, 0, nan, {"invalid"}),
        (arithmetic.div, inf, minus_inf, nan, {"invalid"}),
        (arithmetic.div, minus_inf, 0, minus_inf, none),
        (arithmetic.div, 0xC000, inf, 0, none),
        (arithmetic.div, nan, 0, nan, none),
        (arithmetic.add, inf, minus_inf, nan, {"invalid"}),
        (arithmetic.add, minus_inf, minus_inf, minus_inf, none),
        (arithmetic.add, minus_inf, largest, minus_inf, none),
        (arithmetic.add, largest, largest, inf, {"overflow"}),
        (arithmetic.add, nan, inf, nan, none),
        (arithmetic.sub, inf, inf, nan, {"invalid"}),
        (arithmetic.sub, one, inf, minus_inf, none),
        (arithmetic.sub, one, nan, nan, none),
    ]
    for call, a, b, word, flags in table:
        assert watched(format, call, [a], [b]) == [(word, flags)], (call.__name__, a, b)
    assert watched(format, arithmetic.sqrt, [inf, minus_inf, nan, 0xC000]) == [
        (inf, none),
        (nan, {"invalid"}),
        (nan, none),
        (nan, {"invalid"}),
    ]
    for n, expected in ((2, [inf, inf, nan, 0]), (-3, [0, 0, nan, inf]), (3, [inf, minus_inf, nan, 0])):
        result = watched(format, lambda format, a, n=n: arithmetic.power(format, a, n), [inf, minus_inf, nan, 0])
        assert [word for word, _ in result] == expected
        assert [flags for _, flags in result] == [none, none, none, {"zero_divide"} if n < 0 else none]
    words = format.from_unsigned(torch.tensor([inf, minus_inf, nan, 0]))
    for call, expected in (
        (arithmetic.neg, [minus_inf, inf, nan, 0]),
        (arithmetic.absolute, [inf, inf, nan, 0]),
        (arithmetic.relu, [inf, 0, nan, 0]),
    ):
        assert format.to_unsigned(call(format, words)).tolist() == expected


@pytest.mark.parametrize("name", BINARY)
def test_operands_broadcast(name):
    call, rng = getattr(arithmetic, name), random.Random(name)
    a = torch.tensor([[rng.randrange(1 << 16)] for _ in range(3)])
    b = torch.tensor([rng.randrange(1 << 16) for _ in range(4)])
    seen = []
    with observing(seen.append):
        result = call(lns16, lns16.from_unsigned(a), lns16.from_unsigned(b))
    expected = [[getattr(reference_of(lns16), name)(x, y)[0] for y in b.tolist()] for (x,) in a.tolist()]
    assert lns16.to_unsigned(result).tolist() == expected
    assert seen[0].name == name
    assert [tuple(operand.shape) for operand in seen[0].operands] == [(3, 4), (3, 4)]
    scalar, empty = lns16.from_unsigned(torch.tensor(0x4000)), torch.empty(0, 4, dtype=torch.int16)
    assert call(lns16, scalar, scalar).shape == ()
    assert call(lns16, empty, lns16.from_unsigned(b)).shape == (0, 4)


def test_operands_are_not_changed():
    words = lns16.from_unsigned(torch.tensor(corners(lns16)))
    before = words.clone()
    for name in BINARY:
        getattr(arithmetic, name)(lns16, words, words.flip(0))
    for call in (arithmetic.sqrt, arithmetic.neg, arithmetic.absolute, arithmetic.relu):
        call(lns16, words)
    assert torch.equal(words, before)
