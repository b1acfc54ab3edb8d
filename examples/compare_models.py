"""Train an MLP, a CNN and a transformer on scikit-learn's digits in LNS formats, beside float32 from the same start.

    python examples/compare_models.py [--models mlp,cnn,transformer] [--formats lns16,lns12] [--epochs 8] [--seed 0]
                                      [--images 1797] [--sums tree] [--jobs 2] [--plot accuracy.png]
                                      [--json]

Every run of a model has the same initial weights (rounded to its format), the same batches and the same optimizer, so
that what differs is the arithmetic. Accuracy is that on the held-out quarter of the images after each epoch. LNS sums
are made in a balanced tree unless asked for otherwise: ``--sums sequential`` is the order of a multiply-accumulate unit
and of the named formats, and takes about four times as long here.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
from rich.console import Console
from rich.progress import Progress
from sklearn.datasets import load_digits
from torch import nn

from xlnstorch import CATALOG, LNSFormat, LogAccumulator, convert, lnstensor, named_format

BATCH = 32


class Transformer(nn.Module):
    """Reads an image as eight tokens, its rows of eight pixels: one block, two heads, mean over the tokens."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.position = nn.Parameter(torch.randn(8, width) / 4)
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, num_heads=2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.classify = nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits, (batch, 10), of images (batch, 1, 8, 8)."""
        x = self.embed(images.squeeze(1)) + self.position
        y = self.before_attention(x)
        x = x + self.attention(y, y, y)[0]
        x = x + self.mlp(self.before_mlp(x))
        return self.classify(x.mean(1))


def mlp() -> nn.Module:
    """Return the perceptron of train_digits.py, 64-32-10."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def cnn() -> nn.Module:
    """Return two convolutions, the first with stride 2, pooling and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


MODELS: dict[str, Callable[[], nn.Module]] = {"mlp": mlp, "cnn": cnn, "transformer": Transformer}


def load(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return training images (N, 1, 8, 8) and labels, and those of the held-out quarter, of `count` digits."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(seed))[:count]
    images = torch.tensor(digits.images[order], dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)[order]
    held_out = len(order) // 4
    return images[held_out:], labels[held_out:], images[:held_out], labels[:held_out]


def train(
    name: str, format: LNSFormat | None, data: tuple[torch.Tensor, ...], epochs: int, seed: int
) -> tuple[list[float], float]:
    """Train one model, in float32 where `format` is None.

    Returns
    -------
    list of float, float
        The held-out accuracy after each epoch, and the seconds that training took.
    """
    torch.set_num_threads(1)  # the tensors are small, and there is a process for every core
    start = time.perf_counter()
    images, labels, test_images, test_labels = data
    torch.manual_seed(seed)
    model = MODELS[name]()
    if format is not None:
        convert(model, format)
        images, test_images = lnstensor(images, format=format), lnstensor(test_images, format=format)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.875)
    # To nearly nothing in the end, so that the last accuracies do not hang on the last few batches.
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 1 / 32, total_iters=epochs * -(-len(labels) // BATCH))
    generator = torch.Generator().manual_seed(seed)
    accuracies = []
    for _ in range(epochs):
        for batch in torch.randperm(len(labels), generator=generator).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
            scheduler.step()
        with torch.no_grad():
            right = model(test_images).argmax(1) == test_labels
        accuracies.append(float(right.double().mean()))
    return accuracies, time.perf_counter() - start


def compare(args: argparse.Namespace) -> dict:
    """Train every model in float32 and in every format, a process each; progress goes to stderr if it is a terminal.

    Returns
    -------
    dict
        The settings; ``accuracy[model][format]``, a list with a number for each epoch; ``seconds[model][format]``.
    """
    formats: dict[str, LNSFormat | None] = {"float32": None}
    for name in args.formats:
        formats[name] = dataclasses.replace(named_format(name), accumulator=LogAccumulator(args.sums))
    data = load(args.images, args.seed)
    result = {key: getattr(args, key) for key in ("epochs", "seed", "images", "sums")}
    result |= {"accuracy": {name: {} for name in args.models}, "seconds": {name: {} for name in args.models}}

    console = Console(stderr=True)
    progress = Progress(console=console, disable=not console.is_terminal, transient=True)
    with progress, ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        runs = {
            (model, label): pool.submit(train, model, format, data, args.epochs, args.seed)
            for model in args.models
            for label, format in formats.items()
        }
        for (model, label), run in progress.track(runs.items(), description="training"):
            accuracies, seconds = run.result()
            result["accuracy"][model][label] = accuracies
            result["seconds"][model][label] = round(seconds, 2)
    return result


def print_table(result: dict) -> None:
    """Print the accuracies, a row an epoch and a column a format, and the seconds below."""
    for name, accuracy in result["accuracy"].items():
        print(f"{name:11}  epoch  " + "  ".join(f"{format:>8}" for format in accuracy))
        for epoch, row in enumerate(zip(*accuracy.values(), strict=True), 1):
            print(f"{'':11}  {epoch:5}  " + "  ".join(f"{value:8.3f}" for value in row))
        print(f"{'':11}  {'s':>5}  " + "  ".join(f"{value:8.1f}" for value in result["seconds"][name].values()))


def plot(result: dict, file: str) -> None:
    """Draw the held-out accuracy by epoch, a panel a model and a line a format."""
    from matplotlib.figure import Figure

    models = result["accuracy"]
    figure = Figure(figsize=(4 * len(models), 3.5), layout="constrained")
    panels = figure.subplots(1, len(models), sharey=True, squeeze=False)[0]
    for axes, (name, accuracy) in zip(panels, models.items(), strict=True):
        for format, values in accuracy.items():
            axes.plot(range(1, len(values) + 1), values, marker=".", label=format)
        axes.set(title=name, xlabel="epoch")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("held-out accuracy")
    panels[-1].legend(loc="lower right")
    figure.savefig(file, dpi=150)


def names_among(allowed: list[str]) -> Callable[[str], list[str]]:
    """Return the argparse type of a comma-separated list of allowed names."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        if wrong := [name for name in names if name not in allowed]:
            raise argparse.ArgumentTypeError(f"{wrong[0]!r} is not one of {', '.join(allowed)}")
        return names

    return parse


def whole_number(least: int) -> Callable[[str], int]:
    """Return the argparse type of a whole number that is at least `least`."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, not {text!r}")
        return int(text)

    return parse


def main() -> None:
    """Train, print, and draw if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=names_among(list(MODELS)), default=list(MODELS))
    parser.add_argument("--formats", type=names_among(list(CATALOG)), default=["lns16", "lns12"])
    parser.add_argument("--epochs", type=whole_number(1), default=8)
    parser.add_argument("--seed", type=whole_number(0), default=0, help="of weights, batches and held-out images")
    parser.add_argument("--images", type=whole_number(8), default=1797, help="how many digits to use at most")
    parser.add_argument(
        "--sums", choices=["tree", "sequential"], default="tree", help="order of LNS additions in a sum"
    )
    parser.add_argument("--jobs", type=whole_number(1), default=os.cpu_count(), help="processes at a time")
    parser.add_argument("--plot", metavar="FILE", help="draw the accuracies into a file (.png, .svg, .pdf)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    args = parser.parse_args()

    result = compare(args)
    if args.json:
        print(json.dumps(result))
    else:
        print_table(result)
    if args.plot:
        plot(result, args.plot)
        print(f"plot in {args.plot}", file=sys.stderr)


if __name__ == "__main__":
    main()
