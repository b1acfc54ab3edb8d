"""Powers, against exact rational arithmetic where the exponent is rational, and mpmath where it is not."""

from fractions import Fraction

import pytest
import torch
from lnstesting import exactly
from mpmath import mp

from xlnstorch import LNSFormat, LNSTensor, lns8, lns16, lnstensor, observe
from xlnstorch.observe import FLAGS

FINE = LNSFormat(12, 40)
TERNARY = LNSFormat(6, 5, base=3.0)
QUATERNARY = LNSFormat(5, 1, base=4.0)


def rational(format, word):
    """Return the value of a word as a Fraction, None where it is irrational; bases 2, 3 and 4, whose root is a word."""
    if word % 2**format.log_bits == 0:
        return Fraction(0)
    steps, root = 2**format.frac_bits, int(format.base)
    if format.base == 4 and steps > 1:
        steps, root = steps // 2, 2
    power, rest = divmod(word % 2**format.log_bits - format.bias, steps)
    if rest:
        return None
    return Fraction(root) ** power * (-1 if word >= 2**format.log_bits else 1)


def irrational(format, word):
    e = word % 2**format.log_bits - format.bias
    return mp.mpf(format.base) ** (mp.mpf(e) / 2**format.frac_bits) * (-1 if word >= 2**format.log_bits else 1)


def oracle(format, word, exponent, exact):
    """Return word and flags of ``word ** exponent``; `exact` is the exponent as a Fraction, None where irrational."""
    top = 2**format.log_bits
    if exact == 0:
        return format.bias, set()
    field = word % top
    negative_exponent = exact < 0 if exact is not None else exponent() < 0
    if field == 0:
        return (top - 1, {"zero_divide"}) if negative_exponent else (0, set())
    whole = exact is not None and exact.denominator == 1
    if word >= top and not whole:
        return 0, {"invalid"}
    if exact is not None:
        e = round((field - format.bias) * exact)
    else:
        with mp.workprec(256):
            e = int(mp.nint((field - format.bias) * exponent()))  # irrational, so no tie, and far enough from one
    if e + format.bias < 1:
        return 0, {"underflow"}
    flags = {"overflow"} if e + format.bias >= top else set()
    negative = word >= top and exact % 2 == 1
    return min(e + format.bias, top - 1) + top * negative, flags


def computed(compute):
    seen = []
    with observe.observing(seen.append):
        result = compute()
    flags = [{f for i, f in enumerate(FLAGS) if n >> i & 1} for n in seen[-1].flags.reshape(-1).tolist()]
    return list(zip(result.format.to_unsigned(result._words).reshape(-1).tolist(), flags, strict=True))


def tensor(format, words):
    return LNSTensor(format.from_unsigned(torch.tensor(words)), format)


def some_words(format, count, seed=0):
    """Return words of both signs: corners, powers of two around one with their neighbours, and seeded ones."""
    one, steps = format.bias, 2**format.frac_bits
    fields = [0, 1, format.max_field, *(one + k * steps + near for k in (-4, -2, -1, 0, 1, 2) for near in (-1, 0, 1))]
    fields = [field for field in fields if 0 <= field <= format.max_field]
    generator = torch.Generator().manual_seed(seed)
    spread = min(4 * steps, one - 1)
    fields += (torch.randint(-spread, spread + 1, (count,), generator=generator) + one).tolist()
    return [word for field in fields for word in (field, field + 2**format.log_bits)][1:]


def compare_words(format, bases, exponents):
    """Assert that each power of each base to each exponent, all of them words, is the oracle's."""
    results = computed(lambda: tensor(format, bases)[:, None] ** tensor(format, exponents))
    wrong = []
    cases = [(base, exponent) for base in bases for exponent in exponents]
    for (base, exponent), result in zip(cases, results, strict=True):
        expected = oracle(
            format, base, lambda exponent=exponent: irrational(format, exponent), rational(format, exponent)
        )
        if result != expected:
            wrong.append((base, exponent, result, expected))
    assert not wrong, f"{len(wrong)} of {len(cases)}: {wrong[:5]}"


def test_words_to_words_in_lns8():
    words = [word for word in range(256) if word != 128]
    compare_words(lns8, [*words[::5], 64, 192, 72, 200], some_words(lns8, 4))


@pytest.mark.slow
def test_all_words_to_all_words_in_lns8():
    words = [word for word in range(256) if word != 128]
    for start in range(0, 255, 64):
        compare_words(lns8, words[start : start + 64], words)


@pytest.mark.parametrize("format", [lns16, LNSFormat(8, 23), TERNARY, QUATERNARY], ids=repr)
def test_words_to_words(format):
    compare_words(format, some_words(format, 10, seed=1), some_words(format, 10, seed=2))


def test_exponents_beyond_float64():
    steps, one = 2**FINE.frac_bits, FINE.bias
    fields = [1, FINE.max_field, *(one + k * steps for k in (-2000, -1074, 1023, 1024, 2000)), one + 1500 * steps + 1]
    exponents = [word for field in fields for word in (field, field + 2**FINE.log_bits)]
    compare_words(FINE, [*some_words(FINE, 3), one, one + 2**FINE.log_bits], exponents)


def test_ties_go_to_even():
    # 2**(e / 128) to the power 1/4: e / 4 is half way for e = 2 modulo 4.
    bases = list(range(lns16.bias - 12, lns16.bias + 13))
    compare_words(lns16, bases, [lns16.bias - 256])
    results = computed(lambda: tensor(lns16, bases) ** 0.25)
    assert [word for word, _ in results] == [lns16.bias + round(Fraction(e, 4)) for e in range(-12, 13)]


#: Half powers of one number alone are a root and its power, each of them rounded; see docs/arithmetic.md.
EXPONENTS = [
    0.0,
    1.0,
    -1.0,
    2.0,
    3.0,
    -3.0,
    7.0,
    0.25,
    -0.75,
    1 / 3,
    0.1,
    1e-300,
    -1e-300,
    5e-324,
    1e300,
    -1e300,
    2.0**70,
]
HALVES = [0.5, 1.5, -2.5]


@pytest.mark.parametrize("format", [lns8, lns16, LNSFormat(8, 23), FINE, TERNARY], ids=repr)
def test_plain_exponents(format):
    words = some_words(format, 20)
    exponents = EXPONENTS + HALVES
    results = computed(lambda: tensor(format, words)[:, None] ** torch.tensor(exponents, dtype=torch.float64))
    cases = [(word, exponent) for word in words for exponent in exponents]
    for (word, exponent), result in zip(cases, results, strict=True):
        assert result == oracle(format, word, None, Fraction(exponent)), (word, exponent)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_a_number_as_exponent(exponent):
    words = some_words(lns16, 20)
    if exponent != 0:  # no operation is reported where everything is one
        results = computed(lambda: tensor(lns16, words) ** exponent)
        assert results == [oracle(lns16, word, None, Fraction(exponent)) for word in words]
    assert (tensor(lns16, words) ** 0.0)._words.tolist() == [lns16.bias] * len(words)


def test_exponents_broadcast():
    x = lnstensor([[2.0], [-4.0]], format=lns16)
    powers = x ** torch.tensor([0, 1, 2, -1])
    assert powers.value.tolist() == [[1.0, 2.0, 4.0, 0.5], [1.0, -4.0, 16.0, -0.25]]
    assert (x ** lnstensor(2.0, format=lns16)).value.tolist() == [[4.0], [16.0]]
    assert (2.0 ** lnstensor([3.0, -1.0], format=LNSFormat(8, 23))).shape == (2,)


@pytest.mark.parametrize("exponent", [float("nan"), float("inf"), -float("inf")])
def test_exponents_are_finite(exponent):
    x = lnstensor([2.0], format=lns16)
    message = f"aten.pow.Tensor_Scalar of lns16 takes a finite exponent, not {exponent}"
    with pytest.raises(ValueError, match=exactly(message)):
        x**exponent
    message = f"aten.pow.Tensor_Tensor of lns16 takes a finite exponent, not {exponent}"
    with pytest.raises(ValueError, match=exactly(message)):
        x ** torch.tensor([exponent], dtype=torch.float64)
