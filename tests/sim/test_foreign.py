"""Verilog units that are not ours, of every shape that a map can describe, right and wrong."""

import json
import shutil
from pathlib import Path

import pytest

import hdl
from sim.foreign import ForeignUnit
from sim.verify import verify
from xlnstorch import lns8, lns16
from xlnstorch.cli import main

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "foreign"
# Whatever compiles quicker: these are many small modules.
SIMULATOR = "icarus" if shutil.which("iverilog") else "verilator"

# The product of two lns8 words, without a register, which the modules under test share.
CORE = """
module product(input [7:0] a, input [7:0] b, output [7:0] p, output over, output under);
  wire zero = a[6:0] == 0 || b[6:0] == 0;
  wire signed [9:0] sum = $signed({3'b0, a[6:0]}) + $signed({3'b0, b[6:0]}) - 10'sd64;
  assign over = !zero && sum > 10'sd127;
  assign under = !zero && sum < 10'sd1;
  assign p = zero || under ? 8'd0 : {a[7] ^ b[7], over ? 7'h7f : sum[6:0]};
endmodule
"""

COMBINATIONAL = """
module dut(input [7:0] x, input [7:0] y, output [7:0] z);
  product core(.a(x), .b(y), .p(z), .over(), .under());
endmodule
"""

# Words in parts of ports, all flags in one, inputs that are held, a parameter, and an active-low reset.
PIPELINE = """
module dut #(parameter STAGES = 1) (
  input clock, input reset_n, input mode, input [19:0] in, input sign_b, input [6:0] log_b, output [12:0] out);
  wire [7:0] p;
  wire over, under;
  product core(.a(mode ? in[10:3] : 8'd0), .b({sign_b, log_b}), .p(p), .over(over), .under(under));
  reg [10:0] stage[0:STAGES-1];
  integer k;
  always @(posedge clock) begin
    stage[0] <= {p, 1'b0, under, over};
    for (k = 1; k < STAGES; k = k + 1) stage[k] <= stage[k-1];
    if (!reset_n) stage[0] <= 0;
  end
  assign out = {stage[STAGES-1][10:3], mode, 1'b0, stage[STAGES-1][2:0]};
endmodule
"""
PIPELINE_MAP = {
    "clock": "clock",
    "reset": {"port": "reset_n", "active": "low"},
    "latency": 3,
    "parameters": {"STAGES": 3},
    "constants": {"mode": 1, "in": 1},
    "operands": {"a": {"port": "in", "offset": 3}, "b": {"sign": "sign_b", "field": "log_b"}},
    "results": {"word": {"port": "out", "offset": 5}, "flags": {"port": "out", "offset": 0}},
}

ENABLE = """
module dut(input clk, input ce, input [7:0] x, input [7:0] y, output reg [7:0] z, output reg over);
  wire [7:0] p;
  wire o;
  product core(.a(x), .b(y), .p(p), .over(o), .under());
  reg [8:0] first;
  always @(posedge clk) if (ce) begin
    first <= {p, o};
    {z, over} <= first;
  end
endmodule
"""

VALID = """
module dut(input clk, input rst, input [7:0] x, input [7:0] y, input iv, output reg [7:0] z, output reg ov);
  wire [7:0] p;
  product core(.a(x), .b(y), .p(p), .over(), .under());
  reg [7:0] first;
  reg v;
  always @(posedge clk) begin
    {first, z} <= {p, first};
    {v, ov} <= rst ? 2'b0 : {iv, v};
  end
endmodule
"""

READY = """
module dut(input clk, input rst, input [7:0] x, input [7:0] y, input iv, output ir,
           output reg [7:0] z, output reg ov, input o_r);
  wire [7:0] p;
  product core(.a(x), .b(y), .p(p), .over(), .under());
  assign ir = !ov || o_r;
  always @(posedge clk) if (rst) ov <= 0; else if (ir) begin
    ov <= iv;
    z <= p;
  end
endmodule
"""

# A result every few clocks, not always as many.
ITERATIVE = """
module dut(input clk, input rst, input [7:0] x, input [7:0] y, input iv, output ir,
           output reg [7:0] z, output ov, input o_r);
  wire [7:0] p;
  reg [2:0] count;
  reg busy;
  product core(.a(x), .b(y), .p(p), .over(), .under());
  assign ir = !busy;
  assign ov = busy && count == 0;
  always @(posedge clk)
    if (rst) busy <= 0;
    else if (!busy) begin busy <= iv; count <= 3 + x[0]; z <= p; end
    else if (count != 0) count <= count - 1;
    else if (o_r) busy <= 0;
endmodule
"""

STREAMS = {"in_valid": "iv", "in_ready": "ir", "out_valid": "ov", "out_ready": "o_r"}
WORDS = {"operands": {"a": "x", "b": "y"}, "results": {"word": "z"}}
CLOCKED = {"clock": "clk", **WORDS}

UNITS = {
    "combinational": (COMBINATIONAL, {"latency": 0, **WORDS}),
    "pipeline": (PIPELINE, PIPELINE_MAP),
    "the longest pipeline": (PIPELINE, {**PIPELINE_MAP, "latency": 400, "parameters": {"STAGES": 400}}),
    "enable": (
        ENABLE,
        {**CLOCKED, "latency": 2, "enable": "ce", "results": {"word": "z", "flags": {"overflow": "over"}}},
    ),
    "valid": (
        VALID,
        {**CLOCKED, "latency": 2, "reset": "rst", "handshake": {"in_valid": "iv", "out_valid": "ov"}},
    ),
    "ready": (READY, {**CLOCKED, "latency": 1, "reset": "rst", "handshake": STREAMS}),
    "iterative": (ITERATIVE, {**CLOCKED, "latency": {"max": 5}, "reset": "rst", "handshake": STREAMS}),
}


def unit_of(folder, verilog, ports, golden="a * b", format=lns8, top="dut", **options):
    (folder / "dut.v").write_text(verilog + CORE)
    (folder / "map.json").write_text(json.dumps(ports))
    return ForeignUnit.from_files(
        [folder / "dut.v"], top=top, ports=folder / "map.json", golden=golden, format=format, **options
    )


def verified(unit, **options):
    return verify(
        [unit], unit.format, **{"stimuli": ["corners", "random"], "vectors": 1500, "simulator": SIMULATOR, **options}
    )


@pytest.mark.sim
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if "longest" in kind else ()) for kind in UNITS]
)
def test_a_right_unit_passes_with_stalls_and_resets(tmp_path, kind):
    report = verified(unit_of(tmp_path, *UNITS[kind]))
    assert report.passed, (report.counterexamples, report.problems)
    assert sum(result.vectors for result in report.results) > 2000


def changed(kind, old, new, **ports):
    verilog, known = UNITS[kind]
    assert verilog.count(old) == 1
    return verilog.replace(old, new), {**known, **ports}


TRUE = ("module dut", "module dut")

FAULTS = {
    "a sign": (*changed("combinational", ".a(x)", ".a({1'b0, x[6:0]})"), None),
    "a latency stated too long": (*changed("pipeline", *TRUE, latency=4), None),
    "a latency stated too short": (*changed("enable", *TRUE, latency=1), None),
    "a latency of a handshake": (*changed("ready", *TRUE, latency=2), "took 1 clocks without stalls, not the stated 2"),
    "a latency of valid": (*changed("valid", *TRUE, latency=1), "took 3 clocks without stalls, not the stated 2"),
    "a longest latency": (
        *changed("iterative", *TRUE, latency={"max": 4}),
        "took 5 clocks without stalls, not at most the stated 4",
    ),
    "a flag of a bus": (*changed("pipeline", "under, over}", "over, under}"), None),
    "a flag": (*changed("enable", ".over(o), .under()", ".over(), .under(o)"), None),
    "no reset": (*changed("valid", "rst ? 2'b0 : {iv, v}", "{iv, v}"), None),
    "a result that does not wait": (*changed("ready", "!ov || o_r", "1'b1"), None),
    "an enable that is ignored": (*changed("enable", "if (ce) begin", "begin"), None),
    "a rate": (*changed("iterative", *TRUE, latency=5), "though nothing had stalled for a while"),
}


@pytest.mark.sim
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_unit_or_map_is_found(tmp_path, fault):
    verilog, ports, problem = FAULTS[fault]
    report = verified(unit_of(tmp_path, verilog, ports))
    assert not report.passed
    assert problem is None or any(problem in text for text in report.problems), report.problems


@pytest.mark.sim
def test_flags_that_a_map_does_not_have_are_not_compared(tmp_path):
    verilog, ports = changed("enable", ".over(o), .under()", ".over(), .under(o)")
    assert verified(unit_of(tmp_path, verilog, {**ports, "results": {"word": "z"}})).passed
    unit = unit_of(tmp_path, verilog, {**ports, "results": {"word": "z", "flags": {"underflow": "over"}}})
    assert verified(unit).passed


@pytest.mark.sim
def test_all_operands_of_a_module_called_as_ours_with_an_include_and_a_table(tmp_path):
    """In the batch runner, whose own modules are called lanes and top."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "core.vh").write_text('`include "core.v"\n')
    (tmp_path / "lib" / "core.v").write_text(CORE)
    (tmp_path / "one.hex").write_text("40\n")
    (tmp_path / "top.v").write_text(
        """`default_nettype none
        `include "core.vh"
        module top(input wire [7:0] lanes, output wire [7:0] top_of_dut);
          reg [7:0] one [0:0];
          initial $readmemh("one.hex", one);
          lanes u(.x(lanes ^ 8'h`FLIP), .y(one[0]), .z(top_of_dut));
        endmodule
        module lanes(input wire [7:0] x, input wire [7:0] y, output wire [7:0] z);
          product core(.a(x), .b(y), .p(z), .over(), .under());
        endmodule"""
    )
    (tmp_path / "map.json").write_text(
        json.dumps({"latency": 0, "operands": {"a": "lanes"}, "results": {"word": "top_of_dut"}})
    )

    def made(flip):
        return ForeignUnit.from_files(
            [tmp_path / "top.v"],
            top="top",
            ports=tmp_path / "map.json",
            golden="a * 1.0",
            format=lns8,
            include=[tmp_path / "lib"],
            define={"FLIP": flip},
        )

    assert verified(made("00"), stimuli=["exhaustive"], simulator="verilator").passed
    # Another table is another unit, though the Verilog is the same.
    (tmp_path / "one.hex").write_text("41\n")
    report = verified(made("00"), stimuli=["exhaustive"], simulator="verilator")
    assert [x.expected["word"].bits != x.got["word"].bits for x in report.counterexamples] == [True]
    (tmp_path / "one.hex").write_text("40\n")
    report = verified(made("80"), stimuli=["exhaustive"], simulator="verilator")
    assert report.counterexamples[0].operands["a"].bits == 1


@pytest.mark.sim
def test_an_expression_of_several_operations_in_the_order_of_its_operands(tmp_path):
    verilog = """
    module dut(input [7:0] u, input [7:0] v, input [7:0] w, output [7:0] z);
      wire [7:0] uv;
      product first(.a(u), .b(v), .p(uv), .over(), .under());
      product second(.a(uv), .b({w[7], 7'd64 + (7'd64 - w[6:0])}), .p(z), .over(), .under());
    endmodule"""
    ports = {"latency": 0, "operands": {"c": "w", "b": "v", "a": "u"}, "results": {"word": "z"}}
    unit = unit_of(tmp_path, verilog, ports, golden="a * b / c")
    assert list(unit.operands()) == ["a", "b", "c"]
    assert list(unit.operations) == ["a * b / c"]
    report = verified(unit, stimuli=["random"], vectors=300)
    # A divisor of zero, or of the least field, is not what that module thinks.
    wrong = [example.operands["c"].bits & 127 for example in report.counterexamples]
    assert wrong == [0], report.counterexamples


# The examples ---------------------------------------------------------------------------------------------------------

COMMAND = ["verify", "--top", "lns16_multiply", "--ports", str(EXAMPLES / "lns16_multiply.json"), "--golden", "a * b"]


@pytest.mark.sim
def test_the_example_is_proved_and_its_bug_found(capsys):
    assert main([*COMMAND, "--dut", str(EXAMPLES / "lns16_multiply.v"), "--stimulus", "corners", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(row["unit"], row["vectors"], row["mismatches"]) for row in report["results"]] == [
        ("lns16_multiply", 1444, 0)
    ]
    wrong = [*COMMAND, "--dut", str(EXAMPLES / "lns16_multiply_wrong.v"), "--stimulus", "corners"]
    assert main(wrong) == 1
    printed = capsys.readouterr().out
    shown = (ROOT / "docs" / "verification.md").read_text()
    block = shown[shown.index("      unit      lns16_multiply") :].split("      seed ")[0]
    assert block.count("\n") == 7
    first = "\n".join(line[4:] for line in block.splitlines())
    assert first.strip() in printed
    again = printed[printed.index("again") :].splitlines()[0]
    assert again.endswith(
        f"lns verify --dut {EXAMPLES}/lns16_multiply_wrong.v --top lns16_multiply --ports "
        f"{EXAMPLES}/lns16_multiply.json '--golden=a * b' --format lns16 --simulator verilator --seed 0 "
        "--vectors 5000 --stimulus corners"
    )


def test_a_product_replays_the_multiplications_of_a_trace():
    unit = ForeignUnit.from_files(
        [EXAMPLES / "lns16_multiply.v"],
        top="lns16_multiply",
        ports=EXAMPLES / "lns16_multiply.json",
        golden="a*b",
        format=lns16,
    )
    assert list(unit.operations) == ["mul"]
    assert (unit.name, unit.latency, unit.steady) == ("lns16_multiply", 4, True)
    assert hdl.to_verilog(unit).count("module lns16_multiply ") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dut", "no.v"], "'no.v' cannot be read: No such file or directory"),
        (["--ports", "no.json"], "'no.json' cannot be read: No such file or directory"),
        (["--top", "multiply"], "{dut} must have the module multiply; it has lns16_multiply"),
        (
            ["--golden", "a * relu(b)"],
            "the expression 'a * relu(b)' at column 5: a call is not allowed: there may be names of operands, numbers, "
            "+ - * /, - of one operand, ** with a whole exponent, and parentheses",
        ),
        (["--golden", "a * c"], "the expression 'a * c' at column 5: 'c' is none of the operands a, b"),
        (
            ["--golden", "a ** 2"],
            "the expression 'a ** 2' must have all operands of the map, but b is not in it; constants hold an input "
            "that does not matter",
        ),
        (
            ["--format", "lns12"],
            "operand a has 12 bits, but the port x of lns16_multiply has 16; a part of it is "
            '{{"port": "x", "offset": 0}}',
        ),
        (["--format", "lns24"], "operand a has 24 bits, but the port x of lns16_multiply has 16"),
        (["--define", "9=1"], "a macro must be NAME or NAME=VALUE, of one line, not '9=1'"),
        (["--define", "x=1\n2"], "a macro must be NAME or NAME=VALUE, of one line, not 'x=1\\n2'"),
        (["--level", "synth"], "lns16_multiply is somebody else's Verilog, which has the level rtl only, not synth"),
        (["--stimulus", "table"], "the stimulus 'table' has nothing for lns16_multiply"),
    ],
)
def test_bad_input_is_one_sentence_before_anything_is_built(capsys, monkeypatch, options, message):
    monkeypatch.setattr("sim.verify._run_all", None)
    given = {"--dut": str(EXAMPLES / "lns16_multiply.v"), **dict(zip(COMMAND[1::2], COMMAND[2::2], strict=True))}
    given |= {"--stimulus": "corners"}
    given |= dict(zip(options[::2], options[1::2], strict=True))
    assert main(["verify", *(f"{option}={value}" for option, value in given.items())]) == 2
    printed = capsys.readouterr()
    assert printed.err == f"lns verify: {message.format(dut=given['--dut'])}\n"
    assert printed.out == ""


@pytest.mark.parametrize("left_out", ["--dut", "--top", "--ports", "--golden"])
def test_all_four_options_are_needed(capsys, left_out):
    given = {"--dut": "a.v", "--top": "a", "--ports": "a.json", "--golden": "a"}
    del given[left_out]
    assert main(["verify", *(word for pair in given.items() for word in pair)]) == 2
    assert capsys.readouterr().err == (
        f"lns verify: somebody else's unit needs --dut, --top, --ports and --golden; {left_out} is missing\n"
    )
