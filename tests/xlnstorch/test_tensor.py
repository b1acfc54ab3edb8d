"""LNSTensor as an object: what it holds, how it prints, copies and travels, and how it crosses into and out of LNS."""

import copy
import io
import math
import pickle

import numpy as np
import pytest
import torch
from lnstesting import exactly

import xlnstorch
from xlnstorch import (
    LNSFormat,
    LNSTensor,
    LogAccumulator,
    conversions,
    from_words,
    lns8,
    lns12,
    lns16,
    lns32,
    lnstensor,
)

WORDS = [[0x4000, 0xC080, 0x0000], [0x7FFF, 0x8001, 0x4001]]


@pytest.fixture
def x():
    return from_words(WORDS, lns16)


def test_constructor_keeps_the_words():
    words = torch.tensor([1, 2], dtype=torch.int16)
    x = LNSTensor(words, lns16)
    assert x._words is words and x.format is lns16 and not x.requires_grad
    assert LNSTensor(words, lns16, requires_grad=True).requires_grad


def test_constructor_refuses_another_dtype():
    with pytest.raises(TypeError, match=exactly("words of lns16 must be torch.int16, not torch.int64")):
        LNSTensor(torch.zeros(2, dtype=torch.int64), lns16)


def test_is_a_float64_tensor_to_autograd(x):
    assert isinstance(x, torch.Tensor) and isinstance(x, LNSTensor)
    assert x.dtype == torch.float64 and x.is_floating_point() and x.is_leaf and x.device.type == "cpu"
    assert x.shape == (2, 3) and x.numel() == 6 and x.dim() == 2 and len(x) == 2


def test_shape_and_strides_are_those_of_the_words(x):
    assert x.t().stride() == x._words.t().stride() == (1, 3)
    assert not x.t().is_contiguous() and x[:, 1:].storage_offset() == 1


@pytest.mark.parametrize(
    ("format", "nbytes"), [(lns8, 1), (lns12, 2), (lns16, 2), (lns32, 4), (LNSFormat(29, 23), 8), (LNSFormat(5, 2), 1)]
)
def test_words_take_the_memory_of_the_format(format, nbytes):
    x = xlnstorch.ones(10, format=format)
    assert x._words.dtype == format.dtype and x._words.untyped_storage().nbytes() == 10 * nbytes
    assert (x * x)._words.untyped_storage().nbytes() == 10 * nbytes


def test_words_are_unsigned(x):
    assert x.words.dtype == torch.int64 and x.words.tolist() == WORDS


def test_value_decodes(x):
    largest, smallest = 2.0 ** ((0x7FFF - 0x4000) / 128), 2.0 ** ((1 - 0x4000) / 128)
    expected = [[1.0, -2.0, 0.0], [largest, -smallest, 2.0 ** (1 / 128)]]
    assert x.value.dtype == torch.float64 and type(x.value) is torch.Tensor
    torch.testing.assert_close(x.value, torch.tensor(expected, dtype=torch.float64), rtol=2**-52, atol=0)


def test_value_is_detached():
    x = lnstensor([2.0], format=lns16, requires_grad=True)
    assert not (x * x).value.requires_grad and not x.value.requires_grad


def test_lns_is_packed(x):
    expected = [[0, (128 << 1) | 1, xlnstorch.LNS_ZERO], [0x3FFF << 1, ((1 - 0x4000) << 1) | 1, 2]]
    assert x.lns.dtype == torch.float64 and type(x.lns) is torch.Tensor and x.lns.tolist() == expected


@pytest.mark.parametrize(
    ("x", "base"),
    [
        (lnstensor(1.0, f=0), 2.0),
        (lnstensor(1.0, f=1), math.sqrt(2.0)),
        (lnstensor(1.0, format=lns16), 2.0 ** (1 / 128)),
        (lnstensor(1.0, b=1.1), 1.1),
    ],
)
def test_base_is_the_number_that_e_is_an_exponent_of(x, base):
    assert x.base.dtype == torch.float64 and x.base.dim() == 0 and x.base.item() == base


def test_properties_cannot_be_set(x):
    for name in ("format", "words", "value", "lns", "base"):
        with pytest.raises(AttributeError, match=name):
            setattr(x, name, None)


def test_assigning_data_replaces_words_or_fails():
    # torch's own setter would replace shape and strides but leave the words, and so describe memory that is not there.
    x, y = lnstensor([1.0, 2.0], format=lns16), lnstensor([3.0, 4.0, 5.0], format=lns16)
    try:
        x.data = y
    except (AttributeError, RuntimeError, TypeError):
        y = lnstensor([1.0, 2.0], format=lns16)
    assert x.shape == x.words.shape and x.words.tolist() == y.words.tolist()


def test_item_tolist_numpy(x):
    assert x[0, 1].item() == -2.0 and float(x[0, 0]) == 1.0 and int(x[0, 1]) == -2 and bool(x[0, 0]) and not x[0, 2]
    assert x.tolist() == x.value.tolist() and x[0, 0].tolist() == 1.0
    assert x.numpy().dtype == np.float64 and np.array_equal(x.numpy(), x.value.numpy())
    assert np.array_equal(np.asarray(x), x.value.numpy()) and np.asarray(x, dtype=np.float32).dtype == np.float32
    assert [y.item() for y in x[0]] == [1.0, -2.0, 0.0]


def test_numpy_of_a_tensor_that_requires_grad():
    x = lnstensor([2.0], format=lns16, requires_grad=True)
    with pytest.raises(RuntimeError, match=exactly("numpy() of an LNSTensor that requires grad: call detach() first")):
        x.numpy()
    assert x.numpy(force=True).tolist() == x.detach().numpy().tolist() == [2.0]


def test_numpy_does_not_compute_in_float_silently(x):
    # NumPy would decode, multiply in float64 and hand out a plain result.
    for product in (lambda: x * np.ones((2, 3)), lambda: np.ones((2, 3)) * x, lambda: np.add(x, 1.0)):
        try:
            result = product()
        except TypeError:
            continue
        assert isinstance(result, LNSTensor)


def test_dlpack_does_not_hand_out_memory_that_is_not_there(x):
    # The wrapper's own storage is a null pointer: an export that succeeds without the words reads foreign memory.
    with pytest.raises((TypeError, RuntimeError, NotImplementedError, BufferError)):
        np.from_dlpack(x)


# repr -----------------------------------------------------------------------------------------------------------------


def test_repr_of_a_plain_one():
    assert repr(lnstensor([1.0, -2.0, 0.0], format=lns16)) == "lnstensor([ 1., -2.,  0.], format=lns16)"
    assert str(lnstensor(2.0)) == "lnstensor(2., format=LNSFormat(29, 23))"
    assert repr(lnstensor([], f=23)) == "lnstensor([], format=LNSFormat(29, 23))"


def test_repr_of_gradients():
    x = lnstensor([1.0], format=lns16, requires_grad=True)
    assert repr(x) == "lnstensor([1.], format=lns16, requires_grad=True)"
    assert repr(x * 2) == "lnstensor([2.], format=lns16, grad_fn=<MulBackward0>)"
    assert repr(x.detach()) == "lnstensor([1.], format=lns16)"


def test_repr_of_many_lines_and_formats():
    x = lnstensor([1e-10, 123456.789, 1.0] * 5, format=LNSFormat(8, 23, accumulator=LogAccumulator("tree")))
    text = repr(x)
    assert "dtype" not in text and text.startswith("lnstensor([1.0000e-10, 1.2346e+05, 1.0000e+00")
    assert text.endswith("format=LNSFormat(8, 23, accumulator=LogAccumulator(order='tree')))")


# Copies ---------------------------------------------------------------------------------------------------------------


def roundtrips():
    def save_and_load(x):
        file = io.BytesIO()
        torch.save(x, file)
        file.seek(0)
        return torch.load(file)  # by default it builds nothing but what is known to be safe

    yield pytest.param(lambda x: pickle.loads(pickle.dumps(x)), id="pickle")
    yield pytest.param(copy.deepcopy, id="deepcopy")
    yield pytest.param(save_and_load, id="torch.save")


@pytest.mark.parametrize("roundtrip", list(roundtrips()))
@pytest.mark.parametrize("format", [lns8, lns32, LNSFormat(5, 6, accumulator=LogAccumulator("tree"))], ids=repr)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_copies_keep_everything(roundtrip, format, requires_grad):
    x = lnstensor([[1.5, -2.0], [0.0, 1e9]], format=format, requires_grad=requires_grad)
    y = roundtrip(x)
    assert type(y) is LNSTensor and y.format == format and y.requires_grad is requires_grad and y.is_leaf
    assert y._words.dtype == format.dtype and torch.equal(y.words, x.words)
    assert y._words.data_ptr() != x._words.data_ptr()


@pytest.mark.parametrize("roundtrip", list(roundtrips()))
@pytest.mark.parametrize("requires_grad", [False, True])
def test_copies_of_parameters_are_parameters(roundtrip, requires_grad):
    p = torch.nn.Parameter(lnstensor([1.5, -2.0], format=lns16), requires_grad=requires_grad)
    assert isinstance(p, LNSTensor) and isinstance(p, torch.nn.Parameter)
    q = roundtrip(p)
    assert isinstance(q, LNSTensor) and isinstance(q, torch.nn.Parameter)
    assert q.requires_grad is requires_grad and q.format == lns16 and torch.equal(q.words, p.words)


def test_copies_of_a_view_have_its_elements(x):
    for roundtrip in (copy.deepcopy, lambda y: pickle.loads(pickle.dumps(y))):
        assert roundtrip(x[:, 1]).words.tolist() == [0xC080, 0x8001]


def test_deepcopy_keeps_shared_tensors_shared_and_copies_grad():
    p = lnstensor([2.0], format=lns16, requires_grad=True)
    (p * p).sum().backward()
    first, second = copy.deepcopy([p, p])
    assert first is second and first.grad.format == lns16
    assert first.grad is not p.grad and torch.equal(first.grad.words, p.grad.words)


def test_deepcopy_of_a_result_is_refused_as_by_torch():
    x = lnstensor([2.0], format=lns16, requires_grad=True)
    with pytest.raises(RuntimeError, match="only LNSTensors created by the user"):
        copy.deepcopy(x * x)


def test_moves_between_devices_and_threads():
    x = lnstensor([1.0, 2.0], format=lns16)
    assert x.to("cpu") is x and x.to(torch.float64) is x
    assert x.to("meta").format == lns16 and x.to("meta").device.type == "meta"


# Crossing into and out of LNS -----------------------------------------------------------------------------------------


def test_decode_is_differentiable():
    x = lnstensor([3.0, -0.7], format=lns16, requires_grad=True)
    y = x.decode()
    assert type(y) is torch.Tensor and y.dtype == torch.float64 and torch.equal(y.detach(), x.value)
    (y * torch.tensor([0.3, 5.0])).sum().backward()
    # What comes back is a float gradient, encoded.
    expected = conversions.encode(lns16, torch.tensor([0.3, 5.0]).double())
    assert isinstance(x.grad, LNSTensor) and x.grad.format == lns16 and torch.equal(x.grad._words, expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_encode_is_differentiable_where_asked(dtype):
    values = torch.tensor([3.0, -0.7], dtype=dtype, requires_grad=True)
    x = lnstensor(values, format=lns16, detach=False)
    assert x.grad_fn is not None and torch.equal(x._words, conversions.encode(lns16, values))
    (x * lnstensor([0.3, 5.0], format=lns16)).sum().backward()
    assert type(values.grad) is torch.Tensor and values.grad.dtype == dtype
    assert torch.equal(values.grad, lnstensor([0.3, 5.0], format=lns16).value.to(dtype))
    assert lnstensor(values, format=lns16).grad_fn is None and not lnstensor(values, format=lns16).requires_grad


def test_convert_is_differentiable_and_converts_the_gradient_back():
    x = lnstensor([3.0, -0.7], format=lns32, requires_grad=True)
    y = lnstensor(x, format=lns16, detach=False)
    assert y.format == lns16 and torch.equal(y._words, conversions.rescale(lns32, x._words, lns16))
    weight = lnstensor([0.3, 5.0], format=lns16)
    (y * weight).sum().backward()
    assert x.grad.format == lns32 and torch.equal(x.grad._words, conversions.rescale(lns16, weight._words, lns32))
    assert lnstensor(x, format=lns16).grad_fn is None


def test_convert_twice_differentiable():
    x = lnstensor([3.0], format=lns32, requires_grad=True)
    y = lnstensor(x, format=lns16, detach=False)
    (first,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert first.format == second.format == lns32 and second.item() == 2.0


def test_convert_to_the_same_format_copies():
    x = lnstensor([3.0], format=lns16, requires_grad=True)
    y = lnstensor(x, detach=False)
    assert y.grad_fn is not None and y._words.data_ptr() != x._words.data_ptr() and torch.equal(y.words, x.words)


def test_no_other_dtype():
    x = lnstensor([3.0], format=lns16)
    text = (
        "aten._to_copy.default cannot give lns16 the dtype torch.float32; x.decode().to(torch.float32) gives its "
        "values, and xlnstorch.to_float(model, torch.float32) converts a whole model"
    )
    with pytest.raises(NotImplementedError, match=exactly(text)):
        x.float()
    assert x.decode().to(torch.float32).tolist() == x.value.float().tolist()


def test_a_scalar_formats_like_a_number():
    assert f"{lnstensor(2.0, format=lns8):.3f}" == "2.000"
    with pytest.raises(TypeError):
        f"{lnstensor([2.0], format=lns8):.3f}"


def test_assigning_data_keeps_the_strides_of_the_wrapper():
    x = lnstensor([[1.0, 2.0, 4.0], [8.0, 16.0, 0.5]], format=lns8)
    y = lnstensor([[1.0, 2.0], [4.0, 8.0], [0.5, 0.25]], format=lns8)
    x.data = y.t()
    assert x.view(6).value.tolist() == [1.0, 4.0, 0.5, 2.0, 8.0, 0.25]


@pytest.mark.parametrize("other", [5, None, [1.0], torch.ones(2)])
def test_data_of_another_type_is_refused(other):
    with pytest.raises(TypeError, match="data of an LNSTensor must be an LNSTensor of lns8 and shape"):
        lnstensor([1.0, 2.0], format=lns8).data = other
