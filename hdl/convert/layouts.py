"""Floating-point and fixed-point numbers as payload fields, and what their bits are as tensors."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from amaranth.hdl import Shape, unsigned
from amaranth.lib import data

from xlnstorch.checks import as_integer, integer_between

__all__ = ["FLOATS", "FixedLayout", "FloatFormat", "FloatLayout"]


@dataclasses.dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format of IEEE 754's kind.

    Attributes
    ----------
    exponent_bits, fraction_bits : int
        Widths of the two fields below the sign.
    integer_dtype : torch.dtype
        Of the same width.
    """

    exponent_bits: int
    fraction_bits: int
    integer_dtype: torch.dtype

    @property
    def width(self) -> int:
        """Bits of a number."""
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def bias(self) -> int:
        """What the exponent field of a normal number exceeds its exponent by; also the largest exponent."""
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def lowest(self) -> int:
        """Exponent of the smallest normal number."""
        return 1 - self.bias


#: The dtypes that floats in gates can have.
FLOATS = {
    torch.float16: FloatFormat(5, 10, torch.int16),
    torch.bfloat16: FloatFormat(8, 7, torch.int16),
    torch.float32: FloatFormat(8, 23, torch.int32),
}


class FloatLayout(data.StructLayout):
    """A float of a dtype: ``fraction``, above it ``exponent``, with its bias, and ``sign``.

    Parameters
    ----------
    dtype : torch.dtype
        ``float16``, ``bfloat16`` or ``float32``.

    Raises
    ------
    TypeError
        Another `dtype`.
    """

    meaning = "floating-point number"

    def __init__(self, dtype: torch.dtype):
        if dtype not in FLOATS:
            raise TypeError(f"dtype must be torch.float16, torch.bfloat16 or torch.float32, not {dtype!r}")
        self._float = FLOATS[dtype]
        self.dtype = dtype
        super().__init__(
            {
                "fraction": unsigned(self._float.fraction_bits),
                "exponent": unsigned(self._float.exponent_bits),
                "sign": unsigned(1),
            }
        )

    def tensor(self, integers: np.ndarray) -> torch.Tensor:
        """Return numbers, as the non-negative integers on the wires (int64), in the dtype."""
        width = self._float.width
        signed = torch.from_numpy(integers - (integers >> (width - 1) << width))
        return signed.to(self._float.integer_dtype).view(self.dtype)

    def integers(self, tensor: torch.Tensor) -> np.ndarray:
        """Return the bits of a tensor of the dtype as the non-negative integers on the wires, in int64."""
        bits = tensor.view(self._float.integer_dtype).to(torch.int64)
        return (bits & ((1 << self._float.width) - 1)).numpy()


class FixedLayout(data.StructLayout):
    """A fixed-point number, ``integer / 2**frac_bits``: one field, ``integer``, signed or not.

    Parameters
    ----------
    width : int
        Bits, the sign included: 1 to 64, or 63 without a sign, so that it fits an int64.
    frac_bits : int
        How many of them lie behind the binary point, -256 to 256.
    signed : bool
        Whether it is in two's complement.

    Raises
    ------
    TypeError, ValueError
        A parameter is not as above; the message names it.
    """

    meaning = "fixed-point number"

    def __init__(self, width: int, frac_bits: int, signed: bool = True):
        if not isinstance(signed, bool):
            raise TypeError(f"signed must be True or False, not {signed!r}")
        width, most = as_integer("width", width), 64 if signed else 63
        if not 1 <= width <= most:
            raise ValueError(f"width must be between 1 and {most} where signed={signed}, not {width}")
        self.width, self.signed = width, signed
        self.frac_bits = integer_between("frac_bits", frac_bits, -256, 256)
        super().__init__({"integer": Shape(width, signed)})

    @property
    def magnitude_bits(self) -> int:
        """Bits below the sign."""
        return self.width - self.signed

    def tensor(self, integers: np.ndarray) -> torch.Tensor:
        """Return the integers with these bits on the wires; both in int64, so 64 bits are kept as they are."""
        if self.signed and self.width < 64:
            integers = integers - (integers >> (self.width - 1) << self.width)
        return torch.from_numpy(np.ascontiguousarray(integers))

    def integers(self, tensor: torch.Tensor) -> np.ndarray:
        """Return the bits on the wires of integers, in int64: not negative, unless there are 64."""
        bits = tensor.to(torch.int64).numpy()
        return bits if self.width == 64 else bits & ((1 << self.width) - 1)
