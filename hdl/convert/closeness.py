"""How close the powers of two come to the numbers of a grid: what an approximation of them must tell apart.

``2**(i / 2**frac_bits)`` is irrational but for i = 0, so it lies off every binary grid; how far off at the least is
found by trying all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from xlnstorch.formats import LNSFormat

from .tables import floor_of_power

__all__ = ["check_frac_bits", "closest_powers"]

_MAX_FRAC_BITS = 25  # with more there would be too many powers to try
_LOW_BITS = 12
_PLACES = 63  # fraction bits of a computed power
_KEPT = 64  # of the closest
_ERROR = 4  # of a power, in units of the last of them: see _powers


def check_frac_bits(format: LNSFormat) -> None:
    """Raise ValueError if a format has so many fraction bits that nobody knows what its conversions must tell apart."""
    if format.frac_bits >= _MAX_FRAC_BITS:  # where rounding changes there is one more
        raise ValueError(
            f"conversions in gates need a format with at most {_MAX_FRAC_BITS - 1} fraction bits, "
            f"not the {format.frac_bits} of {format}"
        )


@functools.cache
def closest_powers(frac_bits: int, bits: int, odd: bool = False) -> tuple[Fraction, tuple[int, ...]]:
    """Return how close ``2**(i / 2**frac_bits)`` comes to a multiple of ``2**-bits``, and for which i.

    Parameters
    ----------
    frac_bits : int
        Up to 25; the powers are those of i from 1 to ``2**frac_bits - 1``.
    bits : int
        Fraction bits of the grid, less than ``57 - frac_bits`` or so.
    odd : bool
        Whether to try the odd i only.

    Returns
    -------
    Fraction, tuple of int
        A lower bound of the distance, and the up to 64 closest i, the closest first. It takes up to a second.

    Raises
    ------
    ValueError
        `frac_bits` is too large; or the powers, which are computed to ``2**-61``, come too close to the grid to tell.
    """
    if not 1 <= frac_bits <= _MAX_FRAC_BITS:
        raise ValueError(f"frac_bits must be between 1 and {_MAX_FRAC_BITS}, not {frac_bits}")
    grid = 1 << (_PLACES - bits)
    found = []
    for start, powers in _powers(frac_bits):
        above = powers & np.uint64(grid - 1)
        distance = np.minimum(above, np.uint64(grid) - above)
        if start == 0:
            distance[0] = grid
        if odd:
            distance[::2] = grid
        limit = found[-1][0] if len(found) == _KEPT else grid
        (close,) = (distance < np.uint64(limit)).nonzero()
        found = sorted([*found, *zip(distance[close].tolist(), (start + close).tolist(), strict=True)])[:_KEPT]
    least, _ = found[0]
    if least < 2 * _ERROR:
        raise ValueError(f"a power of 2 in steps of 2**-{frac_bits} is too close to a multiple of 2**-{bits} to tell")
    return Fraction(least - _ERROR, 1 << _PLACES), tuple(i for _, i in found)


def _powers(frac_bits: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield an i, and the powers from there on, in units of ``2**-63``.

    Tables hold the powers a of the high bits of i, and ``b = 2**(low / 2**frac_bits) - 1`` of the low ones, both cut
    off to integers; a power is ``a + a b``. It is too small by less than 4: by 1 and less than 1 for what a lost, 1 for
    the shift of the product, and less than 1 for what b and the partial products lost, which have more digits.
    """
    low_bits = min(_LOW_BITS, frac_bits)
    high_bits = frac_bits - low_bits
    places = _PLACES + 1 + high_bits
    low = [floor_of_power(i, frac_bits, places) - (1 << places) for i in range(1 << low_bits)]
    while max(low) >> 64:  # few high bits leave large ones
        places, low = places - 1, [entry >> 1 for entry in low]
    low = np.array(low, dtype=np.uint64)
    half, mask = np.uint64(32), np.uint64((1 << 32) - 1)
    low_high, low_low = low >> half, low & mask
    shift = np.uint64(places - 64)
    for row in range(1 << high_bits):
        a = floor_of_power(row, high_bits, _PLACES)
        high, rest = np.uint64(a >> 32), np.uint64(a & (1 << 32) - 1)
        product = high * low_high + (high * low_low >> half) + (rest * low_high >> half)
        yield row << low_bits, np.uint64(a) + (product >> shift)
