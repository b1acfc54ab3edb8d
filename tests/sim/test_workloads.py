"""The work that is captured is training: it repeats itself, moves on, and gets better."""

import torch

from sim.workloads import BATCH, digits_epoch, digits_step
from xlnstorch import lns8, lns16


def test_an_epoch_begins_with_the_step_and_goes_on():
    after_one, first = digits_step(lns8, seed=2)
    model, losses = digits_epoch(lns8, seed=2, steps=2)
    assert len(losses) == 2
    assert torch.equal(losses[0].words, first.words)
    assert not torch.equal(model[0].weight.words, after_one[0].weight.words)


def test_the_loss_falls():
    _, losses = digits_epoch(lns16, seed=0, steps=8)
    values = [loss.item() for loss in losses]
    assert sum(values[-3:]) < sum(values[:3])


def test_all_digits_are_in_the_batches(monkeypatch):
    seen = []
    monkeypatch.setattr("sim.workloads.lnstensor", lambda data, format: seen.append(len(data)) or data)
    monkeypatch.setattr("sim.workloads.digits_classifier", lambda format, seed: torch.nn.Linear(64, 10).double())
    digits_epoch(lns16, seed=0)
    assert seen == [BATCH] * 112 + [5]
