"""Attention: always PyTorch's own definition by matrix products and softmax, never one of its fused kernels."""

from __future__ import annotations

import torch

from ._registry import aten, register
from .derived import derivative


@register(aten._fused_sdp_choice.default)
def choice(func, *args, **kwargs):
    return int(torch.nn.attention.SDPBackend.MATH.value)


# On a CPU, PyTorch chooses a fused kernel before anybody is asked.
@register(aten._scaled_dot_product_flash_attention_for_cpu.default)
def attention(func, query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    output, weights = aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale
    )
    return output, weights  # the kernel's second result serves its own backward only, which is not used


@register(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def attention_backward(
    func,
    grad_out,
    query,
    key,
    value,
    out,
    logsumexp,
    dropout_p,
    is_causal,
    *,
    attn_mask=None,
    scale=None,
):
    def compute(q, k, v):
        return aten._scaled_dot_product_attention_math(q, k, v, attn_mask, dropout_p, is_causal, scale=scale)[0]

    return derivative(compute, [query, key, value], [grad_out])


@register(aten._safe_softmax.default)
def safe_softmax(func, self, dim, dtype=None):
    # A row that is masked everywhere is zero. What a mask adds is -inf, which the most negative word is or stands for.
    format = self.format
    lowest = format.pack(torch.ones((), dtype=torch.bool), torch.tensor(format.max_field)).to(self.device)
    masked = (self._words == lowest).all(dim, keepdim=True)
    return aten.masked_fill(aten._softmax(self, dim, False), masked, 0)


@register(aten._native_multi_head_attention.default)
def multi_head_attention(
    func,
    query,
    key,
    value,
    embed_dim,
    num_head,
    qkv_weight,
    qkv_bias,
    proj_weight,
    proj_bias,
    mask=None,
    need_weights=True,
    average_attn_weights=True,
    mask_type=None,
):
    # Without autograd PyTorch takes this kernel, else the function below, so that both have the same words. The kernel
    # has the batch first, and one mask: (N, L) of keys where its type is 1, else (L, L) or (N or 1, heads, L, L).
    key_padding = None
    if mask_type == 1:
        key_padding, mask = mask, None
    elif mask is not None and mask.dim() == 4:
        mask = mask.expand(len(query), num_head, -1, -1).flatten(0, 1)
    given = query, key, value
    query = query.transpose(0, 1).contiguous()
    key = query if given[1] is given[0] else key.transpose(0, 1).contiguous()
    value = key if given[2] is given[1] else value.transpose(0, 1).contiguous()
    output, weights = torch.nn.functional.multi_head_attention_forward(
        query,
        key,
        value,
        embed_dim,
        num_head,
        qkv_weight,
        qkv_bias,
        None,
        None,
        False,
        0.0,
        proj_weight,
        proj_bias,
        training=False,
        key_padding_mask=key_padding,
        need_weights=need_weights,
        attn_mask=mask,
        average_attn_weights=average_attn_weights,
    )
    return output.transpose(0, 1), weights


@register(aten._transformer_encoder_layer_fwd.default)
def encoder_layer(
    func,
    src,
    embed_dim,
    num_heads,
    qkv_weight,
    qkv_bias,
    proj_weight,
    proj_bias,
    use_gelu,
    norm_first,
    eps,
    norm_weight_1,
    norm_bias_1,
    norm_weight_2,
    norm_bias_2,
    ffn_weight_1,
    ffn_bias_1,
    ffn_weight_2,
    ffn_bias_2,
    mask=None,
    mask_type=None,
):
    functional = torch.nn.functional

    def attend(x):
        return multi_head_attention(
            func,
            x,
            x,
            x,
            embed_dim,
            num_heads,
            qkv_weight,
            qkv_bias,
            proj_weight,
            proj_bias,
            mask,
            False,
            True,
            mask_type,
        )[0]

    def feed_forward(x):
        hidden = functional.linear(x, ffn_weight_1, ffn_bias_1)
        return functional.linear((functional.gelu if use_gelu else functional.relu)(hidden), ffn_weight_2, ffn_bias_2)

    def norm(x, weight, bias):
        return functional.layer_norm(x, (embed_dim,), weight, bias, eps)

    if norm_first:
        src = src + attend(norm(src, norm_weight_1, norm_bias_1))
        return src + feed_forward(norm(src, norm_weight_2, norm_bias_2))
    src = norm(src + attend(src), norm_weight_1, norm_bias_1)
    return norm(src + feed_forward(src), norm_weight_2, norm_bias_2)
