"""The examples in docstrings are what happens."""

import doctest
import importlib
import pkgutil

import pytest

import fpga
import hdl
import sim
import xlnstorch

MODULES = [
    name
    for package in (xlnstorch, hdl, sim, fpga)
    for name in [package.__name__, *(m.name for m in pkgutil.walk_packages(package.__path__, package.__name__ + "."))]
]
WITH_EXAMPLES = [
    "xlnstorch.accumulators.linear",
    "xlnstorch.adders.mitchell",
    "xlnstorch.adders.piecewise",
    "xlnstorch.anomaly",
    "xlnstorch.autograd",
    "xlnstorch.compat",
    "xlnstorch.convert",
    "xlnstorch.factories",
    "xlnstorch.formats",
    "xlnstorch.observe",
    "xlnstorch.ops._registry",
    "xlnstorch.optim",
    "xlnstorch.override",
    "xlnstorch.plot",
    "sim.expressions",
    "sim.traces",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0
    if name in WITH_EXAMPLES:
        assert result.attempted > 0
