"""A polynomial on its way through a pipeline: a ROM has its coefficients, multipliers evaluate it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from amaranth.hdl import Module, Value
from amaranth.lib.memory import Memory

from xlnstorch.adders.segments import OPERAND_BITS, Polynomials

from ..pipeline import Pipeline

__all__ = ["Evaluation"]


class Evaluation:
    """What each stage registers, under names with a prefix, so that two polynomials can go side by side.

    The ROM is read; its output is registered, since a block RAM is slow to it, which an ECP5 does inside the block
    RAM, and once more, near the multiplier; there follow for each degree a product and a difference. A slope of more
    bits than a multiplier takes is multiplied in two parts, which one more stage adds.

    Parameters
    ----------
    m : Module
    pipeline : Pipeline
    polynomials : Polynomials
    prefix : str
    attributes : dict
        Of the ROM.
    split : bool
        Whether there is a stage to add two parts of a product: where the slope of any of those side by side is split.
    """

    def __init__(
        self, m: Module, pipeline: Pipeline, polynomials: Polynomials, prefix: str, attributes: dict, split: bool
    ):
        self._polynomials, self._prefix, self._split, self._m = polynomials, prefix, split, m
        self._widths = polynomials.coefficient_bits
        places = [sum(self._widths[:i]) for i in range(len(self._widths))]
        contents = [sum(c << place for c, place in zip(row, places, strict=True)) for row in polynomials.rows]
        depth, width = polynomials.rom_shape
        rom = Memory(shape=width, depth=depth, init=contents, attrs=attributes)
        m.submodules[f"rom_{prefix}"] = rom
        self._port = rom.read_port()
        m.d.comb += self._port.en.eq(pipeline.advance)
        self._columns = {
            f"c{i}": self._port.data[place:][:width]
            for i, (place, width) in enumerate(zip(places, self._widths, strict=True))
        }

    @staticmethod
    def depth(polynomials: Polynomials, split: bool) -> int:
        """Return the number of :meth:`steps`."""
        return 1 + (1 + 2 * polynomials.degree + split) * bool(polynomials.offset_bits)

    def address(self, row: Value, v: Value) -> dict[str, Value]:
        """Return what is registered before the ROM is read."""
        return self._named(row=row, v=v)

    def steps(self) -> list[Callable[[SimpleNamespace], dict[str, Value]]]:
        """Return for each further stage the function from the registers before it to the values that it registers."""
        steps = [self._read]
        if self._polynomials.offset_bits:
            steps += [self._register, self._again]
            if self._polynomials.degree == 2:
                steps += [self._bend, self._slope]
            steps.append(self._fall)
            if self._split:
                steps.append(self._sum)
        return steps

    def result(self, stage: SimpleNamespace) -> Value:
        """Return y from the registers of the last step."""
        if not self._polynomials.offset_bits:  # a plain table
            return self._columns["c0"]
        s = self._of(stage)
        fall = s.fall if self._split else s.low >> self._polynomials.offset_bits
        return (s.c0 - fall)[: self._widths[0]]

    def _read(self, stage):
        s = self._of(stage)
        self._m.d.comb += self._port.addr.eq(s.row)
        return self._named(v=s.v)

    def _register(self, stage):
        return self._named(**self._columns, v=self._of(stage).v)

    def _again(self, stage):
        return self._named(**vars(self._of(stage)))

    def _bend(self, stage):
        s, polynomials = self._of(stage), self._polynomials
        u = s.v[polynomials.offset_bits - polynomials.inner_bits :]
        return self._named(c0=s.c0, c1=s.c1, bend=s.c2 * u, v=s.v)

    def _slope(self, stage):
        s = self._of(stage)
        return self._named(c0=s.c0, c1=(s.c1 - (s.bend >> self._polynomials.inner_bits))[: self._widths[1]], v=s.v)

    def _fall(self, stage):
        s = self._of(stage)
        return self._named(c0=s.c0, low=s.c1[:OPERAND_BITS] * s.v, high=s.c1[OPERAND_BITS:] * s.v)

    def _sum(self, stage):
        s, n = self._of(stage), self._polynomials.offset_bits
        return self._named(c0=s.c0, fall=((s.high << (OPERAND_BITS - n)) + (s.low >> n))[: self._widths[1]])

    def _named(self, **values: Value) -> dict[str, Value]:
        return {f"{self._prefix}_{name}": value for name, value in values.items()}

    def _of(self, stage: SimpleNamespace) -> SimpleNamespace:
        start = f"{self._prefix}_"
        return SimpleNamespace(
            **{name.removeprefix(start): value for name, value in vars(stage).items() if name.startswith(start)}
        )
