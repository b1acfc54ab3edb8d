"""Functions of one word by lookup: the same words and flags as computed ones, each word computed once."""

from __future__ import annotations

import functools
import threading

import pytest
import torch

from xlnstorch import LNSFormat, LNSTensor, lns8, lns12, lns16, lns16e5, lookup, observe
from xlnstorch.arithmetic import fit


def _all_words(format: LNSFormat) -> torch.Tensor:
    return format.from_unsigned(torch.arange(1 << format.width))


def _observed(function, words: LNSTensor):
    seen = []
    with observe.observing(seen.append):
        result = function(words)
    (operation,) = seen
    assert torch.equal(operation.result, result._words)
    return operation


@pytest.fixture
def no_tables(monkeypatch):
    """Tables of this test alone, empty at first."""
    monkeypatch.setattr(lookup, "_table", functools.lru_cache(lookup._table.__wrapped__))


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "asin", "log2"])
@pytest.mark.parametrize("format", [lns8, lns12, LNSFormat(8, 7, specials=True), LNSFormat(4, 3, base=3.0)], ids=repr)
def test_all_words_and_flags_are_those_computed_without_a_table(format, name, no_tables, monkeypatch):
    words, function = LNSTensor(_all_words(format), format), getattr(torch, name)
    first, again = _observed(function, words), _observed(function, words)
    monkeypatch.setattr(lookup, "MAX_WIDTH", 0)
    computed = _observed(function, words)
    for operation in (first, again):
        assert operation.name == computed.name == name
        assert torch.equal(operation.result, computed.result)
        assert torch.equal(operation.flags, computed.flags)
        assert torch.equal(operation.operands[0], words._words)


def _counting(format: LNSFormat, asked: list[int]):
    def compute(words):
        asked.extend(format.to_unsigned(words).tolist())
        sign, field = format.unpack(words)
        return fit(format, ~sign, field, field == 0)

    return compute


def test_a_word_is_computed_once(no_tables):
    asked: list[int] = []
    look = functools.partial(lookup.of_each_word, "count", lns16, compute=_counting(lns16, asked), key="count")
    words = lns16.from_unsigned(torch.tensor([[7, 9, 7], [0xFFFF, 7, 9]]))
    result = look(words)
    assert lns16.to_unsigned(result).tolist() == [[0x8007, 0x8009, 0x8007], [0x7FFF, 0x8007, 0x8009]]
    assert sorted(asked) == [7, 9, 0xFFFF]
    look(lns16.from_unsigned(torch.tensor([9, 8])))
    assert sorted(asked) == [7, 8, 9, 0xFFFF]


def test_formats_and_functions_have_tables_of_their_own(no_tables):
    word = torch.tensor(0x3F80, dtype=torch.int16)
    of_both = [torch.exp(LNSTensor(word, format)).item() for format in (lns16, lns16e5)]
    assert of_both == [pytest.approx(1.65, rel=1e-2), pytest.approx(2.50, rel=1e-2)]
    assert torch.log(LNSTensor(word, lns16)).item() == pytest.approx(-0.693, rel=1e-2)
    assert torch.polygamma(1, LNSTensor(word, lns16)).item() == pytest.approx(4.93, rel=1e-2)
    assert torch.polygamma(2, LNSTensor(word, lns16)).item() == pytest.approx(-16.8, rel=1e-2)


def test_nothing_is_kept_of_wider_words(no_tables):
    asked: list[int] = []
    wide = LNSFormat(8, 8)
    words = wide.from_unsigned(torch.tensor([5, 5]))
    for _ in range(2):
        lookup.of_each_word("count", wide, words, _counting(wide, asked), "count")
    assert asked == [5, 5, 5, 5]
    assert lookup._table.cache_info().currsize == 0


def test_empty_and_strided_and_scalar_words(no_tables):
    x = LNSTensor(_all_words(lns8).reshape(16, 16), lns8)
    assert torch.equal(torch.exp(x.t())._words, torch.exp(x)._words.t())
    assert torch.exp(x[:0]).shape == (0, 16)
    assert torch.exp(x[3, 4])._words == torch.exp(x)._words[3, 4]


def test_a_failure_leaves_nothing_behind(no_tables):
    def fail(words):
        raise RuntimeError("no")

    words = _all_words(lns8)
    with pytest.raises(RuntimeError, match="no"):
        lookup.of_each_word("count", lns8, words, fail, "count")
    asked: list[int] = []
    lookup.of_each_word("count", lns8, words, _counting(lns8, asked), "count")
    assert asked == list(range(256))


def test_tables_made_in_inference_mode_serve_outside(no_tables):
    x = LNSTensor(_all_words(lns8), lns8)
    with torch.inference_mode():
        torch.exp(x[:9])
    expected = torch.exp(LNSTensor(_all_words(lns8)[9:], lns8)).value
    assert torch.equal(torch.exp(x)[9:].value, expected)


def test_threads_fill_one_table_together(no_tables):
    words = LNSTensor(_all_words(lns16), lns16)
    results: dict[int, torch.Tensor] = {}

    def run(i: int) -> None:
        order = torch.randperm(1 << 16, generator=torch.Generator().manual_seed(i))
        found = torch.empty_like(words._words)
        for part in order.split(1 << 13):
            found[part] = torch.exp(LNSTensor(words._words[part], lns16))._words
        results[i] = found

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(results[i], torch.exp(words)._words) for i in range(4))
