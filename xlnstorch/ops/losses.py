"""Losses that PyTorch computes in one piece: connectionist temporal classification (Graves et al. 2006)."""

from __future__ import annotations

import torch
from torch._decomp import decomposition_table

from ..tensor import LNSTensor
from ._registry import aten, register
from .derived import derivative


def _labels(targets: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return the labels as one row a sample; `targets` is that already, or all labels in a row."""
    if targets.dim() == 2:
        return targets
    longest = int(lengths.max()) if len(lengths) else 0
    first = lengths.cumsum(0) - lengths
    places = first.unsqueeze(-1) + torch.arange(longest, device=targets.device)
    return targets[places.clamp(max=max(0, len(targets) - 1))] if len(targets) else targets.new_zeros(len(lengths), 0)


def _log_sum(x: LNSTensor, dim: int) -> LNSTensor:
    """Return ``torch.logsumexp``, whose derivative where all are impossible is zero and not NaN."""
    if not x.format.specials:
        return torch.logsumexp(x, dim)
    nothing = (x == -torch.inf).all(dim)
    return torch.logsumexp(x.masked_fill(nothing.unsqueeze(dim), 0), dim).masked_fill(nothing, -torch.inf)


@register(aten._ctc_loss.default, aten._ctc_loss.Tensor)
def ctc_loss(func, log_probs, targets, input_lengths, target_lengths, blank=0, zero_infinity=False):
    if log_probs.dim() == 2:
        loss, table = ctc_loss(
            func, log_probs.unsqueeze(1), targets, input_lengths, target_lengths, blank, zero_infinity
        )
        return loss.squeeze(0), table
    device = log_probs.device
    times = torch.as_tensor(input_lengths, device=device).reshape(-1)
    lengths = torch.as_tensor(target_lengths, device=device).reshape(-1)
    labels = _labels(targets, lengths)
    longest = int(lengths.max()) if len(lengths) else 0
    # Between, before and after the labels there may be blanks.
    states = torch.full((len(times), 2 * longest + 1), blank, dtype=torch.int64, device=device)
    states[:, 1::2] = labels[:, :longest]
    place = torch.arange(2 * longest + 1, device=device)
    beyond = place > 2 * lengths.unsqueeze(-1)
    # A path may skip the blank between two different labels.
    skips = torch.zeros_like(beyond)
    skips[:, 3::2] = labels[:, 1:longest] != labels[:, : longest - 1] if longest else False
    impossible = -torch.inf  # the most negative word, without specials

    emitted = log_probs.gather(2, states.expand(log_probs.shape[0], -1, -1))
    alpha = emitted[0].masked_fill(beyond | (place > 1), impossible)
    alphas = [alpha]
    for time, step in enumerate(emitted[1:].unbind(0), start=1):
        one = aten.constant_pad_nd(alpha, [1, 0], impossible)[:, :-1]
        two = aten.constant_pad_nd(alpha, [2, 0], impossible)[:, :-2].masked_fill(~skips, impossible)
        moved = (_log_sum(torch.stack([alpha, one, two]), 0) + step).masked_fill(beyond, impossible)
        alpha = torch.where((time < times).unsqueeze(-1), moved, alpha)
        alphas.append(alpha)
    last = torch.stack([2 * lengths, (2 * lengths - 1).clamp(min=0)], -1)
    ends = alpha.gather(1, last).masked_fill(torch.stack([lengths < 0, lengths == 0], -1), impossible)
    loss = -_log_sum(ends, 1)
    loss = loss.masked_fill((times == 0) & (lengths == 0), 0).masked_fill((times == 0) & (lengths > 0), torch.inf)
    within = torch.arange(longest, device=device) < lengths.unsqueeze(-1)
    repeats = ((labels[:, 1:longest] == labels[:, : longest - 1]) & within[:, 1:]).sum(1) if longest else 0
    if zero_infinity:
        loss = loss.masked_fill(times < lengths + repeats, 0)
    return loss, torch.stack(alphas, 1)


@register(aten.multilabel_margin_loss_forward.default)
def multilabel_margin_loss(func, self, target, reduction):
    loss, is_target = decomposition_table[func](self, target, reduction)
    # PyTorch's decomposition keeps a dimension of one for a single sample.
    return (loss if self.dim() == 2 else loss.reshape(())), is_target


@register(aten._ctc_loss_backward.default, aten._ctc_loss_backward.Tensor)
def ctc_loss_backward(
    func,
    grad,
    log_probs,
    targets,
    input_lengths,
    target_lengths,
    neg_log_likelihood,
    log_alpha,
    blank,
    zero_infinity=False,
):
    def loss(x):
        return ctc_loss(func, x, targets, input_lengths, target_lengths, blank, zero_infinity)[0]

    (gradient,) = derivative(loss, [log_probs], [grad])
    # PyTorch differentiates by the logits under a log-softmax, which adds the probabilities; that vanishes in the
    # derivative by the logits, and is what a user who reads this gradient expects.
    time = torch.arange(log_probs.shape[0], device=log_probs.device)
    within = time.unsqueeze(-1) < torch.as_tensor(input_lengths, device=log_probs.device).reshape(-1)
    scale = grad.masked_fill(aten.eq(neg_log_likelihood, 0), 0) if zero_infinity else grad
    softmax = log_probs.exp() * scale.reshape(1, -1, 1) if log_probs.dim() == 3 else log_probs.exp() * scale
    within = within.unsqueeze(-1) if log_probs.dim() == 3 else within
    return gradient + softmax.masked_fill(~within, 0)


@register(aten.smooth_l1_loss_backward.default)
def smooth_l1_loss_backward(func, grad_output, self, target, reduction, beta):
    gradient = decomposition_table[func](grad_output, self, target, reduction, beta)
    # PyTorch's decomposition asks for the sign of NaN, which is zero.
    return torch.where(torch.isnan(self - target), torch.nan, gradient) if gradient.format.specials else gradient


@register(aten.binary_cross_entropy_with_logits.default)
def binary_cross_entropy_with_logits(func, self, target, weight=None, pos_weight=None, reduction=1):
    # PyTorch's decomposition casts the loss to the dtype of the target.
    target = target.to(torch.float64)
    return decomposition_table[func](self, target, weight, pos_weight, reduction)
