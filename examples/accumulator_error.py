"""Measure, and draw, how the error of a sum grows with its length, for each accumulator and beside 16-bit floats.

    python examples/accumulator_error.py [-o errors.svg] [--formats lns8,lns12,lns16,lns32] [--lengths 1,2,4,…,16384]
                                         [--draws 16] [--seed 0] [--jobs 2] [--json]

Two kinds of sums: of ones, and dot products of normally distributed numbers, of which the median over the draws is
shown. What is measured is the sum alone: the exact result is that of the operands as the format holds them. The floats
round after each product and each addition, left to right.

A sequential sum is a chain of as many small operations as it is long, so a format takes seconds a core.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import torch

from xlnstorch import CATALOG, Accumulator, LogAccumulator, lnstensor, named_format
from xlnstorch.accumulators import LinearAccumulator
from xlnstorch.cli import CommandError
from xlnstorch.plot.floats import FLOATS, round_to_float
from xlnstorch.plot.output import check_output, write_figure

ACCUMULATORS: dict[str, Accumulator] = {
    "sequential": LogAccumulator(),
    "tree": LogAccumulator("tree"),
    "4 guard bits": LogAccumulator(guard_bits=4),
    "linear": LinearAccumulator(),
}
BESIDE = ("bfloat16", "float16")

# Colours of `lns plot`, told apart with any colour vision; ever thinner, so that lines that coincide are all seen.
COLOURS = dict(zip(ACCUMULATORS, ("#0072B2", "#56B4E9", "#E69F00", "#D55E00"), strict=True))
WIDTHS = dict(zip(ACCUMULATORS, (2.0, 4.5, 3.0, 1.4), strict=True))
DASHES = dict(zip(BESIDE, ("--", ":"), strict=True))


def operands(longest: int, draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return factors (terms, 1 + draws): a column of ones, and columns of normally distributed numbers."""
    rng = np.random.default_rng(seed)
    a, b = (np.hstack([np.ones((longest, 1)), rng.standard_normal((longest, draws))]) for _ in range(2))
    return a, b


def first_terms(products: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """Return products (terms, lengths, 1 + draws) with zeros beyond each length.

    Zeros change no sum, so that sums of all lengths are formed side by side.
    """
    within = torch.arange(len(products)).reshape(-1, 1, 1) < torch.tensor(lengths).reshape(1, -1, 1)
    return torch.where(within, products.unsqueeze(1), torch.zeros_like(products).unsqueeze(1))


def relative_errors(sums: np.ndarray, lengths: list[int], a: np.ndarray, b: np.ndarray) -> dict[str, list[float]]:
    """Return the errors of sums (lengths, 1 + draws) of a times b: of the ones, and the median of the draws."""
    products = (a * b).T
    exact = np.array([[math.fsum(column[:length]) for column in products] for length in lengths])
    errors = np.abs(sums - exact) / np.abs(exact)
    return {"ones": errors[:, 0].tolist(), "dots": np.median(errors[:, 1:], 1).tolist()}


def in_lns(name: str, accumulator: Accumulator, lengths: list[int], draws: int, seed: int) -> dict[str, list[float]]:
    """Return the errors of one accumulator of an LNS format."""
    torch.set_num_threads(1)  # the tensors are small, and there is a process for every core
    format = dataclasses.replace(named_format(name), accumulator=accumulator)
    with torch.inference_mode():
        a, b = (lnstensor(x, format=format) for x in operands(max(lengths), draws, seed))
        sums = first_terms(a * b, lengths).sum(0)
        return relative_errors(sums.value.numpy(), lengths, a.value.numpy(), b.value.numpy())


def in_float(name: str, lengths: list[int], draws: int, seed: int) -> dict[str, list[float]]:
    """Return the errors of a floating-point format, in which each product and each addition is rounded."""
    torch.set_num_threads(1)
    a, b = (round_to_float(name, x) for x in operands(max(lengths), draws, seed))
    # float32, which torch may compute in, has more than twice the digits, so that rounding from it rounds as if once.
    total, *terms = first_terms(torch.from_numpy(a).to(FLOATS[name]) * torch.from_numpy(b).to(FLOATS[name]), lengths)
    for term in terms:
        total = total + term
    return relative_errors(total.to(torch.float64).numpy(), lengths, a, b)


def measure(args: argparse.Namespace) -> dict:
    """Measure every accumulator of every format, each in a process of its own.

    Returns
    -------
    dict
        The settings; ``lns[format][accumulator]`` and ``float[name]``, each with the lists ``ones`` and ``dots`` of
        relative errors, a number for each length.
    """
    settings = (args.lengths, args.draws, args.seed)
    with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        # Those with the most fraction bits take longest, and so start first.
        formats = sorted(args.formats, key=lambda name: -named_format(name).frac_bits)
        runs = {
            (name, label): pool.submit(in_lns, name, accumulator, *settings)
            for name in formats
            for label, accumulator in ACCUMULATORS.items()
        }
        floats = {name: pool.submit(in_float, name, *settings) for name in BESIDE}
        return {
            **{key: getattr(args, key) for key in ("lengths", "draws", "seed")},
            "lns": {name: {label: runs[name, label].result() for label in ACCUMULATORS} for name in args.formats},
            "float": {name: run.result() for name, run in floats.items()},
        }


def print_tables(result: dict) -> None:
    """Print the errors, a table for each kind of sum, a row for each format and accumulator, a column for lengths."""
    lines = {f"{name}, {label}": errors for name, row in result["lns"].items() for label, errors in row.items()}
    lines |= result["float"]
    shown = [i for i, _ in enumerate(result["lengths"]) if (len(result["lengths"]) - 1 - i) % 2 == 0]
    for kind, title in (("ones", "sum of ones"), ("dots", "dot product")):
        print(f"{title:20}" + "".join(f"  {result['lengths'][i]:>7}" for i in shown))
        for label, errors in lines.items():
            print(f"{label:20}" + "".join(f"  {errors[kind][i]:7.1e}" for i in shown))


def draw(result: dict, output: str) -> None:
    """Draw a column of panels for each format and a row for each kind of sum; zero errors lie on the lower edge."""
    from matplotlib.figure import Figure

    lengths, columns = result["lengths"], result["lns"]
    lowest = 2.0**-30
    figure = Figure(figsize=(2.9 * len(columns) + 0.6, 6.2), layout="constrained")
    panels = figure.subplots(2, len(columns), sharex=True, sharey=True, squeeze=False)
    for row, (kind, title) in zip(panels, (("ones", "sum of ones"), ("dots", "dot product")), strict=True):
        for axes, (name, lines) in zip(row, columns.items(), strict=True):
            for label, errors in lines.items():
                style = {"color": COLOURS[label], "linewidth": WIDTHS[label]}
                axes.plot(lengths, np.maximum(errors[kind], lowest), label=label, **style)
            for label, errors in result["float"].items():
                style = {"color": "black", "linewidth": 1, "linestyle": DASHES[label]}
                axes.plot(lengths, np.maximum(errors[kind], lowest), label=label, **style)
            axes.set_title(f"{name}: {title}", fontsize="medium")
            axes.grid(True, color="#dddddd", linewidth=0.6)
            axes.set_axisbelow(True)
        row[0].set_ylabel("relative error")
    first = panels[0][0]
    first.set_xscale("log", base=2)
    first.set_yscale("log", base=2)
    exponents = range(-30, 1, 5)
    first.set_yticks([2.0**e for e in exponents], ["0", *(f"$2^{{{e}}}$" for e in exponents[1:])])
    first.set_ylim(lowest / 1.5, 4)
    for axes in panels[-1]:
        axes.set_xlabel("terms")
    figure.legend(*first.get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    write_figure(figure, output)


def names(text: str) -> list[str]:
    """Return the names of formats in a comma-separated list, for argparse."""
    chosen = text.split(",")
    if wrong := [name for name in chosen if name not in CATALOG]:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r} is not one of {', '.join(CATALOG)}")
    return chosen


def whole_number(least: int) -> Callable[[str], int]:
    """Return the argparse type of a whole number that is at least `least`."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, not {text!r}")
        return int(text)

    return parse


def main() -> None:
    """Measure, print, and draw if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--formats", type=names, default=["lns8", "lns12", "lns16", "lns32"])
    parser.add_argument(
        "--lengths",
        type=lambda text: sorted({whole_number(1)(part) for part in text.split(",")}),
        default=[1 << i for i in range(15)],
        help="numbers of terms (default: the powers of two up to 16384)",
    )
    parser.add_argument("--draws", type=whole_number(1), default=16, help="random dot products of each length")
    parser.add_argument("--seed", type=whole_number(0), default=0, help="of the random numbers")
    parser.add_argument("--jobs", type=whole_number(1), default=os.cpu_count(), help="processes at a time")
    parser.add_argument("-o", "--output", metavar="FILE", help="where to draw: .svg, .png or .pdf")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    args = parser.parse_args()
    try:
        if args.output:
            check_output(args.output)
        result = measure(args)
        if args.json:
            print(json.dumps(result))
        else:
            print_tables(result)
        if args.output:
            draw(result, args.output)
    except (CommandError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
