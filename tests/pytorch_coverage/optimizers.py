"""Every entry of ``optim_db``: twenty steps on LNS parameters, compared with the same steps in float64."""

import copy
import warnings
from unittest import mock

import torch
from torch.testing._internal.common_optimizers import optim_db

from xlnstorch import keep_format, lnstensor

from .comparing import UNIT, WIDE, Outcome, compare, spread_of, verdict

STEPS = 20

#: A step of it is many: four iterations a step, and ten gradients remembered, are enough to see each part of it.
_LIMITS = {"LBFGS": {"max_iter": 4, "history_size": 10}}


def entries() -> dict[str, object]:
    """Return the entries by the name of their class."""
    return {info.optim_cls.__name__: info for info in optim_db}


def _problem():
    """Return data, target and starting parameters of a small regression."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(6, 4), (6, 3), (4, 3), (3,)]
    return [lnstensor(torch.randn(*s, dtype=torch.float64, generator=generator), format=WIDE) for s in shapes]


def _train(info, options: dict, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the parameters after the steps; `tensors` are those of the problem, in LNS or plain."""
    data, target, *start = tensors
    parameters = [torch.nn.Parameter(x.clone()) for x in start]
    if info.optim_cls is torch.optim.Muon:
        parameters = parameters[:1]  # it takes matrices only
    optimizer = info.optim_cls(parameters, **_LIMITS.get(info.optim_cls.__name__, {}), **copy.deepcopy(options))

    def closure():
        optimizer.zero_grad()
        output = data @ parameters[0]
        loss = ((sum(parameters[1:], output) - target) ** 2).mean()
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(closure)
    return [p.detach() for p in parameters]


def measure(info, most: int | None = None) -> Outcome:
    """Train with each set of options that the database has for the processor, or with the first `most` of them."""
    outcome = Outcome()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in info.optim_inputs_func(device="cpu")[:most]:
            options = {name: value for name, value in sample.kwargs.items() if name != "params"}
            outcome.samples += 1
            outcome.note("forward", _compare_training(info, options, sample.desc))
    return outcome


def _compare_training(info, options: dict, description: str) -> str:
    tensors = _problem()
    moves = torch.Generator().manual_seed(1)
    values = [x.value for x in tensors]
    moved = [v * (1 + UNIT * torch.empty_like(v).uniform_(-1, 1, generator=moves)) for v in values]
    try:
        # Muon computes a part in bfloat16; here that part keeps the precision of the rest, in LNS and in float64.
        with keep_format():
            got = _train(info, options, tensors)
        with mock.patch.object(torch.Tensor, "bfloat16", lambda x: x):
            want = _train(info, options, values)
            # Every step rounds, and the later ones magnify it: as much as moving the start would, once a step.
            spreads = [STEPS * s for s in spread_of(want, [_train(info, options, moved)])]
        for i, (g, w, spread) in enumerate(zip(got, want, spreads, strict=True)):
            compare(g, w, spread, f"{description}: parameter {i}", slack=STEPS)
    except Exception as error:
        return verdict(error)
    return "pass"
