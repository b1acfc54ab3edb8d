"""Prove a multiplier and an adder against the golden model, on corners and on a real training step.

python examples/verify_gates.py
"""

from __future__ import annotations

from hdl import AddSubtract, Multiply
from sim.verify import verify
from xlnstorch import lns12


def main() -> None:
    """Verify and print what was compared."""
    report = verify([Multiply, AddSubtract], lns12, stimuli=["corners", "captured"], seed=1)
    assert report.passed, report.counterexamples
    for result in report.results:
        print(f"{result.unit} {result.stimulus}: {result.vectors} results equal")


if __name__ == "__main__":
    main()
