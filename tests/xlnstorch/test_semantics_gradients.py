"""Gradients that are easy to get wrong: of what is used twice, of graphs used twice, of zeros and of powers."""

import copy
import math

import pytest
import torch
from lnstesting import (
    WIDE,
    Number,
    check,
    check_against_float64,
    check_numbers,
    check_wide,
    exactly,
    leaf,
    numbers,
    randn,
    total,
)
from torch.nn import functional

import xlnstorch
from xlnstorch import lns16, lnstensor

# Graphs ---------------------------------------------------------------------------------------------------------------


def test_a_retained_graph_with_an_intermediate_adds_up():
    x = leaf([3.0, -0.7])
    middle = x * 1.1
    middle.retain_grad()
    loss = (middle * 0.3 + middle).sum()
    loss.backward(retain_graph=True)
    once = Number(1.0) + Number(0.3)  # the order of the engine: the last use comes first
    check_numbers(middle.grad, [once, once])
    check_numbers(x.grad, [once * 1.1] * 2)
    loss.backward()
    check_numbers(middle.grad, [once + once] * 2)
    check_numbers(x.grad, [once * 1.1 + once * 1.1] * 2)


def test_an_intermediate_that_is_kept_gets_the_whole_gradient_of_its_uses():
    x = leaf([0.5])
    h = x * 3.0
    h.retain_grad()
    ((h * h) / 4).sum().backward()
    (n,) = numbers(h.detach())
    check_numbers(h.grad, [Number(0.25) * n + Number(0.25) * n])


def test_two_losses_on_a_shared_trunk_of_modules():
    trunk, head, tail = (xlnstorch.convert(torch.nn.Linear(3, 3), lns16) for _ in range(3))
    x, grads = randn(4, 3, seed=1), []
    losses = [lambda h: 0.5 * head(h).square().mean(), lambda h: tail(h).sigmoid().sum() / 3]
    for loss in losses:
        trunk.zero_grad()
        loss(torch.tanh(trunk(x))).backward()
        grads.append(trunk.weight.grad)
    trunk.zero_grad()
    shared = torch.tanh(trunk(x))
    losses[0](shared).backward(retain_graph=True)
    losses[1](shared).backward()
    a, b = (numbers(grad.flatten()) for grad in grads)
    check_numbers(trunk.weight.grad.flatten(), [m + n for m, n in zip(a, b, strict=True)])


def test_a_deep_copy_has_a_graph_of_its_own():
    model = xlnstorch.convert(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)), lns16)
    x = randn(5, 3, seed=2)
    model(x).square().mean().backward()
    twin = copy.deepcopy(model)
    for mine, theirs in zip(twin.parameters(), model.parameters(), strict=True):
        check(mine.grad, lns16, theirs.grad._words)
        assert mine.grad._words.data_ptr() != theirs.grad._words.data_ptr()
    before = [p.grad._words.clone() for p in model.parameters()]
    twin.zero_grad()
    twin(x).square().mean().backward()
    for mine, theirs, words in zip(twin.parameters(), model.parameters(), before, strict=True):
        check(mine.grad, lns16, words)
        check(theirs.grad, lns16, words)
    assert any(bool(words.any()) for words in before)


def test_in_place_after_fan_out():
    x = leaf([3.0, -0.7])
    h = x * 1.1
    other = h + 0.5
    h.add_(0.25)  # no derivative needs the old h
    (h * 0.3 + other).sum().backward()
    check_numbers(h.detach(), [n * 1.1 + 0.25 for n in numbers(x)])
    gradient = Number(1.0) + Number(0.3)
    check_numbers(x.grad, [gradient * 1.1] * 2)


def test_in_place_on_what_a_derivative_needs_is_torchs_error():
    x = leaf([3.0, -0.7])
    h = x * 1.1
    square = h * h
    h.mul_(2.0)
    with pytest.raises(RuntimeError, match=r"^one of the variables needed for gradient computation has been modified"):
        square.sum().backward()


@pytest.mark.parametrize("name", ["add_", "mul_", "zero_", "copy_", "exp_", "relu_"])
def test_in_place_on_a_leaf_is_torchs_error(name):
    x, argument = leaf([1.0, 2.0]), [2.0] if name in ("add_", "mul_") else [torch.ones(2)] if name == "copy_" else []
    words = x._words.clone()
    text = "a leaf Variable that requires grad is being used in an in-place operation."
    with pytest.raises(RuntimeError, match=exactly(text)):
        getattr(x, name)(*argument)
    view = x[0]
    with pytest.raises(RuntimeError, match=r"^a view of a leaf Variable that requires grad"):
        view.mul_(2)
    assert torch.equal(x._words, words)


# Elements that are used several times: their gradients add in LNS, in order -------------------------------------------

INCOMING = [0.7, -1.3, 0.31, 2.9, 0.05, -0.11]


def gathered(x, index):
    return x[torch.tensor(index)]


DUPLICATES = {
    "index": gathered,
    "index_select": lambda x, index: x.index_select(0, torch.tensor(index)),
    "gather": lambda x, index: x.gather(0, torch.tensor(index)),
    "take": lambda x, index: x.take(torch.tensor(index)),
    "embedding": lambda x, index: functional.embedding(torch.tensor(index), x.unsqueeze(1)).squeeze(1),
}


@pytest.mark.parametrize("name", DUPLICATES)
def test_duplicate_indices(name):
    x = leaf([1.0, 2.0, 3.0])
    index = [2, 0, 2, 2, 0, 0]
    y = DUPLICATES[name](x, index)
    check_numbers(y.detach(), [numbers(x)[i] for i in index])
    y.backward(lnstensor(INCOMING, format=lns16))
    of = [[Number(g) for g, i in zip(INCOMING, index, strict=True) if i == target] for target in range(3)]
    check_numbers(x.grad, [total(of[0]), Number(0), total(of[2])])


REPEATS = {
    "repeat": lambda x: x.repeat(3),
    "expand": lambda x: x.expand(3, 2).reshape(-1),
    "tile": lambda x: torch.tile(x, (3,)),
    "broadcast": lambda x: (x * torch.ones(3, 1)).reshape(-1),
    "cat": lambda x: torch.cat([x, x, x]),
}


@pytest.mark.parametrize("name", REPEATS)
def test_repeats(name):
    x = leaf([1.0, 2.0])
    REPEATS[name](x).backward(lnstensor(INCOMING, format=lns16))
    a, b = [[Number(g) for g in INCOMING[i::2]] for i in (0, 1)]
    if name == "cat":  # three uses, which the engine adds as they come, the last first
        a, b = a[::-1], b[::-1]
    results = [total(a), total(b)]
    check_numbers(x.grad, results)


def test_repeat_interleave():
    x = leaf([1.0, 2.0])
    x.repeat_interleave(3).backward(lnstensor(INCOMING, format=lns16))
    check_numbers(x.grad, [total(map(Number, INCOMING[:3])), total(map(Number, INCOMING[3:]))])


def test_a_sum_in_floats_would_be_another_word():
    # Without this, the tests above could not tell an LNS sum from one that is rounded at the end.
    terms = INCOMING[1::2]
    assert total(map(Number, terms)).word != Number(sum(terms)).word


@pytest.mark.parametrize("mode, used", [("reflect", [2, 1, 0, 1, 2, 1]), ("replicate", [0, 0, 0, 1, 2, 2])])
def test_padding_by_elements_adds_their_gradients(mode, used):
    x = leaf([[[1.0, 2.0, 3.0]]])
    y = functional.pad(x, (2, 1), mode=mode)
    check_numbers(y.detach()[0, 0], [numbers(x)[0][0][i] for i in used])
    y.backward(lnstensor([[INCOMING]], format=lns16))
    for target, result in enumerate(numbers(x.grad)[0][0]):
        terms = [g for g, i in zip(INCOMING, used, strict=True) if i == target]
        # The order is PyTorch's affair, and one or two terms have none.
        if len(terms) < 3:
            assert result.word == total(map(Number, terms)).word
        else:
            assert result.word in {
                total(map(Number, order)).word for order in (terms, terms[1:] + terms[:1], terms[::-1])
            }


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding_in_two_dimensions(mode):
    image = torch.arange(1.0, 13.0).reshape(1, 1, 3, 4).tolist()
    check_against_float64(lambda x: functional.pad(x, (2, 1, 1, 2), mode=mode), image)


# Zeros and powers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [[2.0, 0.0, -3.0, 0.5], [2.0, 0.0, 0.0, 0.5], [2.0, 3.0, -3.0, 0.5]])
def test_product_with_zeros(values):
    # The derivative is the product of the others, which the product over the element would not give.
    check_against_float64(torch.prod, values)
    check_against_float64(lambda x: x.prod(1, keepdim=True), [values, values[::-1]])
    check_against_float64(lambda x: x.cumprod(0), values)
    x = leaf(values)
    x.prod().backward()
    expected = [math.prod(values[:i] + values[i + 1 :]) for i in range(4)]
    assert x.grad.tolist() == pytest.approx(expected, rel=0.02)


def test_exponents_broadcast():
    base, exponent = [[0.5], [1.7], [3.0]], [2.0, -1.0, 0.5, 0.0]
    check_against_float64(lambda x, y: x**y, base, exponent)
    check_against_float64(lambda y: 2.5**y, exponent)
    plain = torch.tensor(exponent, dtype=torch.float64)
    check_against_float64(lambda x: x**plain, base)


def test_a_plain_exponent_is_exact_and_an_integral_one_is_exact_too():
    x = leaf([[3.0], [-0.7]])
    y = x ** torch.tensor([2.0, 3.0, 0.0, -1.0])
    check_numbers(y.detach(), [[n**2, n**3, Number(1), n ** (-1)] for (n,) in numbers(x)])
    y[:, 1].sum().backward()
    check_numbers(x.grad, [[Number(3) * n**2] for (n,) in numbers(x)])


def test_powers_of_zero_and_their_gradients():
    x = leaf([0.0, 0.0, 0.0])
    y = x ** torch.tensor([0.0, 1.0, 2.0])
    y.sum().backward()
    assert y.tolist() == [1.0, 0.0, 0.0]
    assert x.grad.tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("alpha", [2, 0.1, -1, -2.5])
def test_alpha(alpha):
    x, y = leaf([3.0, -0.7]), leaf([0.3, 1.9])
    z = torch.sub(x, y, alpha=alpha) * 0.7
    z.sum().backward()
    a, b = numbers(x), numbers(y)
    check_numbers(z.detach(), [(m - n * alpha) * 0.7 for m, n in zip(a, b, strict=True)])
    check_numbers(x.grad, [Number(0.7)] * 2)
    check_numbers(y.grad, [-Number(0.7) * alpha] * 2)
    z = x.detach().add(y.detach(), alpha=alpha)
    check_numbers(z, [m + n * alpha for m, n in zip(a, b, strict=True)])
    check_numbers(x.detach().clone().sub_(y.detach(), alpha=alpha), [m - n * alpha for m, n in zip(a, b, strict=True)])
    check_numbers(torch.rsub(x.detach(), y.detach(), alpha=alpha), [n - m * alpha for m, n in zip(a, b, strict=True)])


# Twice differentiable -------------------------------------------------------------------------------------------------


def test_gradient_penalty():
    def penalty(weight, x):
        out = torch.tanh(x @ weight).sum()
        (gradient,) = torch.autograd.grad(out, x, create_graph=True)
        return ((gradient.norm(2, dim=1) - 1) ** 2).mean()

    check_against_float64(penalty, [[0.5, -0.3], [0.8, 0.1], [-0.4, 0.9]], [[1.0, 0.3, -0.2], [0.1, -0.5, 0.6]])


def test_twice_through_an_absolute_value():
    # The derivative of sgn, which is zero, is no LNSTensor: autograd makes it without memory.
    check_against_float64(
        lambda x: torch.autograd.grad((x.abs() * x).sum(), x, create_graph=True)[0] ** 2, [0.5, -0.3, 1.7]
    )
    check_against_float64(lambda x: torch.autograd.grad(x.norm(1) ** 2, x, create_graph=True)[0] * x, [0.5, -0.3, 1.7])
    # Nor is what autograd asks for the shape alone an operation to be counted.
    x = leaf([0.5, -0.25])
    with xlnstorch.flags() as counts:
        (first,) = torch.autograd.grad((x.abs() * x).sum(), x, create_graph=True)
        first.sum().backward()
    check_numbers(x.grad, [Number(2), Number(-2)])
    # Two sums of two elements, and two sums of two gradients of two elements.
    assert counts.by_operation["add"].operations == 6


def test_third_derivative():
    x = leaf([0.3, -1.1], WIDE)
    y = torch.sin(x)
    for _ in range(3):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    check_wide(y.detach(), -torch.cos(x.value))
