"""Train a small classifier on scikit-learn's digits for an epoch: work to capture, and to replay through the gates.

lns capture -o epoch.npz examples/digits_epoch.py [--format lns16] [--steps 113] [--seed 0]
lns verify alu --stimulus captured --trace epoch.npz --runner batch
"""

from __future__ import annotations

import argparse

from sim.workloads import digits_epoch
from xlnstorch import named_format


def main() -> None:
    """Train and print the loss of the first and the last step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", default="lns16")
    parser.add_argument("--steps", type=int, help="end after so many batches of 16 digits (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    _, losses = digits_epoch(named_format(args.format), args.seed, args.steps)
    print(f"{len(losses)} steps: loss {losses[0].item():.3f}, then {losses[-1].item():.3f}")


if __name__ == "__main__":
    main()
