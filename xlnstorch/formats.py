"""Word formats: where the bits of an LNS word lie and what they mean."""

from __future__ import annotations

import dataclasses
import functools

import torch

from .accumulators import Accumulator, LogAccumulator
from .adders import Adder, Exact
from .checks import as_integer
from .exact import LogScale

__all__ = ["LNSFormat"]

_MAX_LOG_BITS = 52  # the packed form, (e << 1) | sign in a float64, is exact up to here


@dataclasses.dataclass(frozen=True, repr=False)
class LNSFormat:
    """A logarithmic word format, with the adder and the accumulator that its arithmetic uses.

    A word is a sign bit above a log field of ``log_bits = int_bits + frac_bits`` bits in offset binary::

        | sign (1) | log field (int_bits + frac_bits) |
        value = (-1)**sign * base**(e / 2**frac_bits),   e = field - 2**(log_bits - 1)

    Field 0 is zero, so the all-zero word is 0.0. The word with sign 1 and field 0 is read as zero and never produced.
    Results above the range saturate to the largest magnitude, results below it flush to zero. With `specials`, the
    largest field is infinity, so that results above the range are infinite, and the word with sign 1 and field 0 is
    NaN, the only one.

    Parameters
    ----------
    int_bits : int
        Integer bits of the logarithm, its sign included, at least 1.
    frac_bits : int
        Fraction bits of the logarithm, 0 to 48; together with `int_bits` at most 52.
    adder : Adder
        Which integers stand for ``log(1 ± base**-d)``.
    accumulator : Accumulator
        In which order, and how, sums and dot products are formed.
    specials : bool
        Whether there are words for infinities and NaN.
    base : float
        Base of the logarithm. Hardware has 2 only; any other base above 1 is a software format.

    Raises
    ------
    TypeError, ValueError
        A parameter is of the wrong type or out of its range; the message names it.

    Examples
    --------
    >>> from xlnstorch import LNSFormat
    >>> LNSFormat(8, 7)
    lns16
    >>> LNSFormat(3, 4).width
    8
    """

    int_bits: int
    frac_bits: int
    adder: Adder = dataclasses.field(default_factory=Exact)
    accumulator: Accumulator = dataclasses.field(default_factory=LogAccumulator)
    specials: bool = False
    base: float = 2.0

    def __post_init__(self) -> None:
        for name in ("int_bits", "frac_bits"):
            object.__setattr__(self, name, as_integer(name, getattr(self, name)))
        if self.int_bits < 1:
            raise ValueError(f"int_bits must be at least 1, not {self.int_bits}")
        if not 0 <= self.frac_bits <= 48:
            raise ValueError(f"frac_bits must be between 0 and 48, not {self.frac_bits}")
        if not 2 <= self.log_bits <= _MAX_LOG_BITS:
            raise ValueError(
                f"int_bits + frac_bits must be between 2 and {_MAX_LOG_BITS}, not {self.int_bits} + {self.frac_bits}"
            )
        if not isinstance(self.adder, Adder):
            raise TypeError(f"adder must be an Adder such as Exact(), not {self.adder!r}")
        if not isinstance(self.accumulator, Accumulator):
            raise TypeError(f"accumulator must be an Accumulator such as LogAccumulator(), not {self.accumulator!r}")
        if not isinstance(self.specials, bool):
            raise TypeError(f"specials must be True or False, not {self.specials!r}")
        if not isinstance(self.base, (int, float)) or not 1.0 < self.base < float("inf"):
            raise ValueError(f"base must be a finite number above 1, not {self.base!r}")
        object.__setattr__(self, "base", float(self.base))
        self.adder.check(self)
        self.accumulator.check(self)

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:  # formats are the keys of most caches
        return hash(tuple(getattr(self, field.name) for field in dataclasses.fields(self)))

    def __getstate__(self) -> dict[str, object]:
        """Return what is pickled and copied: the parameters, and not what was computed of them."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    # Sizes ---------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def log_bits(self) -> int:
        """Width of the log field in bits."""
        return self.int_bits + self.frac_bits

    @functools.cached_property
    def width(self) -> int:
        """Width of a word in bits."""
        return 1 + self.log_bits

    @functools.cached_property
    def bias(self) -> int:
        """What a field exceeds its logarithm e by; also the word of 1.0."""
        return 1 << (self.log_bits - 1)

    @functools.cached_property
    def max_field(self) -> int:
        """The largest field, that of a saturated result; with :attr:`specials`, of infinity."""
        return (1 << self.log_bits) - 1

    @functools.cached_property
    def max_finite_field(self) -> int:
        """The largest field of a number: :attr:`max_field`, or one less where that is infinity."""
        return self.max_field - self.specials

    @functools.cached_property
    def dtype(self) -> torch.dtype:
        """The smallest signed integer dtype that holds a word."""
        for dtype in (torch.int8, torch.int16, torch.int32):
            if self.width <= torch.iinfo(dtype).bits:
                return dtype
        return torch.int64

    @functools.cached_property
    def scale(self) -> LogScale:
        """The logarithms of this format."""
        return LogScale.of(self.frac_bits, self.base)

    # Bits ----------------------------------------------------------------------------------------------------------

    def unpack(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sign (bool) and the field (int64) of each word; a negative zero's sign is dropped, and NaN's."""
        wide = words.to(torch.int64)
        field = wide & self.max_field
        return ((wide >> self.log_bits) & 1).bool() & (field != 0), field

    def pack(self, sign: torch.Tensor, field: torch.Tensor) -> torch.Tensor:
        """Return the words, in :attr:`dtype`, with these signs and fields, which must be in range.

        A negative sign with field 0 makes NaN, of a format that has it.
        """
        return ((sign.to(torch.int64) << self.log_bits) | field).to(self.dtype)

    def canonical(self, words: torch.Tensor) -> torch.Tensor:
        """Return a copy of words with no negative zero among them."""
        return words.clone() if self.specials else self.pack(*self.unpack(words))

    def is_nan(self, words: torch.Tensor) -> torch.Tensor:
        """Return where words are NaN: nowhere without :attr:`specials`."""
        if not self.specials:
            return torch.zeros_like(words, dtype=torch.bool)
        return self.to_unsigned(words) == 1 << self.log_bits

    def is_inf(self, words: torch.Tensor) -> torch.Tensor:
        """Return where words are infinite, of either sign: nowhere without :attr:`specials`."""
        if not self.specials:
            return torch.zeros_like(words, dtype=torch.bool)
        return words.to(torch.int64) & self.max_field == self.max_field

    def is_zero(self, words: torch.Tensor) -> torch.Tensor:
        """Return where words are zero."""
        zero = words.to(torch.int64) & self.max_field == 0
        return zero & ~self.is_nan(words) if self.specials else zero

    def from_unsigned(self, words: torch.Tensor) -> torch.Tensor:
        """Return words in :attr:`dtype` from the non-negative integers that hardware shows, any integer dtype.

        Raises
        ------
        TypeError
            `words` is not an integer tensor.
        ValueError
            A value needs more than :attr:`width` bits; the message shows the first.
        """
        if words.dtype.is_floating_point or words.dtype.is_complex or words.dtype == torch.bool:
            raise TypeError(f"words must be integers, not {words.dtype}")
        wide = words.to(torch.int64)
        bad = (wide < 0) | (wide >> self.width != 0)
        if bool(bad.any()):
            raise ValueError(f"a word of {self} must be between 0 and {(1 << self.width) - 1}, not {int(wide[bad][0])}")
        return wide.to(self.dtype)

    def to_unsigned(self, words: torch.Tensor) -> torch.Tensor:
        """Return words as non-negative int64, the way hardware and reports show them."""
        return words.to(torch.int64) & ((1 << self.width) - 1)

    # Names ---------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The catalogue's name, or the widths as ``int_bits,frac_bits``; without adder and accumulator."""
        return self._catalog_name() or f"{self.int_bits},{self.frac_bits}"

    def _catalog_name(self) -> str | None:
        from .catalog import CATALOG

        if self.base == 2.0:
            for name, format in CATALOG.items():
                if (format.int_bits, format.frac_bits) == (self.int_bits, self.frac_bits):
                    return name
        return None

    def __repr__(self) -> str:
        default = LNSFormat(self.int_bits, self.frac_bits)
        if self == default and (name := self._catalog_name()):
            return name
        parts = [str(self.int_bits), str(self.frac_bits)]
        for field in ("adder", "accumulator", "specials", "base"):
            if getattr(self, field) != getattr(default, field):
                parts.append(f"{field}={getattr(self, field)!r}")
        return f"LNSFormat({', '.join(parts)})"
