"""Gradients compared operation by operation, and the first fault with its way through the graph."""

import functools

import pytest
import torch
from amaranth.hdl import Const, Signal

import hdl
from sim import SimulatedUnit, verify_gradients
from xlnstorch import lns8, lns16, lnstensor


@functools.cache
def alu():
    return SimulatedUnit(hdl.ALU(format=lns16, converters=()))


def leaves(*shapes):
    generator = torch.Generator().manual_seed(5)
    return [lnstensor(torch.randn(shape, generator=generator), format=lns16).requires_grad_() for shape in shapes]


def perceptron(x, w, v):
    return ((x @ w).relu() @ v).square().mean()


@pytest.mark.sim
def test_a_perceptron_is_equal():
    inputs = leaves((6, 4), (4, 5), (5, 3))
    report = verify_gradients(perceptron, *inputs, unit=alu())
    assert report.passed, str(report)
    assert report.difference is None
    assert report.operations["mul"] > 6 * 4 * 5 * 2
    golden = torch.autograd.grad(perceptron(*inputs), inputs)
    for expected, found in zip(golden, report.gradients, strict=True):
        assert torch.equal(expected.words, found.words)
    assert str(report).startswith("passed: all equal (")


@pytest.mark.sim
def test_what_the_gates_do_not_have_is_told():
    (x,) = leaves((3,))
    report = verify_gradients(lambda x: (x * x).exp(), x, unit=alu())
    assert report.passed
    assert report.not_replayed["exp"] == 3
    assert "not in the gates, and so not compared: 3 exp" in str(report)


class WrongFor(hdl.ALU):
    """The lowest bit of the product is wrong if the first factor is one certain word."""

    word = Const(0)

    def datapath(self, m, pipeline, operands):
        at = Signal()
        code = list(self.operations).index("mul")
        m.d.comb += at.eq((operands.op == code) & (operands.a.as_value() == self.word))
        wrong = pipeline.branch().delay(self.latency, at=at).at
        results = super().datapath(m, pipeline, operands)
        results.result = results.result ^ wrong
        return results


def planted(word):
    unit = WrongFor(format=lns16, converters=())
    unit.word = word
    return unit


@pytest.mark.sim
def test_the_first_difference_in_the_backward_pass_and_its_path():
    x, w, unused = leaves((3,), (3,), (1,))
    # The gradient of the product is the only operand that is three.
    unit = planted(int(lns16.to_unsigned(lnstensor(3.0, format=lns16).words)))

    def function(x, w, unused):
        return ((x * w) * lnstensor(3.0, format=lns16) + unused).sum()

    report = verify_gradients(function, x, w, unused, unit=unit)
    first = report.difference
    assert not report.passed
    assert (first.operation, first.operator, first.backward) == ("mul", "aten.mul.Tensor", True)
    assert first.path == ("SumBackward0", "AddBackward0", "MulBackward0", "MulBackward0")
    assert first.inputs == (0, 1)
    assert first.index == 0
    assert first.got == (first.expected[0] ^ 1, first.expected[1])
    assert report.mismatches == 6
    text = str(report)
    assert "failed: 6 of" in text
    assert "output > SumBackward0 > AddBackward0 > MulBackward0 > MulBackward0" in text
    assert "of input 0, 1" in text


@pytest.mark.sim
def test_a_difference_in_the_forward_pass_concerns_all_gradients():
    x, w = leaves((3,), (3,))
    unit = planted(int(lns16.to_unsigned(x.words[1])))
    report = verify_gradients(lambda x, w: (x * w).sum(), x, w, unit=unit)
    first = report.difference
    assert (first.backward, first.path, first.inputs, first.index) == (False, (), (0, 1), 1)
    assert "in the forward pass" in str(report)


class WrongSum(hdl.ALU):
    """Every sum is wrong."""

    def datapath(self, m, pipeline, operands):
        at = Signal()
        m.d.comb += at.eq(operands.op == list(self.operations).index("add"))
        wrong = pipeline.branch().delay(self.latency, at=at).at
        results = super().datapath(m, pipeline, operands)
        results.result = results.result ^ wrong
        return results


@pytest.mark.sim
def test_where_autograd_adds_gradients_up():
    x, w = leaves((1,), (1,))
    report = verify_gradients(lambda x, w: (x * w) * x, x, w, unit=WrongSum(format=lns16, converters=()))
    first = report.difference
    assert (first.operation, first.operator, first.backward) == ("add", "aten.add.Tensor", True)
    assert first.path == ("MulBackward0", "MulBackward0")  # the inner one brings the second gradient of x
    assert 0 in first.inputs


@pytest.mark.parametrize(
    "function, inputs, error, message",
    [
        (lambda x: x, (lnstensor(1.0, format=lns8),), ValueError, "needs an input that is an LNSTensor and requires"),
        (
            lambda x, y: x,
            (lnstensor(1.0, format=lns8).requires_grad_(), lnstensor(1.0, format=lns16)),
            TypeError,
            "input 1 must be of .*lns8.* as the others are, not of .*lns16",
        ),
        (lambda x: x, (lnstensor(1.0, format=lns8).requires_grad_() * 2,), ValueError, "input 0 must be a leaf"),
    ],
)
def test_what_it_does_not_take(function, inputs, error, message):
    with pytest.raises(error, match=message):
        verify_gradients(function, *inputs)


@pytest.mark.sim
def test_functions_that_it_does_not_take():
    (x,) = leaves((2,))
    with pytest.raises(TypeError, match=r"must return an LNSTensor of .*lns16.*, not float"):
        verify_gradients(lambda x: 1.0, x, unit=alu())
    with pytest.raises(ValueError, match="does not depend on an input"):
        verify_gradients(lambda x: x.detach(), x, unit=alu())
    with pytest.raises(ValueError, match=r"unit must be of .*lns16.* as the inputs are, not of .*lns8"):
        verify_gradients(lambda x: x, x, unit=hdl.Square(format=lns8))
