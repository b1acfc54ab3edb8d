"""Formats brought together, implicitly and explicitly, and the numbers and arrays of the xlns package."""

import sys

import numpy as np
import pytest
import torch
from lnstesting import check, exactly, leaf, randn, sample

import xlnstorch
from xlnstorch import (
    LNS_ZERO,
    LNSFormat,
    align_lnstensor_bases,
    format_lnstensor_operands,
    from_xlns,
    implicit_conversion,
    lns8,
    lns16,
    lnstensor,
    software_format,
    to_xlns,
)

F23, F18 = software_format(23), software_format(18)


def rounded(x, format):
    return lnstensor(x.detach(), format=format)._words


# align_lnstensor_bases -----------------------------------------------------------------------------------------------


def test_aligned_to_a_base_to_a_format_and_to_f_23():
    a, b = randn(5, seed=1, format=F23), randn(5, seed=2, format=F18)
    for options, format in [({}, F23), ({"base": b.base}, F18), ({"base": 2.0}, software_format(0))]:
        x, none, y = align_lnstensor_bases(a, None, b, **options)
        assert none is None
        check(x, format, rounded(a, format))
        check(y, format, rounded(b, format))
    x, y = align_lnstensor_bases(a, b, format=lns16)
    check(x, lns16, rounded(a, lns16))
    assert align_lnstensor_bases(a, b)[0] is a


def test_gradients_return_in_the_formats_they_came_from():
    a, b = leaf([3.0, 5.0], F23), leaf([4.0, 6.0], F18)
    x, y = align_lnstensor_bases(a, b)
    (x * y).sum().backward()
    check(a.grad, F23, rounded(b, F23))
    check(b.grad, F18, rounded(a, F18))


def test_what_cannot_be_aligned():
    a = randn(2, seed=1)
    with pytest.raises(ValueError, match=exactly("only one of base and format may be given")):
        align_lnstensor_bases(a, base=2.0, format=lns16)
    with pytest.raises(TypeError, match=exactly("tensors must be LNSTensors, not Tensor")):
        align_lnstensor_bases(a, torch.ones(2))
    with pytest.raises(ValueError, match=exactly("b must be a finite number above 1, not 1.0")):
        align_lnstensor_bases(a, base=1.0)


def test_operands_of_any_kind():
    a, plain = randn(2, seed=1, format=F18), torch.tensor([0.3, 3.0], requires_grad=True)
    number, x, none, y = format_lnstensor_operands(7, a, None, plain)
    check(number, F18, lnstensor(7, format=F18)._words)
    check(x, F18, a._words)
    check(y, F18, rounded(plain, F18))
    assert none is None
    y.sum().backward()
    assert plain.grad.tolist() == [1.0, 1.0] and plain.grad.dtype == torch.float32
    assert [x.format for x in format_lnstensor_operands(1, [2.0])] == [F23, F23]
    assert [x.format for x in format_lnstensor_operands(1, a, base=a.base**2)] == [software_format(17)] * 2


# implicit_conversion -------------------------------------------------------------------------------------------------


def test_two_formats_are_refused_outside_and_converted_inside():
    a, b = leaf([3.0, 5.0], F23), leaf([4.0, 6.0], F18)
    with implicit_conversion():
        first, second = a * b, torch.mul(b, a)
        first.sum().backward()
        assert torch.maximum(a, b).format == torch.nn.functional.mse_loss(a, b).format == F23
        assert torch.equal(torch.cat([b, a])._words, torch.cat([b, lnstensor(a, format=F18)])._words)
    check(first, F23, (a * lnstensor(b.detach(), format=F23))._words)
    check(second, F18, (b * lnstensor(a.detach(), format=F18))._words)
    check(a.grad, F23, rounded(b, F23))
    check(b.grad, F18, rounded(a, F18))
    with pytest.raises(TypeError, match="operands of two formats"):
        a * b


def test_plain_layers_get_plain_gradients():
    layer = torch.nn.Linear(2, 1)
    x = lnstensor([[1.0, 2.0]], format=lns16)
    with pytest.raises(TypeError, match="a plain tensor that requires grad"):
        layer(x)
    with implicit_conversion():
        result = layer(x)
        result.sum().backward()
    assert result.format == lns16
    assert type(layer.weight.grad) is torch.Tensor and layer.weight.grad.dtype == torch.float32
    assert layer.weight.grad.tolist() == [[1.0, 2.0]] and layer.bias.grad.tolist() == [1.0]


def test_what_is_written_to_is_never_a_copy():
    a, b = lnstensor([3.0], format=F23), lnstensor([4.0], format=F18)
    weight = torch.ones(1, requires_grad=True)
    with implicit_conversion():
        assert a.add_(b) is a
        a += b
        b.copy_(a)
        with torch.no_grad(), pytest.raises(RuntimeError, match="cannot write LNS words into a plain"):
            weight.add_(a)
        twice = weight * 2
        with pytest.raises(RuntimeError, match="cannot write LNS words into a plain"):
            twice.add_(a)
        with pytest.raises((RuntimeError, TypeError)):
            torch.add(a, a, out=b)
    assert a.value.tolist() == pytest.approx([11.0]) and a.format == F23
    assert b.value.tolist() == pytest.approx([11.0], rel=1e-5) and b.format == F18
    assert weight.tolist() == [1.0]


def test_an_exception_ends_the_conversions():
    a, b = lnstensor([3.0], format=F23), lnstensor([4.0], format=F18)
    with pytest.raises(KeyError), implicit_conversion():
        raise KeyError
    with pytest.raises(TypeError, match="operands of two formats"):
        a + b


# xlns ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def xlns():
    xlns = pytest.importorskip("xlns", reason="pip install xlns")
    yield xlns
    xlns.xlns1stCons = True  # it warns, by print, of a change of F after the first number
    xlns.xlnssetF(23)


VALUES = [0.0, 1.0, -1.0, 3.7, -2e-30, 5e20]


def test_arrays_come_in_with_their_logarithms(xlns):
    array = xlns.xlnsnp(np.array(VALUES))
    x = from_xlns(array)
    assert x.format == F23
    packed = [LNS_ZERO if value == 0 else int(nd) for nd, value in zip(array.nd, VALUES, strict=True)]
    assert x.lns.tolist() == packed
    assert x.value.tolist() == pytest.approx(VALUES, rel=1e-7)
    assert torch.equal(lnstensor(array)._words, x._words)
    check(lnstensor(array, format=lns16), lns16, rounded(x, lns16))
    check(lnstensor(array, f=10), software_format(10), rounded(x, software_format(10)))


def test_every_kind_of_number_and_array_comes_in(xlns):
    for data, format in [
        (xlns.xlns(-3.0), F23),
        (xlns.xlnsud(-3.0), F23),
        (xlns.xlnsv(-3.0, 10), software_format(10)),
        (xlns.xlnsb(-3.0, 1.25), LNSFormat(52, 0, base=1.25)),
        (xlns.xlnsnpv(np.array([[-3.0]]), 10), F23),
        (xlns.xlnsnpb(np.array([[-3.0]]), 1.25), LNSFormat(52, 0, base=1.25)),
    ]:
        x = lnstensor(data)
        assert x.format == format
        assert x.dim() == (2 if hasattr(data, "nd") else 0)
        assert x.value.item() == pytest.approx(float(np.ravel(np.float64(data.xlns()))[0]) if x.dim() else float(data))
        assert x.item() == pytest.approx(-3.0, rel=0.1)
    for zero in (xlns.xlns(0), xlns.xlnsv(0, 10), xlns.xlnsb(0, 1.25), xlns.xlnsnp(0), xlns.xlnsnpb(0, 1.25)):
        assert (from_xlns(zero) == 0).all()


def test_the_global_precision_of_xlns(xlns):
    xlns.xlns1stCons = True
    xlns.xlnssetF(12)
    assert from_xlns(xlns.xlnsnp(np.array([3.0]))).format == software_format(12)
    assert type(to_xlns(randn(2, seed=1, format=software_format(12)))) is xlns.xlnsnp
    assert type(to_xlns(randn(2, seed=1, format=F23))) is xlns.xlnsnpb


@pytest.mark.parametrize("format", [F23, lns16, lns8, LNSFormat(20, 0, base=1.25)], ids=repr)
def test_there_and_back(xlns, format):
    x = sample(format, 3, 4)
    array = x.xlns()
    assert type(array) is (xlns.xlnsnp if format == F23 else xlns.xlnsnpb)
    assert array.nd.shape == (3, 4) and array.nd.dtype == np.int64
    assert set(array.nd[x.lns.numpy() == LNS_ZERO]) == set(xlns.xlnsnp(0).nd)
    # Their value of a word is a power in float64, far from exact for a base near 1; and zero has no sign.
    small = lnstensor([0.5, -3.0, 0.0], format=format)
    assert np.float64(to_xlns(small).xlns()).tolist() == pytest.approx(small.tolist(), rel=1e-6)
    check(lnstensor(array, format=format), format, (x + 0)._words)


def test_their_sums_are_within_a_unit_of_ours(xlns):
    x, y = randn(200, seed=1, format=F23), randn(200, seed=2, format=F23)
    for theirs, ours in ((x.xlns() + y.xlns(), x + y), (x.xlns() * y.xlns(), x * y)):
        assert int((from_xlns(theirs).words - ours.words).abs().max()) <= 1


def test_what_is_not_of_xlns(xlns):
    text = "data must be a non-redundant number or array of the xlns package, not xlnsr"
    with pytest.raises(TypeError, match=exactly(text)):
        lnstensor(xlns.xlnsr(3.0))
    text = "data must be a non-redundant number or array of the xlns package, not float"
    with pytest.raises(TypeError, match=exactly(text)):
        from_xlns(3.0)
    with pytest.raises(TypeError, match=exactly("tensor must be an LNSTensor, not Tensor")):
        to_xlns(torch.ones(2))


def test_without_the_xlns_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "xlns", None)
    text = "arrays of the xlns package need that package, which is not installed: pip install xlns"
    for convert in (xlnstorch.to_xlns, xlnstorch.LNSTensor.xlns):
        with pytest.raises(ImportError, match=exactly(text)):
            convert(randn(2, seed=1))
