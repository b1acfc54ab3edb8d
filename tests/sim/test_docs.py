"""The page on gates in PyTorch is what happens."""

import doctest
from pathlib import Path

import pytest


@pytest.mark.sim
def test_gates_in_pytorch():
    page = Path(__file__).parents[2] / "docs" / "gates_in_pytorch.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert result.failed == 0
    assert result.attempted > 10
