"""The multiplicative optimizers against float64, word for word where the format decides, and as torch optimizers."""

import copy
import io
import math

import pytest
import torch
from lnstesting import exactly, randn
from torch import nn

from xlnstorch import LNSFormat, conversions, from_words, lns8, lns16, lnstensor, software_format
from xlnstorch.optim import HybridMul, Madam, Mul, SignMul

F23 = software_format(23)
EVERY = [Madam, Mul, SignMul, HybridMul]


class Reference:
    """The factor of each optimizer in float64, written from its definition, one parameter."""

    def __init__(self, cls, weight, lr, beta=0.999, eps=1e-8, g_bound=10.0, use_pow=None, p_scale=None):
        self.cls, self.lr, self.beta, self.eps, self.g_bound = cls, lr, beta, eps, g_bound
        self.use_pow = cls is Madam if use_pow is None else use_pow
        self.step, self.mean = 0, torch.zeros_like(weight)
        p_scale = {Madam: 3.0, SignMul: 10.0}.get(cls) if p_scale is None else p_scale
        self.bound = math.inf if p_scale is None else p_scale * float(weight.square().mean().sqrt())

    def factor(self, weight, grad):
        lr, sign = self.lr, torch.sign(weight)
        opposite = torch.sign(grad) != sign
        if self.cls is Madam:
            self.step += 1
            self.mean = self.beta * self.mean + (1 - self.beta) * grad**2
            normed = grad / (self.mean / (1 - self.beta**self.step) + self.eps).sqrt()
            normed = torch.where(grad == 0, 0.0, normed)  # 0 / 0 with no eps, as in the paper's program
            x = -lr * normed.clamp(-self.g_bound, self.g_bound) * sign
            return x.exp() if self.use_pow else 1 + x
        if self.cls is Mul:
            grown = 1 + lr * grad.abs()
            return 2 ** (-lr * grad * sign) if self.use_pow else torch.where(opposite, grown, 1 / grown)
        if self.cls is SignMul:
            grown = 2.0**lr if self.use_pow else 1 + lr
            return torch.where(grad == 0, 1.0, torch.where(opposite, grown, 1 / grown))
        gentle = ~opposite | (grad.abs() < lr) | (weight.abs() < lr)
        fierce = torch.maximum(torch.tensor(2.0**lr), 1 + lr * (grad / weight).abs())
        return torch.where(gentle, 1 / (1 + lr * grad.abs()), fierce)


VARIANTS = [
    pytest.param(cls, dict(options), id=f"{cls.__name__} {options}")
    for cls, options in [
        (Madam, {}),
        (Madam, {"use_pow": False}),
        (Madam, {"beta": 0.9, "eps": 0.0, "g_bound": 1.5}),
        (Madam, {"eps": 0.3}),
        (Mul, {}),
        (Mul, {"use_pow": True}),
        (SignMul, {}),
        (SignMul, {"use_pow": True}),
        (HybridMul, {}),
    ]
]


def with_gradients(cls, options, format, steps=4, lr=0.05):
    """Yield the weights before a step, the reference's factors and bound, and the parameter after it."""
    p = nn.Parameter(randn(40, seed=1, format=format))
    optimizer = cls([p], lr=lr, **options)
    reference = Reference(cls, p.value, lr, **options)
    for step in range(steps):
        before = p.detach().clone()
        p.grad = randn(40, seed=10 + step, format=format)
        p.grad[:3] = 0.0
        factor = reference.factor(before.value, p.grad.value)
        optimizer.step()
        yield before, factor, reference.bound, p


@pytest.mark.parametrize("cls, options", VARIANTS)
def test_steps_follow_float64(cls, options):
    for before, factor, bound, p in with_gradients(cls, options, F23):
        expected = (before.value * factor).clamp(-bound, bound)
        # Some tens of roundings of half a unit, 4.1e-8 each; the exponent of exp and the mean magnify none.
        assert torch.allclose(p.value, expected, rtol=2e-6, atol=0)


@pytest.mark.parametrize("cls, options", VARIANTS)
def test_the_logarithm_moves_by_the_factors_rounded_once(cls, options):
    decided = 0
    for before, factor, bound, p in with_gradients(cls, options, lns16):
        change = factor.log2() * 128
        clear = ((change - change.floor() - 0.5).abs() > 1e-3) & (before.value * factor).abs().lt(0.99 * bound)
        decided += int(clear.sum())
        moved = p.words - before.words
        assert torch.equal(moved[clear], change.round().to(torch.int64)[clear])
    assert decided > 120


def test_a_change_below_half_a_unit_does_nothing():
    unit = math.log(2) / 128
    for lr, moved in [(0.49 * unit, 0), (0.51 * unit, -1), (1.51 * unit, -2)]:
        p = lnstensor([1.0, 4.0], format=lns16, requires_grad=True)
        p.sum().backward()
        before = p.words
        Madam([p], lr=lr, eps=0.0).step()
        assert (p.words - before).tolist() == [moved, moved]


def test_sign_mul_moves_by_one_unit():
    p = lnstensor([1.0, -1.0, 3.0, 0.0], format=lns16, requires_grad=True)
    (p * lnstensor([1.0, 1.0, 0.0, 1.0], format=lns16)).sum().backward()
    before = p.words
    SignMul([p], lr=2.0**-7, use_pow=True).step()
    assert (p.words - before).tolist() == [-1, 1, 0, 0]


@pytest.mark.parametrize("cls", EVERY)
def test_zero_and_the_sign_stay(cls):
    p = lnstensor([0.0, 1e-3, -1e-3], format=lns16, requires_grad=True)
    optimizer = cls([p], lr=0.5)
    for sign in (1.0, 1.0, 1.0, -1.0):
        p.grad = lnstensor([sign, sign, -sign], format=lns16)
        optimizer.step()
    assert torch.sign(p).tolist() == [0.0, 1.0, -1.0]


def test_a_weight_stops_at_the_smallest_magnitude_and_comes_back():
    p = from_words([3, 0x83, 0], lns8, requires_grad=True)
    optimizer = SignMul([p], lr=1.0, use_pow=True)
    for words in ([1, 0x81, 0], [1, 0x81, 0]):
        p.grad = lnstensor([1.0, -1.0, 1.0], format=lns8)
        optimizer.step()
        assert p.words.tolist() == words
    p.grad = -p.grad
    optimizer.step()
    assert p.words.tolist() == [9, 0x89, 0]


def test_madam_and_sign_mul_bound_a_weight():
    for cls in (Madam, SignMul):
        p = lnstensor([2.0, -2.0], format=lns16, requires_grad=True)
        optimizer = cls([p], lr=1.0, p_scale=1.5)
        for _ in range(4):
            p.grad = lnstensor([-1.0, 1.0], format=lns16)
            optimizer.step()
        assert p.value.tolist() == pytest.approx([3.0, -3.0], rel=0.003)


@pytest.mark.parametrize("cls", EVERY)
def test_maximize_is_the_step_of_the_negated_gradient(cls):
    a, b = (nn.Parameter(randn(20, seed=1)) for _ in range(2))
    up, down = cls([a], lr=0.1, maximize=True), cls([b], lr=0.1)
    for step in range(3):
        a.grad = randn(20, seed=5 + step)
        b.grad = -a.grad
        up.step()
        down.step()
    assert torch.equal(a.words, b.words)
    assert not torch.equal(a.words, randn(20, seed=1).words)


@pytest.mark.parametrize("cls", EVERY)
def test_weight_decay_multiplies_the_factor_before_it_is_rounded(cls):
    p = lnstensor([1.0, -4.0], format=lns16, requires_grad=True)
    p.grad = torch.zeros_like(p)
    optimizer = cls([p], lr=0.1, weight_decay=0.25)
    before = p.words
    optimizer.step()
    assert (p.words - before).tolist() == [round(math.log2(1 - 0.025) * 128)] * 2


@pytest.mark.parametrize("format, rel", [(lns16, 0.5), (F23, 1e-4)], ids=["lns16", "f=23"])
@pytest.mark.parametrize("cls, lr", [(Madam, 0.1), (Mul, 0.2), (SignMul, 0.05), (HybridMul, 0.05)])
def test_least_squares_converge_as_in_float64(cls, lr, format, rel):
    inputs = randn(8, 3, seed=3, format=format)
    goal = torch.tensor([0.9, -0.2, 0.4], dtype=torch.float64)
    targets = lnstensor(inputs.value @ goal, format=format)
    weight = torch.sign(goal) * 0.5
    p, reference = nn.Parameter(lnstensor(weight, format=format)), Reference(cls, weight, lr)
    optimizer = cls([p], lr=lr)
    losses, exact = [], []
    for _ in range(30):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(inputs @ p, targets)
        loss.backward()
        optimizer.step()
        error = inputs.value @ weight - targets.value
        grad = 2 / 8 * inputs.value.T @ error
        weight = (weight * reference.factor(weight, grad)).clamp(-reference.bound, reference.bound)
        losses.append(loss.item())
        exact.append(float(error.square().mean()))
    assert min(losses) < 0.25 * losses[0]
    assert losses[:10] == pytest.approx(exact[:10], rel=rel / 10)
    assert losses == pytest.approx(exact, rel=rel, abs=rel * 0.02)


# As optimizers of torch ----------------------------------------------------------------------------------------------


def test_groups_schedules_and_the_closure():
    a, b, frozen = (lnstensor([1.0], format=lns16, requires_grad=True) for _ in range(3))
    optimizer = SignMul([{"params": [a, frozen]}, {"params": b, "lr": 3.0}], lr=1.0, use_pow=True)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=2.0)

    def closure():
        optimizer.zero_grad()
        loss = (a + b).sum()
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    assert loss.item() == 2.0
    assert [p.item() for p in (a, b, frozen)] == [0.5, 0.125, 1.0]
    assert frozen.grad is None
    schedule.step()
    optimizer.step(closure)
    assert [p.item() for p in (a, b)] == [0.125, 2.0**-9]


@pytest.mark.parametrize("copied", ["saved", "deepcopy"])
@pytest.mark.parametrize("cls", EVERY)
def test_a_copy_goes_on_with_the_same_bits(cls, copied):
    p = nn.Parameter(randn(12, seed=1))
    optimizer = cls([p], lr=0.03)

    def step(p, optimizer, seed):
        p.grad = randn(12, seed=seed)
        optimizer.step()

    step(p, optimizer, 5)
    step(p, optimizer, 6)
    if copied == "saved":
        q, file = nn.Parameter(p.detach().clone()), io.BytesIO()
        other = cls([q], lr=0.5)
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        other.load_state_dict(torch.load(file))  # weights_only, the safe default
    else:
        other = copy.deepcopy(optimizer)
        (q,) = other.param_groups[0]["params"]
    step(p, optimizer, 7)
    step(q, other, 7)
    assert q is not p
    assert torch.equal(p.words, q.words)
    if cls is Madam:
        mine, theirs = optimizer.state[p], other.state[q]
        assert mine["step"] == theirs["step"] == 3
        assert mine["exp_avg_sq"].format == theirs["exp_avg_sq"].format == F23
        assert torch.equal(mine["exp_avg_sq"].words, theirs["exp_avg_sq"].words)
        assert torch.equal(mine["max"].words, theirs["max"].words)


def test_the_format_of_the_state():
    def exp_avg_sq(format, **options):
        p = nn.Parameter(randn(3, seed=1, format=format))
        p.grad = randn(3, seed=2, format=format)
        optimizer = Madam([p], **options)
        optimizer.step()
        assert p.format == format
        return optimizer.state[p]["exp_avg_sq"].format

    fine, other_base = LNSFormat(8, 30), LNSFormat(20, 0, base=1.01)
    assert exp_avg_sq(lns16) == F23
    assert exp_avg_sq(fine) == fine
    assert exp_avg_sq(other_base, beta=0.9) == other_base
    assert exp_avg_sq(lns16, state_format=LNSFormat(8, 15)) == LNSFormat(8, 15)


def test_a_model_with_plain_layers_trains():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        values = torch.rand(parameter.shape, generator=generator, dtype=torch.float64) - 0.4
        owner = next(m for m in model if any(p is parameter for p in m.parameters(recurse=False)))
        name = next(n for n, p in owner.named_parameters(recurse=False) if p is parameter)
        setattr(owner, name, nn.Parameter(lnstensor(values, format=lns16)))
    inputs = randn(16, 4, seed=2)
    targets = lnstensor(inputs.value.sum(1, keepdim=True).abs(), format=lns16)
    optimizer = Madam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


ERRORS = [
    (Mul, dict(lr=-1), ValueError, "lr must be finite and at least 0, not -1"),
    (Mul, dict(lr=math.nan), ValueError, "lr must be finite and at least 0, not nan"),
    (Mul, dict(lr="fast"), TypeError, "lr must be a number, not 'fast'"),
    (HybridMul, dict(weight_decay=-0.1), ValueError, "weight_decay must be finite and at least 0, not -0.1"),
    (SignMul, dict(p_scale=-2), ValueError, "p_scale must be finite and at least 0, not -2"),
    (Madam, dict(eps=-1e-8), ValueError, "eps must be finite and at least 0, not -1e-08"),
    (Madam, dict(g_bound=math.inf), ValueError, "g_bound must be finite and at least 0, not inf"),
    (Madam, dict(beta=1.0), ValueError, "beta must be above 0 and below 1, not 1.0"),
    (Madam, dict(beta=0), ValueError, "beta must be above 0 and below 1, not 0"),
    (Madam, dict(state_format=16), TypeError, "state_format must be an LNSFormat or None, not 16"),
    (
        Madam,
        dict(state_format=lns16),
        ValueError,
        "beta must be below 1 in the state's format, but 0.999 is 1 in lns16",
    ),
]


@pytest.mark.parametrize("cls, options, error, text", ERRORS)
def test_hyperparameters_out_of_range(cls, options, error, text):
    p = lnstensor([1.0], format=lns16, requires_grad=True)
    with pytest.raises(error, match=exactly(text)):
        cls([p], **options)
    optimizer = cls([p])
    q = lnstensor([1.0], format=lns16, requires_grad=True)
    with pytest.raises(error, match=exactly(text)):
        optimizer.add_param_group({"params": [q], **options})
    assert len(optimizer.param_groups) == 1


def test_plain_parameters_are_refused():
    text = (
        "parameters of Madam must be LNSTensors, not Parameter of torch.float32; "
        "xlnstorch.convert(model, format) converts a model"
    )
    with pytest.raises(TypeError, match=exactly(text)):
        Madam(nn.Linear(2, 2).parameters())


def test_a_learning_rate_in_a_tensor():
    p, q = (lnstensor([1.0], format=lns16, requires_grad=True) for _ in range(2))
    p.grad = q.grad = lnstensor([1.0], format=lns16)
    Mul([p], lr=torch.tensor(0.25)).step()
    Mul([q], lr=0.25).step()
    assert torch.equal(p.words, q.words)
    assert torch.equal(p._words, conversions.encode(lns16, torch.tensor([0.8])))
