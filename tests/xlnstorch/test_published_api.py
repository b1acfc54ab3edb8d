"""What a script for the xlnstorch package 1.0.0 uses, by the names and in the forms of that package."""

import importlib
import re
from pathlib import Path

import pytest
import torch
import torch.utils.benchmark
from lnstesting import exactly

import xlnstorch as xltorch

GUIDE = (Path(__file__).parents[2] / "docs" / "migration.md").read_text()
UNIT = 2.0**-23  # relative error of some roundings at f=23, generously


def lns(values, f=23, **options):
    return xltorch.lnstensor(values, f=f, **options)


def close(result, expected, rtol=4 * UNIT):
    assert isinstance(result, xltorch.LNSTensor)
    assert torch.allclose(result.value, expected, rtol=rtol, atol=1e-6)


# Making and reading tensors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options, base", [({"f": 23}, 2 ** (2**-23)), ({"f": 4}, 2 ** (2**-4)), ({"b": 1.25}, 1.25)])
def test_factories_take_f_and_b(options, base):
    like = xltorch.zeros(2, 3, **options)
    made = [
        xltorch.lnstensor([[1.0, 2.0, 3.0]] * 2, **options),
        like,
        xltorch.ones((2, 3), **options),
        xltorch.full((2, 3), 4.0, **options),
        xltorch.rand(2, 3, **options),
        xltorch.randn(2, 3, **options),
        xltorch.empty(2, 3, **options),
        *(getattr(xltorch, f"{name}_like")(like) for name in ("zeros", "ones", "rand", "randn", "empty")),
        xltorch.full_like(like, 4.0),
        xltorch.ones_like(torch.zeros(2, 3), **options),
    ]
    for x in made:
        assert isinstance(x, xltorch.LNSTensor) and x.shape == (2, 3)
        assert x.base.dtype == torch.float64 and x.base.shape == () and x.base == base
        assert x.value.dtype == x.lns.dtype == x._lns.dtype == torch.float64
    b = torch.tensor(base, dtype=torch.float64)
    assert xltorch.lnstensor([1.0], b=b).base == b


def test_packed_tensors_go_out_and_come_in():
    x = lns([1.0, -1.0, 0.0, 3.0, -1e-9])
    assert x._lns.tolist()[:3] == [0.0, 1.0, xltorch.LNS_ZERO]
    for packed in (x.lns, x._lns.clone()):
        y = xltorch.lnstensor(packed, from_lns=True, b=x.base)
        assert torch.equal(y.words, x.words)
    x._lns.zero_()
    assert x.tolist()[1] == -1.0  # what _lns gives is a copy


def test_bases_and_fs_out_of_range():
    for b in (0.0, 1.0):
        with pytest.raises(ValueError, match=exactly(f"b must be a finite number above 1, not {b}")):
            xltorch.lnstensor([1.0], b=b)
    with pytest.raises(ValueError, match=exactly("only one of f, b and format may be given, not f and b")):
        xltorch.lnstensor([1.0], f=4, b=2.0)


# Operators and functions ---------------------------------------------------------------------------------------------

X, Y = [1.5, -2.0, 3.0, 0.25], [4.0, 0.5, -6.0, 0.75]
BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


@pytest.mark.parametrize("name", BINARY)
def test_arithmetic_with_every_kind_of_operand(name):
    function, symbol = getattr(torch, name), BINARY[name]
    operate = eval(f"lambda a, b: a {symbol} b")
    x, y = lns(X), lns(Y)
    for a, b in [(x, y), (x, y.value), (x.value, y), (x, 3), (3, x), (x, 2.5), (2.5, x), (x, torch.tensor(3))]:
        expected = operate(*(t.value if isinstance(t, xltorch.LNSTensor) else t for t in (a, b)))
        close(operate(a, b), expected)
    close(function(x, y), operate(x.value, y.value))
    z = x.clone()
    assert getattr(z, f"{name}_")(y) is z
    close(z, operate(x.value, y.value))
    if name in ("add", "sub"):
        close(function(x, y, alpha=2.0), function(x.value, y.value, alpha=2.0))
        close(getattr(x, name)(y, alpha=2.0), function(x.value, y.value, alpha=2.0))


@pytest.mark.parametrize("name", ["neg", "abs", "square", "reciprocal", "sign", "sqrt", "exp", "log"])
def test_functions_of_one_operand(name):
    x = torch.abs(lns(X)) if name in ("sqrt", "log") else lns(X)
    close(getattr(torch, name)(x), getattr(torch, name)(x.value), rtol=2e-6)


@pytest.mark.parametrize("exponent", [2, 0.5, 0, -1, 1.7, torch.tensor([0.5, 1.0, 2.0, -3.0])], ids=str)
def test_powers(exponent):
    x = torch.abs(lns(X))
    close(torch.pow(x, exponent), x.value**exponent)
    close(x**exponent, x.value**exponent)


def test_sums_and_products():
    x = lns([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    for options in ({}, {"dim": 0}, {"dim": 1, "keepdim": True}, {"dim": (0, 1)}, {"dim": -1}):
        close(torch.sum(x, **options), torch.sum(x.value, **options))
    y = x.T * 0.5
    close(torch.matmul(x, y), x.value @ y.value)
    close(torch.matmul(x, y.value), x.value @ y.value)
    close(torch.matmul(x.value, y), x.value @ y.value)
    batch = xltorch.lnstensor(torch.arange(12.0).reshape(2, 3, 2), f=23)
    close(torch.matmul(x, batch), x.value @ batch.value)
    close(torch.nn.functional.linear(x, x, lns([1.0, -1.0])), x.value @ x.value.T + torch.tensor([1.0, -1.0]))


@pytest.mark.parametrize("name", ["eq", "ne", "ge", "gt", "le", "lt"])
def test_comparisons(name):
    compare, x = getattr(torch, name), lns([1.0, -1.0, 2.0, 0.0])
    for y in (lns([1.0, -2.0, 3.0, -0.0]), torch.tensor([1.0, -2.0, 3.0, -0.0]), 1):
        expected = compare(x.value, y.value if isinstance(y, xltorch.LNSTensor) else y)
        assert torch.equal(compare(x, y), expected)


def test_orders():
    x, y = lns([3.0, -1.0, 2.0, -2.0]), lns([1.0, -1.5, 2.5, -2.0])
    for name in ("maximum", "minimum"):
        close(getattr(torch, name)(x, y), getattr(torch, name)(x.value, y.value))
    for options in ({}, {"descending": True}):
        values, indices = torch.sort(x, **options)
        close(values, torch.sort(x.value, **options)[0])
        assert torch.equal(indices, torch.argsort(x, **options))
    assert torch.kthvalue(x, 2)[0].item() == -1.0
    assert torch.equal(x, x.clone()) is True and torch.equal(x, y) is False
    assert torch.any(x).item() is True and torch.all(lns([0.0, 1.0])).item() is False
    assert torch.isclose(x, lns(x.value * (1 + 1e-10))).all() and torch.allclose(x, y) is False


# Gradients -----------------------------------------------------------------------------------------------------------


def test_backward_without_a_gradient_takes_ones():
    x, y = lns(X, requires_grad=True), lns(Y, requires_grad=True)
    (x * y).backward()
    assert torch.equal(x.grad.value, y.value) and torch.equal(y.grad.value, x.value)
    (x + x).backward(lns([1.0, 2.0, 0.0, -4.0]))
    close(x.grad, y.value + torch.tensor([2.0, 4.0, 0.0, -8.0]))
    z = lns(2.0, requires_grad=True)
    (z * z).backward()
    assert z.grad.item() == 4.0


GRADIENTS = {
    "softmin": lambda x, y: torch.nn.functional.softmin(x, dim=0) * y,
    "sub with alpha": lambda x, y: x.sub(y, alpha=2),
    "exponent": lambda x, y: torch.abs(x) ** y,
    "base": lambda x, y: 2.0**x * y,
    "sort": lambda x, y: torch.sort(x)[0] * y,
    "fan-out": lambda x, y: (x * y) * x + (x * y) * y,
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_that_the_package_gets_wrong(name):
    x, y = lns(X, requires_grad=True), lns(Y, requires_grad=True)
    u, v = (torch.tensor(values, dtype=torch.float64, requires_grad=True) for values in (X, Y))
    GRADIENTS[name](x, y).sum().backward()
    GRADIENTS[name](u, v).sum().backward()
    close(x.grad, u.grad, rtol=2e-6)
    close(y.grad, v.grad, rtol=2e-6)


class Product(xltorch.autograd.LNSFunction):
    """In the separate style of the package's own documentation."""

    @staticmethod
    def forward(x, y):
        return (x + y - 2 * (x % 2) * (y % 2)).double()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return Product.forward(grad, y), Product.forward(grad, x)


def test_a_function_of_packed_tensors():
    x, y = lns(X, requires_grad=True), lns(Y, requires_grad=True)
    result = xltorch.lnstensor(Product.apply(x, y), from_lns=True, b=x.base)
    assert torch.equal(result.value, (x * y).value)
    result.backward()
    assert torch.equal(x.grad.value, y.value) and torch.equal(y.grad.value, x.value)


def test_fan_out():
    x = lns(X, requires_grad=True)
    tree, shared = x * 2.0, x * x
    for root in (tree, tree.grad_fn, x, torch.ones(1)):
        assert xltorch.autograd.has_fanout(root) is False and xltorch.autograd.find_fanout(root) == []
    for root in (shared, shared.grad_fn):
        assert xltorch.autograd.has_fanout(root) is True
        with pytest.raises(RuntimeError, match="the autograd graph has fan-out at"):
            xltorch.autograd.raise_fanout_error(xltorch.autograd.find_fanout(root))


# The guide -----------------------------------------------------------------------------------------------------------


def test_the_guides_examples_run():
    names = {}
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, "docs/migration.md", "exec"), names)


def test_every_successor_exists():
    """Dotted names in the right-hand columns, and what the left-hand ones say is the same."""
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", GUIDE, re.MULTILINE)
    named = {name for _, here in rows for name in re.findall(r"`((?:xlnstorch|xltorch|torch)(?:\.\w+)+)", here)}
    same = {
        f"xlnstorch.{name}"
        for left, here in rows
        if re.match(r"same\b", here)
        for span in re.findall(r"`([^`]+)`", left)
        for name in re.findall(r"^[\w.]+(?=\(|$)|(?<= )\w+(?= |$)", span)
        if not name.startswith((".", "_"))
    }
    assert len(named) > 25 and len(same) > 10
    missing = []
    for name in sorted(named | same):
        first, *rest = name.replace("xltorch", "xlnstorch").split(".")
        found = importlib.import_module(first)
        for part in rest:
            found = getattr(found, part, None)
        if found is None:
            missing.append(name)
    assert missing == []
