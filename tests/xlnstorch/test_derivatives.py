"""PyTorch's derivative formulas over LNSTensors: word for word by hand, and against float64 in wide formats."""

import functools
import math

import pytest
import torch
from lnstesting import add, check, leaf, randn, word
from torch import nn
from torch.nn import functional as F  # noqa: N812

from xlnstorch import LNSFormat, LNSTensor, arithmetic, lns16, lnstensor, software_format

FORMATS = [lns16, software_format(23)]


@pytest.mark.parametrize("format", FORMATS, ids=repr)
def test_double_backward_of_a_polynomial(format):
    x = leaf([2.0, 0.5, -4.0], format)
    y = (x**3 + 4 * x * x).sum()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    (third,) = torch.autograd.grad(second.sum(), x)
    for grad, expected in ((first, [28.0, 4.75, 16.0]), (second, [20.0, 11.0, -16.0]), (third, [6.0] * 3)):
        error = (grad.value - torch.tensor(expected, dtype=torch.float64)).abs() / 28.0
        assert isinstance(grad, LNSTensor) and error.max() < 6 * 2.0**-format.frac_bits
    # 3 x² + 4 x + 4 x, as autograd adds it.
    w = x._words
    power = arithmetic.mul(format, arithmetic.power(format, w, 2), word(format, 3.0))
    left, right = arithmetic.mul(format, w, word(format, 4.0)), arithmetic.mul(format, word(format, 4.0), w)
    sums = {tuple(add(format, *terms).tolist()) for terms in ([left, right, power], [power, left, right])}
    assert tuple(first._words.tolist()) in sums


a = torch.tensor([[0.3, 2.0, 1.7], [3.1, 0.9, 1.2]], dtype=torch.float64)
b = torch.tensor([[1.1, 0.4, 2.2], [0.7, 1.9, 0.5]], dtype=torch.float64)
rows = torch.tensor([1, 0, 1])


def written(c, index, value):
    c[index] = value
    return c


DERIVATIVES = {
    "alpha": lambda a, b: torch.add(a, b, alpha=0.3) - torch.sub(a, b, alpha=0.7),
    "broadcast": lambda a, b: a * b[0] / b[:, :1],
    "numbers": lambda a, b: (1 - a) / 3 + 2 / b,
    "neg abs sign relu": lambda a, b: -(a - b).abs() * a.sign() + (b - 1).relu(),
    "sqrt reciprocal": lambda a, b: a.sqrt() * b.reciprocal(),
    "power": lambda a, b: a**3 + b**-2 + a**1 * b**0,
    "power of a half": lambda a, b: a**0.5,
    "power of minus a half": lambda a, b: a**-0.5,
    "exp log": lambda a, b: a.exp() + b.log(),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=0.5),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b, value=0.5),
    "mm": lambda a, b: a @ b.t(),
    "mv": lambda a, b: a @ b[0],
    "vector times matrix": lambda a, b: a[0] @ b.t(),
    "dot": lambda a, b: torch.dot(a[0], b[0])[None],
    "bmm": lambda a, b: torch.bmm(a[None], b.t()[None]),
    "addmm": lambda a, b: torch.addmm(b[0, :2], a, b.t(), beta=0.5, alpha=2.0),
    "sum": lambda a, b: a.sum(0) * b.sum((0, 1)) + b.mean(1, keepdim=True),
    "sum of a scalar": lambda a, b: a[0, 0].sum()[None],
    "max": lambda a, b: a.max() * b.min() + a[0],
    "max dim": lambda a, b: a.max(1).values + b.min(1).values,
    "amax": lambda a, b: a.amax(1) + b.amin(),
    "maximum": lambda a, b: torch.maximum(a, b) + torch.minimum(a, b * b),
    "where": lambda a, b: torch.where(a > b, a, b * 2).masked_fill(b > 2, 2.0),
    "cat stack": lambda a, b: torch.cat([torch.stack([a, b * 2], 1).flatten(0, 1), a]),
    "split": lambda a, b: a.split([1, 2], 1)[1] * b.chunk(2, 1)[0],
    "unbind": lambda a, b: a.unbind(0)[1] * b[0],
    "index": lambda a, b: a[rows] * b[rows, rows][:, None],
    "mask": lambda a, b: a[torch.tensor([[True, False, True], [False, True, True]])],
    "index_select": lambda a, b: a.index_select(0, rows),
    "gather": lambda a, b: a.gather(0, rows[None]),
    "scatter": lambda a, b: a.scatter(0, rows[None], b[:1]),
    "shapes": lambda a, b: a[:, ::2].t().reshape(-1).unsqueeze(0).squeeze(0).expand(3, 4).permute(1, 0) * 2,
    "repeat flip": lambda a, b: a.repeat(2, 2).flip(1),
    "diagonal": lambda a, b: a.diagonal(),
    "unfold": lambda a, b: a.unfold(1, 2, 1),
    "assignment": lambda a, b: written(a * 1, 0, b[1] * 2),
    "in place": lambda a, b: (a * 1).mul_(b).sub_(b, alpha=2).div_(b).neg_(),
    "in place through a view": lambda a, b: written(a * 2, (slice(None), 1), b[:, 0]).t().mul_(3.0),
    "mse": lambda a, b: F.mse_loss(a, b)[None] + F.mse_loss(a, b, reduction="sum"),
    "l1": lambda a, b: F.l1_loss(a, b)[None],
    "cross entropy": lambda a, b: F.cross_entropy(a, rows[:2])[None],
    "softmax": lambda a, b: a.softmax(1) * b.log_softmax(0),
    "cross entropy of one": lambda a, b: F.cross_entropy(a[0], rows[0])[None],
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_agree_with_float64(name):
    # At 30 fraction bits a rounding is 2**-31.5 of the value and none of the functions has 100 on a path or magnifies
    # an error by more than 10, so 2**-21 of the largest gradient leaves nothing but rounding unexplained.
    def gradients(make):
        leaves = [make(a).requires_grad_(), make(b).requires_grad_()]
        result = DERIVATIVES[name](*leaves)
        weight = torch.linspace(0.5, 2.0, result.numel(), dtype=torch.float64).reshape(result.shape)
        (result * weight).sum().backward()
        return result, *(leaf.grad for leaf in leaves)

    got = gradients(lambda x: lnstensor(x, format=LNSFormat(12, 30)))
    for mine, theirs in zip(got, gradients(torch.clone), strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert isinstance(mine, LNSTensor) and mine.shape == theirs.shape
            assert (mine.value - theirs).abs().max() <= 2.0**-21 * max(1.0, theirs.abs().max())


@pytest.mark.parametrize("format", FORMATS, ids=repr)
def test_linear_layer_word_for_word(format):
    layer = nn.Linear(4, 3).double()
    layer.weight = nn.Parameter(randn(3, 4, seed=3, format=format))
    layer.bias = nn.Parameter(randn(3, seed=4, format=format))
    x, scale = randn(5, 4, seed=5, format=format).requires_grad_(), randn(5, 3, seed=6, format=format)
    y = layer(x)
    (y * scale).sum().backward()
    mul = functools.partial(arithmetic.mul, format)
    w, g, v = layer.weight._words, scale._words, x._words
    for i in range(5):
        for j in range(3):
            product = add(format, *(mul(v[i, k], w[j, k]) for k in range(4)))
            check(y[i, j], format, arithmetic.add(format, product, layer.bias._words[j]))  # the bias is added last
        for k in range(4):
            check(x.grad[i, k], format, add(format, *(mul(g[i, j], w[j, k]) for j in range(3))))
    for j in range(3):
        check(layer.bias.grad[j], format, add(format, *g[:, j]))
        for k in range(4):
            check(layer.weight.grad[j, k], format, add(format, *(mul(g[i, j], v[i, k]) for i in range(5))))


def mlp(weights):
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    for module, (weight, bias) in zip((model[0], model[2]), weights, strict=True):
        module.weight, module.bias = nn.Parameter(weight), nn.Parameter(bias)
    return model


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("format", [software_format(23), LNSFormat(12, 40)], ids=repr)
def test_mlp_gradients_agree_with_float64(loss, format):
    # Every rounding, those of encoding included, changes its result by at most delta of it, relatively, and no more
    # than `roundings` lie on any path: the two products' fan-ins and the batch, forward and backward, and the loss.
    # Every intermediate number is bounded by that of the network with absolute values throughout, without ReLU, so
    # each gradient is off by at most roundings · delta · (the gradient of that network). Cross entropy has exp in the
    # middle: it makes the absolute error of a logit a relative one, hence the factor of the largest logit.
    generator = torch.Generator().manual_seed(11)
    draw = functools.partial(torch.randn, dtype=torch.float64, generator=generator)
    weights = [(draw(8, 6) / 3, draw(8) / 3), (draw(3, 8) / 3, draw(3) / 3)]
    x, labels, target = draw(4, 6), torch.tensor([0, 2, 1, 1]), draw(4, 3)
    delta = math.log(2) * 2.0 ** -(format.frac_bits + 1) + 2.0**-52
    roundings = 2 * (6 + 8 + 8 + 3 + 4) + 20

    def gradients(model, x, target):
        result = model(x)
        (F.mse_loss(result, target) if loss == "mse" else F.cross_entropy(result, labels)).backward()
        return [p.grad for p in model.parameters()]

    encode = functools.partial(lnstensor, format=format)
    got = gradients(mlp([(encode(w), encode(b)) for w, b in weights]), encode(x), encode(target))
    expected = gradients(mlp(weights), x, target)

    majorant = mlp([(w.abs(), b.abs()) for w, b in weights])
    logits = majorant(x.abs())
    per_logit = 2 * (logits + target.abs()) / 12 if loss == "mse" else torch.full_like(logits, 0.25)
    logits.backward(per_logit.detach() * (1 if loss == "mse" else 2 + 2 * logits.detach().max()))
    for mine, theirs, bound in zip(got, expected, majorant.parameters(), strict=True):
        assert isinstance(mine, LNSTensor) and mine.format == format
        error = (mine.value - theirs).abs()
        assert (error <= 1.01 * roundings * delta * bound.grad).all()
        assert error.max() > 0  # it is not float64 in disguise
