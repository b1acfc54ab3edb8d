"""Named formats, each with its source; field widths are (integer bits, fraction bits), as in float<E, M>."""

from __future__ import annotations

import math
import re

from .formats import LNSFormat

__all__ = [
    "CATALOG",
    "format_from_base",
    "lns8",
    "lns12",
    "lns16",
    "lns16e5",
    "lns24",
    "lns32",
    "named_format",
    "software_format",
]

#: Eight bits with the field widths of the E4M3 of the OCP 8-bit floating point specification (2023).
lns8 = LNSFormat(4, 3)

#: Twelve bits: the exponent of binary16, and six fraction bits.
lns12 = LNSFormat(5, 6)

#: The word of the public xlns16 C++ library (xlnsresearch/xlnscpp): 0x4000 is 1.0. Field widths of bfloat16.
lns16 = LNSFormat(8, 7)

#: Sixteen bits with the field widths of IEEE 754 binary16.
lns16e5 = LNSFormat(5, 10)

#: Twenty-four bits with the field widths of the PXR24 floats of OpenEXR: binary32 with eight fraction bits less.
lns24 = LNSFormat(8, 15)

#: The word of the public xlns32 C++ library (xlnsresearch/xlnscpp). Field widths of IEEE 754 binary32.
lns32 = LNSFormat(8, 23)

CATALOG: dict[str, LNSFormat] = {
    "lns8": lns8,
    "lns12": lns12,
    "lns16": lns16,
    "lns16e5": lns16e5,
    "lns24": lns24,
    "lns32": lns32,
}

_SOFTWARE_LOG_BITS = 52


def software_format(f: int = 23) -> LNSFormat:
    """Return the format of the xlnstorch packages' ``f=``: `f` fraction bits in a 52-bit log field, held in int64."""
    if isinstance(f, bool) or not isinstance(f, int):
        raise TypeError(f"f must be an integer, not {f!r}")
    if not 0 <= f <= 48:
        raise ValueError(f"f must be between 0 and 48, not {f}")
    return LNSFormat(_SOFTWARE_LOG_BITS - f, f)


def format_from_base(b: float) -> LNSFormat:
    """Return the software format whose logarithms have base `b`; ``2 ** (2 ** -f)`` gives ``software_format(f)``."""
    b = float(b)
    if not 1.0 < b < math.inf:
        raise ValueError(f"b must be a finite number above 1, not {b!r}")
    for f in range(49):
        if b == 2.0 ** (2.0**-f):
            return software_format(f)
    return LNSFormat(_SOFTWARE_LOG_BITS, 0, base=b)


def named_format(text: str) -> LNSFormat:
    """Return the format that a command line names: of the catalogue, or as ``int_bits,frac_bits``.

    Raises
    ------
    ValueError
        Neither; the message lists what is accepted.
    """
    if text in CATALOG:
        return CATALOG[text]
    widths = text.split(",")
    if len(widths) == 2 and all(re.fullmatch(r"\s*[0-9]+\s*", part) for part in widths):
        return LNSFormat(*map(int, widths))
    raise ValueError(
        f"format must be one of {', '.join(CATALOG)}, or the widths int_bits,frac_bits such as 8,7; not {text!r}"
    )
