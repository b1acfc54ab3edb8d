"""The process that reads somebody else's Verilog: ``python -m sim._ports JOB.json``; see :mod:`sim.sources`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyosys import libyosys

_AROUND = "around_the_dut_of_lns"


def main() -> None:
    """Write which modules a file has, and then, if Yosys gets so far, the ports of the one that the job names."""
    job = json.loads(Path(sys.argv[1]).read_text())
    result = Path(job["result"])
    design = libyosys.Design()
    design.run_pass(f'read_verilog -sv -defer "{job["source"]}"')
    modules = sorted(_plain(module).removeprefix("$abstract\\") for module in design.modules_)
    result.write_text(json.dumps({"modules": modules}))
    if job["module"] not in modules:
        return
    # In a module around it, for it may have parameters.
    parameters = ", ".join(f".{name}({_literal(value)})" for name, value in job["parameters"].items())
    around = Path(job["around"])
    around.write_text(f"module {_AROUND} ();\n\\{job['module']} #({parameters}) dut ();\nendmodule\n")
    design.run_pass(f'read_verilog -sv "{around}"')
    design.run_pass(f"hierarchy -check -top {_AROUND}")
    ((_, cell),) = design.top_module().cells_.items()
    module = design.module(cell.type)
    wires = sorted((wire for wire in module.wires_.values() if wire.port_id), key=lambda w: w.port_id)
    ports = {
        _plain(wire.name): {
            "direction": "inout" if wire.port_input and wire.port_output else "input" if wire.port_input else "output",
            "width": wire.width,
        }
        for wire in wires
    }
    result.write_text(json.dumps({"modules": modules, "ports": ports}))


def _plain(name: object) -> str:
    return str(name).removeprefix("\\")


def _literal(value: int | str) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


if __name__ == "__main__":
    main()
