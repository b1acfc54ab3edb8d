"""What stays: running statistics, the state of optimizers, and words under a change of device or dtype."""

import copy
import io

import pytest
import torch
from lnstesting import Number, check, check_numbers, leaf, numbers, randn, total
from torch import nn

import xlnstorch
from xlnstorch import LNSTensor, lns16, lnstensor


def same(a, b):
    return type(a) is type(b) is LNSTensor and a.format == b.format and torch.equal(a._words, b._words)


# Running statistics ---------------------------------------------------------------------------------------------------


def network():
    torch.manual_seed(0)
    return xlnstorch.convert(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)), lns16)


def test_running_statistics_are_in_the_state_dict_and_come_back():
    model = network()
    for seed in range(2):
        model(randn(6, 3, seed=seed))
    state = model.state_dict()
    for name in ("1.running_mean", "1.running_var"):
        assert type(state[name]) is LNSTensor and state[name].format == lns16
    assert state["1.running_mean"].any() and state["1.num_batches_tracked"] == 2

    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    other = network()
    other.load_state_dict(torch.load(file, weights_only=True))
    assert all(same(a, b) for a, b in zip(other.buffers(), model.buffers(), strict=True) if a.is_floating_point())
    x = randn(3, 3, seed=9)
    fresh = network().eval()(x)
    check(other.eval()(x).detach(), lns16, model.eval()(x).detach()._words)
    assert not torch.equal(fresh.words, other(x).words)


# Optimizers -----------------------------------------------------------------------------------------------------------

SGD = {
    "plain": {},
    "momentum": dict(momentum=0.9),
    "dampening": dict(momentum=0.9, dampening=0.25),
    "weight decay": dict(weight_decay=0.01),
    "nesterov": dict(momentum=0.9, weight_decay=0.01, nesterov=True),
    "maximize": dict(momentum=0.9, maximize=True),
}


@pytest.mark.parametrize("name", SGD)
def test_sgd_by_hand_under_a_schedule(name):
    options = SGD[name]
    p = nn.Parameter(lnstensor([3.0, -0.7, 1.1], format=lns16))
    optimizer = torch.optim.SGD([p], lr=0.1, **options)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.7)
    expected, buffers, lr = numbers(p), None, 0.1
    momentum, decay = options.get("momentum", 0), options.get("weight_decay", 0)
    for step in range(3):
        factors = randn(3, seed=step)
        optimizer.zero_grad()
        (p * factors).sum().backward()
        optimizer.step()
        scheduler.step()

        grads = [-g if options.get("maximize") else g for g in numbers(factors)]
        if decay:
            grads = [g + w * decay for g, w in zip(grads, expected, strict=True)]
        if momentum:
            new = 1 - options.get("dampening", 0)
            first = buffers is None
            buffers = grads if first else [b * momentum + g * new for b, g in zip(buffers, grads, strict=True)]
            check_numbers(optimizer.state[p]["momentum_buffer"], buffers)
            if options.get("nesterov"):
                grads = [g + b * momentum for g, b in zip(grads, buffers, strict=True)]
            else:
                grads = buffers
        expected = [w + g * -lr for w, g in zip(expected, grads, strict=True)]
        check_numbers(p.detach(), expected)
        lr *= 0.7
        assert optimizer.param_groups[0]["lr"] == pytest.approx(lr)


def test_an_optimizer_goes_on_from_its_saved_state():
    def trained(steps, start=None):
        p = nn.Parameter(lnstensor([3.0, -0.7], format=lns16))
        optimizer = torch.optim.SGD([p], lr=0.1, momentum=0.9)
        if start is not None:
            values, state = start
            p.data = values
            optimizer.load_state_dict(state)
        for step in steps:
            optimizer.zero_grad()
            (p * randn(2, seed=step)).sum().backward()
            optimizer.step()
        return p, optimizer

    p, optimizer = trained(range(2))
    file = io.BytesIO()
    torch.save((p.detach(), optimizer.state_dict()), file)
    file.seek(0)
    resumed, _ = trained(range(2, 4), torch.load(file, weights_only=True))
    straight, _ = trained(range(4))
    check(resumed.detach(), lns16, straight.detach()._words)


def test_gradients_are_clipped_by_their_norm():
    p, q = leaf([3.0, 4.0]), leaf([-1.5])
    (p * p + q.sum()).sum().backward()
    before = numbers(p.grad), numbers(q.grad)
    norm = nn.utils.clip_grad_norm_([p, q], 1.0)
    # Root of the sum of squares of each tensor, then of those; the factor has PyTorch's 1e-6.
    each = [total(n**2 for n in grads).sqrt() for grads in before]
    whole = total(n**2 for n in each).sqrt()
    check_numbers(norm, whole)
    factor = Number(1) / (whole + 1e-6)
    for grad, grads in zip((p.grad, q.grad), before, strict=True):
        check_numbers(grad, [n * factor for n in grads])
    # A gradient that is short enough stays: the factor is at most one.
    short = p.grad._words.clone()
    nn.utils.clip_grad_norm_([p, q], 100.0)
    check(p.grad, lns16, short)


def test_gradients_are_clipped_by_value():
    p = leaf([3.0, 4.0, 0.25])
    (p * lnstensor([-7.0, 0.3, 1.0], format=lns16)).sum().backward()
    nn.utils.clip_grad_value_([p], 0.5)
    check_numbers(p.grad, [Number(-0.5), Number(0.3), Number(0.5)])


# Dtypes and devices ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "move",
    [
        lambda m: m.to("cpu"),
        lambda m: m.to(torch.device("cpu")),
        lambda m: m.to(torch.float64),
        lambda m: m.double(),
        lambda m: m.cpu(),
        lambda m: m.to("cpu", torch.float64, non_blocking=True),
        lambda m: m.train().eval().requires_grad_(False).requires_grad_(True),
    ],
)
def test_moving_a_module_keeps_its_words(move):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = copy.deepcopy(model)
    parameters = list(model.parameters())
    assert move(model) is model
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in model.parameters())
    state, old = model.state_dict(), before.state_dict()
    assert all(same(state[key], old[key]) for key in state if key != "1.num_batches_tracked")
    # The optimizer still has them.
    model.train()(randn(4, 3, seed=1)).square().sum().backward()
    optimizer.step()
    assert not same(model[0].weight.detach(), before[0].weight.detach())


@pytest.mark.parametrize("name", ["float", "half", "bfloat16"])
def test_another_dtype_is_refused_and_nothing_is_half_converted(name):
    dtype = {"float": torch.float32, "half": torch.float16, "bfloat16": torch.bfloat16}[name]
    x = lnstensor([1.0], format=lns16)
    # The way out is in the message.
    pattern = rf"cannot give lns16 the dtype {dtype}; x\.decode\(\)\.to\({dtype}\) gives its values"
    for compute in (getattr(x, name), lambda: x.to(dtype), lambda: x.type(dtype)):
        with pytest.raises(NotImplementedError, match=pattern):
            compute()
    assert x.decode().to(dtype).dtype == dtype

    model = network()
    before = copy.deepcopy(model.state_dict())
    parameters = list(model.parameters())
    for compute in (getattr(model, name), lambda: model.to(dtype)):
        with pytest.raises(NotImplementedError, match=f"the dtype {dtype}"):
            compute()
        assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
        assert all(same(model.state_dict()[key], before[key]) for key in before if key != "1.num_batches_tracked")
    assert xlnstorch.to_float(model, dtype)[0].weight.dtype == dtype


def test_a_refused_dtype_of_a_module_says_what_to_call():
    with pytest.raises(NotImplementedError, match=r"xlnstorch\.to_float"):
        network().float()
