"""Overrides: what they replace, above and below autograd; they end with their block and stay in their thread."""

import dataclasses
import threading

import pytest
import torch
from lnstesting import add, check, exactly, leaf, randn

import xlnstorch
from xlnstorch import (
    Exact,
    GaussianFunction,
    LNSFormat,
    LNSFunction,
    LogAccumulator,
    arithmetic,
    get_default_implementation_key,
    get_implementation,
    implements,
    lns8,
    lns16,
    lnstensor,
    override_adder,
    override_implementation,
)

aten = torch.ops.aten


def larger(a, b, *, alpha=1):
    return torch.maximum(*xlnstorch.format_lnstensor_operands(a, b))


def no_correction(z, s, base):
    """Gaussian logarithms of zero: a sum is its larger term."""
    return torch.zeros_like(z)


LARGER = GaussianFunction(no_correction)


@pytest.fixture
def a():
    return leaf([1.0, 2.0, 4.0])


# Functions of torch, above autograd ----------------------------------------------------------------------------------


def test_every_spelling_of_a_function_is_replaced(a):
    b = leaf([2.0, 1.0, -8.0])
    with override_implementation(torch.add, larger):
        for result in (torch.add(a, b), a + b, b + a, a.add(b), torch.add(a, b, alpha=2)):
            assert result.tolist() == [2.0, 2.0, 4.0]
        assert (a + 2).tolist() == (2 + a).tolist() == (torch.full((3,), 2.0) + a).tolist() == [2.0, 2.0, 4.0]
        assert (torch.ones(3) + torch.ones(3)).tolist() == [2.0] * 3  # plain tensors are none of its business
    assert (a + b).tolist() == pytest.approx([3.0, 3.0, -4.0], rel=0.004)


def test_an_implementation_brings_its_own_derivative(a):
    class Square(LNSFunction):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (2 * torch.div(x, 2, rounding_mode="floor")) * 2

        @staticmethod
        def backward(ctx, grad):
            return 2 * torch.div(grad, 2, rounding_mode="floor")  # one, and not 2 x

    with override_implementation(torch.square, Square.apply):
        torch.square(a).sum().backward()
    assert a.grad.tolist() == [1.0, 1.0, 1.0]


def test_inside_an_implementation_the_function_is_the_one_outside(a):
    with override_implementation(torch.mul, larger):

        def doubled(x, y):
            return torch.mul(x, y) + torch.mul(x, y)

        with override_implementation(torch.mul, doubled):
            assert (a * 2.0).tolist() == [4.0, 4.0, 8.0]
        assert (a * 2.0).tolist() == [2.0, 2.0, 4.0]
    assert (a * 2.0).tolist() == [2.0, 4.0, 8.0]


def test_functions_of_nn(a):
    with override_implementation(torch.nn.functional.relu, lambda x, inplace=False: -x):
        assert torch.nn.functional.relu(a).tolist() == torch.nn.ReLU()(a).tolist() == [-1.0, -2.0, -4.0]


# Operators, below autograd -------------------------------------------------------------------------------------------


def test_an_operator_is_replaced_in_both_passes(a):
    seen = []

    def mul(x, y):
        seen.append((x, y))
        return torch.ops.aten.mul.Tensor(x, y)

    b = leaf([2.0, 1.0, 0.5])
    with override_implementation(aten.mul.Tensor, mul):
        (a * b).sum().backward()
    assert len(seen) == 3  # a * b, and the two of its derivative
    assert a.grad.tolist() == b.tolist() and b.grad.tolist() == a.tolist()
    a * b
    assert len(seen) == 3


def test_parts_of_an_operator_that_torch_takes_apart_are_replaced(a):
    with override_implementation(aten.exp.default, torch.ones_like):
        third = lnstensor(1.0, format=lns16) / torch.ones_like(a).sum()
        assert torch.ops.aten._softmax.default(a, 0, False).tolist() == [third.item()] * 3


def test_the_sum_of_two_gradients_is_an_operator(a):
    with override_implementation(aten.add.Tensor, larger):
        (a * 3.0 - a * -1.0).sum().backward()
    assert a.grad.tolist() == lnstensor([3.0] * 3, format=lns16).tolist()


@pytest.mark.parametrize("operation", [torch.mul, aten.mul.Tensor])
def test_a_float_result_is_refused(a, operation):
    text = r"an implementation of .*mul.* must return LNSTensors, not a torch.float64 tensor"
    with override_implementation(operation, lambda x, y: x.value), pytest.raises(TypeError, match=f"^{text}$"):
        a * a


def test_an_operator_that_never_arrives():
    text = "aten.matmul.default never arrives: torch takes it apart above autograd; override its parts"
    with (
        pytest.raises(ValueError, match=exactly(text)),
        override_implementation(aten.matmul.default, torch.matmul),
    ):
        pass


# Keys ----------------------------------------------------------------------------------------------------------------


def test_registered_implementations(a):
    @implements(torch.sub, key="test_override larger")
    def first(x, y):
        return x

    decorated = implements(torch.sub, no_correction, key="test_override larger")(larger)
    assert decorated is larger
    assert get_implementation(torch.sub, "test_override larger") == (larger, no_correction)
    assert get_default_implementation_key(torch.sub) == "default"
    with override_implementation(torch.sub, "test_override larger"):
        assert get_default_implementation_key(torch.sub) == "test_override larger"
        with override_implementation(torch.sub, first):
            assert get_default_implementation_key(torch.sub) == "first"
        assert (a - 2.0).tolist() == [2.0, 2.0, 4.0]
        assert get_default_implementation_key(torch.add) == "default"
    assert get_default_implementation_key(torch.sub) == "default"


def test_unknown_keys():
    implements(torch.div, key="b")(larger)
    implements(torch.div, key="a")(larger)
    with pytest.raises(ValueError, match=exactly("implementation of div must be one of ['a', 'b'], not 'c'")):
        get_implementation(torch.div, "c")
    with (
        pytest.raises(ValueError, match=exactly("implementation of tanh must be one of [], not 'c'")),
        override_implementation(torch.tanh, "c"),
    ):
        pass


def test_what_is_not_a_function():
    with (
        pytest.raises(TypeError, match=exactly("implementation must be a function, not 3")),
        override_implementation(torch.add, 3),
    ):
        pass
    with (
        pytest.raises(TypeError, match=exactly("operation must be a function, not 'add'")),
        override_implementation("add", larger),
    ):
        pass


# Gaussian logarithms -------------------------------------------------------------------------------------------------


def test_an_adder_replaces_every_addition(a):
    weight = leaf([[3.0, 1.0, 0.5], [1.0, 0.25, 2.0]])
    with override_adder(LARGER):
        product = weight @ a
        product.sum().backward()
        assert product.tolist() == lnstensor([3.0, 8.0], format=lns16).tolist()
        assert a.sum().item() == 4.0
        assert a.grad.tolist() == lnstensor([3.0, 1.0, 2.0], format=lns16).tolist()
        (a + a).sum().backward()
    assert product.format == a.grad.format == lns16
    # The gradient of a + a, and what it was added to, in the engine's own additions.
    assert a.grad.tolist() == lnstensor([3.0, 1.0, 2.0], format=lns16).tolist()
    assert (a + a).tolist() == [2.0, 4.0, 8.0]


def test_words_are_those_of_a_format_with_the_adder():
    for accumulator in (LogAccumulator(), LogAccumulator("tree")):
        format = LNSFormat(8, 7, accumulator=accumulator)
        x, y = randn(6, 9, seed=1, format=format), randn(9, 4, seed=2, format=format)
        other = dataclasses.replace(format, adder=LARGER)
        expected = lnstensor(x, format=other) @ lnstensor(y, format=other)
        with override_adder(LARGER):
            check(x @ y, format, expected._words)
        assert not torch.equal((x @ y)._words, expected._words)


def test_in_place_and_views_stay_themselves(a):
    x = a.detach().clone()
    with override_adder(LARGER):
        assert x.add_(3.0) is x
        with torch.inference_mode():
            assert x.mul_(1.0) is x and aten.mul_.Tensor(x, 1.0) is x
        x[1:].mul_(2.0)
        y = torch.zeros_like(x)
        y.copy_(x)
        z = randn(2, 3, seed=1)
        expected = z.T.tolist()
        assert z.t_() is z and z.shape == z._words.shape == (3, 2) and z.tolist() == expected
        total = torch.zeros_like(x)
        assert torch.add(x, x, out=total) is total and total.tolist() == x.tolist()
    assert x.tolist() == y.tolist() == lnstensor([3.0, 6.0, 8.0], format=lns16).tolist()
    assert x.format == y.format == z.format == lns16


def test_an_adder_for_one_format(a):
    b = leaf([1.0, 2.0, 4.0], lns8)
    with override_adder(LARGER, lns16):
        assert (a + a).tolist() == [1.0, 2.0, 4.0]
        assert (b + b).tolist() == [2.0, 4.0, 8.0]
    with override_adder(LARGER), pytest.raises(TypeError, match="operands of two formats, lns16 and lns8"):
        a + b


def test_adders_nest(a):
    with override_adder(LARGER):
        with override_adder(Exact()):
            assert (a + a).tolist() == [2.0, 4.0, 8.0]
            with override_adder(LARGER, lns16):
                assert (a + a).tolist() == [1.0, 2.0, 4.0]
            with pytest.raises(TypeError), override_adder(LARGER):
                a + leaf([1.0, 2.0, 4.0], lns8)
            assert (a + a).tolist() == [2.0, 4.0, 8.0]
        assert (a + a).tolist() == [1.0, 2.0, 4.0]
        with override_implementation(aten.add.Tensor, torch.ops.aten.mul.Tensor):
            assert (a + a).tolist() == [1.0, 4.0, 16.0]


def test_an_optimizer_adds_with_the_adder(a):
    with override_adder(LARGER):
        a.grad = lnstensor([-1.0, 8.0, -1.0], format=lns16)
        torch.optim.SGD([a], lr=1.0).step()
    assert a.tolist() == [1.0, -8.0, 4.0]


def test_a_function_with_the_interface_of_the_xlnstorch_package():
    calls = []

    def sbdb(z, s, base):
        calls.append((z, s, base))
        return 2 * torch.round(torch.log(torch.abs(1.0 - 2.0 * s + base**z)) / torch.log(base))

    x, y = randn(200, seed=1), randn(200, seed=2)
    with override_adder(GaussianFunction(sbdb)):
        check(x + y, lns16, add(lns16, x._words, y._words))
        check(x - x, lns16, torch.zeros_like(x._words))
    z, s, base = calls[0]
    assert z.dtype == s.dtype == torch.int64 and base.dtype == torch.float64
    assert int(z.max()) <= 0 and sorted(set(s.tolist())) == [0, 1] and base == x.base


def test_what_a_function_may_not_return(a):
    def odd(z, s, base):
        return torch.ones_like(z)

    def short(z, s, base):
        return torch.zeros(2, dtype=torch.int64)

    with (
        pytest.raises(ValueError, match=exactly("odd must return even integers, not 1")),
        override_adder(GaussianFunction(odd)),
    ):
        a + a
    with (
        pytest.raises(TypeError, match=exactly("short must return a tensor of shape (3,), not (2,)")),
        override_adder(GaussianFunction(short)),
    ):
        a + a
    with pytest.raises(ValueError, match="has no table: how far a function reaches is not known"):
        GaussianFunction(odd).table(lns16)


def test_what_is_not_an_adder():
    text = "adder must be an Adder such as Exact(), not 'mitchell'"
    with pytest.raises(TypeError, match=exactly(text)), override_adder("mitchell"):
        pass
    text = "format must be an LNSFormat such as xlnstorch.lns16, not 16"
    with pytest.raises(TypeError, match=exactly(text)), override_adder(LARGER, 16):
        pass


# The block -----------------------------------------------------------------------------------------------------------

BLOCKS = {
    "function": lambda: override_implementation(torch.add, larger),
    "operator": lambda: override_implementation(aten.add.Tensor, larger),
    "adder": lambda: override_adder(LARGER),
}


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_an_exception_ends_the_block(a, block):
    with pytest.raises(KeyError), block():
        assert (a + a).tolist() == [1.0, 2.0, 4.0]
        raise KeyError
    assert (a + a).tolist() == [2.0, 4.0, 8.0]
    assert get_default_implementation_key(torch.add) == "default"


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_another_thread_is_not_inside(a, block):
    inside, done, elsewhere = threading.Event(), threading.Event(), []

    def work():
        inside.wait(10)
        elsewhere.append(((a + a).tolist(), get_default_implementation_key(torch.add)))
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    with block():
        inside.set()
        done.wait(10)
        assert (a + a).tolist() == [1.0, 2.0, 4.0]
    thread.join()
    assert elsewhere == [([2.0, 4.0, 8.0], "default")]


def test_operations_are_reported_as_computed(a):
    seen = []
    with xlnstorch.observe.observing(seen.append), override_adder(LARGER):
        a + a
    (operation,) = seen
    assert operation.name == "add"
    assert operation.format == dataclasses.replace(lns16, adder=LARGER)
    assert torch.equal(operation.result, arithmetic.add(operation.format, *operation.operands))
