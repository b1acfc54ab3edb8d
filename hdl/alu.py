# amaranth: UnusedElaboratable=no
"""The arithmetic-logic unit: every operation on words behind one opcode."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch
from amaranth.hdl import Cat, Const, Module, Mux, Shape, ShapeLike, Signal, Value, unsigned
from amaranth.lib import data
from amaranth.utils import ceil_log2

from xlnstorch.formats import LNSFormat

from .add import AddSubtract
from .compare import Compare
from .convert import FromFixed, FromFloat, ToFixed, ToFloat
from .layouts import PADDING, FlagsLayout, WordLayout
from .minmax import MinMax
from .pipeline import Pipeline
from .product import Product
from .relu import Relu
from .signs import Signs
from .sqrt import SquareRoot
from .unit import Unit

__all__ = ["ALU", "OperandLayout"]


class OperandLayout(WordLayout):
    """A word in the low bits of a field that also holds what is no word; as a tensor, the bits in int64."""

    meaning = "what the operation takes, in the low bits"

    def __init__(self, format: LNSFormat, width: int):
        super().__init__(format)
        word = {name: field.shape for name, field in self}
        data.StructLayout.__init__(self, {**word, PADDING: unsigned(width - format.width)})

    def tensor(self, integers: np.ndarray) -> torch.Tensor:
        """Return the bits."""
        return torch.from_numpy(integers)

    def integers(self, tensor: torch.Tensor) -> np.ndarray:
        """Return the bits."""
        return tensor.numpy()


class ALU(Unit):
    """All elementwise operations behind one opcode: whatever they are, results come in order, one a clock.

    The opcode ``op`` is the index of the operation in :attr:`operations`. An operation takes the first of ``a``, ``b``
    and ``c``, in their low bits, and ignores the rest; ``mac`` is ``c + a * b``. The result is in the low bits of
    ``result``, and zeros are above it: a word; of ``compare`` the bits less, equal, greater and unordered, the lowest
    first; of ``to_float32`` and its like, a float or a fixed-point number. An opcode beyond the last gives zero and
    raises invalid.

    Sums and products have one data path, ``a * b + c``: products add zero, which changes no word, and sums multiply by
    one. A multiplication, a division and a square share an adder of logarithms (:class:`~hdl.product.Product`). Words
    that are there when a product is go through the addition too instead of waiting in registers of their own.

    Latency 2 clocks and that of the slowest, which is a conversion, or a product, one clock and an addition; the same
    for all operations. One result a clock. Flags: all. Base-2 formats whose adder has gates, with at most 24
    fraction bits.

    Measured with registers at the inputs (``fpga.flow``; Yosys 0.70, nextpnr 0.11.1, median of 5 seeds), lns16 with the
    exact adder, latency 14: on an ECP5-25k 423 LUT4, 726 registers, a block RAM and 161 MHz without conversions, 1149
    LUT4, 1674 registers, 5 block RAMs and 124 MHz with the default ones; on an iCE40 HX8K 426, 744, 5 and 145, and
    1116, 1753, 11 and 116. lns32 with ``Piecewise(2, singularity="logarithm")`` without conversions, latency 25, seed 1
    and no registers in front: on an ECP5-25k 1199 LUT4, 2916 registers, 5 block RAMs, 5 DSP and 136 MHz; on an iCE40
    HX8K 3667 LUT4, 3050 registers, 14 block RAMs and 71 MHz.

    Parameters
    ----------
    format : LNSFormat
    rom : {"block", "luts"}
        Where tables are kept: in block RAM, or in lookup tables.
    converters : tuple of str
        From and to which numbers there are conversions, ``from_float32``, ``to_float32`` and so on: any of
        ``float16``, ``bfloat16``, ``float32``, and ``fixed``, a fixed-point number as ``from_fixed`` has by default.

    Raises
    ------
    TypeError, ValueError
        A parameter is not as above, or the format cannot have these gates; the message says why.
    """

    name = "alu"

    def __init__(self, *, format: LNSFormat, rom: str = "block", converters: tuple[str, ...] = ("float32", "fixed")):
        self.check_format(format)
        self._converters = _check_converters(converters)
        self._adder = AddSubtract(format=format, rom=rom)
        self._product = _Member.of(Product(format=format))
        self._others = [_Member.of(unit(format=format)) for unit in (SquareRoot, Signs, MinMax, Relu, Compare)]
        for kind in self._converters:
            parameters = {"format": format, "rom": rom, **_CONVERTERS[kind][2]}
            for direction, unit in zip(("from", "to"), _CONVERTERS[kind][:2], strict=True):
                self._others.append(_Member(f"{direction}_{kind}", unit(**parameters), [f"{direction}_{kind}"]))
        super().__init__(format=format)

    @property
    def converters(self) -> tuple[str, ...]:
        """From and to which numbers there are conversions."""
        return self._converters

    @classmethod
    def check_format(cls, format: LNSFormat) -> None:
        super().check_format(format)
        AddSubtract.check_format(format)
        FromFloat.check_format(format)

    @property
    def operations(self) -> dict[str, Callable]:
        adder = _Member.of(self._adder)
        table = {name: golden for member in (adder, self._product) for name, golden in member.golden().items()}
        table["mac"] = _golden(self._product.unit, lambda a, b, c: c + a * b, operands=3)
        for member in self._others:
            table |= member.golden()
        return table

    @property
    def latency(self) -> int:
        waiting = [member.unit.latency for member in self._others if not self._is_added(member.unit)]
        return 2 + max(self._product.unit.latency + 1 + self._adder.latency, *waiting)

    def operands(self) -> dict[str, ShapeLike]:
        word = WordLayout(self.format)
        width = max(_width([_first(member.unit)]) for member in (self._product, *self._others))
        return {"a": OperandLayout(self.format, width), "b": word, "c": word}

    def results(self) -> dict[str, ShapeLike]:
        width = max(_width(_values(member.unit).values()) for member in (self._product, *self._others))
        return {"result": unsigned(width), "flags": FlagsLayout()}

    def operands_of(self, operation: str) -> dict[str, ShapeLike]:
        if operation == "mac":
            return dict.fromkeys("abc", WordLayout(self.format))
        unit, inside = self._who(operation)
        return dict(zip("abc", unit.operands_of(inside).values(), strict=False))

    def results_of(self, operation: str) -> dict[str, ShapeLike]:
        values = _values(self._adder if operation == "mac" else self._who(operation)[0])
        above = _width([self.results()["result"]]) - _width(values.values())
        return {**values, **({PADDING: unsigned(above)} if above else {}), "flags": FlagsLayout()}

    def _who(self, operation: str) -> tuple[Unit, str]:
        """Return the unit inside that has an operation, and what it is called there."""
        for member in (_Member.of(self._adder), self._product, *self._others):
            if operation in member.operations:
                return member.unit, list(member.unit.operations)[member.operations.index(operation)]
        raise KeyError(operation)

    def _is_added(self, unit: Unit) -> bool:
        """Whether a unit's result goes through the addition: a word that is there no later than a product."""
        return list(unit.results()) == ["word", "flags"] and unit.latency <= self._product.unit.latency

    def datapath(self, m: Module, pipeline: Pipeline, operands: data.View) -> SimpleNamespace:
        word = WordLayout(self.format)
        codes = {name: operands.op == code for code, name in enumerate(self.operations)}
        is_sum = codes["add"] | codes["sub"]
        members = (self._product, *self._others)

        # 1. Decode. All units see the factor of the product as b: it is another only in sums, which none of them makes.
        factor, addend, illegal = Signal(word), Signal(word), Signal(FlagsLayout())
        m.d.comb += [
            factor.eq(Mux(is_sum, self.format.bias, operands.b)),
            addend.eq(Mux(is_sum, operands.b, Mux(codes["mac"], operands.c, 0))),
            illegal.invalid.eq(operands.op >= len(codes)),
        ]
        wanted = {member.name: _any(codes[name] for name in member.operations) for member in members}
        wanted["product"] |= is_sum | codes["mac"]
        control = {f"op_{member.name}": _index([codes[name] for name in member.operations]) for member in members}
        control |= {f"wanted_{name}": value for name, value in wanted.items()}
        decoded = pipeline.stage(
            a=operands.a, b=factor, addend=addend, subtract=codes["sub"], illegal=illegal.as_value(), **control
        )

        # 2. The units beside each other. What is not wanted is zero.
        added, waiting = [], [_Entry(0, Const(0, 0), decoded.illegal)]
        for name, unit, _ in members:
            m.submodules[name] = inside = Module()
            given = zip(unit.operands().items(), (decoded.a, decoded.b), strict=False)
            given = SimpleNamespace(**{operand: _view(shape, bits) for (operand, shape), bits in given})
            given.op = getattr(decoded, f"op_{name}")
            results = unit.datapath(inside, pipeline.branch(inside), given)
            gate = pipeline.branch(inside).delay(unit.latency, wanted=getattr(decoded, f"wanted_{name}")).wanted
            bits = Cat(getattr(results, value) for value in _values(unit))
            flags = Value.cast(getattr(results, "flags", Const(0, 0)))
            entry = _Entry(unit.latency, bits & gate.replicate(len(bits)), flags & gate.replicate(len(flags)))
            (added if self._is_added(unit) else waiting).append(entry)

        # 3. The addition: to a product, or to what passes.
        m.submodules.sum = inside = Module()
        branch = pipeline.branch(inside)
        first = _gather(branch, added)
        second = pipeline.branch(inside).delay(branch.depth, addend=decoded.addend, subtract=decoded.subtract)
        earlier = pipeline.branch(inside).delay(self._adder.latency, flags=first.flags)
        terms = SimpleNamespace(a=_view(word, first.bits), b=second.addend, op=second.subtract)
        total = self._adder.datapath(inside, branch, terms)
        waiting.append(_Entry(branch.depth, Value.cast(total.word), Value.cast(total.flags) | earlier.flags))

        # 4. The end, together with what did not go through the addition.
        end = _gather(pipeline, waiting)
        return SimpleNamespace(result=end.bits, flags=_view(FlagsLayout(), end.flags))


#: From a kind of number, to it, and the parameters of both.
_CONVERTERS: dict[str, tuple[type[Unit], type[Unit], dict]] = {
    "float16": (FromFloat, ToFloat, {"dtype": torch.float16}),
    "bfloat16": (FromFloat, ToFloat, {"dtype": torch.bfloat16}),
    "float32": (FromFloat, ToFloat, {"dtype": torch.float32}),
    "fixed": (FromFixed, ToFixed, {}),
}


def _check_converters(converters: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(converters, tuple | list):
        raise TypeError(f"converters must be a tuple of names such as ('float32', 'fixed'), not {converters!r}")
    for kind in converters:
        if not isinstance(kind, str) or kind not in _CONVERTERS:
            raise ValueError(f"converters must be among {', '.join(_CONVERTERS)}, not {kind!r}")
    if len(set(converters)) < len(converters):
        raise ValueError(f"converters must be different, not {', '.join(converters)}")
    return tuple(converters)


class _Member(NamedTuple):
    """A unit in the ALU, its name there, and those of its operations."""

    name: str
    unit: Unit
    operations: list[str]

    @classmethod
    def of(cls, unit: Unit) -> _Member:
        """Return a unit under the names that it has itself."""
        return cls(unit.name, unit, list(unit.operations))

    def golden(self) -> dict[str, Callable]:
        """Return the operations as those of the ALU."""
        functions = zip(self.operations, self.unit.operations.values(), strict=True)
        return {name: _golden(self.unit, function, len(self.unit.operands())) for name, function in functions}


class _Entry(NamedTuple):
    """A result that is there after so many stages; it must be zero where another is wanted."""

    after: int
    bits: Value
    flags: Value


def _gather(pipeline: Pipeline, entries: list[_Entry]) -> SimpleNamespace:
    """Add the stages on which results of several latencies travel to the end of the longest, and one stage more.

    They share registers, which each enters as soon as it is there.
    """
    line = SimpleNamespace(bits=Const(0, 0), flags=Const(0, 0))
    for depth in range(1 + max(entry.after for entry in entries)):
        here = [line, *(entry for entry in entries if entry.after == depth)]
        line = pipeline.stage(bits=_any(each.bits for each in here), flags=_any(each.flags for each in here))
    return line


def _any(values: Iterable[Value]) -> Value:
    return functools.reduce(operator.or_, values)


def _index(conditions: list[Value]) -> Value:
    """Return the index of the one that is set, 0 if none is."""
    bits = range(ceil_log2(len(conditions)))
    return Cat(_any(each for index, each in enumerate(conditions) if index >> bit & 1) for bit in bits)


def _first(unit: Unit) -> ShapeLike:
    return next(iter(unit.operands().values()))


def _values(unit: Unit) -> dict[str, ShapeLike]:
    """Return the results of a unit but for the flags."""
    return {name: shape for name, shape in unit.results().items() if name != "flags"}


def _width(shapes: Iterable[ShapeLike]) -> int:
    return sum(Shape.cast(shape).width for shape in shapes)


def _view(shape: ShapeLike, bits: Value | data.View) -> Value | data.View:
    """Return the low ones of some bits as what they are."""
    low = Value.cast(bits)[: _width([shape])]
    return shape(low) if isinstance(shape, data.Layout) else low


def _golden(unit: Unit, function: Callable, operands: int) -> Callable:
    """Return a function of so many operands, which gives a unit's results, on the operands and results of the ALU."""
    first, shapes = _first(unit), _values(unit)

    def evaluate(a: torch.Tensor, *words: torch.Tensor) -> torch.Tensor | dict:
        low = (a & ((1 << _width([first])) - 1)).numpy()
        values = function(first.tensor(low), *words[: operands - 1])
        if not isinstance(values, dict):
            values = {next(iter(shapes)): values}
        bits, offset = 0, 0
        for name, shape in shapes.items():
            plain = values[name].to(torch.int64).numpy() if shape == unsigned(1) else shape.integers(values[name])
            bits, offset = bits | plain << offset, offset + _width([shape])
        result = torch.from_numpy(bits)
        return {"result": result, "flags": values["flags"]} if "flags" in values else result

    return evaluate
