"""Three ways to compute t(d) = -log2(1 - 2^-x), x = d / 2^frac_bits, below one unit, where it has its singularity.

    python benchmarks/singularity.py [--frac-bits 23] [--ways logarithm,cotransformation] [--degrees 2]
                                     [--every 16] [--json]

Each way is built as integer tables that are faithful (error below one unit of the last place), and its error is
measured: below one unit over all distances, elsewhere in one of `every` blocks of 65536. *Segmentation* is polynomials,
one region an octave. *Cotransformation* (Arnold, Bailey, Cowles and Winkel 1998; Coleman, Chester, Softley and Kadlec
2000) has two short tables of t, and a second argument for s. *Logarithm* has one octave of polynomials for all, and a
correction. The first and the last are what :class:`~xlnstorch.adders.Piecewise` does. At 23 fraction bits it all takes
about ten minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import json
import sys
from collections.abc import Callable, Iterator

import torch
from rich.console import Console
from rich.table import Table

from xlnstorch import LNSFormat
from xlnstorch.adders import Adder, generator, quality
from xlnstorch.adders.curves import SAMPLE_BITS, Curves, Part
from xlnstorch.adders.segments import Polynomials, SegmentedGaussian
from xlnstorch.exact import LogScale

_BLOCK = 1 << 16
# More bits of ROM than any cotransformation worth a look has.
_MOST_BITS = 1 << 20


@dataclasses.dataclass(frozen=True)
class Cotransformation:
    """t(r1 + r2) = t(r1) - s(r1 + t(r2) - t(r1)) below ``2**boundary``; octaves of polynomials up to one unit.

    With g guard bits in all tables, in the argument of that s and in its value, which has the half that rounds::

        t = (t1 + 2**g - 1 - S((r1 << g) + t2 - t1)) >> g

    and where r1 or r2 is zero, t of the other one, rounded. Both tables are read before S is.

    Attributes
    ----------
    frac_bits : int
    polynomials : Polynomials
        s, and t above the boundary.
    ends : tuple of (int, int)
        The distances from which s and t are zero.
    boundary, low_bits : int
        r2 is the last `low_bits` bits of d.
    first, second : tuple of int
        ``t(r1)`` and ``t(r2)``, in the order of d; 0 for ``t(0)``, which is not used.
    """

    frac_bits: int
    polynomials: Polynomials
    ends: tuple[int, int]
    boundary: int
    low_bits: int
    first: tuple[int, ...]
    second: tuple[int, ...]

    @functools.cached_property
    def _finer(self) -> Polynomials:
        """The polynomials for arguments with guard bits."""
        g = self.polynomials.guard_bits
        regions = [
            dataclasses.replace(region, start=region.start << g, size=region.size + g, width=region.width + g)
            for region in self.polynomials.regions
        ]
        return dataclasses.replace(self.polynomials, regions=tuple(regions))

    @property
    def rom_bits(self) -> int:
        """Bits of all tables."""
        return self.polynomials.rom_bits + sum(_plain_bits(table) for table in (self.first, self.second))

    @property
    def multipliers(self) -> tuple[tuple[int, int], ...]:
        """Widths of the operands of each multiplier."""
        return self.polynomials.multipliers

    def evaluate(self, d: torch.Tensor, subtract: torch.Tensor) -> torch.Tensor:
        """Return ``s(d)``, or ``-t(d)`` where `subtract`, for int64 d ≥ 0; 0 for ``t(0)``."""
        g, unit = self.polynomials.guard_bits, 1 << self.frac_bits
        live = (d < torch.where(subtract, self.ends[1], self.ends[0])) & ~(subtract & (d == 0))
        d = torch.where(live, d, unit)
        below = subtract & (d < 1 << self.boundary)
        split = torch.where(below, d, 0)
        high, low = split >> self.low_bits, split & ((1 << self.low_bits) - 1)
        first, second = torch.tensor(self.first)[high], torch.tensor(self.second)[low]
        both = (high != 0) & (low != 0)
        # At most t(1), since r1 <= t(r1) below one unit: s has not ended there.
        argument = torch.where(both, (high << self.low_bits + g) + second - first, d << g)
        y = self._finer.evaluate(torch.where(below & ~both, unit << g, argument), subtract & ~both)
        alone = torch.where(high == 0, second, first) + (1 << g - 1)
        y = torch.where(both, first + (1 << g) - 1 - y, torch.where(below, alone, y)) >> g
        return torch.where(live, torch.where(subtract, -y, y), 0)


class _Fitter(generator._Fitter):
    """Polynomials for a cotransformation below ``2**boundary``."""

    def __init__(self, frac_bits: int, degree: int, boundary: int):
        super().__init__(Curves(frac_bits), frac_bits, degree)
        steps = 1 << frac_bits
        self.ends = self._end("sum"), self._end("difference")
        self.parts = [Part("difference", 1 << octave, octave) for octave in range(boundary, frac_bits)]
        self.parts += [Part("sum", start, frac_bits) for start in range(0, self.ends[0], steps)]
        self.parts += [Part("difference", start, frac_bits) for start in range(steps, self.ends[1], steps)]

    def _end(self, curve: str) -> int:
        """Return the first multiple of one unit, after one, from which zero is good enough."""
        units = (unit << self.frac_bits for unit in itertools.count(2))
        enough = (1 << SAMPLE_BITS) - 1
        return next(d for d in units if int(getattr(self.curves, curve)(torch.tensor([d << SAMPLE_BITS]))) < enough)

    def margins(self, part: Part, guard_bits: int) -> tuple[int, int]:
        # Both tables together move t by half a unit of theirs at most, since 0 <= -s' <= 1/2.
        grain = 1 << SAMPLE_BITS - guard_bits
        margin = grain >> 1 if part.curve == "sum" else 0
        return margin - grain, (1 << SAMPLE_BITS) - margin

    def _sampled_bounds(self, samples, part, width, slope, bend, widths):
        finer = widths.guard_bits if part.curve == "sum" else 0  # the argument has bits that are cut off
        return super()._sampled_bounds(samples, part, width + finer, slope, bend, widths)


def cotransformation(frac_bits: int, degree: int) -> Cotransformation:
    """Return the cheapest cotransformation found, over boundaries and guard bits."""
    best = None
    for boundary in range(frac_bits, frac_bits // 2, -1):
        fitter = _Fitter(frac_bits, degree, boundary)
        for guard_bits in (2, 3, 4):
            polynomials = generator._narrow(fitter, guard_bits, generator._cost(best) if best else _MOST_BITS)
            if polynomials is None:
                continue
            scale = LogScale.of(frac_bits + guard_bits)
            low_bits = boundary // 2
            low = torch.arange(1, 1 << low_bits) << guard_bits
            high = torch.arange(1, 1 << boundary - low_bits) << low_bits + guard_bits
            tables = ((0, *scale.gaussian_difference(d).tolist()) for d in (high, low))
            design = Cotransformation(frac_bits, polynomials, fitter.ends, boundary, low_bits, *tables)
            if best is None or generator._cost(design) < generator._cost(best):
                best = design
    return best


def segmentation(frac_bits: int, degree: int) -> SegmentedGaussian:
    """Return the polynomials of each octave."""
    return generator.generate(frac_bits, degree, 1.0)


def logarithm(frac_bits: int, degree: int) -> SegmentedGaussian:
    """Return those of one octave, and their correction."""
    return generator.generate(frac_bits, degree, 1.0, logarithm=True)


Design = SegmentedGaussian | Cotransformation
WAYS: dict[str, Callable[[int, int], Design]] = {
    way.__name__: way for way in (segmentation, cotransformation, logarithm)
}


def describe(design: Design) -> dict:
    """Return rows and bits of s, of t above and of t below one unit, and what else a design takes.

    Where a logarithm is used up to ``2**near`` units, t below is all of that.
    """
    polynomials = design.polynomials
    plain = (design.first, design.second) if isinstance(design, Cotransformation) else ()
    fall = None if plain else design.fall
    near = 1 << design.frac_bits + (design.near if fall else 0)
    rows = {"s": 0, "t above": 0, "t below": 0}
    for region in polynomials.regions:
        rows["s" if not region.subtract else "t below" if region.start < near else "t above"] += region.segments
    bits = {name: count * sum(polynomials.coefficient_bits) for name, count in rows.items()}
    constants = {"guard bits": polynomials.guard_bits}
    if fall:
        constants |= {"near": design.near, "rows of F": len(fall.rows), "guard bits of F": fall.guard_bits}
    if plain:
        constants |= {"boundary": design.boundary, "low bits": design.low_bits}
    rows["t below"] += sum(map(len, plain)) + (len(fall.rows) if fall else 0)
    bits["t below"] += sum(map(_plain_bits, plain)) + (fall.rom_bits if fall else 0)
    return {
        "rows": rows,
        "bits": bits,
        "all bits": sum(bits.values()),
        "multipliers": design.multipliers,
        "cost": generator._cost(design),
        "lookups": 2 if plain else 1,
        "constants": constants,
    }


def _plain_bits(table: tuple[int, ...]) -> int:
    return len(table) * max(table).bit_length()


# Measuring ------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class _Adder(Adder):
    of: Design

    def gaussian(self, format, d, subtract):
        return self.of.evaluate(d, subtract)

    def reach(self, format):
        return max(self.of.ends)


def measure(design: Design, every: int) -> dict[str, float]:
    """Return the largest errors, and the share of nearest integers of t below one unit."""
    steps = 1 << design.frac_bits
    format = LNSFormat(8, design.frac_bits, adder=_Adder(design))
    below = quality._Tally()
    for start in range(0, steps, _BLOCK):
        below.add(format, torch.arange(max(1, start), min(start + _BLOCK, steps)), subtract=True)
    whole = quality.measure(format, every=every)
    return {
        "max t below": below.worst,
        "nearest t below": below.rounded / below.points,
        "max t": max(below.worst, whole.max_difference),
        "max s": whole.max_sum,
    }


def compare(frac_bits: int, names: list[str], degrees: list[int], every: int) -> Iterator[dict]:
    """Yield what there is to say of each design."""
    for degree, name in itertools.product(degrees, names):
        design = WAYS[name](frac_bits, degree)
        yield {"way": name, "degree": degree, **describe(design), **measure(design, every)}


def main() -> int:
    """Build, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frac-bits", type=int, default=23)
    parser.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS))
    parser.add_argument("--degrees", type=lambda text: [int(part) for part in text.split(",")], default=[2, 1])
    parser.add_argument("--every", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    for name in args.ways:
        if name not in WAYS:
            parser.error(f"argument --ways: {name!r} is not one of {', '.join(WAYS)}")
    for degree in args.degrees:
        if degree not in (1, 2):
            parser.error(f"argument --degrees: must be 1 or 2, not {degree}")
    if not 8 <= args.frac_bits <= 23:
        parser.error(f"argument --frac-bits: must be from 8 to 23, not {args.frac_bits}")
    if args.every < 1:
        parser.error(f"argument --every: must be at least 1, not {args.every}")
    found = []
    for row in compare(args.frac_bits, args.ways, args.degrees, args.every):
        found.append(row)
        sys.stderr.write(f"{row['way']}, degree {row['degree']}: {row['all bits']} bits\n")
    if args.json:
        print(json.dumps({"schema": 1, "frac_bits": args.frac_bits, "every": args.every, "designs": found}))
        return 0
    table = Table(box=None, pad_edge=False, caption="rows, bits: s / t above / t below", caption_justify="left")
    titles = [title for title in found[0] if title != "constants"]
    for title in titles:
        table.add_column(title)
    for row in found:
        table.add_row(*(_shown(row[title]) for title in titles))
    Console(width=max(180, Console().width)).print(table)
    for row in found:
        print(f"{row['way']}, degree {row['degree']}:", ", ".join(f"{n} {v}" for n, v in row["constants"].items()))
    return 0


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "/".join(map(str, value.values()))
    if isinstance(value, tuple):
        return " ".join(f"{a}x{b}" for a, b in value)
    return f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
