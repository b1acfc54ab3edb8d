"""A unit behind the registers of an AXI4-Lite interface, with FIFOs for operands and results."""

from __future__ import annotations

import functools
import operator
from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from xlnstorch.observe import FLAGS

from ..unit import Unit
from .clocking import AXI_CLOCKING, on_axi_clock
from .registers import INTERRUPTS, RegisterMap
from .slice import RegisterSlice

__all__ = ["AxiLite"]

_OKAY, _SLVERR = 0, 2


class AxiLite(wiring.Component):
    """A unit as a memory-mapped peripheral: write operands, push, read the result.

    Operands are written to registers and stay there; a write to ``PUSH`` sends a copy of them to the operand FIFO, from
    which the unit takes one payload a clock. Results wait in the result FIFO; reading the first result register takes
    one out, and the other result registers then show the rest of the same result. Nothing is lost where nobody
    reads: the unit waits. The registers are in :class:`~hdl.bus.registers.RegisterMap` and, as a table, in
    ``docs/buses.md``.

    Answers SLVERR, and changes nothing else, to an address without a register, a write to a read-only and a read of a
    write-only register, a ``PUSH`` while the operand FIFO is full, and a read of a result while there is none; the last
    two are kept in ``ERRORS``. The lowest two bits of an address are ignored, since AXI lets the address of a narrow
    transfer point at a byte; write strobes say which bytes are written.

    Address and data of a write may come in any order. Reads and writes run at the same time, each at up to one a clock,
    with the response two clocks after the request; all outputs are registers.

    Parameters
    ----------
    unit : Unit
        Not to be used elsewhere.
    depth : int
        Payloads that each FIFO holds, 2 to 65535.

    Members
    -------
    aclk, aresetn : ``In(1)``
        Clock, and reset: active low, synchronous. A reset clears everything.
    s_axi_aw*, s_axi_w*, s_axi_b*, s_axi_ar*, s_axi_r*
        AXI4-Lite, 32 bits; the protection bits are ignored.
    irq : ``Out(1)``
        Whether an enabled bit of ``IRQ_STATUS`` is set.

    Raises
    ------
    TypeError, ValueError
        `unit` is not a Unit, or `depth` is not an integer in its range.
    """

    bus = "axi-lite"

    def __init__(self, unit: Unit, *, depth: int = 16):
        if not isinstance(unit, Unit):
            raise TypeError(f"unit must be a Unit such as Multiply(format=lns16), not {unit!r}")
        if isinstance(depth, bool) or not isinstance(depth, int):
            raise TypeError(f"depth must be an integer, not {depth!r}")
        if not 2 <= depth <= 65535:
            raise ValueError(f"depth must be between 2 and 65535, not {depth}")
        self.unit = unit
        self.depth = depth
        #: The registers.
        self.map = RegisterMap(unit, depth)
        address_bits = self.map.address_bits
        super().__init__(
            AXI_CLOCKING
            | {
                "s_axi_awaddr": In(address_bits),
                "s_axi_awprot": In(3),
                "s_axi_awvalid": In(1),
                "s_axi_awready": Out(1),
                "s_axi_wdata": In(32),
                "s_axi_wstrb": In(4),
                "s_axi_wvalid": In(1),
                "s_axi_wready": Out(1),
                "s_axi_bresp": Out(2),
                "s_axi_bvalid": Out(1),
                "s_axi_bready": In(1),
                "s_axi_araddr": In(address_bits),
                "s_axi_arprot": In(3),
                "s_axi_arvalid": In(1),
                "s_axi_arready": Out(1),
                "s_axi_rdata": Out(32),
                "s_axi_rresp": Out(2),
                "s_axi_rvalid": Out(1),
                "s_axi_rready": In(1),
                "irq": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        registers = self.map.registers
        clear = Signal()
        core = self._core(m, clear)
        write, read = self._write_channels(m), self._read_channels(m)
        written = {name: Signal(name=f"write_{name.lower()}") for name in registers if registers[name].writable}
        m.d.comb += [
            written[name].eq(write.enable & (write.address == registers[name].offset >> 2)) for name in written
        ]

        # Operands.
        stored = {name: self.map.storage(name) for name in (*self.map.operands, "IRQ_ENABLE")}
        for name, storage in stored.items():
            with m.If(written[name]):
                m.d.sync += storage.eq((storage & ~write.mask) | (write.data & write.mask))
        push = written["PUSH"] & write.strobes[0]
        m.d.comb += [
            core.operands.w_data.eq(Cat(stored[name] for name in self.map.operands)),
            core.operands.w_en.eq(push & ~core.operands_full),
        ]
        m.d.comb += clear.eq(written["CONTROL"] & write.strobes[0] & write.data[0])

        # Results.
        first, *others = self.map.results
        empty = ~core.results.r_rdy
        pop = read.enable & (read.address == registers[first].offset >> 2)
        taken = Signal(core.results.r_data.shape(), reset_less=True)  # that whose first register was read last
        m.d.comb += core.results.r_en.eq(pop)
        with m.If(pop & ~empty):
            m.d.sync += taken.eq(core.results.r_data)

        # What is kept until it is cleared: a bit that is set in the clock in which it is cleared stays set.
        errors = self._sticky(m, "errors", Cat(push & core.operands_full, pop & empty), written["ERRORS"], write)
        flags = self._sticky(m, "flags", core.flags, written["FLAGS"], write)
        reasons = Signal(len(INTERRUPTS))
        m.d.comb += reasons.eq(Cat(~empty, core.operands_empty, flags.any(), errors.any()))
        m.d.sync += self.irq.eq((reasons & stored["IRQ_ENABLE"]).any())

        # Responses.
        m.d.comb += write.error.eq(~Cat(written.values()).any() | (push & core.operands_full))
        sources = {
            "STATUS": Cat(core.operands_empty, core.operands_full, empty, core.results_full),
            "LEVELS": Cat(_sized(core.operands.level, 16), core.results.level),
            "FLAGS": flags,
            "ERRORS": errors,
            "IRQ_STATUS": reasons,
            **stored,
            first: self.map.part(first, core.results.r_data),
            **{name: self.map.part(name, taken) for name in others},
        }
        with m.Switch(read.address):
            for register in registers.values():
                if register.readable:
                    with m.Case(register.offset >> 2):
                        source = sources[register.name] if register.constant is None else register.constant
                        refused = empty if register.name == first else 0
                        m.d.comb += [read.data.eq(Mux(refused, 0, source)), read.error.eq(refused)]
            with m.Default():
                m.d.comb += read.error.eq(1)
        return on_axi_clock(m, self.aclk, self.aresetn)

    def _core(self, m: Module, clear: Value) -> SimpleNamespace:
        """Add the unit between its FIFOs, all of them emptied by `clear`."""
        inner = Module()
        unit = inner.submodules.unit = self.unit
        # One more than is let in, since the FIFO refuses early while its output register is still being filled.
        operands = inner.submodules.operands = SyncFIFOBuffered(width=unit.i.payload.shape().size, depth=self.depth + 1)
        results = inner.submodules.results = SyncFIFOBuffered(width=unit.o.payload.shape().size, depth=self.depth + 1)
        operands_empty, operands_full, results_full = Signal(), Signal(), Signal()
        arrives = unit.o.valid & ~results_full
        inner.d.comb += [
            operands_empty.eq(operands.level == 0),
            operands_full.eq(operands.level >= self.depth),
            results_full.eq(results.level >= self.depth),
            unit.i.payload.as_value().eq(operands.r_data),
            unit.i.valid.eq(operands.r_rdy),
            operands.r_en.eq(unit.i.ready),
            results.w_data.eq(unit.o.payload.as_value()),
            results.w_en.eq(arrives),
            unit.o.ready.eq(~results_full),
        ]
        m.submodules.core = ResetInserter(clear)(inner)
        flags = Signal(len(FLAGS))
        if "flags" in unit.o.payload.shape().members:
            every = unit.o.payload.flags.as_value()  # of a result, or of each row of one
            groups = (every[start : start + len(FLAGS)] for start in range(0, len(every), len(FLAGS)))
            m.d.comb += flags.eq(Mux(arrives & ~clear, functools.reduce(operator.or_, groups), 0))
        return SimpleNamespace(
            operands=operands,
            operands_empty=operands_empty,
            operands_full=operands_full,
            results=results,
            results_full=results_full,
            flags=flags,
        )

    def _write_channels(self, m: Module) -> SimpleNamespace:
        """Add the write channels; `enable` is set in the clock in which a write is done, with its `error`."""
        m.submodules.aw = aw = RegisterSlice(len(self.s_axi_awaddr) - 2)
        m.submodules.w = w = RegisterSlice(data.StructLayout({"data": 32, "strobes": 4}))
        m.submodules.b = b = RegisterSlice(2)
        enable, error = Signal(name="write_enable"), Signal(name="write_error")
        m.d.comb += [
            aw.i.payload.eq(self.s_axi_awaddr[2:]),
            aw.i.valid.eq(self.s_axi_awvalid),
            self.s_axi_awready.eq(aw.i.ready),
            w.i.payload.data.eq(self.s_axi_wdata),
            w.i.payload.strobes.eq(self.s_axi_wstrb),
            w.i.valid.eq(self.s_axi_wvalid),
            self.s_axi_wready.eq(w.i.ready),
            self.s_axi_bresp.eq(b.o.payload),
            self.s_axi_bvalid.eq(b.o.valid),
            b.o.ready.eq(self.s_axi_bready),
            enable.eq(aw.o.valid & w.o.valid & b.i.ready),
            aw.o.ready.eq(enable),
            w.o.ready.eq(enable),
            b.i.valid.eq(enable),
            b.i.payload.eq(Mux(error, _SLVERR, _OKAY)),
        ]
        strobes = w.o.payload.strobes
        mask = Cat(strobe.replicate(8) for strobe in strobes)
        return SimpleNamespace(
            address=aw.o.payload, data=w.o.payload.data, strobes=strobes, mask=mask, enable=enable, error=error
        )

    def _read_channels(self, m: Module) -> SimpleNamespace:
        """Add the read channels; `enable` is set in the clock in which a read is done, with its `data` and `error`."""
        m.submodules.ar = ar = RegisterSlice(len(self.s_axi_araddr) - 2)
        m.submodules.r = r = RegisterSlice(data.StructLayout({"data": 32, "response": 2}))
        enable, error, bits = Signal(name="read_enable"), Signal(name="read_error"), Signal(32, name="read_data")
        m.d.comb += [
            ar.i.payload.eq(self.s_axi_araddr[2:]),
            ar.i.valid.eq(self.s_axi_arvalid),
            self.s_axi_arready.eq(ar.i.ready),
            self.s_axi_rdata.eq(r.o.payload.data),
            self.s_axi_rresp.eq(r.o.payload.response),
            self.s_axi_rvalid.eq(r.o.valid),
            r.o.ready.eq(self.s_axi_rready),
            enable.eq(ar.o.valid & r.i.ready),
            ar.o.ready.eq(enable),
            r.i.valid.eq(enable),
            r.i.payload.data.eq(bits),
            r.i.payload.response.eq(Mux(error, _SLVERR, _OKAY)),
        ]
        return SimpleNamespace(address=ar.o.payload, data=bits, enable=enable, error=error)

    def _sticky(self, m: Module, name: str, set: Value, written: Value, write: SimpleNamespace) -> Signal:
        """Return a register whose bits stay set until they are written as ones."""
        register = Signal(len(set), name=name)
        m.d.sync += register.eq((register & ~Mux(written, write.data & write.mask, 0)) | set)
        return register


def _sized(value: Value, width: int) -> Value:
    """Return the lowest bits of a value, with zeros above it where it has fewer."""
    return Cat(value, Const(0, width))[:width]
