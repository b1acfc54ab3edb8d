"""Every entry of ``op_db`` that takes float64, with all its samples."""

import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

from xlnstorch import LNSTensor

from .accepted import tolerance
from .comparing import Outcome, encodable, run_both, shared, to_lns

#: Elements of the largest operand that is run; a few samples are meant for timing kernels.
ELEMENTS = 200_000


def entries() -> dict[str, object]:
    """Return the entries by name, variants as ``name.variant``."""
    return {name_of(op): op for op in op_db if op.supports_dtype(torch.float64, "cpu")}


def name_of(op) -> str:
    """Return the name of an entry, with its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def measure(op, most: int | None = None) -> Outcome:
    """Run the samples of one entry, or `most` of them, evenly spaced; the first refusal settles it."""
    outcome = Outcome()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in shared(list(op.sample_inputs("cpu", torch.float64, requires_grad=op.supports_autograd)), most):
            given = (sample.input, sample.args, sample.kwargs)
            tensors = [x for x in tree_leaves(given) if isinstance(x, torch.Tensor)]
            if not all(map(encodable, tensors)) or any(x.numel() > ELEMENTS for x in tensors):
                continue
            arguments = tree_map(to_lns, given)
            if any(isinstance(x, LNSTensor) for x in tree_leaves(arguments)):
                run_both(outcome, lambda a: op(a[0], *a[1], **a[2]), arguments, *tolerance(name_of(op)))
            if outcome.forward not in (None, "pass"):
                break
    return outcome
