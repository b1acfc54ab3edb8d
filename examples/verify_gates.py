"""Prove a multiplier and an adder against the golden model, on corners and on a computation of one's own.

python examples/verify_gates.py
"""

from __future__ import annotations

import torch

import sim
from hdl import AddSubtract, Multiply
from sim.verify import verify
from xlnstorch import lns12, lnstensor


def main() -> None:
    """Record a small forward and backward pass, replay it through the gates, and print what was compared."""
    weight = lnstensor([[0.5, -1.25], [2.0, 0.75]], format=lns12, requires_grad=True)
    with sim.capture(lns12) as trace:
        hidden = torch.relu(lnstensor([[1.0, 3.0]], format=lns12) @ weight)
        (hidden * hidden).sum().backward()

    report = verify([Multiply, AddSubtract], lns12, stimuli=["corners", "captured"], trace=trace)
    assert report.passed, report.counterexamples
    for result in report.results:
        print(f"{result.unit} {result.stimulus}: {result.vectors} results equal")


if __name__ == "__main__":
    main()
