"""What the bits of floats and fixed-point numbers are as tensors, and which of them there are."""

import numpy as np
import pytest
import torch
from amaranth.hdl import signed, unsigned
from lnstesting import exactly

from hdl.convert import FixedLayout, FloatLayout

FLOATS = [
    (torch.float32, 0xBFC00000, -1.5),
    (torch.float32, 0x00000001, 2.0**-149),
    (torch.float16, 0x3C01, 1.0009765625),
    (torch.float16, 0xFBFF, -65504.0),
    (torch.bfloat16, 0xC2F7, -123.5),
    (torch.bfloat16, 0x7F80, float("inf")),
]


@pytest.mark.parametrize(("dtype", "bits", "value"), FLOATS)
def test_bits_of_floats(dtype, bits, value):
    layout = FloatLayout(dtype)
    tensor = layout.tensor(np.array([bits, 0], dtype=np.int64))
    assert tensor.dtype == dtype
    assert tensor.tolist() == [value, 0.0]
    assert layout.integers(tensor).tolist() == [bits, 0]
    constant = layout.from_bits(bits)
    fraction_bits = {torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}[dtype]
    assert constant.sign << layout.size - 1 | constant.exponent << fraction_bits | constant.fraction == bits
    assert layout.size == 8 * dtype.itemsize


@pytest.mark.parametrize(
    ("layout", "bits", "integers"),
    [
        (FixedLayout(8, 3), [0, 127, 128, 255], [0, 127, -128, -1]),
        (FixedLayout(8, 3, signed=False), [0, 127, 128, 255], [0, 127, 128, 255]),
        (FixedLayout(1, 0), [0, 1], [0, -1]),
        (FixedLayout(63, 256, signed=False), [0, 2**63 - 1], [0, 2**63 - 1]),
        (FixedLayout(64, -256), [1, -1], [1, -1]),
    ],
    ids=["signed", "unsigned", "one bit", "63 bits", "64 bits"],
)
def test_bits_of_fixed_point(layout, bits, integers):
    tensor = layout.tensor(np.array(bits, dtype=np.int64))
    assert tensor.dtype == torch.int64
    assert tensor.tolist() == integers
    assert layout.integers(tensor).tolist() == bits
    assert layout["integer"].shape == (signed if layout.signed else unsigned)(layout.width)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: FloatLayout(torch.float64),
            TypeError,
            "dtype must be torch.float16, torch.bfloat16 or torch.float32, not torch.float64",
        ),
        (
            lambda: FloatLayout("float16"),
            TypeError,
            "dtype must be torch.float16, torch.bfloat16 or torch.float32, not 'float16'",
        ),
        (lambda: FixedLayout(0, 0), ValueError, "width must be between 1 and 64 where signed=True, not 0"),
        (lambda: FixedLayout(64, 0, False), ValueError, "width must be between 1 and 63 where signed=False, not 64"),
        (lambda: FixedLayout(8.0, 0), TypeError, "width must be an integer, not 8.0"),
        (lambda: FixedLayout(8, 257), ValueError, "frac_bits must be between -256 and 256, not 257"),
        (lambda: FixedLayout(8, "4"), TypeError, "frac_bits must be an integer, not '4'"),
        (lambda: FixedLayout(8, 4, 1), TypeError, "signed must be True or False, not 1"),
    ],
)
def test_what_is_no_layout_is_refused(make, error, message):
    with pytest.raises(error, match=exactly(message)):
        make()
