"""Products of a matrix that stays and vectors that pass: a tile of rows and columns."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from amaranth.hdl import Module, ShapeLike, Signal, unsigned
from amaranth.lib import data
from amaranth.lib.memory import Memory

from xlnstorch.checks import as_integer, integer_between
from xlnstorch.formats import LNSFormat

from .layouts import FlagsLayout, WordLayout
from .pipeline import Pipeline
from .sums import SumUnit
from .sums.datapath import power_of_two_between

__all__ = ["MatrixVector"]

_MAX_ROWS, _MAX_TILES = 256, 1 << 12


class MatrixVector(SumUnit):
    """The products of a matrix of weights, which the unit holds, and vectors: the sums of all rows at once.

    A row of weights is in tiles of `lanes` columns. The operation ``load`` replaces one tile of one row by the words in
    ``x``, and brings no result. ``multiply`` is a beat of a vector: ``x``, times that tile of every row. The beats of a
    vector belong to a channel and are added as :class:`~hdl.DotProduct` does it, in the order in which they are sent,
    until one has ``last`` set; it brings the sums of all rows, each with the flags of all that was done for it. A load
    changes what is sent after it and nothing before it. Weights are zero at first, and stay when the unit is reset.
    Where a vector has fewer words than the beats have room for, it is filled up with zeros. What is loaded into a row
    that is not there is lost.

    Latency that of the dot product and 2 clocks for the weights; one payload a clock, under the same conditions.

    Measured at lns16 with 4 rows, a lane and 16 columns on an ECP5-25k (Yosys 0.70, nextpnr 0.11.1, seed 1): 813 LUT4,
    1671 registers, 4 block RAMs and 159 MHz, no DSP.

    Parameters
    ----------
    format : LNSFormat
    rows : int
        1 to 256.
    lanes : int
        Columns in a beat, 1 to 256; with ``LogAccumulator("tree")`` a power of two.
    columns : int, optional
        `lanes`, times a power of two; by default `lanes`. A tree and a register are made for vectors of that length.
    channels : int, optional
        A power of two; by default as many as keep the unit busy.
    rom : {"block", "luts"}
        Where tables are kept.

    Raises
    ------
    TypeError, ValueError
        A parameter is not as above, or the format has no gates for its sums; the message says why.

    Examples
    --------
    >>> from hdl import MatrixVector
    >>> from xlnstorch import lns16
    >>> unit = MatrixVector(format=lns16, rows=2, lanes=2, columns=4)
    >>> len(unit.pack_weights([[0x4000, 0x4080, 0, 0x4000], [0x4000] * 4])), len(unit.pack([0x4000] * 4, channel=3))
    (4, 2)
    """

    name = "matvec"
    operations = {
        "multiply": lambda weights, x: (weights * x.unsqueeze(-2)).sum(-1),
        "load": lambda weights, x: None,
    }
    lead = 2  # a read of the weights, and a register behind it

    def __init__(
        self,
        *,
        format: LNSFormat,
        rows: int = 4,
        lanes: int = 4,
        columns: int | None = None,
        channels: int | None = None,
        rom: str = "block",
    ):
        self._rows = integer_between("rows", rows, 1, _MAX_ROWS)
        lanes = integer_between("lanes", lanes, 1, 256)
        columns = lanes if columns is None else as_integer("columns", columns)
        tiles, rest = divmod(columns, lanes)
        if rest:
            raise ValueError(f"columns must be a multiple of the {lanes} lanes, not {columns}")
        self._tiles = power_of_two_between("columns / lanes", tiles, _MAX_TILES)
        super().__init__(format=format, lanes=lanes, channels=channels, beats=self._tiles, rom=rom)

    @property
    def rows(self) -> int:
        """Rows of the matrix."""
        return self._rows

    @property
    def columns(self) -> int:
        """Columns of the matrix."""
        return self.lanes * self._tiles

    @property
    def tiles(self) -> int:
        """How many times `lanes` columns it has."""
        return self._tiles

    def operands(self) -> dict[str, ShapeLike]:
        return {
            "x": data.ArrayLayout(WordLayout(self.format), self.lanes),
            "tile": unsigned((self._tiles - 1).bit_length()),
            "row": unsigned((self._rows - 1).bit_length()),
            "channel": self.channel_shape(),
            "last": unsigned(1),
        }

    def results(self) -> dict[str, ShapeLike]:
        return {
            "word": data.ArrayLayout(WordLayout(self.format), self._rows),
            "flags": data.ArrayLayout(FlagsLayout(), self._rows),
            "channel": self.channel_shape(),
        }

    def pack_weights(self, weights: Sequence[Sequence[int]]) -> list[int]:
        """Return the payloads that load a matrix, for each row of words `lanes` at a time."""
        load = list(self.operations).index("load")
        return [
            self.payload({"x": words}, op=load, tile=tile, row=row)
            for row, all_words in enumerate(weights)
            for tile, words in enumerate(self.split(all_words))
        ]

    def pack(self, x: Sequence[int], channel: int = 0) -> list[int]:
        """Return the payloads of the beats of a vector of words, at least one."""
        multiply, parts = list(self.operations).index("multiply"), self.split(x)
        return [
            self.payload({"x": words}, op=multiply, tile=tile, channel=channel, last=tile == len(parts) - 1)
            for tile, words in enumerate(parts)
        ]

    def datapath(self, m: Module, pipeline: Pipeline, operands: data.View) -> SimpleNamespace:
        load = operands.op
        multiply = ~load
        row_layout = operands.x.shape()
        m.submodules.weights = memory = Memory(
            shape=data.ArrayLayout(row_layout, self._rows), depth=self._tiles, init=[]
        )
        read, write = memory.read_port(), memory.write_port(granularity=1)
        loaded = pipeline.advance & pipeline.valid & load
        m.d.comb += [
            read.addr.eq(operands.tile),
            read.en.eq(pipeline.advance),
            write.addr.eq(operands.tile),
        ]
        for row in range(self._rows):
            m.d.comb += [write.data[row].eq(operands.x), write.en[row].eq(loaded & (operands.row == row))]
        branch = pipeline.branch()
        stage = branch.stage(x=operands.x)
        stage = branch.stage(x=stage.x, weights=read.data)
        rows = [[(stage.weights[row][lane], stage.x[lane]) for lane in range(self.lanes)] for row in range(self._rows)]
        results = self._sums.stages(m, pipeline, rows, channel=operands.channel, last=operands.last, when=multiply)
        m.d.comb += self._accept.eq(results.accept | load)
        payload = data.StructLayout(self.results())
        words, flags = Signal(payload["word"].shape), Signal(payload["flags"].shape)
        for row in range(self._rows):
            m.d.comb += [words[row].eq(results.sums[row].word), flags[row].eq(results.sums[row].flags)]
        return SimpleNamespace(word=words, flags=flags, channel=results.channel, when=results.when)
