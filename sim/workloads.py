"""Real work to capture: one training step of a small classifier on scikit-learn's digits."""

from __future__ import annotations

import torch

from xlnstorch import LNSTensor, convert, lnstensor
from xlnstorch.formats import LNSFormat

__all__ = ["digits_classifier", "digits_step"]

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
    from sklearn.datasets import load_digits

    digits = load_digits()
    chosen = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(seed))[:BATCH]
    images = lnstensor(torch.from_numpy(digits.data)[chosen] / 16, format=format)
    labels = torch.from_numpy(digits.target)[chosen]

    model = digits_classifier(format, seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.125)
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    return model, loss
