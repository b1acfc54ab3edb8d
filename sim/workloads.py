"""Real work to capture: the training of a small classifier on scikit-learn's digits."""

from __future__ import annotations

import torch

from xlnstorch import LNSTensor, convert, lnstensor
from xlnstorch.formats import LNSFormat

__all__ = ["digits_classifier", "digits_epoch", "digits_step"]

BATCH = 16


def digits_classifier(format: LNSFormat, seed: int) -> torch.nn.Module:
    """Return a 64-16-10 multilayer perceptron whose parameters are LNSTensors; the same for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
    return convert(model, format)


def digits_step(format: LNSFormat, seed: int) -> tuple[torch.nn.Module, LNSTensor]:
    """Train the classifier for one step on a batch of 16 digits: forward, cross-entropy, backward, clipping, Adam.

    Among its operations are all that the arithmetic has: the norm of the gradients has squares and roots, their
    average second moments quotients.

    Returns
    -------
    Module, LNSTensor
        The model after the step, with its gradients, and the loss.
    """
    model, losses = digits_epoch(format, seed, steps=1)
    return model, losses[0]


def digits_epoch(format: LNSFormat, seed: int, steps: int | None = None) -> tuple[torch.nn.Module, list[LNSTensor]]:
    """Train the classifier as :func:`digits_step` does on all 1,797 digits once, in batches of 16 and a last of 5.

    Parameters
    ----------
    format : LNSFormat
    seed : int
        Of the parameters and the order of the digits.
    steps : int, optional
        End after so many of the 113 batches.

    Returns
    -------
    Module, list of LNSTensor
        The model after the last step, with its gradients, and the loss of each step.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = torch.from_numpy(digits.data) / 16, torch.from_numpy(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))

    model = digits_classifier(format, seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.125)
    losses = []
    for chosen in order.split(BATCH)[:steps]:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(lnstensor(images[chosen], format=format)), labels[chosen])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        losses.append(loss.detach())
    return model, losses
