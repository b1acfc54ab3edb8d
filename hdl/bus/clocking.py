"""The clock and the reset of AXI: ``aclk``, and ``aresetn``, active low and synchronous."""

from __future__ import annotations

from amaranth.hdl import ClockDomain, Module, Value
from amaranth.lib.wiring import In

__all__ = ["AXI_CLOCKING", "add_axi_clocking"]

#: The members that a component with AXI ports begins with.
AXI_CLOCKING = {"aclk": In(1), "aresetn": In(1)}


def add_axi_clocking(m: Module, aclk: Value, aresetn: Value) -> None:
    """Make the domain ``sync`` of a module, and of what is in it, run on the clock and reset of AXI."""
    domain = ClockDomain("sync", local=True)
    domain.clk = aclk
    m.domains += domain
    m.d.comb += domain.rst.eq(~aresetn)
