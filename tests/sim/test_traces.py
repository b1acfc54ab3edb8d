"""Capture records what was computed: counts by hand, results by the reference."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import torch

import sim
from sim import capture
from sim.workloads import digits_classifier, digits_step
from xlnstorch import LogAccumulator, Mitchell, lns8, lns12, lns16, lns24, lnstensor, randn, software_format
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


def test_every_exact_captured_result_is_that_of_the_reference():
    x = randn(4, 5, format=lns8, generator=torch.Generator().manual_seed(3))
    x.requires_grad_()
    with capture(lns8) as trace:
        torch.relu(x).sum().backward()
        y = x.detach()
        (-y, abs(y), torch.maximum(y, -y), y.clamp(max=0.5), torch.copysign(y, x.grad))
    assert trace.names == ["abs", "add", "copysign", "max", "min", "neg", "relu", "relu_grad"]
    width = lns8.log_bits
    magnitude, sign = (1 << width) - 1, 1 << width

    def key(word):
        return -(word & magnitude) if word & sign else word

    by_hand = {
        "neg": lambda a: a ^ sign if a else 0,
        "abs": lambda a: a & magnitude,
        "copysign": lambda a, b: (a & magnitude) | (b & sign if a else 0),
        "max": lambda a, b: max(a, b, key=key),
        "min": lambda a, b: min(a, b, key=key),
        "relu": lambda a: 0 if a & sign else a,
        "relu_grad": lambda a, b: b if key(a) > 0 else 0,
    }
    for name, function in by_hand.items():
        record = trace[name]
        assert len(record) >= 20
        assert record.result.tolist() == [function(*words) for words in np.stack(record.operands, 1).tolist()]
        assert not record.flags.any()


def test_words_are_as_narrow_as_the_format_and_flags_a_byte():
    for format, bytes_a_word in ((lns8, 1), (lns12, 2), (lns16, 2), (lns24, 4), (software_format(10), 8)):
        x = lnstensor([-1.5, 2.0, -3.0], format=dataclasses.replace(format, adder=Mitchell()))
        with capture(x.format) as trace:
            x * x
            x.sqrt()
        assert trace.nbytes == 3 * (3 * bytes_a_word + 1) + 3 * (2 * bytes_a_word + 1)
        assert trace["sqrt"].operands[0].tolist() == x.format.to_unsigned(x.words).tolist()


def test_pieces_are_joined_in_their_order(monkeypatch):
    monkeypatch.setattr("sim.traces._BLOCK", 10)
    x = [lnstensor(torch.full((n,), float(n)), format=lns16) for n in (1, 2, 3, 4, 5, 6, 7)]
    with capture(lns16) as trace:
        for y in x[:5]:
            y * 1.0
        assert len(trace["mul"]) == 15  # reading amid it disturbs nothing
        for y in x[5:]:
            torch.addcmul(y, y, y)
    expected = [word for y in x for word in y.words.tolist()]
    assert trace["mul"].operands[0].tolist() == expected
    assert [trace["mul"].source(i) for i in (0, 14, 15, 27)] == ["aten.mul.Tensor"] * 2 + ["aten.addcmul.default"] * 2
    assert (trace["mul"].starts, len(trace)) == ([0, 15], 28 + 13)


def test_what_is_changed_in_place_afterwards_stays_as_it_was():
    x = lnstensor([1.5, 2.0], format=lns16)
    before = x.words.tolist()
    with capture(lns16) as trace:
        y = x * x
        result = y.words.tolist()
        x.mul_(3.0)
        y.zero_()
    assert trace["mul"].operands[0][:2].tolist() == before
    assert trace["mul"].result[:2].tolist() == result


def test_operations_of_other_formats_are_counted_apart():
    with capture(lns16) as trace:
        lnstensor([1.5, 2.0], format=lns8) * 2
    assert (trace.counts, trace.others, len(trace)) == ({}, {lns8: 2}, 0)


def test_a_trace_is_of_a_format():
    with pytest.raises(TypeError, match=r"^format must be an LNSFormat such as lns16, not 'lns16'$"), capture("lns16"):
        pass


def test_importing_sim_imports_neither_torch_nor_its_modules():
    program = "import sys, sim; print([name for name in sys.modules if name.startswith(('sim.', 'torch', 'amaranth'))])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert {"Trace", "capture"} <= set(dir(sim))
    with pytest.raises(AttributeError, match=r"^module 'sim' has no attribute 'captured'$"):
        sim.captured  # noqa: B018
