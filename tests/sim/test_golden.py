import itertools

import numpy as np
import pytest

from hdl import UNITS
from sim.golden import evaluate, evaluate_expression
from sim.stimulus import Vectors, corner_words, generate
from xlnstorch import LNSFormat, lns8
from xlnstorch.observe import FLAGS
from xlnstorch.reference import Reference


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_words_and_flags_are_those_of_the_reference(unit):
    reference = Reference(4, 3)
    vectors = generate("saturation", unit, lns8, seed=1, count=600)
    words, flags = evaluate(unit, lns8, vectors)
    names = list(unit.operations)
    for op, a, b, word, bits in zip(vectors.op, vectors.a, vectors.b, words, flags, strict=True):
        expected, raised = getattr(reference, names[op])(int(a), int(b))
        assert (word, bits) == (expected, sum(1 << FLAGS.index(flag) for flag in raised))


def test_flags_of_an_expression_are_those_of_all_its_operations():
    top = np.array([lns8.max_field, lns8.bias])
    words, flags = evaluate_expression(lambda a, b: (a * b) * (a * b), lns8, top, top)
    assert words.tolist() == [lns8.max_field, lns8.bias]
    assert flags.tolist() == [1, 0]


def test_operations_are_told_apart():
    format = LNSFormat(3, 1)
    words = np.array(list(itertools.product(corner_words(format), repeat=2)))
    both = [Vectors(np.full(len(words), op), words[:, 0], words[:, 1]) for op in (0, 1)]
    (added, _), (subtracted, _) = (evaluate(UNITS["add"], format, vectors) for vectors in both)
    assert not np.array_equal(added, subtracted)
