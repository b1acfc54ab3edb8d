import re

import pytest

from fpga.cells import missing_models, models


def modules(text):
    return re.findall(r"^module (\w+)", text, re.MULTILINE)


def test_a_model_comes_with_those_it_is_made_of_and_once():
    assert sorted(modules(models("ice40", ["ICESTORM_RAM", "SB_RAM40_4K"]))) == ["ICESTORM_RAM", "SB_RAM40_4K"]
    assert sorted(modules(models("ecp5", ["CCU2C", "LUT4"]))) == ["CCU2C", "LUT2", "LUT4"]
    assert sorted(modules(models("ecp5", ["TRELLIS_COMB"]))) == ["L6MUX21", "LUT2", "LUT4", "PFUMX", "TRELLIS_COMB"]
    assert models("ice40", []).strip() == ""


@pytest.mark.parametrize(
    ("device", "types"),
    [
        ("ice40", ["SB_LUT4", "SB_CARRY", "SB_DFF", "SB_DFFE", "SB_DFFESR", "SB_DFFESS", "SB_DFFSR", "SB_DFFSS"]),
        ("ice40", ["SB_RAM40_4K", "ICESTORM_LC", "ICESTORM_RAM", "SB_GB"]),
        ("ecp5", ["LUT4", "CCU2C", "PFUMX", "L6MUX21", "TRELLIS_FF", "TRELLIS_COMB"]),
    ],
)
def test_every_simulator_can_read_the_models(device, types):
    text = models(device, types)
    assert set(modules(text)) >= set(types)
    assert missing_models(device, types) == []
    assert "1'bz" not in text  # Verilator takes what is compared with z for a wire with several drivers
    assert "`" not in re.sub(r"`(?:ifdef|ifndef|else|endif)\b", "", text)  # neither an include nor a macro
    assert "$error" not in text


def test_unconnected_inputs_are_the_netlists_business():
    assert "wire CEN_pu = CEN;" in models("ice40", ["ICESTORM_LC"])


def test_a_carry_leaves_a_cell_of_an_ecp5():
    (model,) = re.findall(r"^module TRELLIS_COMB.*?^endmodule", models("ecp5", ["TRELLIS_COMB"]), re.M | re.S)
    assert re.findall(r"(\w+) FCO =", model) == ["assign"]


def test_cells_of_which_only_the_ports_are_known_have_no_model():
    assert missing_models("ecp5", ["MULT18X18D", "LUT4", "DP16KD", "DCCA"]) == ["DCCA", "DP16KD", "MULT18X18D"]
    with pytest.raises(LookupError):
        models("ecp5", ["DP16KD"])
