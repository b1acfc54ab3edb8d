"""What the tests of the units that sum share: vectors of words, what their sums must be, and orders of beats."""

from xlnstorch import LinearAccumulator
from xlnstorch.observe import FLAGS
from xlnstorch.reference import Reference
from xlnstorch.reference_adders import AdderReference, mitchell
from xlnstorch.reference_sums import dot, linear_sum, logarithmic_sum


def reference_of(format):
    if format.adder.name == "mitchell":
        return AdderReference(format.int_bits, format.frac_bits, mitchell, format.specials)
    assert format.adder.name == "exact"
    return Reference(format.int_bits, format.frac_bits, format.specials)


def summed(format, a, b):
    """Return word and flags, as bits, of a dot product, by the reference."""
    reference, accumulator = reference_of(format), format.accumulator
    if isinstance(accumulator, LinearAccumulator):
        word, flags = dot(
            reference, a, b, lambda words: linear_sum(reference, words, accumulator.table_bits, accumulator.frac_bits)
        )
    else:
        word, flags = dot(
            reference, a, b, lambda words: logarithmic_sum(reference, words, accumulator.order, accumulator.guard_bits)
        )
    return word, sum(1 << FLAGS.index(flag) for flag in flags)


def random_words(format, rng, count):
    """Words of four kinds, one kind at a time: any, near one, of the upper range, and of the lower range."""
    field = {
        0: lambda: rng.getrandbits(format.log_bits),
        1: lambda: format.bias + rng.randint(-2 << format.frac_bits, 2 << format.frac_bits),
        2: lambda: format.bias + (format.max_field - format.bias) // 2 + rng.randint(-9, 9),
        3: lambda: format.bias // 2 + rng.randint(-9, 9),
    }[rng.randrange(4)]
    words = [max(0, min(format.max_field, field())) | rng.getrandbits(1) << format.log_bits for _ in range(count)]
    if rng.random() < 0.2:
        words[rng.randrange(count)] = rng.choice((0, format.max_field, 1 << format.log_bits, format.width**2 & 1))
    return words


def random_vectors(format, rng, lengths):
    """Return two vectors for each length; in some of them each product cancels, or nearly, the one before."""
    pairs = []
    for length in lengths:
        a, b = random_words(format, rng, length), random_words(format, rng, length)
        if rng.random() < 0.4:
            for i in range(1, length, 2):
                field = max(0, min(format.max_field, (a[i - 1] & format.max_field) + rng.choice((0, 0, 1, -1, 3))))
                a[i], b[i] = field | ~a[i - 1] & 1 << format.log_bits, b[i - 1]
        pairs.append((a, b))
    return pairs


def interleaved(queues, rng):
    """Return the items of several queues in a random order that keeps that of each."""
    queues, items = [list(queue) for queue in queues], []
    while left := [queue for queue in queues if queue]:
        items.append(rng.choice(left).pop(0))
    return items
