"""What the kernels need of a format: its adder, as tables or as polynomials that decide nearly every distance."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..adders import Exact, Mitchell, Piecewise
from ..adders.adder import MAX_TABLE_ENTRIES, TabledAdder
from ..adders.segments import Polynomials
from . import curves
from ._module import compiled

if TYPE_CHECKING:
    from ..formats import LNSFormat

__all__ = ["Engine", "engine_of"]

# Codes of so many bits of logarithm, guard bits included, fit 32 bits.
_NARROW_LOG_BITS = 24

_ENDLESS = 63  # binary logarithm of the distances in a segment


class Engine:
    """A format's compiled forms: ``Format`` objects of the compiled module.

    Attributes
    ----------
    plain
        For what needs no Gaussian logarithms; those of some adders take minutes to generate.
    """

    def __init__(self, format: LNSFormat):
        self._format = format
        self._lock = threading.Lock()
        self._decided: dict[int, int] = {}
        self._core = None
        self._is_made = False
        nothing = np.zeros(1, dtype=np.int64)
        self.plain = self._compile(compiled().table(format.frac_bits, nothing, nothing), is_table=True)

    @property
    def core(self) -> object | None:
        """With the adder; None if no kernel knows it."""
        if not self._is_made:
            with self._lock:
                is_table = self._format.adder.reach(self._format) < MAX_TABLE_ENTRIES
                # Of any other kind of adder nobody knows that its results depend on the distance alone.
                if isinstance(self._format.adder, TabledAdder):
                    gaussian = _table(self._format) if is_table else _large(self._format)
                    self._core = gaussian and self._compile(gaussian, is_table)
                self._is_made = True
        return self._core

    def decide(self, undecided: list[int]) -> object:
        """Return :attr:`core` with the Gaussian logarithms of more distances, computed by :mod:`xlnstorch.exact`.

        Each distance is given as ``2 d + subtract``.
        """
        d, scale = torch.tensor(undecided), self._format.scale
        sums, differences = scale.gaussian_sum(d >> 1), -scale.gaussian_difference((d >> 1).clamp(min=1))
        with self._lock:
            self._decided.update(zip(undecided, torch.where(d % 2 == 0, sums, differences).tolist(), strict=True))
            keys = sorted(self._decided)
            values = [self._decided[key] for key in keys]
            # A new object, since another thread may be computing with this one.
            self._core = compiled().decided(self._core, np.array(keys), np.array(values))
            return self._core

    def _compile(self, gaussian: object, is_table: bool) -> object:
        format = self._format
        word_bytes = torch.iinfo(format.dtype).bits // 8
        wide = format.log_bits > _NARROW_LOG_BITS or word_bytes == 8 or not is_table
        constants = curves.constants(format.frac_bits) if curves.serves(format) else None
        return compiled().Format(format.log_bits, word_bytes, wide, gaussian, constants)


@functools.lru_cache(maxsize=256)
def engine_of(format: LNSFormat) -> Engine | None:
    """Return the compiled forms of a format, or None if there are none."""
    return None if format.specials else Engine(format)


def _table(format: LNSFormat):
    reach = format.adder.reach(format)
    d = torch.arange(reach + 1)
    plus = torch.zeros(reach + 1, dtype=torch.bool)
    sums, differences = (format.adder.gaussian(format, d, subtract).clone() for subtract in (plus, ~plus))
    differences[0] = 0
    if int(torch.maximum(sums.abs(), differences.abs()).max()) >> 26:
        return None
    return compiled().table(format.frac_bits, sums.numpy(), differences.numpy())


def _large(format: LNSFormat):
    known = _LARGE.get(type(format.adder))
    return known and known(format, format.adder.reach(format))


def _exact(format: LNSFormat, reach: int):
    if not curves.serves(format) or format.frac_bits < curves.MIN_FRAC_BITS:
        return None
    return compiled().curve(format.frac_bits, reach)


def _piecewise(format: LNSFormat, reach: int):
    design = format.adder.design(format)
    of_both = _polynomials(design.polynomials, reach)
    if of_both is None:
        return None
    fall = design.fall
    if fall is not None:
        (region,) = fall.regions
        packed = np.array([_packed(region)], dtype=np.int64)
        fall = _compiled_polynomials(fall, packed)
    return compiled().segments(format.frac_bits, reach, design.near, of_both, fall)


def _polynomials(polynomials: Polynomials, reach: int):
    """Return them with the region of each cell, or None if a cell lies in two regions."""
    bits = compiled().SEGMENT_CELL_BITS
    last = int(np.float64(reach).view(np.int64)) >> (52 - bits)
    names = np.arange(1023 << bits, last + 1, dtype=np.int64)  # of float64, from 1 on
    starts = np.concatenate([[0.0], (names << (52 - bits)).view(np.float64)])
    # Where no region is, and from the end on, there is a row of zeros, in a segment that never ends.
    packed = np.full((2, len(starts)), len(polynomials.rows) << 8 | _ENDLESS, dtype=np.int64)
    for region in polynomials.regions:
        end = region.start + (1 << region.size)
        if end not in starts:
            return None
        packed[int(region.subtract), (starts >= region.start) & (starts < end)] = _packed(region)
    return _compiled_polynomials(polynomials, packed.reshape(-1))


def _compiled_polynomials(polynomials: Polynomials, packed: np.ndarray):
    if not polynomials.offset_bits or any(
        bits > most for bits, most in zip(polynomials.coefficient_bits, (32, 31, 32), strict=False)
    ):
        return None
    rows = np.array([*polynomials.rows, [0] * len(polynomials.rows[0])], dtype=np.int64)
    rows[:, 1] = rows[:, 0] | rows[:, 1] << 32
    rows = np.ascontiguousarray(rows[:, 1:])
    return compiled().polynomials(
        polynomials.degree,
        polynomials.guard_bits,
        polynomials.offset_bits,
        polynomials.inner_bits,
        packed,
        rows.reshape(-1),
    )


def _packed(region) -> int:
    return (region.row - (region.start >> region.width) << 8) | region.width


def _mitchell(format: LNSFormat, reach: int):
    adder, bits = format.adder, format.frac_bits
    if adder.working_bits(bits) != bits:
        return None
    return compiled().mitchell(bits, reach, adder.corrections, *adder.constants(bits))


#: What serves adders whose tables would be too large, by their types; a type derived from one may compute otherwise.
_LARGE = {Exact: _exact, Piecewise: _piecewise, Mitchell: _mitchell}
