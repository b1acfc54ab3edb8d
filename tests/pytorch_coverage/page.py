"""What was measured, kept in ``expected.json``, and the page made of it."""

import json
from collections import defaultdict
from pathlib import Path

import torch

from . import modules, operators, optimizers
from .accepted import DIFFERENT, LOOSER, REASONS, family

ROOT = Path(__file__).parents[2]
EXPECTED = Path(__file__).parent / "expected.json"
PAGE = ROOT / "docs" / "coverage.md"
DATABASES = {"module_db": modules, "optim_db": optimizers, "op_db": operators}


def load() -> dict:
    """Return what is expected, by database and entry."""
    return json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {database: {} for database in DATABASES}


def save(expected: dict) -> None:
    """Keep what was measured, in the order of the names, without entries that no longer exist."""
    known = {database: set(module.entries()) for database, module in DATABASES.items()}
    kept = {d: {n: e for n, e in sorted(entries.items()) if n in known[d]} for d, entries in expected.items()}
    EXPECTED.write_text(json.dumps(kept, indent=1) + "\n")


def record_task(task: tuple[str, str]) -> dict[str, str | None]:
    """Measure one entry in a process of its own, which keeps to one core."""
    torch.set_num_threads(1)
    return record(*task)


def record(database: str, name: str, most: int | None = None) -> dict[str, str | None]:
    """Measure one entry, with all samples or about `most` of them."""
    module = DATABASES[database]
    outcome = module.measure(module.entries()[name], most)
    forward, backward = outcome.forward, outcome.backward
    if name in DIFFERENT:
        forward = "different"  # now and then, memory that is not set holds the right number
    if forward != "pass":
        backward = None
    return {"forward": forward, "backward": backward}


def differences(expected: dict, measured: dict) -> list[str]:
    """Return a sentence for each direction in which a measurement of an entry is not what is expected."""
    return [
        f"{direction}: {measured[direction]}, expected {expected[direction]}"
        for direction in ("forward", "backward")
        if measured[direction] != expected[direction]
    ]


def _count(entries: dict, direction: str, start: str) -> int:
    return sum((entry[direction] or "").startswith(start) for entry in entries.values())


def summary(expected: dict) -> str:
    """Return the counts, one line a database."""
    lines = []
    for database, entries in expected.items():
        lines.append(
            f"{database}: {len(entries)} entries; forward {_count(entries, 'forward', 'pass')} pass, "
            f"{_count(entries, 'forward', 'refused')} refused, {_count(entries, 'forward', 'wrong')} wrong; "
            f"backward {_count(entries, 'backward', 'pass')} pass, {_count(entries, 'backward', 'refused')} refused, "
            f"{_count(entries, 'backward', 'wrong')} wrong"
        )
    return "\n".join(lines)


def render(expected: dict) -> str:
    """Return the page."""
    parts = [_HEAD]
    parts.append(
        "| database | entries | forward pass | refused | different | nothing to compare | backward pass | refused |"
    )
    parts.append("|---|---|---|---|---|---|---|---|")
    for database, entries in expected.items():
        nothing = sum(entry["forward"] is None for entry in entries.values())
        counts = [_count(entries, "forward", kind) for kind in ("pass", "refused", "different")]
        counts += [nothing, *(_count(entries, "backward", kind) for kind in ("pass", "refused"))]
        if database == "optim_db":
            counts[-2:] = ["within the steps", ""]
        parts.append(f"| `{database}` | {len(entries)} | " + " | ".join(map(str, counts)) + " |")
    parts.append("\n## What is refused\n")
    refused = defaultdict(list)
    for database in ("module_db", "optim_db"):
        for name, entry in expected[database].items():
            if entry["forward"] != "pass":
                parts.append(f"- `{name}`: {REASONS[name]}.")
    for name, entry in expected["op_db"].items():
        for direction in ("forward", "backward"):
            if (entry[direction] or "").startswith("refused"):
                what = name if direction == "forward" else f"{name} (backward)"
                refused[family(name) or "not written"].append((what, entry[direction].removeprefix("refused: ")))
    for kind, names in sorted(refused.items(), key=lambda item: item[0] == "not written"):
        parts.append(f"\n**{kind[0].upper()}{kind[1:]}** ({len(names)}): " + ", ".join(f"`{n}`" for n, _ in names))
    parts.append("\n\n## What differs, and what is compared less closely\n")
    parts.append("| entry | |\n|---|---|")
    parts += [f"| `{name}` | {reason} |" for name, reason in DIFFERENT.items()]
    parts += [
        f"| `{name}` | {reason}; tolerance × {slack:g}" + (f", of at least {floor:g}" if floor else "") + " |"
        for name, (slack, floor, reason) in LOOSER.items()
    ]
    nothing = [name for name, entry in expected["op_db"].items() if entry["forward"] is None]
    parts.append("\n## Nothing to compare\n")
    parts.append("These take no tensor, or do not run on a CPU: " + ", ".join(f"`{n}`" for n in nothing) + ".")
    parts.append("\n## Passes\n")
    for database, entries in expected.items():
        both = [n for n, e in entries.items() if e["forward"] == "pass" and e["backward"] == "pass"]
        only = [n for n, e in entries.items() if e["forward"] == "pass" and e["backward"] != "pass"]
        if both:
            parts.append(
                f"\n**`{database}`, forward and backward** ({len(both)}): " + ", ".join(f"`{n}`" for n in both)
            )
        if only:
            parts.append(f"\n**`{database}`, forward** ({len(only)}): " + ", ".join(f"`{n}`" for n in only))
    return "\n".join(parts) + "\n"


_HEAD = """# What of PyTorch works in LNS

Measured with PyTorch's own test databases: every sample of every entry of `op_db`, `module_db` and `optim_db` that
takes float64 is computed on LNSTensors of a wide format (12 integer and 40 fraction bits) and in float64, forward and
backward, and compared. Made by `cd tests && python -m pytorch_coverage`; the tests run a share of the samples each
time, all of them with the marker `long`, and fail where an entry passes or fails unexpectedly. How close is close
enough is in `tests/pytorch_coverage/comparing.py`.

What is refused raises a NotImplementedError that names the operator (or, where a computation works with NaN, the
ValueError that no word is NaN). Samples with NaN, and the few with more than 200,000 elements, are left out. Infinities
saturate, and a result that is NaN in float64 is not compared: LNS gives zero there and raises the flag `invalid`.
"""
