import random

import numpy as np
import pytest
import torch
from amaranth.hdl import unsigned
from amaranth.lib import data

from hdl.convert import FixedLayout, FloatLayout
from hdl.layouts import FlagsLayout, WordLayout
from sim.payloads import dimensions, element, from_rows, integer, integers, pack, show, tensor, to_rows, unpack, width
from xlnstorch import LNSFormat, lns8, lns16

WORDS = data.ArrayLayout(data.ArrayLayout(WordLayout(lns16), 3), 2)
LAYOUT = data.StructLayout({"a": WordLayout(lns8), "words": WORDS, "op": unsigned(0), "flags": FlagsLayout()})


def test_payloads_of_any_width_are_packed_as_amaranth_packs_them():
    rng = random.Random(3)
    rows = [
        {
            "a": rng.getrandbits(8),
            "words": [[rng.getrandbits(16) for _ in range(3)] for _ in range(2)],
            "op": 0,
            "flags": rng.getrandbits(4),
        }
        for _ in range(20)
    ]
    payloads = pack(LAYOUT, {name: np.array([row[name] for row in rows]) for name in rows[0]})
    assert max(payload.bit_length() for payload in payloads) > 96
    for row, payload in zip(rows, payloads, strict=True):
        flags = {name: row["flags"] >> bit & 1 for bit, name in enumerate(FlagsLayout().members)}
        word = {"field": row["a"] & 0x7F, "sign": row["a"] >> 7}
        words = [[{"field": each & 0x7FFF, "sign": each >> 15} for each in line] for line in row["words"]]
        assert payload == LAYOUT.const({"a": word, "words": words, "op": 0, "flags": flags}).as_bits()
        assert unpack(LAYOUT, payload) == row


def test_what_is_not_given_is_zero_and_negative_integers_are_their_bits():
    layout = data.StructLayout({"a": unsigned(3), "b": FixedLayout(64, 0)})
    assert pack(layout, {"b": np.array([-1, 5])}) == [((1 << 64) - 1) << 3, 5 << 3]


def test_the_elements_of_an_array_and_their_number():
    assert dimensions(WORDS) == (2, 3)
    assert dimensions(FlagsLayout()) == ()
    assert width(WORDS) == 96
    assert width(element(WORDS)) == 16


def test_bits_are_tensors_and_back():
    bits = np.array([[0, 1, 0]])
    assert tensor(unsigned(1), bits).tolist() == [[False, True, False]]
    assert tensor(unsigned(2), bits).tolist() == [[0, 1, 0]]
    words = np.array([[0x40, 0x48, 0xC0]])
    assert tensor(data.ArrayLayout(WordLayout(lns8), 3), words).value.tolist() == [[1.0, 2.0, -1.0]]
    assert integers(data.ArrayLayout(WordLayout(lns8), 3), tensor(WordLayout(lns8), words)).tolist() == words.tolist()
    assert integers(unsigned(1), torch.tensor([True, False])).tolist() == [1, 0]
    raised = {"underflow": torch.tensor([True, False]), "zero_divide": torch.tensor([True, True])}
    assert integers(FlagsLayout(), raised).tolist() == [0b1010, 0b1000]


@pytest.mark.parametrize(
    ("layout", "bits", "value"),
    [
        (WordLayout(lns16), 0x4080, 2.0),
        (WordLayout(LNSFormat(8, 7, specials=True)), 0x8000, "nan"),
        (WordLayout(LNSFormat(8, 7, specials=True)), 0xFFFF, "-inf"),
        (data.ArrayLayout(WordLayout(lns8), 2), [0x40, 0x48], [1.0, 2.0]),
        (FloatLayout(torch.float16), 0x3C00, 1.0),
        (FloatLayout(torch.float16), 0x7C00, "inf"),
        (FixedLayout(8, 2), 0xFF, -0.25),
        (FixedLayout(8, 2, signed=False), 0xFF, 63.75),
        (FixedLayout(64, 0), (1 << 64) - 3, -3.0),
        (FlagsLayout(), 0b0101, ["overflow", "invalid"]),
        (data.ArrayLayout(FlagsLayout(), 2), [0, 2], [[], ["underflow"]]),
        (unsigned(1), 1, True),
        (unsigned(3), 5, 5),
    ],
)
def test_bits_are_shown_as_what_they_mean(layout, bits, value):
    assert show(layout, bits) == value


WIDE = data.StructLayout(
    {"x": unsigned(62), "a": FixedLayout(64, 0), "b": unsigned(1), "words": WORDS, "op": unsigned(0)}
)


@pytest.mark.parametrize("layout", [LAYOUT, WIDE, data.StructLayout({"a": WordLayout(lns8)})])
def test_rows_are_the_payloads_and_back(layout):
    rng = np.random.default_rng(0)
    columns = {
        name: rng.integers(-(1 << 63), 1 << 63, (50, *dimensions(field.shape)))
        >> 64 - max(1, width(element(field.shape)))
        for name, field in layout
    }
    rows = to_rows(layout, columns, 50)
    assert rows.shape == (50, -(-width(layout) // 64))
    assert [integer(row) for row in rows] == pack(layout, columns)
    back = from_rows(layout, rows)
    assert list(back) == [name for name, _ in layout]
    for name, bits in columns.items():
        size = width(element(layout[name].shape))
        assert np.array_equal(back[name], bits & ((1 << size) - 1) if size < 64 else bits)
