"""Bags of embeddings: sums, means and maxima of rows, added in the order of the indices."""

from __future__ import annotations

import torch

from ._registry import aten, register

_SUM, _MEAN, _MAX = range(3)


@register(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def embedding_bag(
    func,
    weight,
    indices,
    offsets,
    scale_grad_by_freq=False,
    mode=_SUM,
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=-1,
):
    starts = offsets[:-1] if include_last_offset else offsets
    bags, columns = len(starts), weight.shape[1]
    places = torch.arange(len(indices), device=indices.device)
    bag = torch.searchsorted(starts.contiguous(), places.to(starts.dtype), right=True) - 1
    kept = indices != padding_idx
    size = torch.zeros(bags, dtype=indices.dtype, device=indices.device)
    size = size.index_add(0, bag, kept.to(indices.dtype))
    rows = aten.index_select(weight, 0, indices)
    if mode == _MAX:
        output, chosen = _maxima(weight, rows, indices, bag, kept, bags)
        return output, bag, size, chosen
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    rows = rows.masked_fill(~kept.unsqueeze(1), 0)
    output = aten.new_zeros(weight, (bags, columns)).index_add(0, bag, rows)
    if mode == _MEAN:
        output = output / size.clamp(min=1).unsqueeze(1)
    return output, bag, size, torch.zeros_like(size)


def _maxima(weight, rows, indices, bag, kept, bags):
    """Return the largest element of each column of each bag, and the row of the weight that has it."""
    output, chosen = [], []
    for number in range(bags):
        members = ((bag == number) & kept).nonzero().squeeze(1)
        if len(members):
            values, place = aten.index_select(rows, 0, members).max(0)
            output.append(values)
            chosen.append(indices[members[place]])
        else:
            output.append(aten.new_zeros(weight, (weight.shape[1],)))
            chosen.append(torch.full((weight.shape[1],), -1, dtype=indices.dtype, device=indices.device))
    if not bags:
        empty = torch.zeros(0, weight.shape[1], dtype=indices.dtype, device=indices.device)
        return aten.new_zeros(weight, (0, weight.shape[1])), empty
    return torch.stack(output), torch.stack(chosen)


@register(aten._embedding_bag_backward.default)
def embedding_bag_backward(
    func,
    grad,
    indices,
    offsets,
    offset2bag,
    bag_size,
    maximum_indices,
    num_weights,
    scale_grad_by_freq,
    mode,
    sparse,
    per_sample_weights,
    padding_idx=-1,
):
    if sparse:
        raise NotImplementedError(f"{func} has no LNS implementation with sparse=True: there are no sparse LNS tensors")
    gradient = aten.new_zeros(grad, (num_weights, grad.shape[1]))
    if mode == _MAX:
        found = maximum_indices >= 0
        return gradient.scatter_add(0, maximum_indices.clamp(min=0), grad.masked_fill(~found, 0))
    if mode == _MEAN:
        grad = grad / bag_size.clamp(min=1).unsqueeze(1)
    rows = aten.index_select(grad, 0, offset2bag)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    if scale_grad_by_freq:
        rows = rows / indices.bincount(minlength=num_weights)[indices].unsqueeze(1)
    return gradient.index_add(0, indices, rows.masked_fill((indices == padding_idx).unsqueeze(1), 0))


@register(aten._embedding_bag_per_sample_weights_backward.default)
def per_sample_weights_backward(func, grad, weight, indices, offsets, offset2bag, mode, padding_idx=-1):
    products = aten.index_select(grad, 0, offset2bag) * aten.index_select(weight, 0, indices)
    return products.sum(1).masked_fill(indices == padding_idx, 0)
