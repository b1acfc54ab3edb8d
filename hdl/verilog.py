"""From Amaranth to Verilog, in process through pyosys."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from amaranth.back import rtlil

from .unit import Unit

__all__ = ["to_verilog"]

# What amaranth.back.verilog runs as well; the processes and memories of its RTLIL have no direct Verilog form.
_PASSES = ("proc -nomux -norom", "memory_collect")
# write_verilog numbers this one name by a counter of the process, and the text must not depend on what ran before.
_COUNTED_NAME = re.compile(r"\\\$auto\$verilog_backend\.cc:\d+:dump_module\$\d+ ")


def to_verilog(unit: Unit, name: str = "top") -> str:
    """Return Verilog of a unit, the same text each time and free of paths, so that it can be digested.

    Ports are ``clk``, ``rst``, and for each stream ``i__payload``, ``i__valid``, ``i__ready``, likewise ``o__``.
    """
    from pyosys import libyosys

    with tempfile.TemporaryDirectory(prefix="lns-") as folder:
        source, target = Path(folder, "unit.il"), Path(folder, "unit.v")
        source.write_text(rtlil.convert(unit, name=name, emit_src=False))
        design = libyosys.Design()
        for command in (f'read_rtlil "{source}"', *_PASSES, f'write_verilog -noattr -norename "{target}"'):
            design.run_pass(f"tee -q -o {os.devnull} {command}")
        return _COUNTED_NAME.sub(r"\\initial_trigger ", target.read_text())
