"""How a verification looks in a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from xlnstorch.accumulators import LogAccumulator

from .results import Counterexample, Field, Report

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
    _print_coverage(report, console)
    for problem in report.problems:
        console.print(f"\n[red]{escape(problem)}[/red]")
    if report.counterexamples:
        console.print("\n[red]first mismatch[/red]")
        console.print(escape(describe(report.counterexamples[0])), soft_wrap=True, highlight=False)
    if report.left_out:
        console.print("\n" + "\n".join(f"left out: {escape(sentence)}" for sentence in report.left_out), soft_wrap=True)
    vectors = sum(result.vectors for result in report.results)
    first = report.results[0]
    sums = "" if first.accumulator == LogAccumulator().name else f", {first.accumulator} accumulator"
    specials = ", infinities and NaN" if first.specials else ""
    level = f"{first.level} on {first.device}" if first.device else first.level
    simulator = f" in {first.simulator}" if first.simulator else ""
    how = escape(f"{first.adder} adder{sums}{specials}, {level}{simulator}, seed {report.seed}")
    if report.passed:
        console.print(f"\n[green]passed[/green]: {vectors:,} results equal the golden model bit for bit ({how})")
        if report.not_replayed:
            counts = ", ".join(f"{count:,} {name}" for name, count in sorted(report.not_replayed.items()))
            console.print(f"captured, but without a unit yet and so not replayed: {counts}")
        return
    wrong = sum(result.mismatches for result in report.results)
    differ = f"{wrong:,} of {vectors:,} results differ" if wrong else f"{vectors:,} results are equal, but see above"
    console.print(f"\n[red]failed[/red]: {differ} ({how})")


_HOLES = 4


def _print_coverage(report: Report, console: Console) -> None:
    """Print how many bins were hit, and the first holes of each group."""
    if report.coverage:
        table = Table(box=None, pad_edge=False, header_style="bold", title="coverage", title_justify="left")
        for title in ("unit", "of"):
            table.add_column(title)
        for title in ("hit", "bins"):
            table.add_column(title, justify="right")
        table.add_column("holes", overflow="fold")
        for covered in report.coverage:
            for name, group in covered.groups.items():
                more = len(group.holes) - _HOLES
                text = "; ".join(group.holes[:_HOLES]) + (f"; and {more:,} more" if more > 0 else "")
                table.add_row(covered.unit, name, f"{len(group.hits):,}", f"{group.total:,}", escape(text))
        console.print()
        console.print(table)
    for unit, kinds in report.code_coverage.items():
        texts = [f"{found['hit']:,} of {found['of']:,} {kind}s" for kind, found in kinds.items()]
        console.print(f"\n{unit}: {', '.join(texts)} of its Verilog were hit")


def describe(example: Counterexample) -> str:
    """Return a counterexample as lines of text."""
    source = f", from {example.source}" if example.source else ""
    nothing = "nothing, it never came" if example.cycle is None else "unknown bits"
    got = nothing if example.got is None else _result(example.got)
    lines = {
        "unit": f"{example.unit}, {example.format}, operation {example.operation}",
        "stimulus": f"{example.stimulus}, vector {example.index}{source}",
        **{name: _number(field.width, field.bits, field.value) for name, field in example.operands.items()},
        "expected": _result(example.expected),
        "got": got,
        **({} if example.cycle is None else {"cycle": example.cycle}),
        "seed": example.seed,
        "again": example.command,
    }
    margin = max(map(len, lines))
    return "\n".join(f"  {name:{margin}}  {text}" for name, text in lines.items())


def _result(fields: dict[str, Field]) -> str:
    """Return the fields of a result in a line, the first without its name."""
    texts = []
    for name, field in fields.items():
        if name == "flags":
            texts.append(f"flags: {_flags(field.value)}")
        else:
            number = _number(field.width, field.bits, field.value)
            texts.append(f"{name}: {number}" if texts else number)
    return "  ".join(texts)


def _number(width: int, bits: Any, value: Any) -> str:
    if isinstance(bits, list):
        return f"[{', '.join(_number(width, *each) for each in zip(bits, value, strict=True))}]"
    return f"0x{bits:0{-(-width // 4)}x}  {value if isinstance(value, str) else repr(value)}"


def _flags(names: list) -> str:
    if names and isinstance(names[0], list):
        return f"[{'; '.join(map(_flags, names))}]"
    return ", ".join(names) or "none"
