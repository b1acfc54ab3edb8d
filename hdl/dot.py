"""Dot products of vectors of any length, a few products a clock."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from amaranth.hdl import Module, ShapeLike, unsigned
from amaranth.lib import data

from .layouts import FlagsLayout, WordLayout
from .pipeline import Pipeline
from .sums import SumUnit

__all__ = ["DotProduct"]


class DotProduct(SumUnit):
    """The sum of the products of two vectors, as the format's accumulator forms it.

    Vectors come in beats of `lanes` words each, in ``a`` and ``b``, and the last beat of a vector has ``last`` set.
    What is left of it is filled up with zeros. Vectors of different channels may be interleaved, in any order; a vector
    starts with the first beat of its channel after a reset or after the ``last`` one of another. A vector brings one
    result, with the flags of all that was done for it; results come in the order of the last beats.

    - With ``LogAccumulator("sequential")`` there are `lanes` adders behind each other and vectors of any length. The
      next beat of a vector is accepted once its running sum is back, after ``sums.spacing`` clocks; so many channels,
      or more, in turn bring a beat each clock, and by default there are.
    - With ``LogAccumulator("tree")``, `lanes` a power of two, there are ``lanes - 1`` adders, and one for each doubling
      of `beats`; and a beat each clock with one channel, the default. The sum of a vector of more than `beats` beats is
      zero, or NaN with specials, and invalid.
    - Guard bits widen terms and adders, and the sum is rounded at the end.
    - With a LinearAccumulator terms become fixed point and are added in a register that holds the sums of
      ``lanes * beats`` terms; more beats are invalid as above. A beat each clock with one channel, the default.

    Latency, from the last beat: that of the product, of the additions behind each other, and with guard bits 3 for the
    rounding; for a tree 2 for each doubling of `beats` and 1 at the end besides. In fixed point that of the product, of
    the antilogarithm, one clock for each 32 bits of the register, and that of its logarithm.

    Measured at lns16 on an ECP5-25k (Yosys 0.70, nextpnr 0.11.1, seed 1), no DSP, defaults but for lanes:

    ========================= ===== ======= ===== ========= ========== ===
    accumulator               lanes latency LUT4  registers block RAMs MHz
    ========================= ===== ======= ===== ========= ========== ===
    LogAccumulator()          1     11      316   457       1          186
    LogAccumulator()          4     35      1259  2573      4          135
    LogAccumulator("tree")    1     44      571   1517      4          159
    LogAccumulator("tree")    4     60      1057  2435      7          163
    LinearAccumulator()       1     33      5317  5568      9          86
    ========================= ===== ======= ===== ========= ========== ===

    Parameters
    ----------
    format : LNSFormat
    lanes : int
        1 to 256.
    channels : int, optional
        A power of two; by default as many as keep the unit busy.
    beats : int, optional
        The most beats of a vector, a power of two, where there is a limit: by default 16 in a tree, 1024 in fixed
        point. Additions in order have none, whatever it is.
    rom : {"block", "luts"}
        Where tables are kept.

    Raises
    ------
    TypeError, ValueError
        A parameter is not as above, or the format has no gates for its sums; the message says why.

    Examples
    --------
    >>> from hdl import DotProduct
    >>> from xlnstorch import lns16
    >>> unit = DotProduct(format=lns16, lanes=2)
    >>> len(unit.pack([0x4000, 0x4080, 0x4000], [0x4000, 0x4000, 0x4080], channel=3))
    2
    """

    name = "dot"
    operations = {"dot": lambda a, b: (a * b).sum(-1)}

    def operands(self) -> dict[str, ShapeLike]:
        words = data.ArrayLayout(WordLayout(self.format), self.lanes)
        return {"a": words, "b": words, "channel": self.channel_shape(), "last": unsigned(1)}

    def results(self) -> dict[str, ShapeLike]:
        return {"word": WordLayout(self.format), "flags": FlagsLayout(), "channel": self.channel_shape()}

    def pack(self, a: Sequence[int], b: Sequence[int], channel: int = 0) -> list[int]:
        """Return the payloads of a vector's beats.

        Parameters
        ----------
        a, b : sequence of int
            Words, as many of each, at least one.
        channel : int
        """
        beats = list(zip(self.split(a), self.split(b), strict=True))
        return [
            self.payload({"a": x, "b": y}, channel=channel, last=beat == len(beats))
            for beat, (x, y) in enumerate(beats, start=1)
        ]

    def datapath(self, m: Module, pipeline: Pipeline, operands: data.View) -> SimpleNamespace:
        pairs = [(operands.a[lane], operands.b[lane]) for lane in range(self.lanes)]
        results = self._sums.stages(m, pipeline, [pairs], channel=operands.channel, last=operands.last, when=1)
        m.d.comb += self._accept.eq(results.accept)
        total = results.sums[0]
        return SimpleNamespace(word=total.word, flags=total.flags, channel=results.channel, when=results.when)
