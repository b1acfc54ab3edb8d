"""Buses around units: AXI4-Stream for data that flows, AXI4-Lite for a processor's registers."""

from .axi_lite import AxiLite
from .axi_stream import AxiStream

__all__ = ["BUSES", "AxiLite", "AxiStream"]

#: The buses by the name that the command line gives them.
BUSES: dict[str, type[AxiLite | AxiStream]] = {bus.bus: bus for bus in (AxiStream, AxiLite)}
