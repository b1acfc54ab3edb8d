"""Train a small classifier on scikit-learn's digits, once in LNS and once in float32, from the same start.

    python examples/train_digits.py [--format lns16] [--epochs 5] [--seed 0]

Layers, loss, optimizer and autograd are PyTorch's own; only the numbers are LNS.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits

from xlnstorch import LNSTensor, convert, lnstensor, named_format


def make_model(seed: int) -> torch.nn.Sequential:
    """Return the network in float32."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))


def train(model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor, epochs: int, seed: int) -> list[float]:
    """Train on all but the last 360 digits; return the accuracy on those after each epoch."""
    held_out = 360
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.75)
    generator = torch.Generator().manual_seed(seed)
    accuracies = []
    for _ in range(epochs):
        order = torch.randperm(len(labels) - held_out, generator=generator)
        for batch in order.split(64):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            right = model(images[-held_out:]).argmax(1) == labels[-held_out:]
        accuracies.append(float(right.double().mean()))
    return accuracies


def main() -> None:
    """Train both and print the accuracies side by side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", default="lns16")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    format = named_format(args.format)

    digits = load_digits()
    images, labels = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)

    in_float = train(make_model(args.seed), images, labels, args.epochs, args.seed)

    model = convert(make_model(args.seed), format)
    in_lns = train(model, lnstensor(images, format=format), labels, args.epochs, args.seed)
    assert isinstance(model[0].weight.grad, LNSTensor)

    print(f"epoch  float32  {args.format}")
    for epoch, (a, b) in enumerate(zip(in_float, in_lns, strict=True), 1):
        print(f"{epoch:5}  {a:7.3f}  {b:.3f}")


if __name__ == "__main__":
    main()
