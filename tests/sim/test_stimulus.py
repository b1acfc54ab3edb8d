import dataclasses

import numpy as np
import pytest
from lnstesting import Off

from hdl import AddSubtract, Multiply
from sim.golden import evaluate
from sim.stimulus import EXHAUSTIVE, GENERATED, adder_distances, applies, corner_distances, corner_words, generate
from xlnstorch import CATALOG, LNSFormat, lns8, lns16, lns16e5, lns24, lns32

ROM_FORMATS = [format for format in CATALOG.values() if format.frac_bits <= 10]
WIDE_FORMATS = [lns24, lns32, LNSFormat(5, 11), LNSFormat(5, 12), LNSFormat(2, 12), LNSFormat(4, 48)]


def with_adder(format, adder):
    return dataclasses.replace(format, adder=adder)


def taken_apart(format, vectors):
    """Return the signs and the fields of both operands."""
    signs = (words >> format.log_bits for words in (vectors.a, vectors.b))
    fields = (words & format.max_field for words in (vectors.a, vectors.b))
    return *signs, *fields


CASES = [
    pytest.param(unit, format, name, id=f"{unit.name}-{format}-{name}")
    for unit in (Multiply, AddSubtract)
    for format in (*CATALOG.values(), LNSFormat(2, 0), LNSFormat(40, 10))
    for name in GENERATED
    if applies(name, unit)
]


@pytest.mark.parametrize(("unit", "format", "name"), CASES)
def test_all_vectors_are_words_and_operations_of_the_unit(unit, format, name):
    vectors = generate(name, unit, format, seed=3, count=500)
    for words in (vectors.a, vectors.b):
        assert words.dtype == np.int64
        assert words.min() >= 0
        assert words.max() < 1 << format.width
    assert set(vectors.op.tolist()) == set(range(len(unit.operations)))
    if name not in EXHAUSTIVE:
        assert len(vectors) == 500


def test_corners_are_all_pairs_for_each_operation():
    words = corner_words(lns16)
    assert {0, 1, 0x8000, 0x4000, 0xC000, 0x3FFF, 0x4001, 0x4080, 0x7FFF, 0xFFFF} <= set(words)
    vectors = generate("corners", AddSubtract, lns16, seed=0, count=1)
    triples = set(zip(vectors.op.tolist(), vectors.a.tolist(), vectors.b.tolist(), strict=True))
    assert triples == {(op, a, b) for op in (0, 1) for a in words for b in words}


@pytest.mark.parametrize("name", [name for name in GENERATED if name != "corners"])
def test_the_seed_and_nothing_else_decides(name):
    first, again, other = (generate(name, AddSubtract, lns8, seed=seed, count=200) for seed in (5, 5, 6))
    assert np.array_equal(first.a, again.a)
    assert np.array_equal(first.b, again.b)
    assert not np.array_equal(first.a, other.a)


@pytest.mark.parametrize("format", [*ROM_FORMATS, lns32, with_adder(lns16, Off(below=4000))], ids=repr)
def test_near_cancelling_words_reach_all_that_the_adder_does(format):
    vectors = generate("near-cancelling", AddSubtract, format, seed=0, count=20_000)
    sign_a, sign_b, field_a, field_b = taken_apart(format, vectors)
    distance, reach = np.abs(field_a - field_b), format.adder.reach(format)
    assert np.array_equal(sign_a != sign_b, vectors.op == 0)  # a sum of opposite signs, a difference of equal ones
    assert {0, 1, 2, 3, 4} <= set(distance.tolist())
    # Clipping at the ends of the range shortens some distances, and none may be far beyond the reach.
    assert (distance <= 1.5 * reach).all()
    assert (distance >= reach).any()


def test_corners_are_at_the_reach_of_the_adder():
    format = with_adder(lns16, Off(below=4000))
    assert {0x4000 - 4000, 0x4000 + 4000, 0x4000 - 3999, 0x4000 + 3999} <= set(corner_words(format))


@pytest.mark.parametrize(
    "format",
    [*ROM_FORMATS, LNSFormat(2, 1), with_adder(lns8, Off(below=100)), with_adder(lns8, Off(below=127))],
    ids=repr,
)
def test_the_table_is_read_at_every_entry_by_every_operation_in_both_orders(format):
    vectors = generate("table", AddSubtract, format, seed=0, count=1)
    sign_a, sign_b, field_a, field_b = taken_apart(format, vectors)
    assert (field_a != 0).all()
    assert (field_b != 0).all()
    met = set(zip(vectors.op, sign_a == sign_b, field_a - field_b, strict=True))
    end = min(format.adder.reach(format) + 2, format.max_field)
    assert met == {(op, same, d) for op in (0, 1) for same in (False, True) for d in range(1 - end, end)}


@pytest.mark.parametrize("format", WIDE_FORMATS, ids=repr)
@pytest.mark.parametrize("count", [2, 20_000])
def test_the_table_of_a_wide_format_is_read_at_all_corners_and_at_random(format, count):
    vectors = generate("table", AddSubtract, format, seed=0, count=count)
    sign_a, sign_b, field_a, field_b = taken_apart(format, vectors)
    assert (field_a != 0).all()
    assert (field_b != 0).all()
    corners = corner_distances(format)
    assert len(vectors) == max(count, 8 * len(corners))
    assert len(corners) < 400
    met = set(zip(vectors.op, sign_a == sign_b, field_a - field_b, strict=True))
    assert {(op, same, side * d) for op in (0, 1) for same in (False, True) for side in (-1, 1) for d in corners} <= met
    if count > 2:
        end = min(format.adder.reach(format) + 2, format.max_field)
        distance = np.abs(field_a - field_b)
        others = distance[~np.isin(distance, corners)]
        assert others.max() < end
        # Half are uniform, half log-uniform, so that every octave that has more than corners in it is met.
        assert 0.35 < (others > end // 4).mean() < 0.75
        octaves = np.bincount(np.log2(others).astype(int), minlength=end.bit_length())
        assert (octaves[8 : end.bit_length() - 1] > 8).all()


def test_corner_distances_are_where_something_changes():
    distances = set(corner_distances(lns32))
    reach = lns32.scale.gaussian_reach
    assert set(range(65)) <= distances
    for place in (1 << 10, 1 << 23, 1 << 27, 1 << 30, 3 << 23, 24 << 23, reach):
        assert {place - 2, place - 1, place, place + 1, place + 2} <= distances
    assert (1 << 31) - 2 in distances  # the largest: field 1 below the last field
    assert not {(1 << 31) - 1, 26 << 23, 100} & distances  # no distance; beyond the reach; nothing changes there
    assert corner_distances(LNSFormat(2, 0)) == [0, 1, 2]
    far = with_adder(LNSFormat(5, 12), Off(below=100_000))  # further than the exact adder
    assert {(24 << 12) + 2, 100_002} <= set(corner_distances(far))


def test_the_corners_of_an_adder_and_their_neighbours_are_tried():
    mine = with_adder(lns32, Off(below=1_000_003))
    assert adder_distances(mine) == [1_000_002, 1_000_003, 1_000_004]
    assert adder_distances(with_adder(LNSFormat(1, 4), Off(below=31))) == [30]
    assert adder_distances(lns32) == []
    vectors = generate("table", AddSubtract, mine, seed=0, count=20_000)
    assert {1_000_002, 1_000_003, 1_000_004} <= met_distances(mine, vectors)


def test_of_too_many_corners_of_an_adder_some_are_tried(monkeypatch):
    own = set(range(1_000_000, 1_900_000, 90))
    monkeypatch.setattr(Off, "corners", lambda self, format: own)
    mine = with_adder(lns32, Off())
    vectors = generate("table", AddSubtract, mine, seed=0, count=20_000)
    assert len(vectors) == 20_000
    met = met_distances(mine, vectors)
    assert 2800 < len(met & set(adder_distances(mine))) < 3400  # of each operation's 2500, three quarters but for 295
    assert 900 < len(met - set(adder_distances(mine)) - set(corner_distances(mine))) < 1200
    assert set(corner_distances(mine)) <= met


def met_distances(format, vectors):
    _, _, field_a, field_b = taken_apart(format, vectors)
    return set(np.abs(field_a - field_b).tolist())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("format", [lns8, lns16, lns16e5, LNSFormat(4, 7), LNSFormat(6, 14), lns32], ids=repr)
def test_the_results_at_the_table_neither_saturate_nor_flush(format, seed):
    vectors = generate("table", AddSubtract, format, seed=seed, count=4000)
    _, flags = evaluate(AddSubtract, format, vectors)
    assert not flags.any()


def test_where_there_is_no_room_for_a_result_the_operands_are_words_all_the_same():
    format = LNSFormat(2, 7)  # 4 octaves, and t(1) is 7.5 of them
    vectors = generate("table", AddSubtract, format, seed=0, count=1)
    _, _, field_a, field_b = taken_apart(format, vectors)
    _, flags = evaluate(AddSubtract, format, vectors)
    assert (field_a != 0).all() and (field_b != 0).all()
    assert 0 < (flags != 0).mean() < 0.25


@pytest.mark.parametrize("unit", [Multiply, AddSubtract])
def test_saturation_raises_both_flags(unit):
    vectors = generate("saturation", unit, lns16, seed=0, count=2000)
    _, flags = evaluate(unit, lns16, vectors)
    overflows, underflows = (flags & 1).sum(), (flags >> 1 & 1).sum()
    assert overflows > 100
    assert underflows > 20
    assert ((flags & 3) == 0).sum() > 400  # and the other side of the boundary


def test_an_unknown_stimulus_is_refused():
    with pytest.raises(ValueError) as caught:
        generate("noise", Multiply, lns8, seed=0, count=1)
    assert (
        str(caught.value) == "stimulus must be one of corners, random, table, near-cancelling, saturation, not 'noise'"
    )
