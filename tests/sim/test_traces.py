"""Capture records what was computed: counts by hand, results by the reference."""

import dataclasses

import numpy as np
import torch

from sim import capture
from sim.workloads import digits_classifier, digits_step
from xlnstorch import LogAccumulator, lns8, lns16, lnstensor
from xlnstorch.observe import FLAGS
from xlnstorch.reference import Reference


def test_a_matrix_product_is_recorded_multiplication_by_multiplication():
    a, b = (
        lnstensor(torch.randn(shape, generator=torch.Generator().manual_seed(1)), format=lns16)
        for shape in ((2, 3), (3, 4))
    )
    with capture(lns16) as trace:
        product = a @ b
    assert (len(trace["mul"]), len(trace["add"])) == (2 * 3 * 4, 2 * 2 * 4)
    assert trace.names == ["add", "mul"]
    assert trace["mul"].source(0) == "aten.mm.default"
    # The last sums are the product itself.
    assert trace["add"].result[-8:].tolist() == product.words.reshape(-1).tolist()


def test_the_backward_pass_and_the_sum_of_two_gradients_are_recorded():
    x = lnstensor([1.5, -2.5], format=lns16, requires_grad=True)
    with capture(lns16) as trace:
        ((x * x) + (x * 3.0)).sum().backward()
    sources = {trace[name].source(i) for name in trace.names for i in range(len(trace[name]))}
    assert "aten.mul.Tensor (backward)" in sources
    # x * x gives two gradients to x and x * 3 a third: two additions for each element, besides those of the loss.
    assert len(trace["add"]) == 2 + 1 + 2 * 2


def test_nothing_is_recorded_outside_the_block_or_of_another_format():
    x = lnstensor([1.0, 2.0], format=lns16)
    y = lnstensor([1.0, 2.0], format=lns8)
    with capture(lns16) as trace:
        y * y
    x * x
    assert trace.names == []
    assert len(trace["mul"]) == 0


def test_every_captured_result_is_that_of_the_reference():
    reference, checked = Reference(4, 3), {}
    with capture(lns8) as trace:
        digits_step(lns8, seed=0)
    for name in ("mul", "add", "sub", "div", "square", "sqrt"):
        record = trace[name]
        assert len(record) > 400
        function = getattr(reference, name, lambda a: reference.pow(a, 2))
        cases = np.unique([*record.operands, record.result, record.flags], axis=1).T
        for *operands, result, bits in cases.tolist():
            word, flags = function(*operands)
            assert (word, sum(1 << FLAGS.index(flag) for flag in flags)) == (result, bits)
            checked[name] = checked.get(name, 0) + 1
    assert sum(checked.values()) > 1000


def test_operations_of_one_operand_are_recorded_by_the_name_of_the_unit():
    x = lnstensor([1.5, -2.5, 4.0], format=lns16)
    with capture(lns16) as trace:
        x**2
        x.sqrt()
    assert trace.names == ["sqrt", "square"]
    assert [len(operand) for operand in trace["square"].operands] == [3]
    assert trace.counts == {"square": 3, "sqrt": 3}
    assert trace["sqrt"].flags.tolist() == [0, 1 << FLAGS.index("invalid"), 0]


def test_the_rounding_of_a_sum_has_no_operands_and_is_only_counted():
    format = dataclasses.replace(lns16, accumulator=LogAccumulator(guard_bits=2))
    with capture(format) as trace:
        lnstensor([1.0, 2.0], format=format).sum()
    assert (trace.names, trace.counts, len(trace["sum"])) == ([], {"sum": 1}, 0)


def test_capturing_changes_nothing_and_the_seed_decides():
    plain, _ = digits_step(lns16, seed=4)
    with capture(lns16) as trace:
        captured, loss = digits_step(lns16, seed=4)
    other, _ = digits_step(lns16, seed=5)
    assert torch.equal(captured[0].weight.words, plain[0].weight.words)
    assert torch.equal(captured[0].weight.grad.words, plain[0].weight.grad.words)
    assert not torch.equal(other[0].weight.words, plain[0].weight.words)
    assert 1.5 < loss.item() < 3.5  # ten classes, untrained: about ln 10
    # The step moves the weights.
    assert not torch.equal(digits_classifier(lns16, seed=4)[0].weight.words, plain[0].weight.words)
    assert len(trace["mul"]) > 16 * (64 * 16 + 16 * 10) * 2
