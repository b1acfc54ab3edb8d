"""Operators on infinities and NaN: words against the reference, and where torch has them with floats."""

import copy
import dataclasses
import functools
import itertools
import math
import pickle

import numpy as np
import pytest
import torch
from lnstesting import exactly
from torch.nn import functional

import xlnstorch
from xlnstorch import LNSFormat, LNSTensor, Mitchell, Piecewise, from_words, lns8, lns16, lnstensor
from xlnstorch.reference import Reference
from xlnstorch.reference_adders import AdderReference, mitchell, piecewise

inf, nan = math.inf, math.nan
LNS16 = dataclasses.replace(lns16, specials=True)
INF, MINUS_INF, NAN, LARGEST, ONE = 0x7FFF, 0xFFFF, 0x8000, 0x7FFE, 0x4000

# Words against the reference, whatever the adder ----------------------------------------------------------------------

SMALL = [LNSFormat(2, 1, specials=True), LNSFormat(3, 2, specials=True), dataclasses.replace(lns8, specials=True)]
ADDERS = [xlnstorch.Exact(), Piecewise(), Piecewise(2), Mitchell(), Mitchell(0)]


def reference_of(format):
    widths, adder = (format.int_bits, format.frac_bits), format.adder
    if isinstance(adder, Mitchell):
        gaussian = functools.cache(functools.partial(mitchell, corrections=adder.corrections))
    elif isinstance(adder, Piecewise):
        design = dataclasses.asdict(adder.design(format))
        gaussian = functools.cache(lambda frac_bits, d, subtract: piecewise(design, d, subtract))
    else:
        return Reference(*widths, specials=True)
    return AdderReference(*widths, gaussian, specials=True)


def relation(name):
    """Return the reference's truth value of a relation of two words."""
    signs = {"eq": {0}, "ne": {-1, 1, None}, "lt": {-1}, "le": {-1, 0}, "gt": {1}, "ge": {0, 1}}[name]
    return lambda reference, a, b: reference.compare(a, b) in signs


BINARY = {
    "add": lambda reference, a, b: reference.add(a, b)[0],
    "sub": lambda reference, a, b: reference.sub(a, b)[0],
    "mul": lambda reference, a, b: reference.mul(a, b)[0],
    "div": lambda reference, a, b: reference.div(a, b)[0],
    "maximum": lambda reference, a, b: reference.maximum(a, b)[0],
    "minimum": lambda reference, a, b: reference.minimum(a, b)[0],
    "copysign": lambda reference, a, b: reference.copysign(a, b)[0],
    **{name: relation(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}
UNARY = {
    "neg": lambda reference, a: reference.neg(a)[0],
    "abs": lambda reference, a: reference.abs(a)[0],
    "relu": lambda reference, a: reference.relu(a)[0],
    "sqrt": lambda reference, a: reference.sqrt(a)[0],
    "square": lambda reference, a: reference.pow(a, 2)[0],
    "reciprocal": lambda reference, a: reference.div(reference.bias, a)[0],
    "sign": lambda reference, a: [reference.sub(0, reference.bias)[0], 0, reference.bias][
        1 + (reference.compare(a, 0) or 0)
    ],
    "isnan": lambda reference, a: a == reference.nan,
    "isinf": lambda reference, a: a % reference.nan == reference.max_field,
    "isposinf": lambda reference, a: a == reference.max_field,
    "isneginf": lambda reference, a: a == reference.max_field + reference.nan,
    "isfinite": lambda reference, a: a == 0 or a % reference.nan not in (0, reference.max_field),
    "logical_not": lambda reference, a: a == 0,
}


def plain(result):
    return result.words.tolist() if isinstance(result, LNSTensor) else result.tolist()


@pytest.mark.parametrize("adder", ADDERS, ids=repr)
@pytest.mark.parametrize("format", SMALL, ids=lambda format: format.name)
def test_every_pair_of_words(format, adder):
    format = dataclasses.replace(format, adder=adder)
    reference, every = reference_of(format), range(1 << format.width)
    # Of lns8 a part: test_arithmetic.py has all pairs.
    others = every if format.width < 8 else sorted({0, 1, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF, *every[::11]})
    a, b = zip(*itertools.product(every, others), strict=True)
    x, y = from_words(list(a), format), from_words(list(b), format)
    for name, expected in BINARY.items():
        got = plain(getattr(torch, name)(x, y))
        assert got == [expected(reference, *pair) for pair in zip(a, b, strict=True)], name


@pytest.mark.parametrize("format", SMALL, ids=lambda format: format.name)
def test_every_word(format):
    reference, every = reference_of(format), list(range(1 << format.width))
    x = from_words(every, format)
    for name, expected in UNARY.items():
        assert plain(getattr(torch, name)(x)) == [expected(reference, a) for a in every], name
    for n in (-3, -2, -1, 0, 1, 2, 3):
        assert plain(x**n) == [reference.pow(a, n)[0] for a in every], n


@pytest.mark.parametrize("relation", ["eq", "ne", "lt", "le", "gt", "ge"])
@pytest.mark.parametrize("other", [inf, -inf, nan, 1.0, 1e300, 3])
def test_relations_with_plain_operands_are_those_with_words(relation, other):
    x = from_words([INF, MINUS_INF, NAN, LARGEST, ONE, 0], LNS16)
    expected = getattr(torch, relation)(x, lnstensor(other, format=LNS16)).tolist()
    for plain_operand in (other, torch.tensor(other, dtype=torch.float64)):
        assert getattr(torch, relation)(x, plain_operand).tolist() == expected


# Where torch has infinities and NaN -----------------------------------------------------------------------------------

VALUES = torch.tensor([nan, inf, -inf, 0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5], dtype=torch.float64)
LEFT, RIGHT = (grid.flatten() for grid in torch.meshgrid(VALUES, VALUES, indexing="ij"))

ELEMENTWISE = """abs neg sqrt rsqrt square reciprocal sign sgn exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos
atan sinh cosh tanh asinh acosh atanh sinc erf erfc erfinv lgamma digamma i0 floor ceil trunc round frac sigmoid logit
relu signbit isnan isinf isposinf isneginf isfinite angle frexp logical_not rad2deg deg2rad""".split()
SPECIAL = """entr erfcx ndtri log_ndtr ndtr i0e i1 i1e bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_i0
modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1 airy_ai
spherical_bessel_j0""".split()
ACTIVATIONS = """relu relu6 elu selu celu gelu silu mish softplus leaky_relu hardtanh hardsigmoid hardswish hardshrink
softshrink tanhshrink softsign logsigmoid""".split()
OF_ALL = """sort argsort argmax argmin max min amax amin aminmax sum prod mean median nanmedian nansum nanmean std var
any all count_nonzero nonzero unique unique_consecutive msort std_mean mode""".split()
ALONG = "cumsum cumprod cummax cummin logsumexp logcumsumexp softmax log_softmax".split()
PAIRS = """add sub mul div maximum minimum fmax fmin eq ne lt le gt ge atan2 fmod remainder floor_divide hypot copysign
logaddexp logaddexp2 xlogy pow isclose logical_and logical_or logical_xor igamma igammac dot outer""".split()
LOSSES = "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits kl_div soft_margin_loss".split()

ONE_OPERAND = {
    **{name: getattr(torch, name) for name in [*ELEMENTWISE, *OF_ALL]},
    **{f"special.{name}": getattr(torch.special, name) for name in SPECIAL},
    **{f"functional.{name}": getattr(functional, name) for name in ACTIVATIONS},
    **{name: functools.partial(getattr(torch, name), dim=0) for name in ALONG},
    **{f"{name} without NaN": lambda x, name=name: getattr(torch, name)(x[1:], 0) for name in ALONG},
    **{f"{name} with -Inf": lambda x, name=name: getattr(torch, name)(x[2:], 0) for name in ALONG},
    **{f"pow {n}": lambda x, n=n: x**n for n in (0, 1, 2, 3, -1, -2, 0.5, -0.5, 0.3, -0.3, inf, -inf, nan)},
    **{f"pow of {b}": lambda x, b=b: torch.pow(b, x) for b in (0.0, 1.0, 2.0, -2.0, 0.5, -1.0, inf, -inf, nan)},
    "clamp": lambda x: x.clamp(0, 1),
    "clamp by infinities": lambda x: x.clamp(-inf, 1.0),
    "clamp by NaN": lambda x: x.clamp(min=nan),
    "threshold": lambda x: functional.threshold(x, 0.3, 7.0),
    "nan_to_num": lambda x: torch.nan_to_num(x, 3.0, 4.0, -5.0),
    "masked_fill": lambda x: x.masked_fill(x.isnan(), -inf),
    "where": lambda x: torch.where(x > 0, x, nan),
    "topk": lambda x: torch.topk(x, 3),
    "kthvalue": lambda x: torch.kthvalue(x, 2),
    "amax of rows": lambda x: x.reshape(5, 2).amax(1),
    "median of rows": lambda x: x.reshape(5, 2).median(1),
    "max_pool": lambda x: functional.max_pool1d(x.reshape(1, 1, 10), 2),
    "avg_pool": lambda x: functional.avg_pool1d(x.reshape(1, 1, 10), 2),
    "norms": lambda x: [x.norm(1), x.norm(), x[1:].norm(3), x.norm(inf), x[1:].norm(0), x.norm(0)],
    "norms with a zero": lambda x: torch.linalg.vector_norm(x[1:].reshape(3, 3), -1, dim=1),
    "normalize": lambda x: functional.normalize(x[2:], dim=0),
    "layer_norm": lambda x: functional.layer_norm(x, (10,)),
    "variance of one": lambda x: x[4:5].var(correction=0),
    "mean of none": lambda x: x[:0].mean(),
    "bool": lambda x: x.bool(),
    "scatter_reduce": lambda x: [
        torch.zeros_like(x[:2]).scatter_reduce(0, torch.tensor([0, 1] * 5), x, kind)
        for kind in ("amax", "amin", "mean", "prod", "sum")
    ],
    "index_add": lambda x: torch.zeros_like(x[:3]).index_add(0, torch.tensor([0, 1, 1, 2]), x[:4]),
    "isin": lambda x: torch.isin(x, x[:3]),
    "searchsorted": lambda x: torch.searchsorted(x[[2, 3, 4, 1]], x),
    "equal": lambda x: torch.tensor([torch.equal(x, x), torch.equal(x[1:], x[1:])]),
    "allclose": lambda x: torch.tensor([torch.allclose(x, x, equal_nan=True), torch.allclose(x, x)]),
    "polygamma": lambda x: torch.polygamma(1, x[[0, 1, 3, 4, 6]]),
    "full of NaN": lambda x: torch.full_like(x, nan),
}
TWO_OPERANDS = {
    **{name: getattr(torch, name) for name in PAIRS},
    **{name: functools.partial(getattr(functional, name), reduction="none") for name in LOSSES},
    "zeta": torch.special.zeta,
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "addcmul": lambda x, y: torch.addcmul(x, y, y),
    "addcdiv": lambda x, y: torch.addcdiv(x, y, x),
    "matmul": lambda x, y: x.reshape(10, 10) @ y.reshape(10, 10),
    "addmm without beta": lambda x, y: torch.addmm(
        x.reshape(10, 10), y[50:].reshape(10, 5), y[50:].reshape(5, 10), beta=0
    ),
    "conv1d": lambda x, y: functional.conv1d(x.reshape(1, 2, 50), y[30:50].reshape(5, 2, 2), padding=1),
    "cdist": lambda x, y: torch.cdist(x.reshape(20, 5), y.reshape(20, 5)),
    "cosine": lambda x, y: functional.cosine_similarity(x.reshape(50, 2), y.reshape(50, 2)),
    "cross_entropy": lambda x, y: functional.cross_entropy(x.reshape(10, 10), torch.arange(10), reduction="none"),
}


def parts(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def check_placement(got, want):
    """Assert that NaN and infinities are in the same places, and other values near."""
    assert len(got) == len(want)
    for x, y in zip(got, want, strict=True):
        assert x.shape == y.shape
        if not y.dtype.is_floating_point:
            assert not isinstance(x, LNSTensor) and torch.equal(x, y)
            continue
        values = x.value if isinstance(x, LNSTensor) else x  # autograd's own zeros are plain
        torch.testing.assert_close(values, y, rtol=0.05, atol=0.02, equal_nan=True)


@pytest.mark.parametrize("name", ONE_OPERAND)
def test_functions_have_what_torch_has(name):
    function = ONE_OPERAND[name]
    check_placement(parts(function(lnstensor(VALUES, format=LNS16))), parts(function(VALUES)))


@pytest.mark.parametrize("name", TWO_OPERANDS)
def test_functions_of_two_have_what_torch_has(name):
    function = TWO_OPERANDS[name]
    operands = [lnstensor(side, format=LNS16) for side in (LEFT, RIGHT)]
    check_placement(parts(function(*operands)), parts(function(LEFT, RIGHT)))


# torch's poles of digamma are large numbers; its vectorised kernels differ from its own decompositions at NaN; a root
# of -Inf is NaN; and a power of a negative number by a tensor needs exponents that have words.
NO_DERIVATIVE = {"floor_divide", "igamma", "igammac", "soft_margin_loss", "unique", "unique_consecutive", "zeta"}
OTHER_GRADIENTS = {"digamma", "functional.relu6", "functional.hardtanh", "pow -0.5", "pow"}


def gradients(function, *operands):
    leaves = [x.detach().clone().requires_grad_() for x in operands]
    outputs = [y for y in parts(function(*leaves)) if y.dtype.is_floating_point and y.requires_grad]
    if not outputs:
        return []
    return [g for g in torch.autograd.grad([y.sum() for y in outputs], leaves, allow_unused=True) if g is not None]


@pytest.mark.parametrize("name", sorted({*ONE_OPERAND, *TWO_OPERANDS} - OTHER_GRADIENTS - NO_DERIVATIVE))
def test_gradients_have_what_torch_has(name):
    function = ONE_OPERAND.get(name) or TWO_OPERANDS[name]
    operands = [VALUES] if name in ONE_OPERAND else [LEFT, RIGHT]
    found = gradients(function, *(lnstensor(x, format=LNS16) for x in operands))
    check_placement(found, gradients(function, *operands))


def test_where_the_words_are_not_those_of_torch():
    x = lnstensor([inf, -inf, nan], format=LNS16)
    largest = xlnstorch.from_words([LARGEST, 0xFFFE, 0], LNS16)
    assert torch.nan_to_num(x).words.tolist() == largest.words.tolist()  # the largest numbers of the format
    assert (x**1.5).words.tolist() == [INF, NAN, NAN]  # a root to the power 3
    assert torch.lerp(x, lnstensor(1.0, format=LNS16), 0.5).words.tolist() == [NAN, NAN, NAN]  # start + w (end - start)


def test_limits_are_the_nearest_words():
    format = dataclasses.replace(xlnstorch.lns32, specials=True)
    reference = Reference(8, 23, specials=True)
    angles = [reference.encode(k * math.pi / 4) for k in (1, 2, 3, 4)]
    up, down, one = (lnstensor(x, format=format) for x in (inf, -inf, 1.0))
    assert [torch.atan(up).words.item(), torch.atan(down).words.item() % 2**31] == [angles[1]] * 2
    assert [torch.atan2(up, x).words.item() for x in (up, one, down)] == angles[:3]
    assert torch.atan2(one, down).words.item() == angles[3]
    assert torch.tanh(down).words.item() == reference.encode(-1)
    assert torch.fmod(one * 3, up).words.item() == (one * 3).words.item()


def test_flags():
    def flags_of(compute):
        with xlnstorch.flags() as counts:
            compute()
        return {name: getattr(counts, name) for name in xlnstorch.observe.FLAGS if getattr(counts, name)}

    x = lnstensor([nan, inf, -inf, 0.0, -1.0], format=LNS16)
    assert flags_of(lambda: x + nan) == flags_of(lambda: x * nan) == flags_of(lambda: x * 2) == {}
    assert flags_of(lambda: x * 0) == flags_of(lambda: x.sqrt()) == {"invalid": 2}
    assert flags_of(lambda: x - inf) == {"invalid": 1}
    assert flags_of(lambda: 1 / x) == {"zero_divide": 1}
    assert flags_of(lambda: torch.exp(x)) == {}
    assert flags_of(lambda: torch.log(x)) == {"invalid": 2, "zero_divide": 1}
    assert flags_of(lambda: torch.sin(x)) == {"invalid": 2}
    assert flags_of(lambda: torch.log2(x)) == {"invalid": 2, "zero_divide": 1}
    assert flags_of(lambda: torch.exp(lnstensor(1e6, format=LNS16))) == {"overflow": 1}
    assert flags_of(lambda: torch.pow(x, lnstensor(-1.0, format=LNS16))) == {"zero_divide": 1}
    with pytest.raises(xlnstorch.AnomalyError) as caught, xlnstorch.detect_anomaly():
        x * 0
    assert str(caught.value) == (
        "invalid operation in mul of LNSFormat(8, 7, specials=True), in aten.mul.Tensor, at element (1,) of (5,):\n"
        "  a       0x7fff  inf\n  b       0x0000  0.0\n  result  0x8000  nan"
    )


# Tensors --------------------------------------------------------------------------------------------------------------


def test_making_printing_and_copying():
    x = lnstensor([nan, inf, -inf, 1.0], format=LNS16)
    assert x.words.tolist() == [NAN, INF, MINUS_INF, ONE]
    assert repr(x) == "lnstensor([nan, inf, -inf, 1.], format=LNSFormat(8, 7, specials=True))"
    assert repr(x.tolist()) == repr(x.numpy().tolist()) == "[nan, inf, -inf, 1.0]"
    assert f"{x[1]:.1f} {x[0].item()}" == "inf nan"
    for other in (
        lnstensor(np.array([nan, inf, -inf, 1.0], dtype=np.float32), format=LNS16),
        lnstensor(x.lns, from_lns=True, format=LNS16),
        pickle.loads(pickle.dumps(x)),
        copy.deepcopy(x),
        x.clone(),
    ):
        assert other.format == LNS16 and other.words.tolist() == x.words.tolist()
    assert xlnstorch.full((2,), nan, format=LNS16).words.tolist() == [NAN, NAN]
    assert x.clone().fill_(-inf).words.tolist() == [MINUS_INF] * 4
    assert lnstensor(lnstensor(1e300, f=23), format=LNS16).words.item() == INF


def test_crossing_into_and_out_of_lns_is_differentiable():
    values = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    lnstensor(values, format=LNS16, detach=False).backward(torch.tensor([nan, inf], dtype=torch.float64))
    assert repr(values.grad.tolist()) == "[nan, inf]"
    x = lnstensor([1.0, 2.0], format=LNS16, requires_grad=True)
    x.decode().backward(torch.tensor([nan, -inf], dtype=torch.float64))
    assert x.grad.words.tolist() == [NAN, MINUS_INF]


def test_functions_of_logarithms():
    class Double(xlnstorch.LNSFunction):
        @staticmethod
        def forward(ctx, x):
            return x + 256

        @staticmethod
        def backward(ctx, grad):
            return grad + 256

    x = lnstensor([nan, -inf, 1.0], format=LNS16, requires_grad=True)
    y = Double.apply(x)
    assert y.words.tolist() == [NAN, MINUS_INF, 0x4080]
    y.backward(lnstensor([1.0, nan, inf], format=LNS16))
    assert x.grad.words.tolist() == [0x4080, NAN, INF]


def test_two_kinds_of_formats_do_not_mix():
    with pytest.raises(TypeError, match="two formats, lns16 and LNSFormat"):
        lnstensor(1.0, format=lns16) + lnstensor(1.0, format=LNS16)
    with pytest.raises(ValueError, match=exactly("lns16 has no word for NaN; found one in the words to convert")):
        lnstensor(lnstensor(nan, format=LNS16), format=lns16)


def test_the_xlns_package_has_neither():
    pytest.importorskip("xlns")
    for value in (nan, inf):
        with pytest.raises(ValueError) as caught:
            xlnstorch.to_xlns(lnstensor([1.0, value], format=LNS16))
        assert str(caught.value) == (
            "tensor must be of finite numbers: arrays of the xlns package have neither infinities nor NaN"
        )
    assert xlnstorch.to_xlns(lnstensor([1.0, 2.0], format=LNS16)).nd.tolist() == [0, 256]


def test_masks_of_attention_and_softmax():
    mask = torch.zeros(4, 4, dtype=torch.float64).masked_fill(torch.ones(4, 4).triu(1).bool(), -inf)
    query = torch.randn(1, 2, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = lnstensor(query, format=LNS16)
    attend = functional.scaled_dot_product_attention
    check_placement([attend(x, x, x, mask)], [attend(query, query, query, mask)])
    assert torch.softmax(lnstensor(mask, format=LNS16), -1).value[0].tolist() == [1.0, 0.0, 0.0, 0.0]


def test_connectionist_temporal_classification():
    # Paths that are impossible have probability zero, and a derivative of zero; a label that does not fit costs Inf.
    logits = torch.randn(6, 2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    arguments = torch.tensor([[1, 2, 3], [2, 2, 2]]), torch.tensor([6, 4]), torch.tensor([3, 3])

    def loss(x, **kwargs):
        return functional.ctc_loss(x, *arguments, reduction="none", **kwargs)

    x = lnstensor(logits, format=LNS16)
    assert loss(logits).isinf().tolist() == [False, True]
    check_placement([loss(x)], [loss(logits)])
    finite = functools.partial(loss, zero_infinity=True)
    check_placement(gradients(finite, x), gradients(finite, logits))


def test_a_step_of_an_optimizer_spreads_nan():
    for optimizer in (torch.optim.SGD, torch.optim.Adam, xlnstorch.optim.Madam):
        p = lnstensor([1.0, 2.0], format=LNS16, requires_grad=True)
        p.grad = lnstensor([nan, 1.0], format=LNS16)
        optimizer([p], lr=0.1).step()
        assert p.isnan().tolist() == [True, False]
