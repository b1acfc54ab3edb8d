"""Conversions proved nearest with integers alone: ``k**p`` against powers of two, no logarithm and no library.

With s = 2**frac_bits, a number ``x = k 2**j`` and a logarithm e, ``x < 2**(e / s)`` is ``k**s < 2**(e - j s)``, which
the bit length of ``k**s`` tells. So a result is proved nearest by its two boundaries, half way to its neighbours.
"""

import functools
import hashlib
import itertools
import math
import random
from fractions import Fraction

import pytest
import torch

from xlnstorch import LNSFormat, conversions, lns8, lns12, lns16, lns16e5, lns24, lns32, software_format
from xlnstorch.reference import Reference

# For each dtype: digits of the significand, exponents of the smallest and of the largest number, dtype of the bits.
FLOATS = {
    torch.float64: (53, -1074, 1023, torch.int64),
    torch.float32: (24, -149, 127, torch.int32),
    torch.bfloat16: (8, -133, 127, torch.int16),
    torch.float16: (11, -24, 15, torch.int16),
}


@functools.lru_cache(maxsize=1 << 16)
def power_length(k, p):
    """The bit length of ``k**p`` for an odd k, and whether that is a power of two."""
    return (k**p).bit_length(), k == 1


def compare(k, j, p, exponent):
    """-1, 0 or 1 as ``(k 2**j)**p`` is below, equal to or above ``2**exponent``, for k > 0."""
    zeros = (k & -k).bit_length() - 1
    length, is_power = power_length(k >> zeros, p)
    distance = length - 1 + (j + zeros) * p - exponent  # of the highest bits
    return -1 if distance < 0 else int(distance > 0 or not is_power)


def split(dtype, bits):
    """Integers k and j with k 2**j the positive float of these bits; infinity as the number that would be next."""
    digits, lowest, _, _ = FLOATS[dtype]
    exponent, significand = bits >> (digits - 1), bits & ((1 << (digits - 1)) - 1)
    return (significand, lowest) if exponent == 0 else (significand + (1 << (digits - 1)), lowest + exponent - 1)


def is_nearest_float(dtype, bits, e, steps):
    """Whether the float of these bits is the one nearest to ``2**(e / steps)``, half to even."""
    digits, lowest, highest, _ = FLOATS[dtype]
    infinity = (highest - lowest - digits + 3) << (digits - 1)
    even = bits % 2 == 0
    above, below = 1, -1
    if bits < infinity:
        k, j = split(dtype, bits)
        above = compare(2 * k + 1, j - 1, steps, e)  # half way to the next
    if bits > 0:
        k, j = split(dtype, bits - 1)
        below = compare(2 * k + 1, j - 1, steps, e)
    return bits <= infinity and (below < 0 or (below == 0 and even)) and (above > 0 or (above == 0 and even))


def is_nearest_word(format, word, k, j):
    """Whether a non-negative word is the one nearest to ``k 2**j``, k > 0, in the logarithm; saturated and flushed."""
    e, steps = word - format.bias, 1 << format.frac_bits
    # The boundaries are e ± 1/2, so that 2 steps (log2(x) - e) lies between -1 and 1.
    from_below = word == 0 or compare(k, j, 2 * steps, 2 * e - 1) > 0
    to_above = word == format.max_field or compare(k, j, 2 * steps, 2 * e + 1) < 0
    return from_below and to_above


def bits_of(values):
    """The bits of floats as non-negative integers."""
    bits = values.view(FLOATS[values.dtype][3]).to(torch.int64)
    return (bits & ((1 << (8 * values.element_size())) - 1 if values.element_size() < 8 else -1)).tolist()


def from_bits(dtype, bits):
    size = torch.iinfo(FLOATS[dtype][3]).bits
    signed = [b - (b >> (size - 1) << size) for b in bits]
    return torch.tensor(signed, dtype=FLOATS[dtype][3]).view(dtype)


@pytest.mark.parametrize(
    ("format", "dtype"),
    [*itertools.product([lns16, lns8], FLOATS), (lns16e5, torch.float16), (LNSFormat(11, 4), torch.float64)],
    ids=str,
)
def test_decode_of_every_word(format, dtype):
    top = 1 << format.log_bits
    values = conversions.decode(format, format.from_unsigned(torch.arange(2 * top)), dtype)
    assert values.dtype == dtype
    positive, negative = bits_of(values[:top]), bits_of(values[top:])
    assert positive[0] == negative[0] == 0  # +0 for both words that are read as zero
    sign = 1 << (8 * values.element_size() - 1)
    assert [b % (2 * sign) for b in negative[1:]] == [b + sign for b in positive[1:]]
    steps = 1 << format.frac_bits
    wrong = [w for w in range(1, top) if not is_nearest_float(dtype, positive[w], w - format.bias, steps)]
    assert wrong == []


def prove_encoded(format, values):
    """Assert that each of the floats, all finite, is encoded to the nearest word; return how many."""
    words = format.to_unsigned(conversions.encode(format, values)).tolist()
    half = 1 << (8 * values.element_size() - 1)
    for bits, word in zip(bits_of(values), words, strict=True):
        k, j = split(values.dtype, bits % half)
        sign, field = word >> format.log_bits, word & format.max_field
        if k == 0:
            assert word == 0
        else:
            assert is_nearest_word(format, field, k, j), (hex(bits), hex(word))
            assert sign == (bits >= half and field > 0), (hex(bits), hex(word))
    return len(words)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("format", [lns16, lns8, lns16e5], ids=str)
def test_encode_of_every_16_bit_float(format, dtype):
    values = from_bits(dtype, range(1 << 16))
    finite = torch.isfinite(values)
    assert prove_encoded(format, values[finite]) == int(finite.sum()) > 63000
    top = 1 << format.log_bits
    for value in values[torch.isinf(values)]:
        expected = format.max_field | (top if value < 0 else 0)
        assert int(format.to_unsigned(conversions.encode(format, value))) == expected
    nans = values[torch.isnan(values)]
    assert len(nans) == (1 << 16) - int(finite.sum()) - 2
    for value in nans[::37]:
        with pytest.raises(ValueError):
            conversions.encode(format, value)


def root(x, doublings):
    """The floor of the ``2**doublings``-th root."""
    for _ in range(doublings):
        x = math.isqrt(x)
    return x


def float32_corners(frac_bits, exponents):
    """Every exponent with the ends of its mantissas, and those on both sides of each boundary between logarithms."""
    mantissas = {0, 1, 2, (1 << 22) - 1, 1 << 22, (1 << 23) - 2, (1 << 23) - 1}
    for i in range(1 << frac_bits):
        below = root(1 << ((23 << (frac_bits + 1)) + 2 * i + 1), frac_bits + 1) - (1 << 23)
        mantissas |= {below, below + 1}
    return [exponent << 23 | mantissa for exponent in exponents for mantissa in sorted(mantissas)]


@pytest.mark.parametrize("format", [lns8, lns16, pytest.param(lns16e5, marks=pytest.mark.slow)], ids=str)
def test_encode_of_float32_corners(format):
    bits = float32_corners(format.frac_bits, range(255))
    bits += [b | 1 << 31 for b in bits]
    assert prove_encoded(format, from_bits(torch.float32, bits)) == len(bits) > 6000


@pytest.mark.parametrize("frac_bits", [3, 7])
def test_float64_next_to_every_boundary(frac_bits):
    format, bits = LNSFormat(11, frac_bits), []
    for i in range(1 << frac_bits):
        below = root(1 << ((52 << (frac_bits + 1)) + 2 * i + 1), frac_bits + 1) - (1 << 52)
        bits += [exponent << 52 | below + k for exponent in (1, 1022, 1023, 1024, 2046) for k in (0, 1)]
    bits += [1, 2, 3, (1 << 52) - 1, 1 << 52, (2047 << 52) - 1]  # the ends of the subnormal and of the normal numbers
    assert prove_encoded(format, from_bits(torch.float64, bits)) == len(bits)


@pytest.mark.parametrize("frac_bits", [0, 4, 9])
def test_fixed_point_next_to_every_boundary(frac_bits):
    # Integers of 63 bits on both sides of a boundary differ in a digit that no float64 has.
    format, integers = LNSFormat(9, 7), []
    for i in range(1 << 7):
        below = root(1 << ((62 << 8) + 2 * i + 1), 8)
        integers += [below, below + 1]
    words = format.to_unsigned(conversions.encode_fixed(format, torch.tensor(integers), frac_bits)).tolist()
    for integer, word in zip(integers, words, strict=True):
        assert is_nearest_word(format, word, integer, -frac_bits)
    assert [above - below for below, above in zip(words[::2], words[1::2], strict=True)] == [1] * (1 << 7)


def test_the_proof_refuses_neighbours():
    """No result one unit off passes, so none of the proofs above is empty."""
    for word in (1, 0x3FFF, 0x4000, 0x4001, 0x40CB, 0x7FFF):
        for dtype in FLOATS:
            value = conversions.decode(lns16, torch.tensor(word, dtype=torch.int16), dtype)
            (bits,) = bits_of(value.reshape(1))
            accepted = [b for b in range(max(bits - 2, 0), bits + 3) if is_nearest_float(dtype, b, word - 0x4000, 128)]
            assert accepted == [bits]
    for k, j in ((1, 0), (3, -1), (5, 100), (255, -40)):
        accepted = [word for word in range(1 << 15) if is_nearest_word(lns16, word, k, j)]
        assert accepted == [Reference(8, 7).encode(math.ldexp(k, j))]


# The same words on any machine -------------------------------------------------------------------------------------

INTEGERS = {torch.int8: (8, True), torch.uint8: (8, False), torch.int64: (64, True), torch.uint64: (64, False)}


def fixed_cases(format):
    """Yield the name of a conversion, what it converts and its arguments: the same on any machine."""
    rng = random.Random(20)  # random() is the one method whose sequence Python promises not to change
    inputs = [int(rng.random() * 2**32) << 32 | int(rng.random() * 2**32) for _ in range(250)]
    for dtype, (digits, lowest, highest, _) in FLOATS.items():
        infinity = (highest - lowest - digits + 3) << (digits - 1)
        yield "encode", from_bits(dtype, [b % infinity for b in inputs]), ()
        one = (2 - digits - lowest) << (digits - 1)
        yield "encode", from_bits(dtype, [one - (1 << digits) + b % (2 << digits) for b in inputs]), ()
    signed = torch.tensor([b - (1 << 63) for b in inputs])
    for frac_bits in (0, 20, 63):
        yield "encode_fixed", signed, (frac_bits,)
    reach = 70 << format.frac_bits
    near_one = torch.tensor([format.bias - reach + b % (2 * reach) for b in inputs]).clamp(1, format.max_field)
    for words in (torch.tensor([b % (1 << format.width) for b in inputs]), near_one):
        for dtype in (*FLOATS, *INTEGERS):
            yield "decode", format.from_unsigned(words), (dtype,)
        yield "decode_fixed", format.from_unsigned(words), (30, 48)


def computed(format, name, operand, arguments):
    result = getattr(conversions, name)(format, operand, *arguments)
    return result[0] if name == "decode_fixed" else result


def expected(format, name, operand, arguments):
    """What the reference says."""
    reference = Reference(format.int_bits, format.frac_bits)
    if name == "encode":
        return [reference.encode(x) for x in operand.tolist()]
    if name == "encode_fixed":
        return [reference.encode(Fraction(n, 2 ** arguments[0])) for n in operand.tolist()]
    words = format.to_unsigned(operand).tolist()
    if name == "decode_fixed":
        return [reference.decode_fixed(word, *arguments)[0] for word in words]
    (dtype,) = arguments
    if dtype in INTEGERS:
        return [reference.decode_fixed(word, 0, *INTEGERS[dtype])[0] for word in words]
    if dtype == torch.float64:
        return [reference.decode(word) for word in words]
    return [reference.decode_narrow(word, *FLOATS[dtype][:3]) for word in words]


def digest(format, device):
    sha = hashlib.sha256()
    for name, operand, arguments in fixed_cases(format):
        result = computed(format, name, operand.to(device), arguments)
        sha.update(result.cpu().view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


# Made with this file's own digest(); test_the_digests_are_of_proved_results says that what they stand for is right.
DIGESTS = {
    lns8: "33256775d331d5f1e65c07d2256732dfb90140b6a21cc8391008f78f03481673",
    lns12: "d92c9f7cc8f19b3391f367c0f50c0ffbd6d06991fbe677e5e034502be9b530bf",
    lns16: "1ce78047b18f2eb3a83e6f4446c92239e23bd116ddc6d629c4cb74f2e39e2c5f",
    lns16e5: "05c97aba9469605bade45a7be336a34651786e5720bf3f8abc9d5625226c0821",
    lns24: "b0c6fe99f4f398b4d55fc63470d051d7352651964bd7d19227780bf367824a59",
    lns32: "de2f28e07d91a375d0538c8cbe59e450ad02db256e3e2873f42b59f6c0cc8adc",
    software_format(23): "969247b83052699eadefb8b859557675751b613dbe9cfe69423f34057050f428",
    software_format(40): "90a8e78b6217c27a337669c2b06ac161d8e5e3d6770bc3b9865c27d932c930d1",
    software_format(48): "30920d271bd79894584bef5389b989f1b2392f3eb90c1ff77f9c8d34bb6f84b9",
}


CUDA = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"))


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("format", DIGESTS, ids=str)
def test_the_same_results_on_any_machine(format, device):
    assert digest(format, device) == DIGESTS[format]


QUICK = (lns16, lns32, software_format(48))


@pytest.mark.parametrize(
    "format", [pytest.param(f, marks=[] if f in QUICK else pytest.mark.slow) for f in DIGESTS], ids=str
)
def test_the_digests_are_of_proved_results(format):
    for case in fixed_cases(format):
        result = computed(format, *case)
        shown = (format.to_unsigned(result) if case[0].startswith("encode") else result).tolist()
        assert list(map(repr, shown)) == list(map(repr, expected(format, *case))), case[0]
