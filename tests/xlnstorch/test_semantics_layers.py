"""Layers: statistics, counts, ties, masks and orders of summation are PyTorch's, word for word where they can be."""

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
    leaf,
    numbers,
    randn,
    total,
)
from torch import nn
from torch.nn import functional

import xlnstorch
from xlnstorch import lns16, lnstensor

BATCH = [[3.0, 0.2], [-0.7, 1.4], [1.1, -2.0], [0.2, 0.6]]


# Normalisation --------------------------------------------------------------------------------------------------------


def batch_norm(momentum=0.25):
    return xlnstorch.convert(nn.BatchNorm1d(2, momentum=momentum), lns16)


def test_running_variance_divides_by_n_less_one():
    layer, x = batch_norm(), lnstensor(BATCH, format=lns16)
    layer(x)
    for feature, column in enumerate(zip(*numbers(x), strict=True)):
        mean = total(column) / 4
        biased = total((n - mean) ** 2 for n in column) / 4
        # PyTorch's formulas: new · momentum + old · (1 − momentum), and N / (N − 1) as one number.
        check_numbers(layer.running_mean[feature], mean * 0.25 + Number(0) * 0.75)
        check_numbers(layer.running_var[feature], biased * (4 / 3) * 0.25 + Number(1) * 0.75)
    assert layer.num_batches_tracked == 1 and not isinstance(layer.num_batches_tracked, xlnstorch.LNSTensor)


def test_normalisation_divides_by_n():
    x = lnstensor([[-1.0], [1.0]], format=WIDE)  # a mean of 0 and a variance of 1, or of 2 with N − 1
    layer = xlnstorch.convert(nn.BatchNorm1d(1, eps=1e-12), WIDE)
    check_wide(layer(x).detach(), torch.tensor([[-1.0], [1.0]], dtype=torch.float64))
    check_wide(layer.running_var, torch.tensor([0.9 + 0.1 * 2.0], dtype=torch.float64))


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_and_its_gradients(training):
    mean, variance = torch.tensor([0.3, -0.4], dtype=torch.float64), torch.tensor([1.5, 0.7], dtype=torch.float64)

    def compute(x, weight, bias):
        like = (lambda t: lnstensor(t, format=WIDE)) if isinstance(x, xlnstorch.LNSTensor) else torch.clone
        return functional.batch_norm(x, like(mean), like(variance), weight, bias, training)

    check_against_float64(compute, BATCH, [0.5, 2.0], [0.1, -0.3])


def test_evaluation_uses_the_running_statistics_and_leaves_them():
    layer = batch_norm()
    for seed in range(3):
        layer(randn(5, 2, seed=seed))
    layer.eval()
    mean, variance = layer.running_mean._words.clone(), layer.running_var._words.clone()
    one = layer(lnstensor(BATCH[:1], format=lns16))
    check(layer(lnstensor(BATCH, format=lns16))[:1].detach(), lns16, one.detach()._words)
    check(layer.running_mean, lns16, mean)
    check(layer.running_var, lns16, variance)
    expected = (torch.tensor(BATCH[:1]).double() - layer.running_mean.value) / (layer.running_var.value + 1e-5).sqrt()
    assert one.tolist()[0] == pytest.approx(expected.tolist()[0], rel=0.03)


def test_momentum_none_is_the_cumulative_average():
    layer = xlnstorch.convert(nn.BatchNorm1d(1, momentum=None), WIDE)
    means = []
    for seed in range(3):
        x = randn(4, 1, seed=seed, format=WIDE)
        layer(x)
        means.append(x.value.mean(0))
    check_wide(layer.running_mean, torch.stack(means).mean(0))


@pytest.mark.parametrize("name", ["layer_norm", "group_norm", "instance_norm", "rms_norm"])
def test_other_norms(name):
    values = torch.randn(2, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).tolist()
    compute = {
        "layer_norm": lambda x, w, b: functional.layer_norm(x, (3,), w[:3], b[:3]),
        "group_norm": lambda x, w, b: functional.group_norm(x, 2, w, b),
        "instance_norm": lambda x, w, b: functional.instance_norm(x, weight=w, bias=b),
        "rms_norm": lambda x, w, b: functional.rms_norm(x, (3,), w[:3]) + b[0],
    }[name]
    check_against_float64(compute, values, [0.5, 2.0, -1.5, 0.25], [0.1, 0.3, -0.2, 0.7])


# Dropout and embedding ------------------------------------------------------------------------------------------------


def test_dropout():
    layer, x = nn.Dropout(0.25), leaf([3.0, -0.7] * 50)
    torch.manual_seed(1)
    y = layer(x)
    y.sum().backward()
    kept = y.detach() != 0
    assert 60 < int(kept.sum()) < 90
    scale = Number(1) / 0.75
    check_numbers(y.detach(), [n * scale if k else Number(0) for n, k in zip(numbers(x), kept, strict=True)])
    check_numbers(x.grad, [scale if k else Number(0) for k in kept])
    check(layer.eval()(x.detach()), lns16, x._words)


@pytest.mark.parametrize("module", [nn.Dropout, nn.Dropout1d, nn.AlphaDropout])
def test_dropout_at_the_ends(module):
    x = leaf([[3.0, -0.7]])
    none = module(0.0)(x)
    check(none.detach(), lns16, x._words)
    every = module(1.0)(x)
    every.sum().backward()
    assert x.grad.words.tolist() == [[0, 0]]
    if module is not nn.AlphaDropout:
        assert every.words.tolist() == [[0, 0]]


def test_embedding_with_padding_and_duplicates():
    layer = xlnstorch.convert(nn.Embedding(4, 2, padding_idx=1), lns16)
    assert layer.weight.words[1].tolist() == [0, 0]
    index = torch.tensor([[0, 1, 3], [3, 1, 3]])
    y = layer(index)
    check(y.detach(), lns16, layer.weight.detach()._words[index])
    incoming = randn(2, 3, 2, seed=4)
    y.backward(incoming)
    g = numbers(incoming)
    three = [total((g[0][2][i], g[1][0][i], g[1][2][i])) for i in range(2)]
    zero = [Number(0)] * 2
    check_numbers(layer.weight.grad, [g[0][0], zero, zero, three])


def test_embedding_scaled_by_frequency():
    index = torch.tensor([0, 2, 2, 1])
    table = [[1.0, -2.0], [0.5, 0.25], [3.0, 0.1]]
    check_against_float64(lambda w: functional.embedding(index, w, scale_grad_by_freq=True), table)


# Convolution ----------------------------------------------------------------------------------------------------------


def test_convolution_word_for_word():
    """One output and one weight gradient, with stride, padding, dilation and groups."""
    x, weight, bias = randn(2, 4, 7, 6, seed=1), randn(6, 2, 3, 2, seed=2), randn(6, seed=3)
    for tensor in (x, weight, bias):
        tensor.requires_grad_()
    stride, padding, dilation, groups = (2, 1), (1, 2), (2, 1), 2
    y = functional.conv2d(x, weight, bias, stride, padding, dilation, groups)
    expected = functional.conv2d(x.value, weight.value, bias.value, stride, padding, dilation, groups)
    assert y.shape == expected.shape == (2, 6, 3, 9)
    image, kernel = numbers(x), numbers(weight)

    def pixel(n, channel, row, column):
        return image[n][channel][row][column] if 0 <= row < 7 and 0 <= column < 6 else Number(0)

    def tap(n, out, channel, i, j, r, c):
        """The input that the weight's element meets at an output's position."""
        first = out // 3 * 2  # three outputs and two inputs a group
        return pixel(n, first + channel, r * 2 - 1 + i * 2, c - 2 + j)

    # The outputs of a channel: over the input's channels, then the kernel in the order of memory; the bias last.
    n, out = 1, 4
    order = [(channel, i, j) for channel in range(2) for i in range(3) for j in range(2)]

    def outputs(order):
        def one(r, c):
            return total(kernel[out][k][i][j] * tap(n, out, k, i, j, r, c) for k, i, j in order) + numbers(bias)[out]

        return [[one(r, c) for c in range(9)] for r in range(3)]

    check_numbers(y[n, out].detach(), outputs(order))
    assert [[m.word for m in row] for row in outputs(order[::-1])] != y.words[n, out].tolist()
    assert y.value.sub(expected).abs().max() < 0.1

    # The gradient of a weight: over the batch, then the output's positions.
    incoming = randn(2, 6, 3, 9, seed=4)
    y.backward(incoming)
    g = numbers(incoming)
    channel, i, j = 1, 2, 0
    places = [(n, r, c) for n in range(2) for r in range(3) for c in range(9)]
    terms = [g[n][out][r][c] * tap(n, out, channel, i, j, r, c) for n, r, c in places]
    check_numbers(weight.grad[out, channel, i, j], total(terms))
    check_numbers(bias.grad[out], total(g[n][out][r][c] for n, r, c in places))

    # The gradient of an input: for each element of the kernel over the group's outputs, then over those elements.
    n, channel, row, column = 0, 3, 3, 2
    parts = []
    for i in range(3):
        for j in range(2):
            r, c = row + 1 - i * 2, column + 2 - j
            if r % 2 == 0 and 0 <= r // 2 < 3 and 0 <= c < 9:
                parts.append(total(kernel[out][channel - 2][i][j] * g[n][out][r // 2][c] for out in range(3, 6)))
    assert len(parts) > 1
    check_numbers(x.grad[n, channel, row, column], total(parts))


@pytest.mark.parametrize(
    "options", [{}, dict(stride=2, padding=1), dict(dilation=2, padding="same"), dict(groups=2, padding="valid")]
)
def test_convolutions_follow_float64(options):
    make = torch.Generator().manual_seed(5)
    image = torch.randn(2, 4, 5, 6, dtype=torch.float64, generator=make).tolist()
    weight = torch.randn(2, 4 // options.get("groups", 1), 3, 2, dtype=torch.float64, generator=make).tolist()
    check_against_float64(lambda x, w, b: functional.conv2d(x, w, b, **options), image, weight, [0.3, -0.2])


# Pooling --------------------------------------------------------------------------------------------------------------


def test_average_pool_counts_the_padding_or_does_not():
    x = lnstensor([[[[3.0, -0.7], [1.1, 0.2]]]], format=lns16)
    (a, b), (c, d) = numbers(x)[0][0]
    zero = Number(0)
    corner = total([zero, zero, zero, a])
    for counted, divisor, expected in [(True, None, 4), (False, None, 1), (True, 3, 3)]:
        y = functional.avg_pool2d(x, 2, 2, padding=1, count_include_pad=counted, divisor_override=divisor)
        rows = [[corner, b], [c, d]]
        check_numbers(y[0, 0], [[n / expected for n in row] for row in rows])


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("ceil", [True, False])
def test_average_pool_follows_float64(counted, ceil):
    image = torch.randn(1, 2, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(6)).tolist()
    check_against_float64(
        lambda x: functional.avg_pool2d(x, (3, 2), 2, (1, 0), ceil_mode=ceil, count_include_pad=counted), image
    )
    check_against_float64(lambda x: functional.adaptive_avg_pool2d(x, (4, 3)), image)


# Softmax and attention ------------------------------------------------------------------------------------------------


def test_softmax_of_large_numbers():
    x = leaf([[1000.0, 1000.0], [-3e38, 3e38], [5.0, 5.0]])
    with xlnstorch.flags() as counts:
        y = functional.softmax(x, 1)
    half = Number(0.5).word
    assert y.words.tolist() == [[half, half], [0, Number(1).word], [half, half]]
    assert counts.invalid == counts.zero_divide == 0
    log = functional.log_softmax(x.detach(), 1)
    assert log.words[0].tolist() == log.words[2].tolist() and log.isfinite().all()
    check_against_float64(
        lambda x: functional.softmax(x, 1), [[700.0, 700.5, 699.0], [0.1, -0.2, 0.3]], roundings=10**6
    )


@pytest.fixture(params=[(1, 3, 4), (2, 2, 3, 4)], ids=["3d", "4d"])  # PyTorch has a kernel of its own for the second
def qkv(request):
    return [randn(*request.param, seed=seed) for seed in range(3)]


def test_attention_with_a_row_that_is_masked_everywhere(qkv):
    mask = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])
    additive = torch.zeros(3, 3, dtype=torch.float64).masked_fill(~mask, -math.inf)
    for given in (mask, additive):
        check_against_float64(
            lambda q, k, v, m=given: functional.scaled_dot_product_attention(q, k, v, attn_mask=m),
            *(t.tolist() for t in qkv),
        )
    assert not functional.scaled_dot_product_attention(*qkv, attn_mask=mask).words[..., 1, :].any()


def test_causal_attention_sees_no_later_value(qkv):
    q, k, v = qkv
    y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    check(y[..., 0, :], lns16, v._words[..., 0, :])
    k[..., 2, :], v[..., 2, :] = 100.0, 100.0
    again = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    check(again[..., :2, :], lns16, y._words[..., :2, :])
    check_against_float64(
        lambda *x: functional.scaled_dot_product_attention(*x, is_causal=True, scale=0.7), *(t.tolist() for t in qkv)
    )


# Recurrent ------------------------------------------------------------------------------------------------------------


def test_one_step_of_an_lstm():
    cell = xlnstorch.convert(nn.LSTMCell(3, 2), lns16)
    x, h, c = (randn(1, n, seed=s) for s, n in enumerate((3, 2, 2)))
    gates = functional.linear(x, cell.weight_ih, cell.bias_ih) + functional.linear(h, cell.weight_hh, cell.bias_hh)
    i, f, g, o = gates.chunk(4, 1)  # PyTorch's order
    new_c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    new_h = o.sigmoid() * new_c.tanh()
    got_h, got_c = cell(x, (h, c))
    check(got_h.detach(), lns16, new_h.detach()._words)
    check(got_c.detach(), lns16, new_c.detach()._words)
    (gate,) = gates[0, :1].detach().unbind()
    product = total(a * b for a, b in zip(numbers(x)[0], numbers(cell.weight_ih)[0], strict=True))
    other = total(a * b for a, b in zip(numbers(h)[0], numbers(cell.weight_hh)[0], strict=True))
    check_numbers(gate, (product + numbers(cell.bias_ih)[0]) + (other + numbers(cell.bias_hh)[0]))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_follow_float64(kind):
    torch.manual_seed(3)
    layer = kind(3, 2, num_layers=2, bidirectional=True).double()
    x = torch.randn(4, 2, 3, dtype=torch.float64).tolist()
    mine = xlnstorch.convert(copy.deepcopy(layer), WIDE)
    plain = xlnstorch.to_float(copy.deepcopy(mine), torch.float64)
    check_against_float64(lambda t: (mine if isinstance(t, xlnstorch.LNSTensor) else plain)(t)[0], x)
