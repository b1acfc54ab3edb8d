"""Every entry of ``module_db``: parameters and buffers in LNS, in training and in evaluation, forward and backward."""

import copy
import warnings

import torch
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_leaves, tree_map

from xlnstorch import LNSTensor, convert, to_float

from .accepted import tolerance
from .comparing import WIDE, Outcome, encodable, run_both, shared, to_lns, verdict


def entries() -> dict[str, object]:
    """Return the entries by the name of their class."""
    return {info.name: info for info in module_db if torch.float64 in info.dtypes}


def measure(info, most: int | None = None) -> Outcome:
    """Run every input of one module, or `most` of them, in every mode that it has."""
    outcome = Outcome()
    modes = [True, False] if info.train_and_eval_differ else [True]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for training in modes:
            torch.manual_seed(0)
            inputs = info.module_inputs_func(
                info, device="cpu", dtype=torch.float64, requires_grad=True, training=training
            )
            for sample in shared(inputs, most):
                if outcome.forward not in (None, "pass"):
                    return outcome
                _run(outcome, info, sample, training)
    return outcome


def _run(outcome: Outcome, info, sample, training: bool) -> None:
    given = (sample.forward_input.args, sample.forward_input.kwargs)
    if not all(map(encodable, tree_leaves(given))):
        return
    torch.manual_seed(0)
    constructor = sample.constructor_input
    module = info.module_cls(*constructor.args, **constructor.kwargs).to(torch.float64).train(training)
    if info.is_lazy:
        module(*given[0], **given[1])  # its parameters get their shapes from a first input
    try:
        in_lns = convert(copy.deepcopy(module), WIDE)
    except Exception as error:
        outcome.note("forward", verdict(error))
        return
    names = [name for name, _ in in_lns.named_parameters()]
    arguments = (tree_map(to_lns, given), [p for _, p in in_lns.named_parameters()])
    if not any(isinstance(x, LNSTensor) for x in tree_leaves(arguments)):
        return
    in_floats = to_float(copy.deepcopy(in_lns), torch.float64)

    def compute(a):
        # Each run has a module of its own, since running statistics change.
        (args, kwargs), parameters = a
        source = in_lns if any(isinstance(x, LNSTensor) for x in tree_leaves(a)) else in_floats
        fresh = copy.deepcopy(source)
        result = torch.func.functional_call(fresh, dict(zip(names, parameters, strict=True)), args, kwargs)
        statistics = [buffer for _, buffer in fresh.named_buffers()]
        return result, [s for s in statistics if s.dtype == torch.float64]

    run_both(outcome, compute, arguments, *tolerance(info.name))
    if outcome.forward == "pass":
        outcome.note("forward", _without_autograd(compute, arguments))


def _without_autograd(compute, arguments) -> str:
    """Tell whether the words are the same where PyTorch takes other ways, since nobody will want a gradient."""

    def words():
        torch.manual_seed(1)
        return [x._words if isinstance(x, LNSTensor) else x for x in tree_leaves(compute(arguments))]

    try:
        with_autograd = words()
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                if not all(map(torch.equal, with_autograd, words())):
                    return f"wrong: other words under {mode.__name__}"
    except Exception as error:
        return verdict(error)
    return "pass"
