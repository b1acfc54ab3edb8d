"""Operands that several test files use."""

import pytest
from lnstesting import FORMATS, sample

from xlnstorch import kernels, lnstensor


@pytest.fixture(params=FORMATS, ids=repr)
def format(request):
    return request.param


@pytest.fixture
def a(format):
    return sample(format, 4, 5, seed=1)


@pytest.fixture
def x():
    return lnstensor([1.0, 2.0], f=23, requires_grad=True)


@pytest.fixture
def y():
    return lnstensor([3.0, 4.0], f=23, requires_grad=True)


@pytest.fixture(params=sorted({"off", kernels.choices()[0]}))
def kernel(request):
    """Both ways to compute: with torch, and with the fastest kernels."""
    with kernels.using(request.param):
        yield request.param
