"""How a verification looks in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from xlnstorch.catalog import named_format

from .results import Counterexample, Report

__all__ = ["print_report"]


def print_report(report: Report, console: Console) -> None:
    """Print the table, then whatever went wrong, in full, then the verdict."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("unit", "format", "stimulus"):
        table.add_column(title, overflow="fold")
    for title in ("vectors", "mismatches", "vectors/s"):
        table.add_column(title, justify="right", overflow="fold")
    for result in report.results:
        table.add_row(
            result.unit,
            result.format,
            result.stimulus,
            f"{result.vectors:,}",
            f"[red]{result.mismatches:,}[/red]" if result.mismatches else "0",
            f"{result.rate:,.0f}",
        )
    console.print(table)
    for problem in report.problems:
        console.print(f"\n[red]{escape(problem)}[/red]")
    if report.counterexamples:
        console.print("\n[red]first mismatch[/red]")
        console.print(escape(describe(report.counterexamples[0])), soft_wrap=True, highlight=False)
    vectors = sum(result.vectors for result in report.results)
    first = report.results[0]
    how = f"{escape(first.adder)} adder, {first.level} in {first.simulator}, seed {report.seed}"
    if report.passed:
        console.print(f"\n[green]passed[/green]: {vectors:,} results equal the golden model bit for bit ({how})")
        if report.not_replayed:
            counts = ", ".join(f"{count:,} {name}" for name, count in sorted(report.not_replayed.items()))
            console.print(f"captured, but without a unit yet and so not replayed: {counts}")
        return
    wrong = sum(result.mismatches for result in report.results)
    differ = f"{wrong:,} of {vectors:,} results differ" if wrong else f"{vectors:,} results are equal, but see above"
    console.print(f"\n[red]failed[/red]: {differ} ({how})")


def describe(example: Counterexample) -> str:
    """Return a counterexample as lines of text."""
    digits = -(-named_format(example.format).width // 4)

    def number(word: int | None, value: float | None, flags: list[str] | None = None) -> str:
        if word is None:
            return "unknown bits"
        text = f"0x{word:0{digits}x}  {value!r}"
        return text if flags is None else f"{text}  flags: {', '.join(flags) or 'none'}"

    lines = [
        f"  unit      {example.unit}, {example.format}, operation {example.operation}",
        f"  stimulus  {example.stimulus}, vector {example.index}"
        + (f", from {example.source}" if example.source else ""),
        f"  a         {number(example.a, example.a_value)}",
        f"  b         {number(example.b, example.b_value)}",
        f"  expected  {number(example.expected_word, example.expected_value, example.expected_flags)}",
        f"  got       {number(example.got_word, example.got_value, example.got_flags)}",
        f"  cycle     {example.cycle}",
        f"  seed      {example.seed}",
        f"  again     {example.command}",
    ]
    return "\n".join(lines)
