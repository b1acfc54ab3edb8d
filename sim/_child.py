"""The process that calls cocotb's runner: ``python -m sim._child JOB.json``; see :mod:`sim.simulators`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cocotb_tools.runner import get_runner


def main() -> int:
    """Build, or run a bench, as the job file says; return the exit status."""
    try:
        _run(json.loads(Path(sys.argv[1]).read_text()))
    except (RuntimeError, SystemExit) as error:
        # The output above it says what went wrong; where in the runner it was noticed does not matter.
        sys.stdout.write(f"{error}\n")
        return 1
    return 0


def _run(job: dict) -> None:
    runner = get_runner(job["simulator"])
    if job["action"] == "build":
        runner.build(
            sources=job["sources"],
            hdl_toplevel=job["top"],
            build_dir=job["folder"],
            build_args=job["args"],
            waves=job["waves"] is not None,
            timescale=("1ns", "1ps"),
            always=True,
        )
    else:
        # The bench reports through its own file; cocotb's verdict only tells whether it ran to its end.
        runner.test(
            test_module=job["bench"],
            hdl_toplevel=job["top"],
            hdl_toplevel_lang="verilog",
            build_dir=job["build"],
            test_dir=job["folder"],
            waves=job["waves"],
            plusargs=job["plusargs"],
            timescale=("1ns", "1ps"),
        )


if __name__ == "__main__":
    sys.exit(main())
