"""What travels: copies, files, batches of a DataLoader, and tensors sent to another process."""

import copy
import functools
import io
import multiprocessing
import pickle

import pytest
import torch
from lnstesting import Number, check, check_numbers, leaf, randn
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import xlnstorch
from xlnstorch import LNSFormat, LNSTensor, LogAccumulator, from_words, lns8, lns16, lns32, lnstensor

TREE = LNSFormat(8, 7, accumulator=LogAccumulator("tree"))


def same(a, b):
    return type(a) is type(b) is LNSTensor and a.format == b.format and torch.equal(a._words, b._words)


# Files and copies -----------------------------------------------------------------------------------------------------


def saved(x, **options):
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file, **options)


COPIES = {
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "pickle 2": lambda x: pickle.loads(pickle.dumps(x, protocol=2)),
    "save": functools.partial(saved, weights_only=True),
    "save, unsafe": functools.partial(saved, weights_only=False),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "clone": lambda x: x.clone(),
}


@pytest.mark.parametrize("format", [lns8, lns16, lns32, LNSFormat(29, 23), TREE], ids=repr)
@pytest.mark.parametrize("name", COPIES)
def test_copies_have_every_word_and_the_whole_format(name, format):
    top = 1 << format.log_bits
    x = from_words([0, top, 1, top | 1, format.bias, format.max_field, top | format.max_field], format)
    for tensor in (x, x.reshape(7, 1).expand(7, 2).t(), x[2:2], x[3]):
        twin = COPIES[name](tensor)
        assert same(twin, tensor)
        assert twin.format.accumulator == format.accumulator and twin.format.adder == format.adder
    assert COPIES[name](leaf([1.0], format)).requires_grad


def test_a_deep_copy_and_a_loaded_tensor_share_nothing():
    for name in ("pickle", "save", "deepcopy", "clone"):
        x = lnstensor([1.0, 2.0], format=lns16)
        COPIES[name](x).mul_(2)
        assert x.tolist() == [1.0, 2.0]


# Batches and processes ------------------------------------------------------------------------------------------------


class Samples(Dataset):
    """Samples that are LNSTensors themselves, as a dataset that encodes would make them."""

    def __len__(self):
        return 7

    def __getitem__(self, i):
        return {"x": lnstensor([i + 0.1, -float(i)], format=lns16), "label": i, "scale": lnstensor(0.3, format=lns16)}


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_samples(workers):
    batches = list(DataLoader(Samples(), batch_size=3, num_workers=workers))
    assert [len(batch["label"]) for batch in batches] == [3, 3, 1]
    expected = torch.stack([Samples()[i]["x"] for i in range(7)])
    check(torch.cat([batch["x"] for batch in batches]), lns16, expected._words)
    assert torch.cat([batch["label"] for batch in batches]).tolist() == list(range(7))
    check(batches[0]["scale"], lns16, lnstensor([0.3] * 3, format=lns16)._words)


def test_batches_of_one_tensor():
    data = randn(10, 3, seed=1)
    loader = DataLoader(TensorDataset(data, torch.arange(10)), batch_size=4, shuffle=True)
    for x, labels in loader:
        check(x, lns16, data._words[labels])
    first, second = torch.utils.data.random_split(data, [7, 3])
    check(torch.stack(list(first)), lns16, data._words[first.indices])
    assert len(second) == 3


def test_samples_of_two_formats_do_not_collate():
    text = "got operands of two formats, lns16 and lns32"
    with pytest.raises(TypeError, match=text):
        next(iter(DataLoader([lnstensor([1.0], format=lns16), lnstensor([1.0], format=lns32)], batch_size=2)))


def _square_of_what_comes(queue, answers):
    x = queue.get(timeout=60)
    answers.put((x * x, x.requires_grad, repr(x.format)))
    queue.get(timeout=60)  # stay alive until the answer's memory has been taken over


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_to_another_process_and_back(method):
    context = torch.multiprocessing.get_context(method)
    queue, answers = context.Queue(), context.Queue()
    process = context.Process(target=_square_of_what_comes, args=(queue, answers), daemon=True)
    process.start()
    x = nn.Parameter(lnstensor([3.0, -0.7, 0.0], format=TREE)).requires_grad_(False)
    queue.put(x)
    square, requires_grad, name = answers.get(timeout=60)
    assert same(square, x.detach() * x.detach()) and (requires_grad, name) == (False, repr(TREE))
    queue.put(None)
    process.join(timeout=60)
    assert process.exitcode == 0


def _double_in_place(x):
    x.mul_(2)


def test_shared_memory_is_shared():
    x = lnstensor([3.0, -0.7], format=lns16).share_memory_()
    assert x.is_shared() and x._words.is_shared()
    process = multiprocessing.get_context("fork").Process(target=_double_in_place, args=(x,))
    process.start()
    process.join(timeout=60)
    assert process.exitcode == 0
    check_numbers(x, [Number(3) * 2, Number(-0.7) * 2])


def test_a_module_in_shared_memory():
    model = xlnstorch.convert(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), lns16)
    words = [p._words.clone() for p in model.parameters()]
    assert model.share_memory() is model
    for p, before in zip(model.parameters(), words, strict=True):
        check(p.detach(), lns16, before)
        assert p.is_shared() and isinstance(p, nn.Parameter)
