"""What is an integer at the door, and what is not."""

import numpy as np
import pytest
import torch

from xlnstorch.checks import as_integer, integer_between


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), torch.tensor(3)], ids=repr)
def test_integers_of_any_kind_are_integers(value):
    assert type(as_integer("n", value)) is int
    assert integer_between("n", value, 3, 3) == 3


@pytest.mark.parametrize("value", [True, False, 3.0, "3", None, [3], np.bool_(True)], ids=repr)
def test_what_is_no_integer_is_refused(value):
    for check in (as_integer, lambda name, value: integer_between(name, value, 0, 9)):
        with pytest.raises(TypeError) as caught:
            check("n", value)
        assert str(caught.value) == f"n must be an integer, not {value!r}"


@pytest.mark.parametrize("value", [-1, 5])
def test_an_integer_out_of_range_is_refused(value):
    with pytest.raises(ValueError) as caught:
        integer_between("n", value, 0, 4)
    assert str(caught.value) == f"n must be between 0 and 4, not {value}"
