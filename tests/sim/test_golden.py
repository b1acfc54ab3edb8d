import dataclasses

import numpy as np
import pytest
import torch

from hdl import AddSubtract, Compare, Divide, Multiply, Square, SquareRoot
from hdl.dot import DotProduct
from hdl.matvec import MatrixVector
from sim.golden import evaluate, evaluate_expression
from sim.stimulus import generate
from xlnstorch import from_words, lns8
from xlnstorch.observe import FLAGS
from xlnstorch.reference import Reference

REFERENCE = {"square": lambda reference, a: reference.pow(a, 2)}
WITH_SPECIALS = dataclasses.replace(lns8, specials=True)


def bits_of(flags):
    return sum(1 << FLAGS.index(flag) for flag in flags)


@pytest.mark.parametrize("specials", [False, True])
@pytest.mark.parametrize("unit", [Multiply, Divide, AddSubtract, Square, SquareRoot])
def test_words_and_flags_are_those_of_the_reference(unit, specials):
    reference = Reference(4, 3, specials=specials)
    unit = unit(format=dataclasses.replace(lns8, specials=specials))
    vectors = generate("random", unit, seed=1, count=600)
    results = evaluate(unit, vectors)
    assert list(results) == ["word", "flags"]
    names, operands = list(unit.operations), zip(*vectors.operands.values(), strict=True)
    for op, given, word, bits in zip(vectors.op, operands, results["word"], results["flags"], strict=True):
        function = REFERENCE.get(names[op]) or getattr(Reference, names[op])
        expected, raised = function(reference, *map(int, given))
        assert (word, bits) == (expected, bits_of(raised))


def test_a_result_without_words_or_flags_is_taken_from_the_dict():
    unit = Compare(format=WITH_SPECIALS)
    vectors = generate("corners", unit, seed=0, count=1)
    results = evaluate(unit, vectors)
    assert list(results) == ["less", "equal", "greater", "unordered"]
    assert (sum(results.values()) == 1).all()
    nan = np.isin(vectors.operands["a"], 0x80) | np.isin(vectors.operands["b"], 0x80)
    assert np.array_equal(results["unordered"] == 1, nan)


def test_flags_of_an_expression_are_those_of_all_its_operations():
    top = from_words(np.array([lns8.max_field, lns8.bias]), lns8)
    result, flags = evaluate_expression(lambda a, b: (a * b) * (a * b), top, top)
    assert result.words.tolist() == [lns8.max_field, lns8.bias]
    assert flags.tolist() == [1 << FLAGS.index("overflow"), 0]


def test_flags_belong_to_the_rows_whatever_the_order_of_dimensions():
    words = torch.full((7, 2, 3), lns8.bias)
    words[4, 1, 2] = lns8.max_field
    x = from_words(words, lns8)
    _, flags = evaluate_expression(lambda x: x * x, x, inner=(2,))
    assert flags.nonzero().tolist() == [[4, 1]]
    assert flags.shape == (7, 2)
    pairs_first = x.permute(1, 0, 2)  # as a tree adds
    _, flags = evaluate_expression(lambda _: pairs_first * pairs_first, x)
    assert flags.tolist() == [0, 0, 0, 0, 1, 0, 0]


def test_operations_are_told_apart():
    unit = AddSubtract(format=lns8)
    vectors = generate("corners", unit, seed=0, count=1)
    added, subtracted = (
        evaluate(unit, dataclasses.replace(vectors, op=np.full(len(vectors), op)))["word"] for op in (0, 1)
    )
    assert not np.array_equal(added, subtracted)


@pytest.mark.parametrize("stimulus", ["corners", "random", "near-cancelling", "saturation"])
@pytest.mark.parametrize("specials", [False, True])
def test_a_dot_product_is_that_of_the_reference(specials, stimulus):
    unit = DotProduct(format=dataclasses.replace(lns8, specials=specials), lanes=2)
    vectors = generate(stimulus, unit, seed=2, count=100)
    results, reference = evaluate(unit, vectors), Reference(4, 3, specials=specials)
    for index, group in enumerate(vectors.sequence.groups):
        total, raised = 0, set()
        for x, y in zip(*(vectors.operands[name][group].reshape(-1).tolist() for name in ("a", "b")), strict=True):
            product, of_product = reference.mul(x, y)
            total, of_sum = reference.add(total, product)
            raised |= {*of_product, *of_sum}
        assert (results["word"][index], results["flags"][index]) == (total, bits_of(raised))
        assert results["channel"][index] == vectors.operands["channel"][group[-1]]


def test_the_rows_of_a_matrix_are_those_loaded_before():
    unit = MatrixVector(format=lns8, rows=3, lanes=2, columns=4)
    vectors = generate("saturation", unit, seed=0, count=200)
    results, sent = evaluate(unit, vectors), vectors.operands
    reference, groups = Reference(4, 3), {group[-1]: group for group in vectors.sequence.groups}
    matrix, before, index = {}, [], 0
    flagged = set()
    for place in range(len(vectors)):
        x, tile = sent["x"][place].tolist(), int(sent["tile"][place])
        if list(unit.operations)[vectors.op[place]] == "load":
            matrix[int(sent["row"][place]), tile] = x
        before.append({row: matrix.get((row, tile)) for row in range(3)})
        if place not in groups:
            continue
        for row in range(3):
            total, raised = 0, set()
            for beat in groups[place]:
                for weight, word in zip(before[beat][row], sent["x"][beat].tolist(), strict=True):
                    product, of_product = reference.mul(weight, word)
                    total, of_sum = reference.add(total, product)
                    raised |= {*of_product, *of_sum}
            assert (results["word"][index, row], results["flags"][index, row]) == (total, bits_of(raised))
            flagged.add(len(raised))
        index += 1
    assert index == len(groups)
    assert {0, 1} <= flagged
