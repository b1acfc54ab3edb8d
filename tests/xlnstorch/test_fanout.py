"""Fan-out analysis of autograd graphs: of LNSTensors, of custom functions, of plain tensors."""

import pytest
import torch
from lnstesting import exactly

from xlnstorch.autograd import LNSFunction, find_fanout, has_fanout, raise_fanout_error


class Pass(LNSFunction):
    @staticmethod
    def forward(ctx, x, y):
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


def accumulator(leaf):
    return (leaf * 1).grad_fn.next_functions[0][0]


def test_no_fan_out(x, y):
    for root in (x, x.detach(), x * y, (x * y).grad_fn, (x * 2).sum(), torch.ones(2, requires_grad=True) * 2):
        assert find_fanout(root) == [] and has_fanout(root) is False
    assert raise_fanout_error([]) is None


def test_a_square_is_fan_out(x):
    square = x * x
    for root in (square, square.grad_fn):
        assert find_fanout(root) == [{"child": accumulator(x), "edge_count": 2, "parents": {square.grad_fn}}]
        assert has_fanout(root) is True


def test_a_diamond_is_fan_out(x, y):
    trunk = x * y
    left, right = trunk + 1, trunk.exp()
    root = left * right
    expected = {"child": trunk.grad_fn, "edge_count": 2, "parents": {left.grad_fn, right.grad_fn}}
    assert find_fanout(root) == [expected]


def test_fan_outs_come_breadth_first_and_once(x):
    trunk = x * 2
    square = trunk * trunk
    root = square * square
    found = find_fanout(root * x)
    assert [entry["child"] for entry in found] == [accumulator(x), square.grad_fn, trunk.grad_fn]
    assert [entry["edge_count"] for entry in found] == [2, 2, 2]


def test_fan_out_of_custom_functions_and_plain_graphs(x):
    z = Pass.apply(x, x)
    assert find_fanout(z) == [{"child": accumulator(x), "edge_count": 2, "parents": {z.grad_fn}}]
    plain = torch.ones(2, requires_grad=True)
    assert has_fanout((plain * plain).sum()) and not has_fanout(plain.sum())


@pytest.mark.parametrize("root", [3, None, [1]])
def test_fan_out_of_something_else(root):
    text = f"root must be a tensor or an autograd node, not {type(root).__name__}"
    for function in (find_fanout, has_fanout):
        with pytest.raises(TypeError, match=exactly(text)):
            function(root)


def test_fan_out_error_names_the_nodes(x):
    square = x * x
    child, parent = accumulator(x), square.grad_fn
    text = (
        "the autograd graph has fan-out at\n"
        f"  AccumulateGrad@{id(child):#x}: 2 edges, from MulBackward0@{id(parent):#x}"
    )
    with pytest.raises(RuntimeError, match=exactly(text)):
        raise_fanout_error(find_fanout(square))
