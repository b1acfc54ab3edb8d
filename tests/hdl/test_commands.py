import dataclasses
import json
import os

import pytest

from hdl import UNITS, AddSubtract, DotProduct, to_verilog
from hdl.bus import AxiLite, AxiStream
from xlnstorch import CATALOG, lns16, named_accumulator
from xlnstorch.cli import main

NAME = "name must be letters, digits and _, and no word of Verilog"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["division"], f"unit must be one of {', '.join(UNITS)}, not 'division'"),
        (["add", "-o", "x.sv"], "'x.sv' cannot be written: its name must end in .v"),
        (["add", "-o", "nowhere/x.v"], "'nowhere/x.v' cannot be written: its folder does not exist"),
        (["add", "-o", "-", "--name", "9lives"], f"{NAME}, not '9lives'"),
        (["add", "-o", "-", "--name", "wire"], f"{NAME}, not 'wire'"),
        (["add", "-o", "-", "--bus", "apb"], "bus must be one of axi-stream, axi-lite, not 'apb'"),
        (["add", "-o", "-", "--depth", "4"], "--depth is for --bus axi-lite only"),
        (["add", "-o", "-", "--bus", "axi-lite", "--depth", "1"], "depth must be between 2 and 65535, not 1"),
        (["add", "-o", "-", "--rom", "paper"], "rom must be 'block' or 'luts', not 'paper'"),
        (["dot", "-o", "-", "--accumulator", "sum"], "accumulator must be one of log, linear, not 'sum'"),
        (
            ["dot", "-o", "-", "--accumulator", "linear:frac_bits=9999"],
            "frac_bits must be between 0 and 8192, not 9999",
        ),
        (
            ["add", "-o", "-", "--format", "lns7"],
            f"format must be one of {', '.join(CATALOG)}, or the widths int_bits,frac_bits such as 8,7; not 'lns7'",
        ),
        (
            ["add", "-o", "-", "--format", "lns32"],
            "the gates of the exact adder are a ROM, so a format must have at most 12 fraction bits, "
            "not the 23 of lns32",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(arguments, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hdl.to_verilog", lambda *args: pytest.fail("written"))
    assert main(["verilog", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"lns verilog: {message}\n"
    assert os.listdir(tmp_path) == []


def test_the_file_and_its_description(tmp_path, capsys):
    file = tmp_path / "adder.v"
    assert main(["verilog", "add", "--format", "lns8", "--specials", "--rom", "luts", "-o", str(file)]) == 0
    assert capsys.readouterr() == ("", "")
    assert sorted(os.listdir(tmp_path)) == ["adder.json", "adder.v"]
    found = json.loads((tmp_path / "adder.json").read_text())
    unit = AddSubtract(format=CATALOG["lns8"], rom="luts")
    assert (found["schema"], found["module"], found["unit"]) == (1, "lns_add", "add")
    assert found["parameters"] == {"rom": "luts"}
    assert (found["latency"], found["operations"]) == (unit.latency, ["add", "sub"])
    assert found["format"]["specials"] is True
    places = [(field["name"], field["offset"], field["width"]) for field in found["operands"]["fields"]]
    assert places == [("a", 0, 8), ("b", 8, 8), ("op", 16, 1)]
    parts = found["operands"]["fields"][1]["parts"]
    assert [(part["name"], part["offset"]) for part in parts] == [("field", 0), ("sign", 7)]
    text = file.read_text()
    for line in (
        "// adder       exact",
        "// specials    infinities and NaN",
        f"// latency     {unit.latency} clocks",
        "// flags       bit 0 overflow, bit 1 underflow, bit 2 invalid, bit 3 zero_divide",
        f"// made by     lns-coverify {found['version']}",
        "module lns_add(",
    ):
        assert line in text
    assert str(tmp_path) not in text
    assert main(["verilog", "add", "--format", "lns8", "--specials", "--rom", "luts", "-o", "-"]) == 0
    assert capsys.readouterr().out == text
    assert main(["verilog", "add", "--format", "lns8", "--specials", "--rom", "luts", "-o", "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found


@pytest.mark.parametrize("accumulator", ["log", "log:order=tree,guard_bits=2", "linear:frac_bits=6"])
def test_the_accumulator_is_that_of_the_gates_and_of_the_description(accumulator, tmp_path):
    file = tmp_path / "dot.v"
    asked = ["verilog", "dot", "--format", "lns8", "--lanes", "2", "--accumulator", accumulator]
    assert main([*asked, "-o", str(file)]) == 0
    found = json.loads((tmp_path / "dot.json").read_text())
    format = dataclasses.replace(CATALOG["lns8"], accumulator=named_accumulator(accumulator))
    assert found["format"]["accumulator"] == accumulator
    header, gates = file.read_text().split("/* verilator lint_save */")
    assert f"\n// accumulator {accumulator}\n" in header
    assert to_verilog(DotProduct(format=format, lanes=2), "lns_dot") in gates


@pytest.mark.parametrize(("bus", "wrapper"), [("axi-stream", AxiStream), ("axi-lite", AxiLite)])
def test_a_bus(bus, wrapper, tmp_path):
    file = tmp_path / "bus.v"
    assert main(["verilog", "add", "--bus", bus, "--name", "my_adder", "-o", str(file)]) == 0
    found = json.loads((tmp_path / "bus.json").read_text())
    top = wrapper(AddSubtract(format=lns16))
    assert (found["bus"], found["module"]) == (bus, "my_adder")
    assert {port["name"] for port in found["ports"]} == set(top.signature.members)
    assert "module my_adder(" in file.read_text()
    if bus == "axi-lite":
        offsets = {register["name"]: register["offset"] for register in found["registers"]}
        assert offsets == {name: register.offset for name, register in top.map.registers.items()}
        assert found["depth"] == 16
    else:
        assert found["latency"] == top.latency
        fields = found["operands"]["fields"]
        assert [(field["name"], field["offset"]) for field in fields] == [("a", 0), ("b", 16), ("op", 32)]


def test_parameters_of_any_unit_are_options(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["verilog", "from_float", "--help"])
    assert caught.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "--dtype NAME Of the operand a: float16, bfloat16 or float32 (default: float32)" in shown
    assert main(["verilog", "from_float", "--dtype", "bfloat16", "-o", "-", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["parameters"]["dtype"], found["operands"]["fields"][0]["width"]) == ("torch.bfloat16", 16)
    with pytest.raises(SystemExit) as caught:
        main(["verilog", "from_float", "--dtype", "float8", "-o", "-"])
    assert caught.value.code == 2
    assert "argument --dtype: must be a dtype such as float16, not 'float8'" in capsys.readouterr().err


def test_several_names_are_joined_by_plus(capsys):
    with pytest.raises(SystemExit):
        main(["verilog", "alu", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "--converters NAME+NAME From and to which numbers there are conversions" in shown
    assert "(default: float32+fixed)" in shown
    for given, wanted in (("fixed+float16", ["fixed", "float16"]), ("none", [])):
        assert main(["verilog", "alu", "--format", "lns8", "--converters", given, "-o", "-", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["parameters"]["converters"] == wanted
    assert main(["verilog", "alu", "--converters", "fixed+fixed", "-o", "-"]) == 2
    assert capsys.readouterr().err == "lns verilog: converters must be different, not fixed, fixed\n"


def test_a_file_that_cannot_be_finished_leaves_the_old_one(tmp_path, capsys, monkeypatch):
    file = tmp_path / "adder.v"
    file.write_text("old")

    def fail(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    assert main(["verilog", "multiply", "-o", str(file)]) == 2
    found = str(file.with_suffix(".json"))
    assert capsys.readouterr().err == f"lns verilog: {found!r} cannot be written: No space left on device\n"
    assert os.listdir(tmp_path) == ["adder.v"]
    assert file.read_text() == "old"
