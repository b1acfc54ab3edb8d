"""The table of operators and what it refuses; and the functions that leave LNS on the way."""

import operator
import re

import mpmath
import pytest
import torch
from lnstesting import exactly

import xlnstorch
from xlnstorch import LNSFormat, LogAccumulator, from_words, lns8, lns12, lns16, lnstensor
from xlnstorch.ops import _registry

FORMATS = [lns8, lns16, LNSFormat(29, 23), LNSFormat(8, 7, accumulator=LogAccumulator("tree"))]
aten = torch.ops.aten


@pytest.fixture(params=FORMATS, ids=repr)
def format(request):
    return request.param


@pytest.fixture
def a(format):
    return lnstensor([[1.0, -2.0, 0.3], [0.0, 5.0, -0.1]], format=format)


def test_registering_twice_is_an_error(monkeypatch):
    monkeypatch.setattr(_registry, "_HANDLERS", dict(_registry._HANDLERS))
    text = "aten.add.Tensor already has a handler, add"
    with pytest.raises(RuntimeError, match=exactly(text)):
        _registry.register(aten.add.Tensor)(lambda func, *args: None)
    with pytest.raises(RuntimeError, match=r"^aten\.mul_\.Tensor already has a handler, "):
        _registry.register_inplace(aten.mul_.Tensor, aten.mul.Tensor)


def test_registered_lists_names():
    names = _registry.registered()
    assert names == sorted(names) and {"aten.add.Tensor", "aten.mm.default", "aten.exp.default"} <= set(names)


def test_unknown_operators_are_refused(a):
    text = (
        f"aten.nextafter.default: prims.nextafter.default has no LNS implementation (called with {a.format}). It is "
        "not computed in float64 instead, since hardware would not compute that either; x.decode() gives the float64 "
        "values if that is what is wanted."
    )
    with pytest.raises(NotImplementedError, match=exactly(text)):
        torch.nextafter(a, a)
    with pytest.raises(NotImplementedError, match=r"^aten\.linalg_solve_triangular.* .*\(called with lns12, lns16\)"):
        square = torch.eye(2)
        torch.linalg.solve_triangular(lnstensor(square, format=lns16), lnstensor(square, format=lns12), upper=True)


TWO_FORMATS = {
    "add": torch.add,
    "mul_": torch.Tensor.mul_,
    "maximum": torch.maximum,
    "lt": torch.lt,
    "mm": torch.mm,
    "equal": torch.equal,
    "where": lambda x, y: torch.where(torch.ones(2, 2, dtype=torch.bool), x, y),
    "cat": lambda x, y: torch.cat([x, y]),
    "addmm": lambda x, y: torch.addmm(x, x, y),
    "scatter": lambda x, y: x.scatter(0, torch.zeros(1, 2, dtype=torch.int64), y),
    "masked_fill": lambda x, y: x.masked_fill(torch.ones(2, 2, dtype=torch.bool), y[0, 0]),
    "fill_": lambda x, y: x.fill_(y[0, 0]),
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "@": operator.matmul,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "+=": operator.iadd,
}


@pytest.mark.parametrize("name", TWO_FORMATS)
def test_two_formats_never_mix(name):
    # Python turns a TypeError inside a binary operator into "unsupported operand", and inside == into False.
    pattern = (
        r"^\S+ got operands of two formats, lns16 and lns12; "
        r"convert one with xlnstorch\.lnstensor\(x, format=\.\.\., detach=False\)$"
    )
    with pytest.raises(TypeError, match=pattern):
        TWO_FORMATS[name](xlnstorch.ones(2, 2, format=lns16), xlnstorch.ones(2, 2, format=lns12))


def test_same_widths_with_another_accumulator_are_another_format():
    with pytest.raises(TypeError, match=r"lns16 and LNSFormat\(8, 7, accumulator=LogAccumulator\(order='tree'\)\)"):
        torch.add(xlnstorch.ones(2, format=FORMATS[1]), xlnstorch.ones(2, format=FORMATS[3]))


WRITES = {
    "copy_": (
        lambda plain, x: plain.copy_(x),
        "aten.copy_.default cannot write LNS words into a plain torch.float64 tensor",
    ),
    "[]": (
        lambda plain, x: operator.setitem(plain, 0, x[0]),
        "aten.copy_.default cannot write LNS words into a plain torch.float64 tensor",
    ),
    "add_": (
        lambda plain, x: plain.add_(x),
        "aten.add_.Tensor cannot write LNS words into a plain torch.float64 tensor",
    ),
    "fill_": (lambda plain, x: plain.fill_(x[0]), "aten.fill_.Tensor cannot write LNS words into a plain"),
}


@pytest.mark.parametrize("name", WRITES)
def test_plain_tensors_are_not_written_to(name):
    write, text = WRITES[name]
    plain = torch.zeros(2, dtype=torch.float64)
    with pytest.raises((TypeError, RuntimeError), match=f"^{re.escape(text)}"):
        write(plain, xlnstorch.ones(2, format=lns16))
    assert plain.tolist() == [0.0, 0.0]


def test_augmented_assignment_to_a_plain_tensor_does_not_rebind_it():
    # Python takes a TypeError of __iadd__ for "try __add__", and the name would silently become an LNSTensor.
    plain = torch.zeros(2, dtype=torch.float64)
    with pytest.raises((TypeError, RuntimeError)):
        plain += xlnstorch.ones(2, format=lns16)


def test_no_other_dtype_is_pretended(a):
    for op in (lambda: a.sum(dtype=torch.float32), lambda: a.mean(1, dtype=torch.float32), lambda: a.to(torch.half)):
        with pytest.raises(NotImplementedError, match=r"^aten\.\S+ cannot give .* the dtype torch\.\S+; x\.decode"):
            op()


def test_whole_numbers_and_truth_values_leave_lns(format):
    # Not a power of two is whole; the nearest word of 3 is a little off, and still 3.
    x = lnstensor([0.0, 1.0, 3.0, -3.0, 2.5, -0.75, 5.0], format=format)
    assert x.to(torch.int64)[:4].tolist() == [0, 1, 3, -3]
    assert x.bool().tolist() == [False, True, True, True, True, True, True]
    assert x.int()[4:].tolist() == [int(v) if not v.is_integer() else round(v) for v in x.value[4:6].tolist()] + [5]


# Functions that leave LNS on the way ----------------------------------------------------------------------------------


def test_float_fallbacks_are_listed():
    listed = xlnstorch.float_fallbacks()
    assert {"exp", "log", "tanh", "erf", "pow"} <= set(listed) and all("nearest" in how for how in listed.values())
    assert not {"add", "mul", "sqrt", "sigmoid", "relu", "sum"} & set(listed)
    listed.clear()
    assert xlnstorch.float_fallbacks()


def reference(format, function, x):
    """The word nearest to ``function`` of one word's value, by mpmath."""
    sign, field = format.unpack(x)
    with mpmath.workprec(400):
        value = mpmath.mpf(0)
        if field:
            value = (-1) ** int(sign) * mpmath.mpf(2) ** (mpmath.mpf(int(field) - format.bias) / 2**format.frac_bits)
        result = function(value)
        if not result:
            return 0
        field = int(mpmath.nint(mpmath.log(abs(result), 2) * 2**format.frac_bits)) + format.bias
    if field < 1:
        return 0
    return ((1 << format.log_bits) if result < 0 else 0) | min(field, format.max_field)


@pytest.mark.parametrize("format", [lns8, lns16, LNSFormat(8, 23), LNSFormat(29, 23), LNSFormat(10, 40)], ids=repr)
def test_exp_and_log_are_the_nearest_words(format):
    generator = torch.Generator().manual_seed(9)
    values = torch.randn(60, dtype=torch.float64, generator=generator) * torch.logspace(-6, 2, 60, dtype=torch.float64)
    x = lnstensor(values, format=format)
    assert torch.exp(x).words.tolist() == [reference(format, mpmath.exp, w) for w in x._words]
    near_one = from_words([format.bias + d for d in (-3, -2, -1, 0, 1, 2, 3)], format)
    for y in (x.abs()[x.value != 0], near_one):
        assert torch.log(y).words.tolist() == [reference(format, mpmath.log, w) for w in y._words]


def test_exp_and_log_at_the_ends(format):
    lowest, highest = (1 << format.log_bits) | format.max_field, format.max_field
    zero = xlnstorch.zeros(1, format=format)
    assert zero.exp().item() == 1.0 and zero.log().words.tolist() == [lowest]
    ends = from_words([lowest, highest], format).exp()
    assert ends.words.tolist() == [0, highest]
    with xlnstorch.flags() as counts:
        assert lnstensor([-1.0], format=format).log().words.tolist() == [0]
    assert (counts.invalid, counts.zero_divide) == (1, 0)
