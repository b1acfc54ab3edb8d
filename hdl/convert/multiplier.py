"""Wide products from the multipliers that an FPGA has, of 18 bits, with a register behind each step."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Module, Signal, Value

from ..pipeline import Pipeline, carry

__all__ = ["Multiplier"]

_BITS = 18  # of an operand of the multipliers of the ECP5, and of most others


class Multiplier:
    """The product of two unsigned numbers, without its low bits.

    The operands are cut into pieces of 18 bits, from the top, so that the odd piece is the lowest. Products of low
    pieces that together cannot come up to one unit of the result are left out.

    Latency: one clock for the products of the pieces, and one for each doubling of their number. One result a clock.

    Parameters
    ----------
    a_bits, b_bits : int
        Of the operands.
    drop : int
        How many low bits of the product are cut off.

    Attributes
    ----------
    latency : int
    error : int
        The result is less than the product, in units of its last place, by less than this; 0 if it is exact.
    multipliers : int
        How many products of two pieces there are.
    """

    def __init__(self, a_bits: int, b_bits: int, drop: int = 0):
        self._bits = a_bits + b_bits - drop
        self._drop = drop
        pieces = [(i, j) for i in _pieces(a_bits) for j in _pieces(b_bits)]
        pieces.sort(key=lambda pair: pair[0].stop + pair[1].stop)
        left_out = 0
        while left_out + (1 << pieces[0][0].stop + pieces[0][1].stop) <= 1 << drop:
            left_out += 1 << pieces[0][0].stop + pieces[0][1].stop
            pieces.pop(0)
        self._pieces = pieces
        self.error = (drop > 0) + (left_out > 0)
        self.multipliers = len(pieces)
        self.latency = 1 + (len(pieces) - 1).bit_length()

    def stages(self, m: Module, pipeline: Pipeline, *, a: Value, b: Value, **along: Value) -> SimpleNamespace:
        """Add the stages; return ``product``, and those of `along`, by their names."""
        # Sums are of neighbours in the order of size: their low bits, which only one of them has, make no carry.
        low = min(i.start + j.start for i, j in self._pieces)
        terms = [(a[i] * b[j]) << (i.start + j.start - low) for i, j in self._pieces]
        stage = self._stage(pipeline, terms, along)
        while len(stage.terms) > 1:
            terms = stage.terms
            sums = [x + y for x, y in zip(terms[::2], terms[1::2], strict=False)] + terms[len(terms) & ~1 :]
            stage = self._stage(pipeline, sums, carry(stage, along))
        product = Signal(self._bits)
        (total,) = stage.terms
        m.d.comb += product.eq(total >> (self._drop - low) if self._drop > low else total << (low - self._drop))
        return SimpleNamespace(product=product, **carry(stage, along))

    def _stage(self, pipeline: Pipeline, terms: list[Value], along: dict[str, Value]) -> SimpleNamespace:
        names = [f"term_{i}" for i in range(len(terms))]
        stage = pipeline.stage(**dict(zip(names, terms, strict=True)), **along)
        return SimpleNamespace(terms=[getattr(stage, name) for name in names], **carry(stage, along))


def _pieces(bits: int) -> list[slice]:
    return [slice(max(0, stop - _BITS), stop) for stop in range(bits, 0, -_BITS)]
