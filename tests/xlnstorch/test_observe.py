"""Counting flags: by hand, by kind of operation, nested, in the backward pass and in other threads."""

import threading

import pytest
import torch
from lnstesting import leaf

import xlnstorch
from xlnstorch import FlagCounts, lns8, lns16, lnstensor
from xlnstorch.observe import EXACT, FLAGS, Operation, observing


def table(counts):
    return {
        name: (c.operations, *(getattr(c, flag) for flag in FLAGS))
        for name, c in [*counts.by_operation.items(), ("all", counts)]
    }


def test_each_flag_is_counted_for_its_operation():
    x = lnstensor([1e30, 1e-30, 0.0, -1.0], format=lns16)
    with xlnstorch.flags() as counts:
        x * 1e30
        x * 1e-30
        x / 0.0
        x.sqrt()
        x + x
    # operations, overflow, underflow, invalid, zero_divide
    assert table(counts) == {
        "mul": (8, 1, 1, 0, 0),
        "div": (4, 0, 0, 1, 3),
        "sqrt": (4, 0, 0, 1, 0),
        "add": (4, 0, 0, 0, 0),
        "all": (20, 1, 1, 2, 3),
    }


def test_the_parts_add_up():
    x = leaf([[1e20, 3.0], [1e-25, 0.0]])
    with xlnstorch.flags() as counts:
        ((x @ x) / x).sum().backward()
    assert len(counts.by_operation) > 2
    for name in ("operations", *FLAGS):
        assert getattr(counts, name) == sum(getattr(part, name) for part in counts.by_operation.values())
    assert counts.overflow > 0 < counts.zero_divide


def test_the_backward_pass_is_counted():
    x = leaf([1.0, 2.0])
    loss = (x * 1e30).sum()
    with xlnstorch.flags() as counts:
        (loss * 1e30).backward()
    # The loss overflows; so does, in its gradient 1e30, each of the two products with 1e30.
    assert table(counts) == {"mul": (4, 3, 0, 0, 0), "all": (4, 3, 0, 0, 0)}


def test_an_inner_block_counts_its_own_and_the_outer_both():
    x = lnstensor([1e30], format=lns16)
    with xlnstorch.flags() as outer:
        x * x
        with xlnstorch.flags() as inner:
            x * x
            x + x
        x + x
    x * x
    assert table(inner) == {"mul": (1, 1, 0, 0, 0), "add": (1, 0, 0, 0, 0), "all": (2, 1, 0, 0, 0)}
    assert table(outer) == {"mul": (2, 2, 0, 0, 0), "add": (2, 0, 0, 0, 0), "all": (4, 2, 0, 0, 0)}


def test_counting_ends_with_an_error_too():
    x = lnstensor([1e30], format=lns16)
    with pytest.raises(KeyError), xlnstorch.flags() as counts:
        raise KeyError
    x * x
    assert counts == FlagCounts()


def test_other_threads_are_counted():
    x = lnstensor([1e30], format=lns16)
    with xlnstorch.flags() as counts:
        thread = threading.Thread(target=lambda: x * x)
        thread.start()
        thread.join()
    assert counts.overflow == 1


def test_how_counts_look():
    x = lnstensor([200.0] * 1200, format=lns8)
    with xlnstorch.flags() as counts:
        x * x
        x + 0
    assert repr(counts) == "FlagCounts(operations=2400, overflow=1200, underflow=0, invalid=0, zero_divide=0)"
    assert str(counts).splitlines() == [
        "             operations     overflow    underflow      invalid  zero_divide",
        "mul               1,200        1,200            0            0            0",
        "add               1,200            0            0            0            0",
        "all               2,400        1,200            0            0            0",
    ]


def test_an_operation_is_what_was_computed():
    seen = []
    with observing(seen.append):
        lnstensor([[1.0], [2.0]], format=lns16) / lnstensor([2.0, 0.0], format=lns16)
    (operation,) = seen
    assert isinstance(operation, Operation)
    assert (operation.name, operation.format) == ("div", lns16)
    assert [x.tolist() for x in operation.operands] == [[[0x4000] * 2, [0x4080] * 2], [[0x4080, 0]] * 2]
    assert operation.result.tolist() == [[0x3F80, 0x7FFF], [0x4000, 0x7FFF]]
    assert operation.flags.tolist() == [[0, 1 << FLAGS.index("zero_divide")]] * 2


def test_exact_operations_are_told_only_to_who_asks_and_never_counted():
    x = leaf([1.5, -2.5, 0.0])
    asked, told = [], []
    with observing(asked.append, exact=True), observing(told.append), xlnstorch.flags() as counts:
        (x * 2).relu().sum().backward()
        y = x.detach()
        (-y, abs(y), y.clamp(min=1.0), torch.minimum(y, abs(y)), torch.copysign(y, -y), torch.copysign(y, -1.0))
    shown = [operation.name for operation in asked if operation.name in EXACT]
    # The sign of a plain number is no word.
    assert shown == ["relu", "relu_grad", "neg", "abs", "max", "abs", "min", "neg", "copysign"]
    assert [operation.name for operation in told] == [o.name for o in asked if o.name not in EXACT]
    assert counts.operations == sum(operation.result.numel() for operation in told) > 0
    by_name = {operation.name: operation for operation in asked}
    gated = by_name["relu_grad"]
    assert [words.tolist() for words in (*gated.operands, gated.result)] == [
        [0x4000 + 203, 0, 0],  # what relu gave
        [0x4000] * 3,
        [0x4000, 0, 0],
    ]
    assert all(operation.flags.tolist() == [0] * 3 for operation in asked if operation.name in EXACT)


def test_a_gate_at_another_threshold_is_not_the_backward_pass_of_relu():
    x = leaf([1.5, -2.5])
    seen = []
    with observing(seen.append, exact=True):
        torch.nn.functional.threshold(x, 1.0, 0.0).sum().backward()
    assert "relu_grad" not in [operation.name for operation in seen]
