"""Selecting and ordering: words come through untouched, and gradients go back to where they came from."""

import pytest
import torch
from lnstesting import Number, check_against_float64, check_numbers, leaf, numbers, total
from torch.nn import functional

from xlnstorch import lns16, lnstensor

VALUES = [[0.3, -1.7, 2.0], [-0.1, 0.0, -5.0], [1e-30, 7.0, 6.9]]
INCOMING = [0.7, -1.3, 0.31]


def backward(result, incoming=INCOMING):
    result.backward(lnstensor(incoming, format=lns16))


def placed(rows, gradients=INCOMING):
    """Return 3 × 3 Numbers that are zero but for a gradient in each row, in the column that `rows` says."""
    return [
        [Number(g if column == place else 0) for column in range(3)] for place, g in zip(rows, gradients, strict=True)
    ]


# One element of each row ----------------------------------------------------------------------------------------------

ONE_OF_ROW = {
    "max": (lambda x: x.max(1).values, [2, 1, 1]),
    "min": (lambda x: x.min(1).values, [1, 2, 0]),
    "amax": (lambda x: x.amax(1), [2, 1, 1]),
    "amin": (lambda x: x.amin(1), [1, 2, 0]),
    "median": (lambda x: x.median(1).values, [0, 0, 2]),
    "kthvalue": (lambda x: x.kthvalue(2, 1).values, [0, 0, 2]),
    "topk": (lambda x: x.topk(2, 1).values[:, 1], [0, 0, 2]),
    "sort": (lambda x: x.sort(1).values[:, 1], [0, 0, 2]),
    "sort, descending": (lambda x: x.sort(1, descending=True).values[:, 2], [1, 2, 0]),
    "aminmax": (lambda x: torch.aminmax(x, dim=1).max, [2, 1, 1]),
    "cummax": (lambda x: x.cummax(1).values[:, 2], [2, 1, 1]),
    "maximum": (lambda x: torch.maximum(torch.maximum(x[:, 0], x[:, 1]), x[:, 2]), [2, 1, 1]),
    "max_pool1d": (lambda x: functional.max_pool1d(x, 3).squeeze(1), [2, 1, 1]),
    "norm inf": (lambda x: torch.where(x.abs() == x.abs().amax(1, True), x, 0).sum(1), [2, 2, 1]),
}


@pytest.mark.parametrize("name", ONE_OF_ROW)
def test_one_element_of_each_row(name):
    select, places = ONE_OF_ROW[name]
    x = leaf(VALUES)
    y = select(x)
    check_numbers(y.detach(), [row[place] for row, place in zip(numbers(x), places, strict=True)])
    backward(y)
    check_numbers(x.grad, placed(places))


@pytest.mark.parametrize("name, place", [("max", (2, 1)), ("min", (1, 2)), ("median", (2, 0))])
def test_one_element_of_all(name, place):
    x = leaf(VALUES)
    (getattr(x, name)() * 0.3).backward()
    check_numbers(x.grad, [[Number(0.3 if (i, j) == place else 0) for j in range(3)] for i in range(3)])


def test_indices_are_those_of_the_numbers():
    x, plain = lnstensor(VALUES, format=lns16), torch.tensor(VALUES)
    for name in ("argmax", "argmin", "argsort"):
        assert torch.equal(getattr(x, name)(1), getattr(plain, name)(1)), name
    for name in ("max", "min", "sort"):
        assert torch.equal(getattr(x, name)(1).indices, getattr(plain, name)(1).indices), name
    assert torch.equal(x.kthvalue(2, 0).indices, plain.kthvalue(2, 0).indices)


def test_a_sort_sends_each_gradient_back():
    x = leaf(VALUES[0])
    values, indices = x.sort()
    assert indices.tolist() == [1, 0, 2]
    backward(values)
    check_numbers(x.grad, [Number(INCOMING[1]), Number(INCOMING[0]), Number(INCOMING[2])])


def test_an_element_selected_twice_gets_the_lns_sum():
    x = leaf(VALUES[0])
    top = x.topk(2).values
    (x.max() * 0.3 + top[0] * 0.7 + x.sort().values[2] * 0.11).backward()
    terms = [Number(g) for g in (0.11, 0.7, 0.3)]  # the last use comes first
    check_numbers(x.grad, [Number(0), Number(0), total(terms)])


# Ties -----------------------------------------------------------------------------------------------------------------


def test_ties_of_extremes_share_the_gradient():
    for reduce in (torch.amax, torch.amin):
        x = leaf([[2.0, 2.0, 2.0]])
        backward(reduce(x, 1), [0.7])
        check_numbers(x.grad, [[Number(0.7) / 3] * 3])


def test_ties_along_a_dimension_go_to_the_index_that_was_returned():
    x = leaf([[2.0, 2.0, 1.0], [0.0, -0.0, -1.0], [1.0, 3.0, 3.0]])
    values, indices = x.max(1)
    backward(values)
    check_numbers(x.grad, placed(indices.tolist()))
    assert torch.equal(indices, torch.tensor([[2.0, 2, 1], [0, 0, -1], [1, 3, 3]]).max(1).indices)


def test_ties_between_two_tensors_share_the_gradient():
    for choose in (torch.maximum, torch.minimum):
        x, y = leaf([2.0, 0.0]), leaf([2.0, 0.0])
        backward(choose(x, y), [0.7, -0.3])
        for grad in (x.grad, y.grad):
            check_numbers(grad, [Number(0.7) / 2, Number(-0.3) / 2])


def test_ties_in_a_pool_go_to_the_first():
    x = leaf([[[[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]]])
    y, indices = functional.max_pool2d(x, 2, stride=1, return_indices=True)
    assert indices.flatten().tolist() == [0, 1, 3, 4]
    y.backward(lnstensor([[[[0.1, 0.2], [0.3, 0.4]]]], format=lns16))
    zero = Number(0)
    check_numbers(x.grad[0, 0], [[Number(0.1), Number(0.2), zero], [Number(0.3), Number(0.4), zero], [zero] * 3])


def test_overlapping_windows_of_a_pool_add_in_lns():
    x = leaf([[[[0.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 0.0, 0.0]]]])
    y = functional.max_pool2d(x, 2, stride=1)
    assert y.words.flatten().tolist() == [numbers(x)[0][0][1][1].word] * 4
    incoming = [0.7, -1.3, 0.31, 2.9]
    y.backward(lnstensor(incoming, format=lns16).reshape(1, 1, 2, 2))
    assert x.grad.words[0, 0, 1, 1] == total(map(Number, incoming)).word
    assert total(map(Number, incoming)).word != Number(sum(incoming)).word
    assert int((x.grad.words != 0).sum()) == 1


def test_padding_of_a_pool_is_below_every_number():
    x = lnstensor([[[[-3.0, -1e38], [-3e38, -2.0]]]], format=lns16)
    y = functional.max_pool2d(x, 2, stride=1, padding=1)
    a, b, c, d = (n for row in numbers(x)[0][0] for n in row)
    check_numbers(y[0, 0], [[a, a, b], [a, d, d], [c, d, d]])


# Conditions -----------------------------------------------------------------------------------------------------------


def test_where_sends_each_gradient_to_what_was_taken():
    x, y = leaf([1.0, 2.0, 3.0]), leaf([-1.0, -2.0, -3.0])
    backward(torch.where(torch.tensor([True, False, True]), x, y))
    check_numbers(x.grad, [Number(0.7), Number(0), Number(0.31)])
    check_numbers(y.grad, [Number(0), Number(-1.3), Number(0)])


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x.clamp(-1, 1),
        lambda x: x.clamp(min=0.5),
        lambda x: functional.hardtanh(x),
        lambda x: functional.relu6(x),
        lambda x: functional.leaky_relu(x, 0.1),
        lambda x: functional.elu(x, alpha=0.5),
        lambda x: x.masked_fill(x < 0, 3.0),
        lambda x: x.abs(),
        lambda x: functional.hardshrink(x, 0.5),
        lambda x: functional.softshrink(x, 0.5),
    ],
)
def test_pieces_have_the_derivative_of_their_piece(compute):
    check_against_float64(compute, [-7.0, -1.0, -0.6, -0.2, 0.3, 0.7, 1.0, 5.5, 6.5])


def test_relu_and_abs_have_no_gradient_at_zero():
    for compute, expected in [
        (torch.relu, [0.0, 1.0]),
        (torch.abs, [0.0, 1.0]),
        (torch.sign, [0.0, 0.0]),
        (lambda x: torch.sgn(x) + x, [1.0, 1.0]),  # a derivative that is PyTorch's zero without memory, added to
        (lambda x: functional.leaky_relu(x, 0.5), [0.5, 1.0]),
    ]:
        x = leaf([0.0, 4.0])
        compute(x).sum().backward()
        assert x.grad.tolist() == expected
    x = leaf([-1.0, 1.0, 0.5])
    x.clamp(-1, 1).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 1.0]  # the ends belong to the range


# Variance -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("correction", [0, 1, 2])
def test_variance_divides_by_n_less_the_correction(correction):
    for name in ("var", "std"):
        check_against_float64(lambda x, n=name: getattr(x, n)(1, correction=correction), VALUES)
        check_against_float64(lambda x, n=name: getattr(x, n)(correction=correction), VALUES)


def test_variance_word_for_word():
    x = lnstensor([3.0, -0.7, 1.1, 0.2], format=lns16)
    mean = total(numbers(x)) / 4
    squares = total((n - mean) ** 2 for n in numbers(x))
    check_numbers(x.var(), squares / 3)
    check_numbers(x.var(unbiased=False), squares / 4)
    check_numbers(x.std(), (squares / 3).sqrt())
    variance, same_mean = torch.var_mean(x)
    check_numbers(same_mean, mean)
    check_numbers(variance, squares / 3)


def test_what_is_not_taken_may_be_no_word():
    x = lnstensor([1.0, 2.0], format=lns16)
    for taken in (torch.tensor([True, False]), torch.tensor([1, 0]) == 1):
        assert torch.where(taken, x, torch.tensor([torch.nan, 5.0])).tolist() == [1.0, lnstensor(5.0, format=lns16)]
    with pytest.warns(UserWarning, match="uint8"):
        mixed = torch.where(torch.tensor([1, 0], dtype=torch.uint8), x, torch.tensor([torch.nan, 5.0]))
    assert mixed.tolist() == [1.0, lnstensor(5.0, format=lns16)]


def test_an_lns_tensor_is_no_condition():
    x = lnstensor([1.0, 0.0], format=lns16)
    with pytest.raises(TypeError, match="takes a condition of truth values, not an LNSTensor of lns16"):
        torch.where(x, x, x)
