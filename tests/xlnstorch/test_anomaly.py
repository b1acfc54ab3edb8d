"""The first flag stops the computation, and the error says where: by hand, forward and backward."""

import pickle
import threading
import traceback
import warnings

import pytest
import torch
from lnstesting import exactly, leaf

import xlnstorch
from xlnstorch import AnomalyError, arithmetic, detect_anomaly, lns16, lnstensor
from xlnstorch.observe import FLAGS, observing

BIG = 2.0**64


def lns(data):
    return lnstensor(data, format=lns16)


def caught(compute, *args, **kwargs):
    with pytest.raises(AnomalyError) as info, detect_anomaly(**kwargs):
        compute(*args)
    return info.value


FORWARD = {
    "overflow": (
        lambda: lns([[1.0, 1.0], [BIG, BIG]]) * lns([1.0, -BIG]),
        ("mul", "aten.mul.Tensor", (1, 1)),
        """overflow in mul of lns16, in aten.mul.Tensor, at element (1, 1) of (2, 2):
  a       0x6000  1.8446744073709552e+19
  b       0xe000  -1.8446744073709552e+19
  result  0xffff  -3.3844464596121152e+38""",
    ),
    "underflow": (
        lambda: lns([1.0, 2.0**-64]) ** 2,
        ("pow2", "aten.pow.Tensor_Scalar", (1,)),
        """underflow in pow2 of lns16, in aten.pow.Tensor_Scalar, at element (1,) of (2,):
  a       0x2000  5.421010862427522e-20
  result  0x0000  0.0""",
    ),
    "invalid": (
        lambda: lns(-1.0).sqrt(),
        ("sqrt", "aten.sqrt.default", ()),
        """invalid operation in sqrt of lns16, in aten.sqrt.default, at element () of ():
  a       0xc000  -1.0
  result  0x0000  0.0""",
    ),
    "zero_divide": (
        lambda: lns([2.0]) / 0.0,
        ("div", "aten.div.Tensor", (0,)),
        """division by zero in div of lns16, in aten.div.Tensor, at element (0,) of (1,):
  a       0x4080  2.0
  b       0x0000  0.0
  result  0x7fff  3.3844464596121152e+38""",
    ),
}


@pytest.mark.parametrize("flag", FORWARD)
def test_each_flag_stops_the_operation_that_raises_it(flag):
    compute, where, text = FORWARD[flag]
    error = caught(compute)
    assert (error.flag, error.operation.name, error.operator, error.index) == (flag, *where)
    assert (error.backward, error.forward_stack) == (None, None)
    assert str(error) == text
    # The traceback leads to the line that asked for it.
    assert any("test_anomaly.py" in frame.filename for frame in traceback.extract_tb(error.__traceback__))
    assert caught(compute, flags=[flag]).flag == flag
    with detect_anomaly(set(FLAGS) - {flag}):
        compute()


def test_the_operation_holds_all_words():
    error = caught(lambda: lns([1.0, BIG]) * lns([2.0, BIG]))
    assert error.operation.format == lns16
    assert [x.tolist() for x in error.operation.operands] == [[0x4000, 0x6000], [0x4080, 0x6000]]
    assert error.operation.result.tolist() == [0x4080, 0x7FFF]


def test_inside_a_sum_the_step_is_found():
    x = lns([[2.0**126, 2.0**126, 2.0**127, 2.0**127]])
    error = caught(lambda: x.sum(1))
    assert (error.operation.name, error.operator, error.index) == ("add", "aten.sum.dim_IntList", (0,))
    # 2**126 + 2**126 is 2**127, and another 2**127 makes 2**128, which is out of range.
    assert [int(words[0]) for words in error.operation.operands] == [0x7F80, 0x7F80]
    assert int(error.operation.result[0]) == 0x7FFF


def scaled_down(x):
    return x * 2.0**-70


def test_in_the_backward_pass_the_forward_call_is_shown():
    x = leaf([BIG, BIG])

    def compute():
        y = scaled_down(x)
        (y * 2.0**-70).sum().backward()

    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        error = caught(compute)
    assert messages == []  # torch's own report of the same stack would be one
    assert (error.flag, error.operation.name, error.operator) == ("underflow", "mul", "aten.mul.Tensor")
    assert (error.index, error.backward) == ((0,), "MulBackward0")
    head, _, stack = str(error).partition("\nStack of the forward call:\n")
    assert head == (
        "underflow in mul of lns16, in aten.mul.Tensor of the backward pass (MulBackward0), at element (0,) of (2,):\n"
        "  a       0x1d00  8.470329472543003e-22\n"
        "  b       0x1d00  8.470329472543003e-22\n"
        "  result  0x0000  0.0"
    )
    assert "in scaled_down" in stack and "return x * 2.0**-70" in stack
    assert stack == error.forward_stack.rstrip()


def test_a_forward_pass_outside_the_block_leaves_no_stack():
    loss = (leaf([1.0]) * BIG * BIG).sum()
    error = caught(loss.backward)
    assert (error.flag, error.backward, error.forward_stack) == ("overflow", "MulBackward0", None)
    assert "Stack" not in str(error)


def test_the_sum_of_two_gradients_is_a_place_too():
    x = leaf([1.0])
    loss = (x * 2.0**127).sum() + (x * 2.0**127 * -1.0 * -1.0).sum()
    error = caught(loss.backward)
    assert (error.operation.name, error.operator, error.backward) == ("add", "aten.add.Tensor", "MulBackward0")
    assert [int(words[0]) for words in error.operation.operands] == [0x7F80, 0x7F80]


def test_direct_use_of_the_arithmetic_names_no_operator():
    words = lns([BIG])._words
    error = caught(arithmetic.mul, lns16, words, words)
    assert error.operator is None
    assert str(error).startswith("overflow in mul of lns16, at element (0,) of (1,):\n")


def test_nothing_is_left_behind():
    before = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    caught(lambda: lns([BIG]) * BIG)
    with detect_anomaly():
        lns([1.0]) * 2.0
        assert not torch.is_anomaly_check_nan_enabled()  # there is no NaN to look for
    assert (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()) == before
    lns([BIG]) * BIG
    seen = []
    with observing(seen.append):
        lns([BIG]) * BIG
    assert len(seen) == 1


def test_torchs_own_check_is_left_on():
    with torch.autograd.set_detect_anomaly(True):
        with detect_anomaly():
            assert torch.is_anomaly_check_nan_enabled()
        assert torch.is_anomaly_enabled()


def test_as_a_decorator_each_call_is_watched():
    @detect_anomaly(flags=("overflow",))
    def square(x):
        return x * x

    for _ in range(2):
        assert square(lns([2.0])).tolist() == [4.0]
        with pytest.raises(AnomalyError):
            square(lns([BIG]))
    assert square(lns([2.0**-70])).tolist() == [0.0]


def test_blocks_nest():
    with detect_anomaly(["overflow"]):
        with detect_anomaly(["underflow"]):
            lns([1.0]) / 0.0
            assert caught(lambda: lns([2.0**-70]) ** 2).flag == "underflow"
            with pytest.raises(AnomalyError):
                lns([2.0**-70]) ** 2
        lns([2.0**-70]) ** 2
        with pytest.raises(AnomalyError):
            lns([BIG]) ** 2


def test_counting_inside_sees_the_operation_that_is_stopped():
    with pytest.raises(AnomalyError), xlnstorch.flags() as counts, detect_anomaly():
        lns([BIG]) ** 2
    assert counts.overflow == 1


def test_another_thread_is_stopped_in_that_thread():
    caught_there = []

    def work():
        try:
            lns([BIG]) * BIG
        except AnomalyError as error:
            caught_there.append(error.flag)

    with detect_anomaly():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert caught_there == ["overflow"]


def test_the_error_travels_between_processes():
    error = caught(lambda: lns([BIG]) * BIG)
    twin = pickle.loads(pickle.dumps(error))
    assert str(twin) == str(error)
    assert twin.flag == "overflow"


@pytest.mark.parametrize("flags", [(), "overflow", ["overflow", "nan"], {"Overflow"}])
def test_flags_must_be_flags(flags):
    text = f"flags must be some of overflow, underflow, invalid, zero_divide, not {flags!r}"
    with pytest.raises(ValueError, match=exactly(text)), detect_anomaly(flags):
        pass
