import shutil

import pytest

from sim.sources import Port, Sources

MODULE = """
module dut #(parameter W = 4, parameter KIND = "none") (
  input clk, input [W-1:0] x, output reg [0:7] y, inout pad);
  always @(posedge clk) y <= KIND == "wide" ? {8{x[0]}} : 8'd0;
endmodule
"""


def made(folder, text, **options):
    (folder / "dut.v").write_text(text)
    return Sources([folder / "dut.v"], **options)


def test_ports_have_direction_and_the_width_that_parameters_give(tmp_path):
    sources = made(tmp_path, MODULE)
    expected = {"clk": Port("input", 1), "x": Port("input", 4), "y": Port("output", 8), "pad": Port("inout", 1)}
    assert sources.ports("dut") == expected
    assert sources.ports("dut", {"W": 9, "KIND": "wide"}) == {**expected, "x": Port("input", 9)}
    assert sources.text.strip() == MODULE.strip()


def test_names_of_the_modules_around_it_are_changed_everywhere_but_in_texts_and_macros(tmp_path):
    sources = made(
        tmp_path,
        """// top
        `define top 3'd1
        module top(input lanes, output \\top_of_dut );  /* lanes */
          wire top_ = lanes ^ `top; initial $display("top");
          lanes u(.top(top_), .\\lanes (\\top_of_dut ));
        endmodule
        module lanes(input top, output lanes); assign lanes = 4'b0 + top; endmodule""",
        define={"lanes": "top"},
    )
    assert [sources.name(name) for name in ("top", "lanes", "dut")] == ["top_of_dut_", "lanes_of_dut", "dut"]
    for text in (
        "// top\n",
        "`define lanes top_of_dut_\n",
        "`define top 3'd1",
        "module top_of_dut_(input lanes_of_dut, output \\top_of_dut );  /* lanes */",
        'wire top_ = lanes_of_dut ^ `top; initial $display("top");',
        "lanes_of_dut u(.top_of_dut_(top_), .\\lanes_of_dut (\\top_of_dut ));",
    ):
        assert text in sources.text
    assert sources.ports("top") == {"lanes": Port("input", 1), "top_of_dut": Port("output", 1)}
    assert sources.ports("lanes") == {"top": Port("input", 1), "lanes": Port("output", 1)}


def test_a_table_beside_the_source_is_found_and_its_content_belongs_to_the_text(tmp_path):
    (tmp_path / "here").mkdir()
    text = 'module dut(output [7:0] y); reg [7:0] m [0:0]; initial $readmemh("t.hex", m); assign y = m[0]; endmodule'
    (tmp_path / "here" / "t.hex").write_text("1")
    one = made(tmp_path / "here", text).text
    assert f'$readmemh("{tmp_path}/here/t.hex", m)' in one
    (tmp_path / "here" / "t.hex").write_text("2")
    assert made(tmp_path / "here", text).text != one
    assert '"t.hex"' in made(tmp_path, text).text  # nowhere: the simulator will say so


def test_included_files_and_macros(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "one.vh").write_text('`ifndef ONE\n`define ONE\n`include "two.vh"\n`endif\n')
    (tmp_path / "b" / "two.vh").write_text("wire [`W-1:0] two;\n")
    text = """
    module dut(output [`W-1:0] y);
    `include "one.vh"
    `include "one.vh"
    `ifdef NO
    `include "no.vh"
    `endif
    assign y = two;
    endmodule"""
    sources = made(tmp_path, text, include=[tmp_path / "a", tmp_path / "b"], define={"W": "5", "X": ""})
    assert sources.ports("dut") == {"y": Port("output", 5)}
    shutil.rmtree(tmp_path / "b")
    with pytest.raises(ValueError, match=rf"^{tmp_path}/dut.v cannot be read: .*one.vh"):
        made(tmp_path, text, define={"W": "5"}).ports("dut")


@pytest.mark.parametrize(
    ("text", "module", "parameters", "message"),
    [
        (MODULE, "dot", {}, "{file} must have the module dot; it has dut"),
        ("", "dut", {}, "{file} must have the module dut; it has none"),
        (MODULE + "module top(); endmodule", "dot", {}, "{file} must have the module dot; it has dut, top"),
        (
            "module dut(input a);\n\nassign b = ;\nendmodule",
            "dut",
            {},
            "{file} cannot be read: {file}:3: syntax error, unexpected ';'",
        ),
        (
            "module top(input a);\nmissing u(.a(a));\nendmodule",
            "top",
            {},
            "{file} cannot be read: Module `\\missing' referenced in module `\\top' in cell `\\u' is not part of "
            "the design.",
        ),
        (MODULE, "dut", {"V": 3}, "{file} cannot be read: {file}:2: Can't find object for defparam `V`!"),
        ('`include "loop.vh"\n', "dut", {}, "{folder}/loop.vh:1: more than 100 files are included"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_that_names_the_line(tmp_path, text, module, parameters, message):
    (tmp_path / "loop.vh").write_text('`include "loop.vh"\n')
    with pytest.raises(ValueError) as error:
        made(tmp_path, text).ports(module, parameters)
    assert str(error.value) == message.format(file=tmp_path / "dut.v", folder=tmp_path)


def test_a_line_of_an_included_file_is_named(tmp_path):
    (tmp_path / "part.vh").write_text("wire a;\nwire 3;\n")
    with pytest.raises(ValueError, match=rf"{tmp_path}/dut.v cannot be read: {tmp_path}/part.vh:2: syntax error"):
        made(tmp_path, '\nmodule dut();\n`include "part.vh"\nendmodule').ports("dut")
