import dataclasses

import numpy as np
import pytest
import torch
from lnstesting import Off

from hdl import UNITS, AddSubtract, Multiply, MultiplyAdd, Unit
from sim.golden import evaluate
from sim.naming import named_unit
from sim.payloads import dimensions, element, width
from sim.stimulus import EXHAUSTIVE, GENERATED, adder_distances, applies, corner_distances, generate
from sim.values import corner_words
from xlnstorch import CATALOG, LNSFormat, LogAccumulator, from_words, lns8, lns16, lns16e5, lns24, lns32

ROM_FORMATS = [format for format in CATALOG.values() if format.frac_bits <= 10]
WIDE_FORMATS = [lns24, lns32, LNSFormat(5, 11), LNSFormat(5, 12), LNSFormat(2, 12), LNSFormat(4, 48)]


def with_adder(format, adder):
    return dataclasses.replace(format, adder=adder)


class Adder(AddSubtract):
    """An adder without gates, which a wide format need not have."""

    def __init__(self, *, format):
        Unit.__init__(self, format=format)

    @classmethod
    def check_format(cls, format):
        pass


def with_specials(format):
    return dataclasses.replace(format, specials=True)


def taken_apart(format, vectors):
    """Return the signs and the fields of both operands."""
    a, b = vectors.operands.values()
    signs = (words >> format.log_bits for words in (a, b))
    fields = (words & format.max_field for words in (a, b))
    return *signs, *fields


CASES = [
    pytest.param(unit, format, name, id=f"{unit.name}-{format}-{name}")
    for unit in UNITS.values()
    for format in (lns8, lns16, lns16e5, LNSFormat(2, 1), LNSFormat(20, 10), with_specials(lns8), with_specials(lns16))
    for name in GENERATED
    if applies(name, unit(format=format))
]


@pytest.mark.parametrize(("unit", "format", "name"), CASES)
def test_all_vectors_are_operands_and_operations_of_the_unit(unit, format, name):
    unit = unit(format=format)
    vectors = generate(name, unit, seed=3, count=500)
    assert list(vectors.operands) == list(unit.operands())
    for operand, layout in unit.operands().items():
        values = vectors.operands[operand]
        assert values.dtype == np.int64
        assert values.shape == (len(vectors), *dimensions(layout))
        assert values.min() >= 0
        assert values.max() < 1 << width(element(layout))
    assert set(vectors.op.tolist()) <= set(range(len(unit.operations)))
    if name in ("corners", "random"):
        assert len(set(vectors.op.tolist())) == len(unit.operations)
    if vectors.sequence:
        assert len(vectors) >= 500
    elif name not in EXHAUSTIVE:
        assert len(vectors) == 500


@pytest.mark.parametrize(
    ("text", "stimuli"),
    [
        ("multiply", "corners random near-cancelling saturation"),
        ("add", "corners random table near-cancelling saturation"),
        ("mac", "corners random table near-cancelling saturation"),
        ("sqrt", "corners random"),
        ("square", "corners random saturation"),
        ("relu", "corners random near-cancelling"),
        ("alu", "corners random table near-cancelling saturation"),
        ("from_float", "corners random rounding"),
        ("to_fixed", "corners random rounding"),
    ],
)
def test_a_unit_has_the_stimuli_that_mean_anything_to_it(text, stimuli):
    unit = named_unit(text, lns16)
    assert [name for name in GENERATED if applies(name, unit)] == stimuli.split()


def test_corners_are_all_pairs_for_each_operation():
    words = corner_words(lns16)
    assert {0, 1, 0x8000, 0x4000, 0xC000, 0x3FFF, 0x4001, 0x4080, 0x7FFF, 0xFFFF} <= set(words)
    vectors = generate("corners", Adder(format=lns16), seed=0, count=1)
    triples = set(zip(vectors.op.tolist(), *map(np.ndarray.tolist, vectors.operands.values()), strict=True))
    assert triples == {(op, a, b) for op in (0, 1) for a in words for b in words}


@pytest.mark.parametrize("text", ["from_fixed:width=64", "to_fixed:width=64"])
def test_the_bits_of_64_are_tried_as_signed_integers(text):
    unit = named_unit(text, lns8)
    for name in GENERATED:
        if applies(name, unit):
            vectors = generate(name, unit, seed=0, count=100)
            assert vectors.operands["a"].dtype == np.int64
            assert len(evaluate(unit, vectors)["flags"]) == len(vectors)
    corners = set(generate("corners", unit, seed=0, count=1).operands["a"].tolist())
    if text.startswith("from"):
        assert {0, 1, -1, 2**62, 2**63 - 1, -(2**63), 1 - 2**63} <= corners


@pytest.mark.parametrize("name", ["random", "table", "near-cancelling", "saturation"])
def test_the_seed_and_nothing_else_decides(name):
    first, again, other = (generate(name, Adder(format=lns8), seed=seed, count=200).operands for seed in (5, 5, 6))
    assert all(np.array_equal(first[name], again[name]) for name in ("a", "b"))
    assert not np.array_equal(first["a"], other["a"])


@pytest.mark.parametrize("format", [*ROM_FORMATS, lns32, with_adder(lns16, Off(below=4000))], ids=repr)
def test_near_cancelling_words_reach_all_that_the_adder_does(format):
    vectors = generate("near-cancelling", Adder(format=format), seed=0, count=20_000)
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
    vectors = generate("table", Adder(format=format), seed=0, count=1)
    sign_a, sign_b, field_a, field_b = taken_apart(format, vectors)
    assert (field_a != 0).all()
    assert (field_b != 0).all()
    met = set(zip(vectors.op, sign_a == sign_b, field_a - field_b, strict=True))
    end = min(format.adder.reach(format) + 2, format.max_field)
    assert met == {(op, same, d) for op in (0, 1) for same in (False, True) for d in range(1 - end, end)}


@pytest.mark.parametrize("format", WIDE_FORMATS, ids=repr)
@pytest.mark.parametrize("count", [2, 20_000])
def test_the_table_of_a_wide_format_is_read_at_all_corners_and_at_random(format, count):
    vectors = generate("table", Adder(format=format), seed=0, count=count)
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
    vectors = generate("table", Adder(format=mine), seed=0, count=20_000)
    assert {1_000_002, 1_000_003, 1_000_004} <= met_distances(mine, vectors)


def test_of_too_many_corners_of_an_adder_some_are_tried(monkeypatch):
    own = set(range(1_000_000, 1_900_000, 90))
    monkeypatch.setattr(Off, "corners", lambda self, format: own)
    mine = with_adder(lns32, Off())
    vectors = generate("table", Adder(format=mine), seed=0, count=20_000)
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
    vectors = generate("table", Adder(format=format), seed=seed, count=4000)
    flags = evaluate(Adder(format=format), vectors)["flags"]
    assert not flags.any()


def test_where_there_is_no_room_for_a_result_the_operands_are_words_all_the_same():
    format = LNSFormat(2, 7)  # 4 octaves, and t(1) is 7.5 of them
    vectors = generate("table", Adder(format=format), seed=0, count=1)
    _, _, field_a, field_b = taken_apart(format, vectors)
    flags = evaluate(Adder(format=format), vectors)["flags"]
    assert (field_a != 0).all() and (field_b != 0).all()
    assert 0 < (flags != 0).mean() < 0.25


@pytest.mark.parametrize("specials", [False, True])
@pytest.mark.parametrize("text", ["multiply", "divide", "square", "add", "mac"])
def test_saturation_raises_both_flags(text, specials):
    unit = named_unit(text, with_specials(lns16) if specials else lns16)
    vectors = generate("saturation", unit, seed=0, count=2000)
    flags = evaluate(unit, vectors)["flags"]
    overflows, underflows = (flags & 1).sum(), (flags >> 1 & 1).sum()
    assert overflows > 100
    assert underflows > 20
    assert ((flags & 3) == 0).sum() > 400  # and the other side of the boundary


@pytest.mark.parametrize("guard_bits", [0, 3])
def test_a_fused_sum_has_the_distances_of_the_adder_between_its_product_and_the_other_term(guard_bits):
    format = dataclasses.replace(lns8, accumulator=LogAccumulator(guard_bits=guard_bits))
    unit = MultiplyAdd(format=format)
    vectors = generate("table", unit, seed=0, count=1)
    wide = unit.operands()["c"].word_format
    a, b, c = vectors.operands.values()
    product = from_words(a, format) * from_words(b, format)
    fields = format.unpack(product.words)[1].numpy() << guard_bits, c & wide.max_field
    end = min(wide.adder.reach(wide) + 2, wide.max_field)
    same = format.unpack(product.words)[0].numpy() == c >> wide.log_bits
    met = set(zip(same, fields[0] - fields[1], strict=True))
    wanted = {(equal, d) for equal in (False, True) for d in range(1 - end, end)}
    # Of the product the last bits are clear, and the other term is as much smaller, if there is room.
    assert len(wanted - met) <= (0 if guard_bits == 0 else len(wanted) // 50)
    assert (fields[0] > 0).all()


def test_words_beyond_the_range_of_numbers_are_met_where_there_are_such():
    unit = Multiply(format=with_specials(lns16))
    words = generate("random", unit, seed=0, count=10_000).operands["a"]
    for special in (0, 0x8000, 0x7FFF, 0xFFFF, 0x7FFE):
        assert (words == special).sum() > 2
    corners = generate("corners", unit, seed=0, count=1).operands["a"]
    assert {0, 0x8000, 0x7FFF, 0xFFFF, 0x7FFE, 0xFFFE} <= set(corners.tolist())


@pytest.mark.parametrize("text", ["from_float:dtype=float16", "from_float", "from_fixed:width=20,frac_bits=10"])
def test_rounding_is_on_both_sides_of_where_the_word_changes(text):
    """Operands come from a few units around each boundary, so that both neighbouring words are met."""
    unit = named_unit(text, lns8)
    vectors = generate("rounding", unit, seed=0, count=4000)
    words = evaluate(unit, vectors)["word"]
    order = np.argsort(vectors.operands["a"])
    a, words = vectors.operands["a"][order], words[order]
    near = np.diff(a) <= 2
    assert (np.diff(words)[near] != 0).sum() > 20
    assert len(set(words.tolist())) > 100


def test_rounding_to_a_float_is_next_to_halves():
    unit = named_unit("to_float:dtype=bfloat16", LNSFormat(8, 15))
    words = from_words(generate("rounding", unit, seed=0, count=2000).operands["a"], unit.format).value
    units = words.abs() / torch.exp2(torch.floor(torch.log2(words.abs())) - 7)  # of the last place
    away = ((units % 1) - 0.5).abs()[(units < 256) & torch.isfinite(units)]
    assert (away < 0.02).double().mean() > 0.9


def test_an_unknown_stimulus_is_refused():
    with pytest.raises(ValueError) as caught:
        generate("noise", Multiply(format=lns8), seed=0, count=1)
    assert (
        str(caught.value)
        == "stimulus must be one of corners, random, table, near-cancelling, saturation, rounding, not 'noise'"
    )
