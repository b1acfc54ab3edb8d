"""Gates as functions of tensors: words, flags and gradients as autograd's, and a network that trains on them."""

import dataclasses
import functools

import pytest
import torch

import hdl
from hdl.pipeline import Pipeline
from sim import SimulatedUnit, hardware_function
from xlnstorch import from_words, lns8, lns16, lnstensor
from xlnstorch.observe import observing

SPECIAL = dataclasses.replace(lns8, specials=True)


@functools.cache
def alu(format=lns8):
    return SimulatedUnit(hdl.ALU(format=format, converters=("float16", "fixed")))


def every_pair(format):
    words = torch.arange(1 << format.width)
    a, b = torch.meshgrid(words, words, indexing="ij")
    return from_words(a, format), from_words(b, format)


@pytest.mark.sim
@pytest.mark.parametrize("format", [lns8, SPECIAL], ids=["", "specials"])
def test_operations_of_words(format):
    a, b = every_pair(format)
    golden = {
        "add": a + b,
        "sub": a - b,
        "mul": a * b,
        "div": a / b,
        "max": torch.maximum(a, b),
        "neg": -a,
        "sqrt": a.sqrt(),
    }
    for name, expected in golden.items():
        operands = (a, b) if name in ("add", "sub", "mul", "div", "max") else (a,)
        answer = alu(format).run(name, *operands)
        assert answer.result.format == format
        assert torch.equal(answer.result.words, expected.words), name


@pytest.mark.sim
def test_flags_broadcasting_and_no_elements():
    a, b = lnstensor([[1e9], [0.0]], format=lns8), lnstensor([1e9, 0.0, 2.0], format=lns8)
    raised = []
    with observing(lambda operation: raised.append(operation.flags)):
        expected = a / b
    answer = alu().run("div", a, b)
    assert torch.equal(answer.result.words, expected.words)
    assert torch.equal(answer.flags, raised[0])
    assert answer.flags.any()
    assert alu().run("mul", a[:0], b).result.shape == (0, 3)
    assert alu().run("mul", a[0, 0], b[2]).result.shape == ()


@pytest.mark.sim
def test_what_is_no_word():
    halves = torch.tensor([1.5, -3.0, float("inf")], dtype=torch.float16)
    words = alu().run("from_float16", halves).result
    assert torch.equal(words.words, lnstensor(halves, format=lns8).words)
    assert alu().run("to_float16", words).result.dtype == torch.float16
    less = alu().run("compare", words, words[0]).result
    assert {name: bits.tolist() for name, bits in less.items()} == {
        "less": [False, True, False],
        "equal": [True, False, False],
        "greater": [False, False, True],
        "unordered": [False] * 3,
    }


@pytest.mark.sim
@pytest.mark.parametrize(
    "operation, operands, error, message",
    [
        ("dot", (), ValueError, "operation must be one of add, sub, mul, .*, not 'dot'"),
        ("mul", (lnstensor(1.0, format=lns8),), ValueError, "mul takes 2 operands, not 1"),
        ("neg", (1.0,), TypeError, "a of neg must be a tensor, not 1.0"),
        ("neg", (torch.ones(1),), TypeError, "a of neg must be an LNSTensor of .*lns8.*, not of torch.float32"),
        (
            "neg",
            (lnstensor(1.0, format=lns16),),
            TypeError,
            "a of neg must be an LNSTensor of .*lns8.*, not of .*lns16",
        ),
        ("from_float16", (torch.ones(1),), TypeError, "must be a tensor of torch.float16, not of torch.float32"),
    ],
)
def test_what_it_does_not_take(operation, operands, error, message):
    with pytest.raises(error, match=message):
        alu().run(operation, *operands)


def test_units_that_are_no_function_of_one_payload():
    with pytest.raises(ValueError, match="dot sums several payloads"):
        SimulatedUnit(hdl.DotProduct(format=lns8))


class Silent(Pipeline):
    def finish(self, payload, when=1):
        super().finish(payload, 0)


class Stuck(hdl.Square):
    def pipeline(self, m):
        return Silent(m, self.i, self.o)


@pytest.mark.sim
def test_gates_that_stop():
    with pytest.raises(RuntimeError, match="the gates of square gave 0 results for 2 operands"):
        SimulatedUnit(Stuck(format=lns8)).run("square", lnstensor([1.0, 2.0], format=lns8))


# Gradients ------------------------------------------------------------------------------------------------------------

GOLDEN = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "mac": lambda a, b, c: c + a * b,
    "square": lambda a: a.square(),
    "sqrt": lambda a: a.sqrt(),
    "neg": lambda a: -a,
    "relu": lambda a: a.relu(),
}


@pytest.mark.sim
@pytest.mark.parametrize("format", [lns8, SPECIAL], ids=["", "specials"])
@pytest.mark.parametrize("operation", GOLDEN)
def test_gradients_are_those_of_autograd(operation, format):
    a, b = (x.flatten() for x in every_pair(format))
    # Twice negated, as a gradient's zeros are: of the two words for zero no operation gives the negative one.
    grad, c = from_words(torch.arange(len(a)) * 40503 >> 5 & 0xFF, format).neg().neg(), b.roll(12345)
    results, gradients = [], []
    for function in (GOLDEN[operation], hardware_function(alu(format), operation)):
        inputs = [x.detach().clone().requires_grad_() for x in (a, b, c)[: GOLDEN[operation].__code__.co_argcount]]
        results.append(function(*inputs))
        gradients.append(torch.autograd.grad(results[-1], inputs, grad))
    assert torch.equal(results[0].words, results[1].words)
    for golden, gates in zip(*gradients, strict=True):
        assert torch.equal(golden.words, gates.words)


@pytest.mark.sim
def test_operands_that_broadcast():
    multiply = hardware_function(hdl.Multiply(format=lns8))
    found = []
    for function in (torch.mul, multiply):
        a = lnstensor([[1.5], [2.0]], format=lns8).requires_grad_()
        b = lnstensor([0.75, -3.0, 7.0], format=lns8).requires_grad_()
        function(a, b).sum().backward()
        found.append((a.grad.words.tolist(), b.grad.words.tolist()))
    assert found[0] == found[1]


@pytest.mark.sim
def test_a_backward_pass_of_ones_own():
    gates = SimulatedUnit(hdl.MinMax(format=lns8))
    seen = []

    def backward(grad, a, b):
        seen.append(grad)
        return grad, None

    larger = hardware_function(gates, "max", backward=backward)
    a, b = (lnstensor(x, format=lns8).requires_grad_() for x in (2.0, 3.0))
    larger(a, b).backward()
    assert (a.grad.item(), b.grad, len(seen)) == (1.0, None, 1)


@pytest.mark.parametrize(
    "unit, operation, message",
    [
        (hdl.MinMax, None, "operation must be given: minmax has max, min"),
        (hdl.MinMax, "mul", "operation must be one of max, min, not 'mul'"),
        (hdl.MinMax, "max", "backward must be given: there is no formula for max"),
        (hdl.AddSubtract, "sub", "backward must be given: that of sub needs neg, not in add"),
        (hdl.Compare, None, "compare of compare takes or gives what is no word"),
    ],
)
def test_what_is_no_function(unit, operation, message):
    with pytest.raises(ValueError, match=message):
        hardware_function(unit(format=lns8), operation)


@pytest.mark.sim
def test_a_network_trains_with_the_gates_in_the_loop():
    """Two layers, squared error, plain gradient descent: the same weights to the bit after every step."""

    def train(mul, add, sub, relu):
        torch.manual_seed(0)
        x, wanted = (lnstensor(torch.randn(8, size), format=lns16) for size in (4, 2))
        weights = [lnstensor(torch.randn(shape) / 2, format=lns16).requires_grad_() for shape in ((4, 5), (5, 2))]

        def linear(x, w):
            return functools.reduce(add, (mul(x[:, k : k + 1], w[k]) for k in range(len(w))))

        history = []
        for _ in range(3):
            error = sub(linear(relu(linear(x, weights[0])), weights[1]), wanted)
            loss = functools.reduce(add, mul(error, error).flatten().unbind())
            gradients = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                weights = [(w - 0.02 * g).requires_grad_() for w, g in zip(weights, gradients, strict=True)]
            history.append([loss.words.tolist(), *(w.words.tolist() for w in weights)])
        return history

    gates = SimulatedUnit(hdl.ALU(format=lns16, converters=()))
    golden = train(torch.mul, torch.add, torch.sub, torch.relu)
    assert golden[0] != golden[1]
    assert train(*(hardware_function(gates, name) for name in ("mul", "add", "sub", "relu"))) == golden
