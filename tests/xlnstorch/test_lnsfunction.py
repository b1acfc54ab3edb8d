"""LNSFunction: custom operations on packed words, to the contract of torch.autograd.Function."""

import gc
import weakref

import pytest
import torch
from lnstesting import exactly

import xlnstorch as xltorch
from xlnstorch import LNS_ZERO, LNSTensor, arithmetic, lns16, lnstensor
from xlnstorch.autograd import LNSFunction


def packed(x):
    return x.lns.tolist()


def define(forward, backward=lambda ctx, *grads: grads, name="Custom"):
    """A function of two arguments, unless `backward` says otherwise."""
    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(name, (LNSFunction,), body)


class Published(xltorch.autograd.LNSFunction):
    """Written as for the published packages: the larger of two positive numbers, with both gradients passed on."""

    seen = None

    @staticmethod
    def forward(x, y):
        Published.seen = x, y
        x_packed, y_packed = x.to(torch.int64), y.to(torch.int64)
        return torch.where(x_packed > y_packed, x_packed, y_packed).to(torch.float64)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y = inputs
        ctx.save_for_backward(x, y)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, grad_output


class Multiply(LNSFunction):
    """What ``x * y`` does, written on packed numbers that are not zero and stay in range."""

    @staticmethod
    def multiply(x, y):
        x, y = x.to(torch.int64), y.to(torch.int64)
        product = ((x >> 1) + (y >> 1) << 1) | ((x ^ y) & 1)
        return product.to(torch.float64)

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return Multiply.multiply(x, y)

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return Multiply.multiply(grad_output, y), Multiply.multiply(grad_output, x)


class MultiplySeparately(Multiply):
    @staticmethod
    def forward(x, y):
        return Multiply.multiply(x, y)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)


# The published contract -----------------------------------------------------------------------------------------------


def test_published_example(x, y):
    z = Published.apply(x, y)
    assert isinstance(z, LNSTensor) and z.format == x.format and torch.equal(z.words, y.words)
    for tensor, packed_tensor in zip((x, y), Published.seen, strict=True):
        assert type(packed_tensor) is torch.Tensor and packed_tensor.dtype == torch.float64
        assert torch.equal(packed_tensor, tensor.lns)
    assert Published.seen[0].tolist() == [0.0, float(1 << 24)]
    z.sum().backward()
    assert x.grad.value.tolist() == y.grad.value.tolist() == [1.0, 1.0] and x.grad.format == x.format


def test_published_example_handed_through_lnstensor(x, y):
    z = xltorch.lnstensor(Published.apply(x, y), from_lns=True)
    assert type(z.grad_fn).__name__ == "PublishedBackward" and torch.equal(z.words, y.words)
    (z * xltorch.lnstensor([5.0, -1.0], f=23)).sum().backward()
    assert torch.equal(x.grad.words, lnstensor([5.0, -1.0], f=23).words)


@pytest.mark.parametrize("function", [Multiply, MultiplySeparately])
def test_multiplication_is_that_of_the_built_in(function):
    generator = torch.Generator().manual_seed(1)
    u, v, w = (lnstensor(torch.randn(50, dtype=torch.float64, generator=generator), format=lns16) for _ in range(3))
    results = []
    for multiply in (function.apply, torch.mul):
        a, b = u.clone().requires_grad_(), v.clone().requires_grad_()
        product = multiply(a, b)
        (product * w).sum().backward()
        results.append((product.words, a.grad.words, b.grad.words))
    for mine, built_in in zip(*results, strict=True):
        assert torch.equal(mine, built_in)


@pytest.mark.parametrize("function", [Multiply, MultiplySeparately])
def test_fan_out_of_an_input_adds_in_lns(function, x):
    function.apply(x, x).sum().backward()
    assert torch.equal(x.grad._words, arithmetic.add(x.format, x._words, x._words))
    x.grad = None
    trunk = x * 1
    (function.apply(trunk, trunk) + function.apply(trunk, trunk)).sum().backward()
    assert x.grad.value.tolist() == pytest.approx([4.0, 8.0], rel=2.0**-22)


def test_grad_fn_has_the_name_of_the_class(x, y):
    assert Multiply.apply(x, y).grad_fn.name() == "MultiplyBackward"
    assert repr(Multiply.apply(x, x)[0]).endswith("grad_fn=<SelectBackward0>)")


def test_no_graph_where_none_is_wanted(x, y):
    assert Multiply.apply(x.detach(), y.detach()).grad_fn is None
    with torch.no_grad():
        assert not Multiply.apply(x, y).requires_grad


def test_autograd_grad_and_deeper_graphs(x, y):
    z = Multiply.apply(Multiply.apply(x, y) * 2, y).sum()
    grad_x, grad_y = torch.autograd.grad(z, [x, y])
    assert grad_x.value.tolist() == pytest.approx([18.0, 32.0], rel=2.0**-22)
    assert grad_y.value.tolist() == pytest.approx([12.0, 32.0], rel=2.0**-21)


# The context ----------------------------------------------------------------------------------------------------------


def test_context_keeps_tensors_and_attributes(x, y):
    def forward(ctx, x, y, scale, label=None):
        ctx.save_for_backward(x, y)
        ctx.scale, ctx.label = scale, label
        return x

    def backward(ctx, grad_output):
        seen.append((ctx.saved_tensors, ctx.scale, ctx.label, ctx.needs_input_grad))
        return grad_output, None, None, None

    seen = []
    define(forward, backward).apply(x, y.detach(), 3, "name").sum().backward()
    ((saved, scale, label, needs),) = seen
    assert [t.tolist() for t in saved] == [packed(x), packed(y)] and (scale, label) == (3, "name")
    assert needs == (True, False, False, False)


def test_setup_context_sees_packed_outputs_and_other_arguments(x):
    class Scale(LNSFunction):
        @staticmethod
        def forward(x, shift):
            return x + (shift << 1)

        @staticmethod
        def setup_context(ctx, inputs, output):
            seen.extend([inputs, output])
            ctx.save_for_backward(output)

        @staticmethod
        def backward(ctx, grad_output):
            seen.append(ctx.saved_tensors[0])
            return grad_output, None

    seen = []
    result = Scale.apply(x, 1 << 23)
    result.sum().backward()
    (inputs, shift), output, saved = seen
    assert inputs.tolist() == packed(x) and shift == 1 << 23
    assert result.value.tolist() == [2.0, 4.0] and output.tolist() == saved.tolist() == packed(result)


def test_none_gradients(x, y):
    define(lambda ctx, x, y: x, lambda ctx, grad: (grad, None)).apply(x, y).sum().backward()
    assert x.grad is not None and y.grad is None


def test_mark_non_differentiable(x, y):
    def forward(ctx, x, y):
        ctx.mark_non_differentiable(x)
        return x, y

    first, second = define(forward).apply(x, y)
    assert not first.requires_grad and second.requires_grad and isinstance(first, LNSTensor)


def test_mark_dirty_is_refused(x, y):
    text = "an LNSFunction gets packed copies of its inputs, so it cannot change one in place; return a new tensor"
    with pytest.raises(NotImplementedError, match=exactly(text)):
        define(lambda ctx, x, y: ctx.mark_dirty(x)).apply(x, y)


def test_inputs_are_copies(x, y):
    define(lambda ctx, x, y: x.add_(2)).apply(x, y)
    assert x.value.tolist() == [1.0, 2.0]


# Outputs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("container", [tuple, list])
def test_several_outputs(container, x, y):
    u, v = define(lambda ctx, x, y: container([y, x])).apply(x, y)
    assert torch.equal(u.words, y.words) and torch.equal(v.words, x.words)
    (u * 2 + v * 3).sum().backward()
    # The gradient of the first output went to the first input.
    assert x.grad.value.tolist() == [2.0, 2.0] and y.grad.value.tolist() == lnstensor([3.0] * 2, f=23).value.tolist()


def test_integer_outputs_are_plain_and_not_differentiable(x, y):
    def forward(ctx, x, y):
        return y, (x > y).to(torch.int64), 7

    def backward(ctx, grad, grad_integers, grad_number):
        seen.append(grad_number)
        return grad, grad

    seen = []
    values, integers, number = define(forward, backward).apply(x, y)
    assert type(integers) is torch.Tensor and integers.tolist() == [0, 0] and number == 7
    assert not integers.requires_grad and values.requires_grad
    values.sum().backward()
    assert x.grad.value.tolist() == [1.0, 1.0] and seen == [None]


def test_float32_outputs_are_not_differentiable(x, y):
    values, other = define(lambda ctx, x, y: (x, y.float())).apply(x, y)
    assert isinstance(values, LNSTensor) and type(other) is torch.Tensor and other.dtype == torch.float32
    assert not other.requires_grad


def test_unused_outputs_have_gradients_of_zero(x, y):
    def backward(ctx, grad_first, grad_second):
        seen.append((grad_first.tolist(), grad_second.tolist()))
        return grad_first, grad_second

    seen = []
    first, _ = define(lambda ctx, x, y: (x, y), backward).apply(x, y)
    first.sum().backward()
    # A float64 0.0 would be the packed form of one.
    assert seen == [([0.0, 0.0], [LNS_ZERO, LNS_ZERO])]
    assert x.grad.value.tolist() == [1.0, 1.0] and y.grad.value.tolist() == [0.0, 0.0]


def test_unused_outputs_without_materialized_gradients(x, y):
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x, y

    def backward(ctx, grad_first, grad_second):
        assert grad_second is None
        return grad_first, grad_second

    first, _ = define(forward, backward).apply(x, y)
    first.sum().backward()
    assert x.grad.value.tolist() == [1.0, 1.0] and y.grad is None


def test_out_of_range_results_saturate_and_flush():
    def forward(ctx, x):
        return torch.stack([x + 2**20, x + 2**20 + 1, x - 2**20, torch.full_like(x, LNS_ZERO)])

    x = lnstensor(1.0, format=lns16, requires_grad=True)
    function = define(forward, lambda ctx, grad: torch.full_like(grad[0], 2.0**20))
    result = function.apply(x)
    assert result.words.tolist() == [0x7FFF, 0xFFFF, 0, 0]
    result.sum().backward()
    assert x.grad.words.item() == 0x7FFF


def test_lnstensors_may_be_returned_too(x, y):
    def through(packed_tensor):
        return xltorch.lnstensor(packed_tensor, from_lns=True, f=23)

    function = define(lambda ctx, x, y: through(x), lambda ctx, grad: (through(grad), grad))
    result = function.apply(x, y)
    result.sum().backward()
    assert torch.equal(result.words, x.words) and x.grad.value.tolist() == y.grad.value.tolist() == [1.0, 1.0]


# Errors ---------------------------------------------------------------------------------------------------------------


def test_apply_needs_an_lnstensor(x):
    for args, types in (((), "no arguments"), ((torch.ones(2), 3), "Tensor, int")):
        with pytest.raises(TypeError, match=exactly(f"Multiply.apply needs at least one LNSTensor, not {types}")):
            Multiply.apply(*args)


def test_apply_takes_no_keywords(x, y):
    with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
        Multiply.apply(x, y=y)


def test_apply_takes_one_format(x):
    text = (
        "Multiply.apply got operands of two formats, LNSFormat(29, 23) and lns16; convert one with "
        "xlnstorch.lnstensor(x, format=..., detach=False)"
    )
    with pytest.raises(TypeError, match=exactly(text)):
        Multiply.apply(x, lnstensor([1.0, 2.0], format=lns16))


@pytest.mark.parametrize(("value", "shown"), [(0.5, "0.5"), (float("nan"), "nan"), (2.0**54, str(2.0**54))])
def test_what_is_not_packed_is_refused(value, shown, x, y):
    message = exactly(f"packed LNS values must be integers within ±2**53, not {shown}")
    with pytest.raises(ValueError, match=message):
        define(lambda ctx, x, y: torch.full_like(x, value)).apply(x, y)
    result = define(lambda ctx, x, y: x, lambda ctx, grad: (torch.full_like(grad, value), grad)).apply(x, y)
    with pytest.raises(ValueError, match=message):
        result.sum().backward()


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_gradients_of_another_dtype_do_not_pass_as_values(dtype, x, y):
    # Unpacked or refused; not stored in .grad as if the packed integers were values.
    result = define(lambda ctx, x, y: x, lambda ctx, grad: (grad.to(dtype), grad)).apply(x, y)
    try:
        result.sum().backward()
    except TypeError:
        return
    assert isinstance(x.grad, LNSTensor) and x.grad.value.tolist() == [1.0, 1.0]


def test_results_of_another_format_are_refused(x, y):
    with pytest.raises(TypeError, match=r"forward must return LNSFormat\(29, 23\) as its inputs have, not lns16"):
        define(lambda ctx, x, y: lnstensor(x, from_lns=True, format=lns16)).apply(x, y)


def test_a_plain_input_gets_a_plain_gradient(x):
    # Between LNSTensors anything is handed through, so its gradient is no packed number either.
    scale = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    define(lambda ctx, x, scale: x, lambda ctx, grad: (grad, torch.full((2,), 2.5))).apply(x, scale).sum().backward()
    assert type(scale.grad) is torch.Tensor and scale.grad.tolist() == [2.5, 2.5]
    function = define(lambda ctx, x, scale: x, lambda ctx, grad: (grad, torch.full((2,), 3.0, dtype=torch.float64)))
    function.apply(x, scale).sum().backward()
    assert scale.grad.tolist() == [5.5, 5.5]


def test_a_plain_gradient_is_not_read_as_packed(x, y):
    # 1.0 is the packed form of minus the smallest number above one.
    try:
        Multiply.apply(x, y).backward(torch.ones(2, dtype=torch.float64))
    except TypeError:
        return
    assert torch.equal(x.grad.words, y.words)


def test_number_of_gradients_is_checked(x, y):
    with pytest.raises(RuntimeError, match=r"CustomBackward returned an incorrect number of gradients"):
        define(lambda ctx, x, y: x, lambda ctx, grad: grad).apply(x, y).sum().backward()


def test_second_derivatives_are_refused(x, y):
    z = Multiply.apply(x, y)
    (grad,) = torch.autograd.grad((z * z).sum(), x, create_graph=True)
    assert grad.value.tolist() == pytest.approx([18.0, 64.0], rel=2.0**-21)
    with pytest.raises(RuntimeError, match="trying to differentiate twice a function that was marked with @once_diff"):
        grad.sum().backward()


def test_a_function_that_is_gone_leaves_nothing_behind(x, y):
    function = define(lambda ctx, x, y: x)
    function.apply(x, y)
    reference = weakref.ref(function)
    del function
    gc.collect()
    assert reference() is None
