"""PyTorch's autograd engine over LNSTensors: every sum of gradients that it makes is an LNS addition."""

import copy

import pytest
import torch
from lnstesting import add, check, leaf, randn, word
from torch import nn

import xlnstorch
from xlnstorch import arithmetic, conversions, lns16, lnstensor, observe, software_format

FORMAT = lns16
FORMATS = [lns16, software_format(23)]


# Fan-out: where a tensor is used twice, its two gradients are added ---------------------------------------------------


@pytest.fixture(params=FORMATS, ids=repr)
def paths(request):
    """A leaf, and two constants that are the gradients of its two uses."""
    format = request.param
    return (
        leaf([3.0, -0.7, 1.0], format),
        lnstensor([2.0, 0.1, 5.0], format=format),
        lnstensor([4.0, -3.0, 0.01], format=format),
    )


def two_paths(p, u, v):
    return (p * u + p * v).sum()


def lns_sum(u, v):
    """The gradient of `two_paths`, after a check that adding the packed float64 numbers would give another one."""
    total = arithmetic.add(u.format, u._words, v._words)
    float_sum = conversions.unpack(u.format, u.lns + v.lns)
    product = arithmetic.mul(u.format, u._words, v._words)
    assert not torch.equal(float_sum, total) and torch.equal(float_sum[0], product[0])
    return total


def test_fan_out_adds_in_lns(paths):
    p, u, v = paths
    two_paths(p, u, v).backward()
    check(p.grad, p.format, lns_sum(u, v))


def test_fan_out_is_one_lns_addition_an_element(paths):
    p, u, v = paths
    loss = two_paths(p, u, v)
    additions = []
    with observe.observing(lambda operation: additions.append(operation) if operation.name == "add" else None):
        loss.backward()
    (addition,) = additions
    assert torch.equal(addition.result, lns_sum(u, v)) and addition.flags.numel() == 3


def test_fan_out_after_two_backward_calls(paths):
    p, u, v = paths
    two_paths(p, u, v).backward()
    two_paths(p, u, v).backward()
    once = lns_sum(u, v)
    check(p.grad, p.format, arithmetic.add(p.format, once, once))


def test_fan_out_with_retain_graph(paths):
    p, u, v = paths
    loss = two_paths(p, u, v)
    for _ in range(3):
        loss.backward(retain_graph=True)
    once = lns_sum(u, v)
    check(p.grad, p.format, add(p.format, once, once, once))


def test_two_losses_on_one_trunk(paths):
    p, u, v = paths
    trunk = p * u
    (trunk * u).sum().backward(retain_graph=True)
    (trunk * v).sum().backward()
    # Each loss reaches the leaf by itself; the leaf adds.
    parts = [arithmetic.mul(p.format, w._words, u._words) for w in (u, v)]
    check(p.grad, p.format, add(p.format, *parts))
    # As one loss the trunk adds, before its own derivative; in lns16 that can round elsewhere.
    p.grad = None
    trunk = p * u
    ((trunk * u).sum() + (trunk * v).sum()).backward()
    check(p.grad, p.format, arithmetic.mul(p.format, lns_sum(u, v), u._words))


def test_fan_out_after_deepcopy(paths):
    p, u, v = paths
    two_paths(p, u, v).backward()
    q = copy.deepcopy(p)
    check(q.grad, p.format, lns_sum(u, v))
    two_paths(q, u, v).backward()
    check(q.grad, p.format, add(p.format, lns_sum(u, v), lns_sum(u, v)))
    check(p.grad, p.format, lns_sum(u, v))

    module = nn.ParameterList([nn.Parameter(p.detach())])
    twin = copy.deepcopy(module)
    two_paths(twin[0], u, v).backward()
    check(twin[0].grad, p.format, lns_sum(u, v))
    assert module[0].grad is None


def test_fan_out_in_autograd_grad(paths):
    p, u, v = paths
    (grad,) = torch.autograd.grad(two_paths(p, u, v), p)
    check(grad, p.format, lns_sum(u, v))
    trunk = p * 1
    first, second = torch.autograd.grad([two_paths(trunk, u, v)], [trunk, p])
    check(first, p.format, lns_sum(u, v))
    check(second, p.format, lns_sum(u, v))
    (sum_of_outputs,) = torch.autograd.grad([(p * u).sum(), (p * v).sum()], p)
    check(sum_of_outputs, p.format, lns_sum(u, v))


def test_three_paths_are_added_one_after_another():
    # 2**-9 is less than half a unit next to 1 and vanishes in the addition; three of them together do not.
    p, small = leaf([1.0]), 2.0**-9
    branches = [p * small, p * small, p * small, p * 1.0]
    torch.stack(branches).sum().backward(retain_graph=True)
    one, tiny = word(FORMAT, 1.0), word(FORMAT, small)
    stalled = add(FORMAT, one, tiny, tiny, tiny)
    assert stalled == one and add(FORMAT, tiny, tiny, tiny, one) == one + 1 == word(FORMAT, 1 + 3 * small)
    check(p.grad, FORMAT, stalled[None])  # autograd runs the branch that was recorded last first
    p.grad = None
    torch.stack([*branches[::-1], p * 0.0]).sum().backward()
    check(p.grad, FORMAT, stalled[None])  # the order is that of recording, not of use


def test_broadcasting_sums_in_lns():
    p, u = leaf([1.0]), randn(6, seed=1)
    (p * u).sum().backward()
    check(p.grad, FORMAT, FORMAT.accumulator.sum(FORMAT, u._words, 0)[None])


# Accumulation and hooks -----------------------------------------------------------------------------------------------


def test_grad_is_accumulated_in_place():
    p, u = leaf([3.0, -0.7]), randn(2, seed=2)
    (p * u).sum().backward()
    grad = p.grad
    (p * 0.3).sum().backward()
    assert p.grad is grad
    check(grad, FORMAT, arithmetic.add(FORMAT, u._words, word(FORMAT, 0.3).expand(2)))


def test_grad_of_another_format_is_refused():
    p = leaf([3.0])
    p.grad = xlnstorch.zeros(1, f=23)
    with pytest.raises(TypeError, match=r"got operands of two formats, LNSFormat\(29, 23\) and lns16"):
        (p * 2).sum().backward()


@pytest.mark.parametrize("function", [lambda p: p.sum(), lambda p: p * 1, lambda p: -p], ids=["sum", "mul", "neg"])
def test_a_plain_gradient_is_encoded_or_refused(function):
    # Handed on as it is, it would end up in .grad as a plain float64 tensor.
    p = leaf([3.0, 1.0])
    result = function(p)
    try:
        result.backward(torch.full(result.shape, 0.3, dtype=torch.float64))
    except TypeError:
        assert p.grad is None
    else:
        check(p.grad.abs(), FORMAT, word(FORMAT, 0.3).expand(2))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_plain_leaf_gets_a_plain_gradient_or_is_refused(dtype):
    plain = torch.tensor([1.0, 2.0], dtype=dtype, requires_grad=True)
    try:
        product = torch.mul(plain, lnstensor([3.0, 4.0], format=FORMAT))
    except TypeError:
        return
    product.sum().backward()
    assert type(plain.grad) is torch.Tensor and plain.grad.dtype == dtype


def test_hooks_see_and_change_gradients():
    p, u, seen = leaf([3.0, -0.7]), randn(2, seed=2), []
    p.register_hook(lambda grad: seen.append(grad) or grad * 2)
    p.register_post_accumulate_grad_hook(lambda q: seen.append(q.grad))
    y = p * u
    y.retain_grad()
    y.sum().backward()
    check(seen[0], FORMAT, u._words)
    check(seen[1], FORMAT, arithmetic.mul(FORMAT, u._words, word(FORMAT, 2.0)))
    assert p.grad is seen[1] and y.grad.value.tolist() == [1.0, 1.0]


def test_saved_tensors_are_guarded_and_recomputed():
    p = leaf([3.0])
    y = p * 1
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
    torch.utils.checkpoint.checkpoint(lambda q: q * q, p, use_reentrant=False).sum().backward()
    check(p.grad, FORMAT, arithmetic.add(FORMAT, p._words, p._words))


def test_in_place_on_leaves():
    p = leaf([3.0])
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        p.add_(1)
    with torch.no_grad():
        p.add_(1)
    assert p.item() == 4.0 and p.requires_grad
