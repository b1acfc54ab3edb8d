"""What the description of a unit says of its numbers is so: widths, formulas, parameters, meanings."""

import dataclasses
import json
import random

import pytest
import torch

from hdl import ALU, UNITS, Compare, FromFixed, MultiplyAdd, ToFixed
from hdl.bus import AxiLite, AxiStream
from hdl.description import describe, write_header
from xlnstorch import LinearAccumulator, LogAccumulator, from_words, lns8, lns16
from xlnstorch.cli import main

GUARDED = dataclasses.replace(lns8, accumulator=LogAccumulator("tree", guard_bits=3))
FORMATS = {
    "lns16": lns16,
    "guarded": GUARDED,
    "guarded-specials": dataclasses.replace(GUARDED, specials=True),
    "linear": dataclasses.replace(lns8, accumulator=LinearAccumulator()),
}


def described(unit, **parameters):
    return describe(unit, "top", parameters)


def fields_in(description):
    """Return all fields, those of registers and of single operations too."""
    fields = [field for end in ("operands", "results") for field in description.get(end, {"fields": []})["fields"]]
    for signature in description.get("signatures", {}).values():
        fields += signature["operands"] + signature["results"]
    return fields + [register["field"] for register in description.get("registers", ()) if "field" in register]


def tops():
    for name, unit in UNITS.items():
        for format in FORMATS.values():
            if name == "mac" and isinstance(format.accumulator, LinearAccumulator):
                continue
            for wrap in (lambda unit: unit, AxiStream, AxiLite):
                yield wrap(unit(format=format))


def value_by(formula, sign, field):
    return eval(formula.partition(";")[0].replace("^", "**"), {"sign": sign, "field": field})


def test_every_word_is_described_by_the_formula_of_its_own_format():
    rng, seen = random.Random(0), set()
    for top in tops():
        description = described(top)
        unit = top if not hasattr(top, "unit") else top.unit
        wide = LogAccumulator(guard_bits=3).running_format(unit.format)
        for field in fields_in(description):
            if field["meaning"] != "word":
                continue
            own = "value" in field
            format = wide if own else unit.format
            formula = field["value"] if own else description["format"]["value"]
            seen.add((own, format.specials))
            assert field["width"] == format.width
            assert [part["width"] for part in field["parts"]] == [format.log_bits, 1]
            if own:
                assert [field[key] for key in ("int_bits", "frac_bits", "bias")] == [
                    format.int_bits,
                    format.frac_bits,
                    format.bias,
                ]
            sign, log = rng.getrandbits(1), rng.randint(format.bias // 2, format.bias + format.bias // 2)
            word = from_words(torch.tensor([sign << format.log_bits | log]), format)
            assert value_by(formula, sign, log) == pytest.approx(word.item(), rel=1e-15)
            assert ("NaN" in formula) == (f"field {format.max_field} is infinite" in formula) == format.specials
    assert len(seen) == 4


def test_words_of_the_running_sum_are_those_of_multiply_add_only():
    for name, unit in UNITS.items():
        own = [field["name"] for field in fields_in(described(unit(format=GUARDED))) if "value" in field]
        if name == "mac":
            assert own == ["c", "word"]
        elif name not in ("from_fixed", "to_fixed", "alu"):
            assert own == []


@pytest.mark.parametrize("bus", [None, "axi-stream", "axi-lite"])
def test_fixed_point_has_its_binary_point(bus, capsys):
    for name, field in (("from_fixed", "a"), ("to_fixed", "fixed")):
        given = ["--no-signed", "--width", "12", "--frac-bits", "-3"]
        assert main(["verilog", name, *given, "-o", "-", "--json", *(["--bus", bus] if bus else [])]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["parameters"] == {"width": 12, "frac_bits": -3, "signed": False, "rom": "block"}
        (fixed,) = [each for each in fields_in(found) if each["name"] == field]
        shown = {key: fixed[key] for key in ("width", "meaning", "frac_bits", "signed", "value")}
        assert shown == {
            "width": 12,
            "meaning": "fixed-point number",
            "frac_bits": -3,
            "signed": False,
            "value": "integer * 2^3",
        }


def test_defaults_are_what_the_unit_made_of_them(capsys):
    expected = {
        "from_fixed": {"width": 16, "frac_bits": 8, "signed": True},
        "to_fixed": {"width": 16, "frac_bits": 8, "signed": True},
        "dot": {"lanes": 4, "channels": 64, "beats": None},
        "matvec": {"rows": 4, "lanes": 4, "columns": 4, "channels": 64},
        "alu": {"converters": ["float32", "fixed"]},
    }
    for name, parameters in expected.items():
        assert main(["verilog", name, "-o", "-", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["parameters"] == {**parameters, "rom": "block"}


@pytest.mark.parametrize("unit", [FromFixed, ToFixed])
def test_a_converter_says_of_what_fixed_point_numbers(unit):
    default, given = unit(format=lns16), unit(format=lns16, width=9, frac_bits=2, signed=False)
    assert (default.width, default.frac_bits, default.signed) == (16, 8, True)
    assert (given.width, given.frac_bits, given.signed) == (9, 2, False)


def test_what_a_parameter_of_none_was_is_not_text():
    for name, unit in UNITS.items():
        found = described(unit(format=lns8), beats=None, converters=())
        assert found["parameters"] == {"beats": None, "converters": []}, name
        header = write_header(found)
        assert "beats" not in header
        assert "converters=none" in header


def test_each_operation_of_the_alu_says_what_it_takes_and_gives():
    found = described(ALU(format=lns16, converters=("bfloat16", "fixed")))
    signatures = found["signatures"]
    assert list(signatures) == found["operations"]
    kinds = {
        operation: [
            [(each["name"], each.get("in"), each["offset"], each["width"], each["meaning"]) for each in signature[end]]
            for end in ("operands", "results")
        ]
        for operation, signature in signatures.items()
    }
    word, a, b, c = ("word", "result", 0, 16, "word"), *((name, None, 0, 16, "word") for name in "abc")
    orders = [(name, "result", bit, 1, "one bit") for bit, name in enumerate(("less", "equal", "greater", "unordered"))]
    fixed = "fixed-point number"
    assert kinds["add"] == kinds["div"] == [[a, b], [word]]
    assert kinds["square"] == kinds["sqrt"] == [[a], [word]]
    assert kinds["mac"] == [[a, b, c], [word]]
    assert kinds["compare"] == [[a, b], orders]
    assert kinds["from_bfloat16"] == [[("a", None, 0, 16, "floating-point number")], [word]]
    assert kinds["to_fixed"] == [[a], [("fixed", "result", 0, 16, fixed)]]
    (operand,) = signatures["from_fixed"]["operands"]
    assert (operand["frac_bits"], operand["signed"]) == (8, True)
    assert signatures["to_bfloat16"]["results"][0]["dtype"] == "bfloat16"
    header = write_header(found)
    assert "//   to_fixed       a: word -> fixed: fixed-point number, integer * 2^-8\n" in header
    assert "//   mac            a: word, b: word, c: word -> word: word\n" in header
    assert "signatures" not in described(Compare(format=lns16))


def test_meanings_are_these():
    """A meaning is for the reader of the Verilog: no layout's docstring is one."""
    assert {field["meaning"] for top in tops() for field in fields_in(described(top))} == {
        "word",
        "flags",
        "one bit",
        "unsigned integer",
        "floating-point number",
        "fixed-point number",
        "opcode: the index in operations",
        "what the operation takes, in the low bits",
        "what the operation gives, in the low bits, and zeros above it",
    }


def test_registers_say_what_they_hold():
    description = described(AxiLite(MultiplyAdd(format=GUARDED)))
    held = {row["name"]: row["field"] for row in description["registers"] if "field" in row}
    assert list(held) == ["IN_A", "IN_B", "IN_C", "OUT_WORD", "OUT_FLAGS"]
    assert all(field["low"] == 0 and "offset" not in field for field in held.values())
    assert held["IN_C"]["value"] == "(-1)^sign * 2^((field - 512) / 64); field 0 is zero"
    line = "0x100 RO  OUT_WORD       The result word. Reading takes the next result. (word, (-1)^sign *"
    assert line in write_header(description)
    wide = describe(AxiLite(FromFixed(format=lns8, width=40)), "top", {})
    halves = [row["field"] for row in wide["registers"] if row["name"].startswith("IN_A")]
    assert [(half["low"], half["width"]) for half in halves] == [(0, 40), (32, 40)]
