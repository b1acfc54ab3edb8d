"""The clock and the reset of AXI: ``aclk``, and ``aresetn``, active low and synchronous."""

from __future__ import annotations

from amaranth.hdl import ClockDomain, DomainRenamer, Module, Value
from amaranth.lib.wiring import In

__all__ = ["AXI_CLOCKING", "on_axi_clock"]

#: The members that a component with AXI ports begins with.
AXI_CLOCKING = {"aclk": In(1), "aresetn": In(1)}

# Not sync: Amaranth has no local domain of a name that a design around it uses too (amaranth-lang/amaranth#536).
_DOMAIN = "lns_axi"


def on_axi_clock(inner: Module, aclk: Value, aresetn: Value) -> Module:
    """Return a module with `inner` in it, of which the domain ``sync`` runs on the clock and reset of AXI."""
    m = Module()
    m.domains += (domain := ClockDomain(_DOMAIN, local=True))
    domain.clk = aclk
    m.d.comb += domain.rst.eq(~aresetn)
    m.submodules.inside = DomainRenamer(_DOMAIN)(inner)
    return m
