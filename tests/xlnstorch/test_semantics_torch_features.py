"""What torch offers around tensors: functional transforms, checkpoints, hooks, parametrizations, tracing."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from lnstesting import WIDE, Number, check, check_numbers, check_wide, leaf, numbers, randn, total
from torch import nn
from torch.autograd import forward_ad

import xlnstorch
from xlnstorch import LNSTensor, lns16, lnstensor

# PyTorch loads its formulas for forward mode with what it has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

# Functional transforms ------------------------------------------------------------------------------------------------


def cubic(x):
    return (x * x * x * 0.5).sum()


def test_func_grad_is_the_gradient_of_backward():
    x = leaf([3.0, -0.7])
    cubic(x).backward()
    check(torch.func.grad(cubic)(x.detach()), lns16, x.grad._words)
    gradient, value = torch.func.grad_and_value(cubic)(x.detach())
    check(gradient, lns16, x.grad._words)
    check(value, lns16, cubic(x.detach())._words)


def test_func_grad_of_a_functional_call():
    model = xlnstorch.convert(nn.Linear(3, 2), lns16)
    x = randn(4, 3, seed=1)
    model(x).square().mean().backward()
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    grads = torch.func.grad(lambda p: torch.func.functional_call(model, p, (x,)).square().mean())(parameters)
    for name, p in model.named_parameters():
        check(grads[name], lns16, p.grad._words)


def test_func_grad_twice():
    x = lnstensor([0.3, -1.1], format=WIDE)
    second = torch.func.grad(lambda x: torch.func.grad(lambda x: torch.sin(x).sum())(x).sum())(x)
    check_wide(second, -torch.sin(x.value))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x + 0.3,
        lambda x: x.sum(),
        lambda x: torch.softmax(x, 0),
        lambda x: x @ x,
        lambda x: x.max(),
        lambda x: x[1],
        lambda x: torch.relu(x).mean(),
        lambda x: torch.where(x > 0, x, -x).cumsum(0),
    ],
)
def test_vmap_is_a_loop(function):
    x = randn(4, 3, seed=2)
    check(torch.func.vmap(function)(x), lns16, torch.stack([function(row) for row in x])._words)
    check(torch.func.vmap(function, in_dims=1)(x), lns16, torch.stack([function(column) for column in x.t()])._words)


def test_gradients_of_each_sample():
    weight, x = randn(3, seed=3), randn(4, 3, seed=4)

    def loss(weight, sample):
        return (weight @ sample).square()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weight, x)
    check(each, lns16, torch.stack([torch.func.grad(loss)(weight, row) for row in x])._words)


def test_jacobians():
    x = lnstensor([0.3, -1.1, 2.0], format=WIDE)

    def function(x):
        return torch.tanh(x) * x.sum()

    plain = x.value
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        check_wide(transform(function)(x), transform(function)(plain))
    check_wide(torch.autograd.functional.jacobian(function, x), torch.func.jacrev(function)(plain))
    check_wide(
        torch.func.hessian(lambda x: function(x).sum())(x), torch.func.hessian(lambda x: function(x).sum())(plain)
    )


def test_vjp_and_jvp_word_for_word():
    x, tangent = lnstensor([3.0, -0.7], format=lns16), lnstensor([0.3, 1.9], format=lns16)
    value, vjp = torch.func.vjp(lambda x: x * 1.1 * x, x)
    value_forward, derivative = torch.func.jvp(lambda x: x * 1.1 * x, (x,), (tangent,))
    expected = [n * 1.1 * n for n in numbers(x)]
    check_numbers(value, expected)
    check_numbers(value_forward, expected)
    # One term for each use of x.
    pairs = list(zip(numbers(x), numbers(tangent), strict=True))
    check_numbers(derivative, [t * 1.1 * n + (n * 1.1) * t for n, t in pairs])
    (gradient,) = vjp(tangent)
    check_numbers(gradient, [t * (n * 1.1) + t * n * 1.1 for n, t in pairs])


def test_forward_mode():
    x, tangent = randn(2, 3, seed=5, format=WIDE), randn(2, 3, seed=6, format=WIDE)
    weight = randn(3, 2, seed=7, format=WIDE)

    def function(x, weight):
        return torch.softmax(torch.relu(x @ weight), -1)

    with forward_ad.dual_level():
        mine = forward_ad.unpack_dual(function(forward_ad.make_dual(x, tangent), weight)).tangent
        dual = forward_ad.make_dual(x.value, tangent.value)
        check_wide(mine, forward_ad.unpack_dual(function(dual, weight.value)).tangent)


# Around modules -------------------------------------------------------------------------------------------------------


def test_checkpointed_segments_compute_the_same_gradients():
    def segment(x):
        return torch.tanh(x * 1.1).exp()

    results = []
    for run in (segment, lambda x: torch.utils.checkpoint.checkpoint(segment, x, use_reentrant=False)):
        x = leaf([3.0, -0.7])
        (run(x) * 0.5).sum().backward()
        results.append(x.grad._words)
    assert torch.equal(*results)


def test_module_hooks_see_lns():
    model = xlnstorch.convert(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), lns16)
    seen = []
    model[0].register_forward_hook(lambda module, args, output: seen.append(output))
    model[0].register_full_backward_hook(lambda module, grads, outputs: seen.append(outputs[0]))
    model(randn(2, 3, seed=1).requires_grad_()).sum().backward()
    assert len(seen) == 2 and all(type(x) is LNSTensor for x in seen)


def test_spectral_and_weight_norm():
    for normalise in (nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm):
        torch.manual_seed(0)
        model = xlnstorch.convert(normalise(nn.Linear(3, 2)), WIDE).eval()
        plain = xlnstorch.to_float(copy.deepcopy(model), torch.float64)
        x = randn(4, 3, seed=1, format=WIDE)
        check_wide(model(x).detach(), plain(x.value).detach())


def test_torchs_anomaly_mode():
    grads = []
    for mode in (False, True):
        with torch.autograd.set_detect_anomaly(mode):
            x = leaf([3.0, -0.7])
            cubic(x).backward()
            grads.append(x.grad._words)
    assert torch.equal(*grads)


def test_threads_have_their_own_graphs():
    def run(seed):
        x = randn(3, seed=seed).requires_grad_()
        cubic(x).backward()
        return x.grad._words

    with ThreadPoolExecutor(3) as pool:
        for seed, words in enumerate(pool.map(run, range(6))):
            assert torch.equal(words, run(seed))


def test_einsum_and_friends_sum_in_the_order_of_the_format():
    a, b = randn(2, 3, seed=1), randn(3, 2, seed=2)
    expected = [
        [total(x * y for x, y in zip(row, column, strict=True)) for column in zip(*numbers(b), strict=True)]
        for row in numbers(a)
    ]
    for product in (a @ b, torch.einsum("ij,jk->ik", a, b), torch.tensordot(a, b, 1), torch.matmul(a, b)):
        check_numbers(product, expected)
    check_numbers(torch.einsum("ij->", a), total(n for row in numbers(a) for n in row))


def test_factors_of_fused_operations():
    x, y, z = (lnstensor(v, format=lns16) for v in ([3.0, -0.7], [0.3, 1.9], [-1.1, 0.2]))
    triples = list(zip(*map(numbers, (x, y, z)), strict=True))
    check_numbers(torch.addcmul(x, y, z, value=0.3), [a + b * c * 0.3 for a, b, c in triples])
    check_numbers(torch.addcdiv(x, y, z, value=-2), [a + b / c * -2 for a, b, c in triples])
    check_numbers(torch.lerp(x, y, 0.3), [a + Number(0.3) * (b - a) for a, b, _ in triples])
    check_numbers(torch.lerp(x, y, z), [a + c * (b - a) for a, b, c in triples])
    # A product, the factors, and the addend last.
    product = total(a * b for a, b, _ in triples)
    result = torch.addmm(z.reshape(1, 2), x.reshape(1, 2), y.reshape(2, 1).expand(2, 2), beta=0.7, alpha=0.3)
    check_numbers(result, [[product * 0.3 + n * 0.7 for n in numbers(z)]])
    ignored = torch.addmm(z.reshape(1, 2), x.reshape(1, 2), y.reshape(2, 1).expand(2, 2), beta=0)
    check_numbers(ignored, [[product] * 2])


def test_random_draws_are_those_of_the_decoded_parameters():
    p = lnstensor([0.1, 0.5, 0.9] * 10, format=lns16)
    for draw in (torch.bernoulli, torch.poisson, lambda x: torch.normal(x, 0.5)):
        torch.manual_seed(1)
        mine = draw(p)
        torch.manual_seed(1)
        check(mine, lns16, lnstensor(draw(p.value), format=lns16)._words)


def test_default_dtype_decides_nothing():
    words = []
    for dtype in (torch.float32, torch.float64):
        previous = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            x = lnstensor([0.1, 3.0], format=xlnstorch.lns32)
            words.append((x * 0.3 + 0.7 - torch.tensor(0.1, dtype=torch.float64))._words)
        finally:
            torch.set_default_dtype(previous)
    assert torch.equal(*words)


def test_autocast_changes_nothing():
    a, b = randn(2, 3, seed=1), randn(3, 2, seed=2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check(a @ b, lns16, (a @ b)._words)
        inside = nn.functional.linear(a, b.t())
    check(inside, lns16, (a @ b)._words)


# Compilers ------------------------------------------------------------------------------------------------------------

COMPILE_TEXT = "torch.compile and torch.export cannot trace LNS arithmetic"


def test_compiling_says_no_clearly():
    x = lnstensor([1.0, 2.0], format=xlnstorch.LNSFormat(6, 5))
    with pytest.raises(Exception, match=COMPILE_TEXT):
        torch.compile(lambda x: x * x + 1, backend="eager")(x)
    with pytest.raises(Exception, match=COMPILE_TEXT):
        torch.export.export(xlnstorch.convert(nn.Linear(2, 1), x.format), (x,))
    # And nothing that the attempt left behind, a table for one, is used later.
    assert (x * x + x).tolist() == pytest.approx([2.0, 6.0], rel=0.05)


def test_lns_between_compiled_parts():
    @torch.compiler.disable
    def in_lns(x):
        return (lnstensor(x, format=lns16) * 1.5).value

    compiled = torch.compile(lambda x: in_lns(x + 1) - 1, backend="eager")
    assert compiled(torch.ones(2, dtype=torch.float64)).tolist() == [lnstensor(1.5, format=lns16).item() * 2 - 1] * 2
