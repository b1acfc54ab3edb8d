"""Imports point only upwards: xlnstorch knows none of the others, hdl knows xlnstorch, sim both, fpga all three."""

import ast
import importlib.metadata
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ["xlnstorch", "hdl", "sim", "fpga"]


def imported(file: Path) -> set[str]:
    """Return the top-level packages that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("layer", LAYERS)
def test_a_folder_imports_only_from_those_above_it(layer):
    below = set(LAYERS[LAYERS.index(layer) + 1 :])
    files = sorted((ROOT / layer).rglob("*.py"))
    assert files
    wrong = {str(file.relative_to(ROOT)): sorted(imported(file) & below) for file in files if imported(file) & below}
    assert wrong == {}


def test_the_reference_shares_nothing_with_the_model_it_checks():
    names = imported(ROOT / "xlnstorch" / "reference.py")
    assert names <= set(sys.stdlib_module_names) | {"mpmath"}
    assert "from ." not in (ROOT / "xlnstorch" / "reference.py").read_text()


def test_the_check_sees_an_import_inside_a_function(tmp_path):
    file = tmp_path / "module.py"
    file.write_text("def f():\n    import sim.verify\n    from fpga import board\n")
    assert imported(file) == {"sim", "fpga"}


def test_the_installed_package_has_the_four_folders_and_the_command():
    import fpga
    import hdl
    import sim
    import xlnstorch

    assert all(Path(module.__file__).parent == ROOT / module.__name__ for module in (fpga, hdl, sim, xlnstorch))
    commands = {entry.name for entry in importlib.metadata.entry_points(group="lns.commands")}
    assert {"adders", "capture", "verify", "formats", "plot", "doctor"} <= commands
