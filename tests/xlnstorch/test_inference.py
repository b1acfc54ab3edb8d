"""Without autograd PyTorch takes other ways through a model; the words are the same."""

import pytest
import torch
from lnstesting import randn
from torch import nn

from xlnstorch import convert, lns16

MODES = [torch.no_grad, torch.inference_mode]
PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 5])
CAUSAL = torch.ones(5, 5, dtype=torch.bool).triu(1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(
    "masks",
    [
        {},
        {"src_key_padding_mask": PADDING},
        {"src_mask": CAUSAL},
        {"src_mask": CAUSAL, "src_key_padding_mask": PADDING},
    ],
    ids=["none", "padding", "causal", "both"],
)
def test_an_encoder_layer_gives_the_same_words(mode, activation, norm_first, masks):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 6, batch_first=True, norm_first=norm_first, activation=activation)
    layer = convert(layer.eval(), lns16)
    x = randn(3, 5, 4, seed=1)
    with_autograd = layer(x, **masks)
    assert with_autograd.requires_grad
    with mode():
        assert torch.equal(layer(x, **masks)._words, with_autograd._words)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"key_padding_mask": PADDING},
        {"attn_mask": CAUSAL},
        {"average_attn_weights": False},
        {"need_weights": False},
    ],
    ids=["none", "padding", "causal", "each head", "no weights"],
)
def test_attention_gives_the_same_words(mode, options):
    torch.manual_seed(0)
    attention = convert(nn.MultiheadAttention(4, 2, batch_first=True).eval(), lns16)
    x = randn(3, 5, 4, seed=1)
    output, weights = attention(x, x, x, **options)
    with mode():
        again, other_weights = attention(x, x, x, **options)
    assert torch.equal(again._words, output._words)
    assert (weights is None) == (other_weights is None)
    assert weights is None or torch.equal(other_weights._words, weights._words)


def test_a_view_of_an_ordinary_tensor_is_one_in_inference_mode():
    x = randn(2, 3, seed=1)
    with torch.inference_mode():
        view, parts, sums = x.unsqueeze(0), x.unbind(0), x + x
    assert not view.is_inference() and not parts[0].is_inference() and sums.is_inference()
    view[0, 0, 0] = 1.0  # and shares its words
    assert x[0, 0].item() == parts[0][0].item() == 1.0
