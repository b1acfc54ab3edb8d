"""Losses: their parameters mean what they mean in PyTorch, and gradients are scaled by what comes after the loss."""

import pytest
import torch
from lnstesting import (
    WIDE,
    Number,
    check,
    check_against_float64,
    check_numbers,
    check_wide,
    leaf,
    numbers,
    randn,
    total,
)
from torch.nn import functional

import xlnstorch
from xlnstorch import arithmetic, lns16, lnstensor

LOGITS = [[0.3, -1.2, 0.8], [2.0, 0.1, -0.4], [-0.7, 0.6, 1.9], [0.2, 0.25, -3.0]]
LABELS = torch.tensor([2, 0, 1, 1])


# What comes after a loss ----------------------------------------------------------------------------------------------


def test_half_of_a_squared_error_word_for_word():
    x, target = leaf([3.0, -0.7, 1.1]), lnstensor([2.5, 0.4, -0.3], format=lns16)
    loss = 0.5 * functional.mse_loss(x, target)
    loss.backward()
    differences = [a - b for a, b in zip(numbers(x), numbers(target), strict=True)]
    check_numbers(loss.detach(), total(d**2 for d in differences) / 3 * 0.5)
    # PyTorch's formula: the difference, times 2 / N as one number, times the gradient that comes in.
    check_numbers(x.grad, [d * (2 / 3) * 0.5 for d in differences])


def test_a_quarter_of_a_cross_entropy_has_a_quarter_of_its_gradient():
    whole, quarter = leaf(LOGITS), leaf(LOGITS)
    functional.cross_entropy(whole, LABELS).backward()
    (functional.cross_entropy(quarter, LABELS) / 4).backward()
    # A power of two moves logarithms, and every LNS operation moves with them.
    check(quarter.grad, lns16, arithmetic.mul(lns16, whole.grad._words, lnstensor(0.25, format=lns16)._words))


@pytest.mark.parametrize("scale", [3.0, -0.7])
def test_a_gradient_that_is_given_scales_it_too(scale):
    x, y = leaf([3.0, -0.7, 1.1]), leaf([3.0, -0.7, 1.1])
    (functional.mse_loss(x, torch.zeros(3)) * scale).backward()
    functional.mse_loss(y, torch.zeros(3)).backward(torch.tensor(scale))
    check(x.grad, lns16, y.grad._words)
    check_numbers(y.grad, [n * (2 / 3) * scale for n in numbers(y)])


def test_loss_of_a_network_is_scaled_at_every_parameter():
    grads = []
    for scale in (1.0, 0.125):
        model = xlnstorch.convert(torch.nn.Linear(3, 2), lns16)
        model.weight.data, model.bias.data = randn(2, 3, seed=1), randn(2, seed=2)
        (scale * functional.mse_loss(model(randn(4, 3, seed=3)), randn(4, 2, seed=4))).backward()
        grads.append([p.grad for p in model.parameters()])
    eighth = lnstensor(0.125, format=lns16)._words
    for one, scaled in zip(*grads, strict=True):
        check(scaled, lns16, arithmetic.mul(lns16, one._words, eighth))


def test_a_plain_leaf_that_is_encoded_on_the_way_gets_the_decoded_gradient():
    plain, x = torch.tensor([3.0, -0.7, 1.1], requires_grad=True), leaf([3.0, -0.7, 1.1])
    for start in (lnstensor(plain, format=lns16, detach=False), x):
        (0.5 * functional.mse_loss(start, torch.zeros(3))).backward()
    assert plain.grad.dtype == torch.float32 and torch.equal(plain.grad, x.grad.value.float())


# What the parameters mean ---------------------------------------------------------------------------------------------

CLASS_WEIGHTS = torch.tensor([0.5, 2.0, 1.25], dtype=torch.float64)
CROSS_ENTROPY = {
    "plain": {},
    "sum": dict(reduction="sum"),
    "none": dict(reduction="none"),
    "label smoothing": dict(label_smoothing=0.2),
    "class weights": dict(weight=CLASS_WEIGHTS),  # the mean divides by the sum of the weights of the labels
    "all": dict(weight=CLASS_WEIGHTS, label_smoothing=0.2),
    "all, sum": dict(weight=CLASS_WEIGHTS, label_smoothing=0.2, reduction="sum"),
}


@pytest.mark.parametrize("ignored", [False, True], ids=["", "ignore_index"])
@pytest.mark.parametrize("name", CROSS_ENTROPY)
def test_cross_entropy(name, ignored):
    labels = torch.tensor([2, 1, 1, 0]) if ignored else LABELS
    options = CROSS_ENTROPY[name] | (dict(ignore_index=1) if ignored else {})
    check_against_float64(lambda x: functional.cross_entropy(x, labels, **options), LOGITS)


def test_an_ignored_label_has_no_gradient_and_is_not_counted():
    x, y = leaf(LOGITS), leaf(LOGITS[:2])
    loss = functional.cross_entropy(x, torch.tensor([2, 0, -100, -100]))
    expected = functional.cross_entropy(y, LABELS[:2])
    loss.backward()
    expected.backward()
    check(loss.detach(), lns16, expected.detach()._words)
    check(x.grad[:2], lns16, y.grad._words)
    assert x.grad.words[2:].tolist() == [[0, 0, 0]] * 2


def test_all_labels_ignored_is_zero_over_zero():
    # NaN in floats; LNS has none, and says so with a flag.
    with xlnstorch.flags() as counts:
        loss = functional.cross_entropy(lnstensor(LOGITS, format=lns16), torch.full((4,), -100))
    check_numbers(loss, Number(0))
    assert counts.by_operation["div"].invalid == 1


def test_cross_entropy_with_probabilities():
    target = torch.tensor([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]], dtype=torch.float64)
    for options in ({}, dict(label_smoothing=0.1, weight=CLASS_WEIGHTS)):
        check_against_float64(lambda x, o=options: functional.cross_entropy(x, target, **o), LOGITS[:2])


def test_cross_entropy_of_large_logits_neither_overflows_nor_loses_the_gradient():
    x = leaf([[1e30, 0.0, -1e30], [0.0, 500.0, 500.0]])
    with xlnstorch.flags() as counts:
        loss = functional.cross_entropy(x, torch.tensor([0, 1]), reduction="none")
        loss.sum().backward()
    assert loss.tolist() == pytest.approx([0.0, 0.6931], rel=0.01)
    assert x.grad.tolist()[0] == [0.0, 0.0, 0.0]
    assert x.grad.tolist()[1] == pytest.approx([0.0, -0.5, 0.5], rel=0.01)
    assert counts.overflow == counts.invalid == counts.zero_divide == 0


def test_pos_weight_weighs_the_positive_term_alone():
    logits, target = [[0.3, -1.2], [2.0, 0.1]], torch.tensor([[1.0, 0.0], [0.25, 1.0]], dtype=torch.float64)
    pos_weight, weight = torch.tensor([3.0, 0.5], dtype=torch.float64), torch.tensor([[0.3], [1.5]]).double()
    for options in ({}, dict(pos_weight=pos_weight), dict(pos_weight=pos_weight, weight=weight, reduction="sum")):
        check_against_float64(lambda x, o=options: functional.binary_cross_entropy_with_logits(x, target, **o), logits)


def test_pos_weight_scales_the_gradient_of_the_positives():
    grads = []
    for pos_weight in (None, torch.tensor(8.0)):
        x = leaf([0.5, 0.5])
        functional.binary_cross_entropy_with_logits(
            x, torch.tensor([1.0, 0.0]), pos_weight=pos_weight, reduction="sum"
        ).backward()
        grads.append(x.grad.value)
    assert (grads[1] / grads[0]).tolist() == pytest.approx([8.0, 1.0], rel=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_targets_of_any_dtype(dtype):
    results = []
    for target in (torch.tensor([1, 0]).to(dtype), lnstensor([1.0, 0.0], format=lns16)):
        x = leaf([0.5, -0.25])
        loss = functional.binary_cross_entropy_with_logits(x, target)
        loss.backward()
        results.append((loss.detach()._words, x.grad._words))
    assert torch.equal(results[0][0], results[1][0]) and torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_nll_loss_divides_by_the_weights_it_used(reduction):
    weight = lnstensor([0.5, 2.0, 0.25], format=lns16)
    x = lnstensor([[-1.0, -2.0, -3.0], [-0.5, -0.25, -4.0]], format=lns16)
    loss = functional.nll_loss(x, torch.tensor([1, 2]), weight=weight, reduction=reduction)
    terms = [-numbers(x)[0][1] * 2.0, -numbers(x)[1][2] * 0.25]
    expected = {"none": terms, "sum": total(terms), "mean": total(terms) / (Number(2.0) + 0.25)}[reduction]
    check_numbers(loss, expected)


@pytest.mark.parametrize(
    "loss, options",
    [
        (functional.huber_loss, dict(delta=0.5)),
        (functional.huber_loss, dict(delta=3.0, reduction="sum")),
        (functional.smooth_l1_loss, dict(beta=0.5)),
        (functional.smooth_l1_loss, dict(beta=0.0)),
        (functional.l1_loss, {}),
        (functional.mse_loss, dict(reduction="none")),
        (functional.poisson_nll_loss, dict(log_input=True, full=True)),
        (functional.kl_div, dict(reduction="batchmean", log_target=True)),
        (functional.soft_margin_loss, dict(reduction="sum")),
    ],
)
def test_other_losses_follow_float64(loss, options):
    target = torch.tensor([[1.0, -1.0, 3.0], [1.0, 1.0, -1.0]], dtype=torch.float64)
    target = target.abs() if loss is functional.poisson_nll_loss else target
    check_against_float64(lambda x: loss(x, target, **options), [[0.9, 1.4, -0.7], [0.25, 3.5, -1.1]])


def test_l1_loss_has_no_gradient_where_it_is_zero():
    x = leaf([2.0, 3.0, -1.0])
    functional.l1_loss(x, lnstensor([2.0, 1.0, 0.0], format=lns16), reduction="sum").backward()
    assert x.grad.tolist() == [0.0, 1.0, -1.0]


# Softplus -------------------------------------------------------------------------------------------------------------

POINTS = [-30.0, -2.0, -0.1, 0.0, 0.3, 4.9, 5.1, 30.0]


@pytest.mark.parametrize("beta, threshold", [(1, 20), (2, 20), (0.5, 20), (1, 3), (2, 10), (-1, 20)])
def test_softplus_has_beta_and_threshold(beta, threshold):
    check_against_float64(lambda x: functional.softplus(x, beta, threshold), POINTS)


def test_softplus_is_its_input_beyond_the_threshold():
    x = leaf([2.0, 3.1, 40.0])
    y = functional.softplus(x, 2, threshold=6)
    y.sum().backward()
    check_numbers(y.detach()[1:], numbers(x)[1:])
    assert x.grad.words[1:].tolist() == [lns16.bias] * 2
    assert y.words[0] > x.words[0] and x.grad.words[0] < lns16.bias


def test_softplus_of_zero_is_the_logarithm_of_two_over_beta():
    for beta in (1.0, 4.0):
        expected = torch.log(torch.tensor([2.0], dtype=torch.float64)) / beta
        check_wide(functional.softplus(lnstensor([0.0], format=WIDE), beta), expected)
