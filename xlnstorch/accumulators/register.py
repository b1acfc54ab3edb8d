"""Wide fixed-point registers: sums of integers of any width, exact, in tensors of limbs."""

from __future__ import annotations

from fractions import Fraction

import torch

from ..double_double import DoubleDouble, two_sum
from ..exact import LogScale
from ..rounding import replace_where

__all__ = ["MAX_TERMS", "Registers"]

_LIMB = 32
_MASK = (1 << _LIMB) - 1

#: A term adds less than 2**33 to each limb, and limbs are int64.
MAX_TERMS = 1 << 30


class Registers:
    """Signed integers of any width, one for each of `count` results.

    An integer is the sum of ``limbs[i] * 2**(32 i)``. Limbs are int64 and take up carries while terms are added; only
    when the sum is read do the carries move up.

    Parameters
    ----------
    count : int
    term_bits : int
        Width of the largest magnitude that is added; sums of up to 2**30 such terms fit.
    device : torch.device

    Attributes
    ----------
    limbs : int64 Tensor
        Of shape (limbs, count).
    """

    def __init__(self, count: int, term_bits: int, device: torch.device):
        # One limb above a term's for the sum to grow into; three at least, as many as are read below.
        limbs = max(3, -(-term_bits // _LIMB) + 1)
        self.limbs = torch.zeros((limbs, count), dtype=torch.int64, device=device)

    def add(self, integers: torch.Tensor, shift: torch.Tensor, bits: int) -> None:
        """Add ``integers * 2**shift``, of shape (terms, count) each, over the terms.

        Parameters
        ----------
        integers : int64 Tensor
            Signed.
        shift : int64 Tensor
            At least 0.
        bits : int
            Width of the largest magnitude among `integers`, at most 63.
        """
        limb, place = shift >> 5, shift & (_LIMB - 1)
        for first in range(0, bits, _LIMB):
            # All parts but the last are of 32 bits without a sign, so that each has at most 63 bits when shifted.
            last = first + _LIMB >= bits
            part = (integers >> first if last else (integers >> first) & _MASK) << place
            self.limbs.scatter_add_(0, limb, part & _MASK)
            limb = limb + 1
            self.limbs.scatter_add_(0, limb, part >> _LIMB)

    def nearest_logs(self, scale: LogScale, frac_bits: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return sign, nearest logarithm and whether it is zero, of each ``integer / 2**frac_bits``; for base 2.

        The magnitude is cut to its highest 65 to 96 bits. Where the logarithms of what is left, and of that plus one
        unit of its last place, round to the same integer, so does that of the magnitude between them; elsewhere it is
        decided by the whole of it. No logarithm of an integer is half an odd number of units, so there are no ties.
        """
        limbs = _carried(self.limbs)
        negative = limbs[-1] < 0
        limbs = _carried(torch.where(negative, -self.limbs, self.limbs))
        positions = torch.arange(len(limbs), device=limbs.device).unsqueeze(1)
        top = torch.where(limbs != 0, positions, 0).amax(0)
        zero = (limbs == 0).all(0)
        lowest = (top - 2).clamp(min=0)
        window = [torch.where(zero, 1, limbs.gather(0, (lowest + i).unsqueeze(0)).squeeze(0)) for i in range(3)]
        rest = ((limbs != 0) & (positions < lowest)).any(0)
        log = scale.log(*_double_double(window))
        above = log
        if bool(rest.any()):
            above = log.index_put((rest,), scale.log(*_double_double([part[rest] for part in window], more=1)))

        def exact(i: int) -> int:
            integer = sum(limb << _LIMB * place for place, limb in enumerate(limbs[:, i].tolist()))
            return scale.log_exact(Fraction(integer)) - (int(lowest[i]) * _LIMB << scale.frac_bits)

        log = replace_where(log, log != above, exact)
        return negative, log + ((lowest * _LIMB - frac_bits) << scale.frac_bits), zero


def _carried(limbs: torch.Tensor) -> torch.Tensor:
    """Return limbs of the same integers, all but the top one from 0 to 2**32 - 1."""
    carried, carry = [], torch.zeros_like(limbs[0])
    for limb in limbs[:-1]:
        total = limb + carry
        carried.append(total & _MASK)
        carry = total >> _LIMB
    return torch.stack([*carried, limbs[-1] + carry])


def _double_double(window: list[torch.Tensor], more: int = 0) -> DoubleDouble:
    """Return an integer of three limbs, the lowest first, plus `more`: exact, as it has at most 97 bits."""
    low, middle, high = (part.to(torch.float64) for part in window)
    total, rest = two_sum(high * 2.0**_LIMB, middle)
    return two_sum(total * 2.0**_LIMB, rest * 2.0**_LIMB + (low + more))
