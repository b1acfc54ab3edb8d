"""Somebody else's Verilog unit as one of ours: two streams around an instance of it, for the same bench."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, ResetSignal, ShapeLike, Signal, Value
from amaranth.lib.fifo import SyncFIFO

import hdl
from hdl.layouts import FlagsLayout, WordLayout
from hdl.pipeline import Pipeline
from xlnstorch.formats import LNSFormat

from .expressions import Expression
from .port_map import Control, PortMap, Slice
from .sources import Port, Sources

__all__ = ["ForeignUnit"]


class ForeignUnit(hdl.Unit):
    """A module of Verilog files, with the streams of a unit around it.

    A module with valid and ready at both ends is connected straight through. One with a clock enable stands still while
    a result waits. Of any other, operands are only offered while the FIFO behind it has room for all results that are
    on their way, so that any stall is survived; the FIFO takes one clock more. Where the module does not tell which
    results are valid, that is counted from the latency that the map states.

    Parameters
    ----------
    format : LNSFormat
        Of all operands and the result.
    sources : Sources
    top : str
        The module.
    ports : PortMap
    expression : Expression
        What the result must equal, of operands that the map has, all of them.

    Attributes
    ----------
    name : str
        That of the module.
    sources : str
        The Verilog of the module.
    arguments : tuple of str
        What a command line needs to name this unit; empty where it cannot.

    Raises
    ------
    ValueError
        The files do not have the module, or the map does not fit it or the expression.
    """

    def __init__(self, *, format: LNSFormat, sources: Sources, top: str, ports: PortMap, expression: Expression):
        found = sources.ports(top, ports.parameters)
        ports.check(top, found)
        if unused := [name for name in ports.operands if name not in expression.names]:
            raise ValueError(
                f"the expression {expression.text!r} must have all operands of the map, but {unused[0]} is not in it; "
                "constants hold an input that does not matter"
            )
        self.name = top
        self.operations = {expression.operation: expression}
        self.sources = sources.text
        self.arguments: tuple[str, ...] = ()
        self._called = sources.name
        self._module_ports = found
        self._map = ports
        self._names = expression.names
        super().__init__(format=format)

    @classmethod
    def from_files(
        cls,
        files: Sequence[Path],
        *,
        top: str,
        ports: Path,
        golden: str,
        format: LNSFormat,
        include: Sequence[Path] = (),
        define: Mapping[str, str] | None = None,
    ) -> ForeignUnit:
        """Return the unit that a command line names.

        Parameters
        ----------
        files : sequence of Path
            Verilog.
        top : str
            The module.
        ports : Path
            The map of its ports, JSON.
        golden : str
            An :class:`~sim.expressions.Expression` of the operands in the map.
        format : LNSFormat
        include, define
            As for :class:`~sim.sources.Sources`.

        Raises
        ------
        TypeError, ValueError
            What cannot be read, or does not fit; the message names it and what was wanted.
        """
        cls.check_format(format)
        port_map = PortMap.read(ports, format)
        expression = Expression(golden, port_map.operands)
        sources = Sources(files, include=include, define=define)
        unit = cls(format=format, sources=sources, top=top, ports=port_map, expression=expression)
        words = [word for file in files for word in ("--dut", str(file))]
        words += [word for folder in include for word in ("--include", str(folder))]
        words += [word for name, value in (define or {}).items() for word in ("--define", f"{name}={value}")]
        unit.arguments = (*words, "--top", top, "--ports", str(ports), f"--golden={golden}")
        return unit

    @property
    def latency(self) -> int:
        return self._map.latency + self._buffered

    @property
    def steady(self) -> bool:
        return self._map.steady

    @property
    def _buffered(self) -> bool:
        """Whether results can wait in the FIFO only."""
        return self._map.enable is None and "out_ready" not in self._map.handshake

    def operands(self) -> dict[str, ShapeLike]:
        return {name: WordLayout(self.format) for name in self._names}

    def results(self) -> dict[str, ShapeLike]:
        flags = {"flags": FlagsLayout(self._map.flags)} if self._map.flags else {}
        return {"word": WordLayout(self.format), **flags}

    # The gates around it ---------------------------------------------------------------------------------------------

    def elaborate(self, platform) -> Module:
        m = Module()
        payload = Signal(self.o.payload.shape())
        if self._map.enable is not None:
            pipeline = Pipeline(m, self.i, self.o)
            for _ in range(self._map.latency):
                pipeline.stage()
            pipeline.finish(payload)
            outputs = self._add_instance(m, enable=pipeline.advance)
        elif self._buffered:
            outputs = self._add_buffered(m, payload)
        else:
            outputs = self._add_instance(m, in_valid=self.i.valid, out_ready=self.o.ready)
            m.d.comb += [
                self.i.ready.eq(outputs.in_ready),
                self.o.valid.eq(outputs.out_valid),
                self.o.payload.eq(payload),
            ]
        m.d.comb += payload.word.as_value().eq(Cat(outputs.read(part) for part in self._map.word))
        for name, part in self._map.flags.items():
            m.d.comb += payload.flags[name].eq(outputs.read(part))
        return m

    def _add_buffered(self, m: Module, payload: Value) -> SimpleNamespace:
        """Add the module with a FIFO for all results that may be on their way when the output begins to wait."""
        depth = self.latency + 1
        m.submodules.buffer = buffer = SyncFIFO(width=len(payload.as_value()), depth=depth)
        # Operands taken whose results were not.
        pending, room = Signal(range(depth + 1)), Signal()
        accepted, taken = Signal(), Signal()
        outputs = self._add_instance(m, in_valid=self.i.valid & room)
        m.d.comb += [
            room.eq(pending != depth),
            self.i.ready.eq(room & outputs.in_ready),
            accepted.eq(self.i.valid & self.i.ready),
            taken.eq(self.o.valid & self.o.ready),
        ]
        m.d.sync += pending.eq(pending + accepted - taken)
        valid = outputs.out_valid
        if valid is None:
            stages = Signal(self._map.latency)
            m.d.sync += stages.eq(Cat(accepted, stages))
            valid = Cat(accepted, stages)[self._map.latency]
        m.d.comb += [
            buffer.w_data.eq(payload),
            buffer.w_en.eq(valid),
            self.o.payload.eq(buffer.r_data),
            self.o.valid.eq(buffer.r_rdy),
            buffer.r_en.eq(self.o.ready),
        ]
        return outputs

    def _add_instance(self, m: Module, **driven: Value) -> SimpleNamespace:
        """Add the module; return what it drives: ``in_ready``, ``out_valid`` if it has it, and how to read a slice."""
        known = self._map
        inputs: dict[str, Value] = {name: Signal(port.width, name=f"dut_{name}") for name, port in self._ports("input")}
        outputs = {name: Signal(port.width, name=f"dut_{name}") for name, port in self._ports("output")}
        for name, value in known.constants.items():
            m.d.comb += inputs[name].eq(value)
        for operand, parts in known.operands.items():
            bits, place = self.i.payload[operand].as_value(), 0
            for part in parts:
                m.d.comb += inputs[part.port][part.offset : part.offset + part.width].eq(
                    bits[place : place + part.width]
                )
                place += part.width
        if known.clock is not None:
            inputs[known.clock] = ClockSignal()
        if known.reset is not None:
            m.d.comb += _drive(inputs, known.reset, ResetSignal())
        if known.enable is not None:
            m.d.comb += _drive(inputs, known.enable, driven["enable"])
        for what in ("in_valid", "out_ready"):
            if what in known.handshake:
                m.d.comb += inputs[known.handshake[what]].eq(driven[what])
        called = self._called
        m.submodules.dut = Instance(
            called(self.name),
            **{f"p_{called(name)}": value for name, value in known.parameters.items()},
            **{f"i_{called(name)}": signal for name, signal in inputs.items()},
            **{f"o_{called(name)}": signal for name, signal in outputs.items()},
        )

        def read(part: Slice) -> Value:
            return outputs[part.port][part.offset : part.offset + part.width]

        return SimpleNamespace(
            read=read,
            in_ready=outputs[known.handshake["in_ready"]] if "in_ready" in known.handshake else Const(1),
            out_valid=outputs[known.handshake["out_valid"]] if known.handshake else None,
        )

    def _ports(self, direction: str) -> list[tuple[str, Port]]:
        return [(name, port) for name, port in self._module_ports.items() if port.direction == direction]


def _drive(inputs: Mapping[str, Signal], control: Control, value: Value):
    return inputs[control.port].eq(~value if control.active_low else value)
