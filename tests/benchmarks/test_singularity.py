"""The three ways to compute t near its singularity are faithful for every distance, and cost what they say."""

import dataclasses
import functools
import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

FILE = str(Path(__file__).parents[2] / "benchmarks/singularity.py")
BITS = 10

script = SimpleNamespace(**runpy.run_path(FILE, run_name="singularity"))
ways = pytest.mark.parametrize("name", list(script.WAYS))


@functools.cache
def design(name):
    return script.WAYS[name](BITS, 1)


def polynomial(table, d, subtract, finer=0):
    """Return y, computed for one distance."""
    place = d >> finer
    (region,) = (r for r in table.regions if r.subtract == subtract and r.start <= place < r.start + (1 << r.size))
    width, n = region.width + finer, table.offset_bits
    c0, c1 = table.rows[region.row + (d - (region.start << finer) >> width)]
    return c0 - (c1 * ((d & ((1 << width) - 1)) << n >> width) >> n)


@ways
def test_every_logarithm_is_closer_than_one_unit(name):
    tried = design(name)
    d = torch.arange(max(tried.ends) + 9)
    of_sum = tried.evaluate(d, torch.zeros(len(d), dtype=torch.bool)).numpy()
    of_difference = -tried.evaluate(d, torch.ones(len(d), dtype=torch.bool)).numpy()
    assert of_difference[0] == 0
    x = d.numpy() / 2.0**BITS
    real_difference = -np.log2(-np.expm1(-x[1:] * np.log(2.0))) * 2.0**BITS
    of_sum = np.abs(of_sum - np.log2(1 + np.exp2(-x)) * 2.0**BITS)
    of_difference = np.abs(of_difference[1:] - real_difference)
    assert max(of_sum.max(), of_difference.max()) < 1.0

    measured = script.measure(tried, 1)
    below = of_difference[: (1 << BITS) - 1]
    expected = [below.max(), of_difference.max(), of_sum.max()]
    assert [measured[f"max {name}"] for name in ("t below", "t", "s")] == pytest.approx(expected, abs=1e-6)
    assert measured["nearest t below"] == np.mean(below < 0.5)


@ways
def test_a_wrong_coefficient_is_measured(name):
    tried = design(name)
    (c0, *others), *rows = tried.polynomials.rows
    # The first rows are those of the region with most segments.
    wrong = dataclasses.replace(tried.polynomials, rows=((c0 + (2 << tried.polynomials.guard_bits), *others), *rows))
    measured = script.measure(dataclasses.replace(tried, polynomials=wrong), 1)
    assert max(measured[f"max {name}"] for name in ("t", "s")) > 1.0


@pytest.mark.parametrize("table", ["first", "second"])
def test_a_wrong_entry_is_measured(table):
    tried = design("cotransformation")
    entries = list(getattr(tried, table))
    entries[3] += 8 << tried.polynomials.guard_bits
    assert script.measure(dataclasses.replace(tried, **{table: tuple(entries)}), 1)["max t below"] > 1.0


def test_the_cotransformation_is_what_its_formula_says():
    tried = design("cotransformation")
    table, g, low_bits = tried.polynomials, tried.polynomials.guard_bits, tried.low_bits
    expected = []
    for d in range(1, 1 << tried.boundary):
        high, low = d >> low_bits, d & ((1 << low_bits) - 1)
        t1, t2 = tried.first[high], tried.second[low]
        argument = (high << low_bits + g) + t2 - t1
        if not high or not low:
            y = t1 + t2 + (1 << g - 1)
        else:
            y = t1 + (1 << g) - 1 - polynomial(table, argument, False, g)
        expected.append(-(y >> g))
    d = torch.arange(1, 1 << tried.boundary)
    assert tried.evaluate(d, torch.ones(len(d), dtype=torch.bool)).tolist() == expected


@ways
def test_the_bits_are_those_of_all_tables(name):
    tried = design(name)
    described = script.describe(tried)
    plain = [tried.first, tried.second] if name == "cotransformation" else []
    fall = tried.fall if name == "logarithm" else None
    first = 1 << BITS + (tried.near if fall else 0)  # distance of t above
    above = {(r.start, r.row) for r in tried.polynomials.regions if r.subtract and r.start >= first}
    assert min(above)[0] == first
    rows = {"t above": sum(r.segments for r in tried.polynomials.regions if (r.start, r.row) in above)}
    rows["s"] = sum(r.segments for r in tried.polynomials.regions if not r.subtract)
    rows["t below"] = len(tried.polynomials.rows) - sum(rows.values()) + sum(map(len, plain))
    rows["t below"] += len(fall.rows) if fall else 0
    assert described["rows"] == rows
    bits = tried.polynomials.rom_bits + (fall.rom_bits if fall else 0)
    bits += sum(len(table) * max(table).bit_length() for table in plain)
    assert described["all bits"] == tried.rom_bits == bits
    area = sum(a * b for a, b in described["multipliers"])
    assert described["cost"] == described["all bits"] + 16 * area
    assert described["lookups"] == (2 if name == "cotransformation" else 1)


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", [FILE, *arguments])
    with pytest.raises(SystemExit) as info:
        runpy.run_path(FILE, run_name="__main__")
    return info.value.code, capsys.readouterr()


def test_the_command_prints_what_it_measures(monkeypatch, capsys):
    arguments = ["--frac-bits", "8", "--ways", "segmentation", "--degrees", "1"]
    code, printed = run(monkeypatch, capsys, *arguments, "--json")
    assert code == 0
    result = json.loads(printed.out)
    (found,) = result["designs"]
    assert [result["frac_bits"], found["way"], found["degree"], found["lookups"]] == [8, "segmentation", 1, 1]
    assert found["max t"] < 1.0
    assert found["max s"] < 1.0
    code, printed = run(monkeypatch, capsys, *arguments)
    assert code == 0
    for word in ("/".join(map(str, found["bits"].values())), f"{found['max t']:.3f}", str(found["all bits"])):
        assert word in printed.out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--ways", "magic"], "argument --ways: 'magic' is not one of segmentation, cotransformation, logarithm"),
        (["--degrees", "3"], "argument --degrees: must be 1 or 2, not 3"),
        (["--frac-bits", "24"], "argument --frac-bits: must be from 8 to 23, not 24"),
        (["--every", "0"], "argument --every: must be at least 1, not 0"),
    ],
)
def test_what_the_command_refuses(arguments, text, monkeypatch, capsys):
    code, printed = run(monkeypatch, capsys, *arguments)
    assert code == 2
    assert printed.err.splitlines()[-1] == f"singularity.py: error: {text}"
    assert printed.out == ""
