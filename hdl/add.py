"""Addition and subtraction with the exact adder: a comparison, a table of Gaussian logarithms, an addition."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.utils import bits_for, ceil_log2

from xlnstorch.adders import Exact
from xlnstorch.formats import LNSFormat

from .pipeline import Pipeline
from .unit import Unit

__all__ = ["AddSubtract"]

_MAX_FRAC_BITS = 10


class AddSubtract(Unit):
    """The sum or the difference of two words, by the format's exact adder: both Gaussian logarithms in one ROM.

    The larger magnitude's logarithm plus ``s(d)`` for equal signs, minus ``t(d)`` for different ones; the logarithms
    are the nearest integers, so the result is the nearest logarithm to the sum. ``x - x`` is +0.

    Latency 6 clocks, one result a clock. Flags: overflow, underflow. Base-2 formats of at most 10 fraction bits with
    the ``Exact`` adder.

    Measured at lns16 (``benchmarks/cells.py``; Yosys 0.70, nextpnr 0.11.1, seed 1): on an iCE40 HX8K 197 LUT4, 173
    registers, 10 block RAMs and 146 MHz; on an ECP5-25k 198 LUT4, 172 registers, 3 block RAMs and 152 MHz. No DSP.
    """

    name = "add"
    operations = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b}
    latency = 6

    @classmethod
    def check_format(cls, format: LNSFormat) -> None:
        super().check_format(format)
        if not isinstance(format.adder, Exact):
            raise ValueError(f"{cls.__name__} is built for the Exact adder, not {format.adder!r}")
        if format.frac_bits > _MAX_FRAC_BITS:
            raise ValueError(
                f"{cls.__name__} keeps its logarithms in a ROM, so a format must have at most {_MAX_FRAC_BITS} "
                f"fraction bits, not the {format.frac_bits} of {format}"
            )

    def table(self) -> tuple[list[int], list[int]]:
        """Return what the ROM holds: ``s(d)`` and ``t(d)`` for d = 0, 1, …, as far as the format has such distances."""
        table, distances = self.format.adder.table(self.format), 1 << self.format.log_bits
        return list(table.sums[:distances]), list(table.differences[:distances])

    def datapath(self, m: Module, pipeline: Pipeline, operands: data.View) -> SimpleNamespace:
        log_bits = self.format.log_bits
        sums, differences = self.table()
        reach = len(sums)

        # 1. Compare. A subtraction is the addition of the negated b.
        a, b = operands.a, operands.b
        difference = Signal(signed(log_bits + 1))
        m.d.comb += difference.eq(a.field - b.field)
        compared = pipeline.stage(
            a=a.field,
            b=b.field,
            difference=difference,
            sign_a=a.sign,
            sign_b=b.sign ^ operands.op,
            # A zero's sign means nothing; it is not looked at further on either.
            either_zero=(a.field == 0) | (b.field == 0),
        )

        # 2. Swap: the larger magnitude, its sign, and how far below it the other lies.
        b_larger = compared.difference < 0
        d = Signal(log_bits)
        m.d.comb += d.eq(Mux(b_larger, -compared.difference, compared.difference))
        swapped = pipeline.stage(
            larger=Mux(b_larger, compared.b, compared.a),
            sign=Mux(b_larger, compared.sign_b, compared.sign_a),
            d=d,
            subtract=compared.sign_a ^ compared.sign_b,
            # Adding zero changes nothing, whatever its offset from the larger field.
            either_zero=compared.either_zero,
        )

        # 3. Read the table: s below, t above.
        address_bits = ceil_log2(reach)
        contents = sums + [0] * ((1 << address_bits) - reach) + differences
        m.submodules.rom = rom = Memory(shape=bits_for(max(contents)), depth=1 << (address_bits + 1), init=contents)
        port = rom.read_port()
        m.d.comb += [port.addr.eq(Cat(swapped.d[:address_bits], swapped.subtract)), port.en.eq(pipeline.advance)]
        read = pipeline.stage(
            larger=swapped.larger,
            sign=swapped.sign,
            subtract=swapped.subtract,
            unchanged=(swapped.d >= reach) | swapped.either_zero,
            zero=(swapped.larger == 0) | (swapped.subtract & (swapped.d == 0)),
        )

        # 4. A block RAM is slow to its output: one register before anything is done with it.
        looked_up = pipeline.stage(
            gaussian=Mux(read.unchanged, 0, port.data), **_pick(read, "larger sign subtract zero")
        )

        # 5. Add to or subtract from the larger logarithm.
        field = Signal(signed(log_bits + 2))
        m.d.comb += field.eq(
            Mux(looked_up.subtract, looked_up.larger - looked_up.gaussian, looked_up.larger + looked_up.gaussian)
        )
        return pipeline.stage(field=field, **_pick(looked_up, "sign zero"))


def _pick(stage, names: str) -> dict[str, Signal]:
    return {name: getattr(stage, name) for name in names.split()}
