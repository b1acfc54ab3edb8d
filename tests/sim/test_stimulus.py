import numpy as np
import pytest

from hdl import AddSubtract, Multiply
from sim.stimulus import EXHAUSTIVE, GENERATED, applies, corner_words, generate
from xlnstorch import CATALOG, LNSFormat, lns8, lns16

ROM_FORMATS = [format for format in CATALOG.values() if format.frac_bits <= 10]


CASES = [
    pytest.param(unit, format, name, id=f"{unit.name}-{format}-{name}")
    for unit in (Multiply, AddSubtract)
    for format in (*CATALOG.values(), LNSFormat(2, 0), LNSFormat(40, 10))
    for name in GENERATED
    if applies(name, unit) and (name != "table" or format.frac_bits <= 10)
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


@pytest.mark.parametrize("format", ROM_FORMATS, ids=repr)
def test_near_cancelling_words_reach_the_whole_table(format):
    vectors = generate("near-cancelling", AddSubtract, format, seed=0, count=20_000)
    mask = format.max_field
    distance = np.abs((vectors.a & mask) - (vectors.b & mask))
    opposite = (vectors.a >> format.log_bits) != (vectors.b >> format.log_bits)
    assert np.array_equal(opposite, vectors.op == 0)  # a sum of opposite signs, a difference of equal ones
    assert {0, 1, 2, 3, 4} <= set(distance.tolist())
    # Clipping at the ends of the range shortens some distances, and none may be far beyond the reach.
    assert (distance <= 1.5 * format.scale.gaussian_reach).all()
    assert (distance >= format.scale.gaussian_reach).any()


@pytest.mark.parametrize("format", [*ROM_FORMATS, LNSFormat(2, 1)], ids=repr)
def test_the_table_is_read_at_every_entry_by_every_operation_in_both_orders(format):
    vectors = generate("table", AddSubtract, format, seed=0, count=1)
    (sign_a, field_a), (sign_b, field_b) = (
        (words >> format.log_bits, words & format.max_field) for words in (vectors.a, vectors.b)
    )
    assert (field_a != 0).all()
    assert (field_b != 0).all()
    met = set(zip(vectors.op, sign_a == sign_b, field_a - field_b, strict=True))
    reach = min(format.scale.gaussian_reach + 2, format.max_field)
    assert met == {(op, same, d) for op in (0, 1) for same in (False, True) for d in range(1 - reach, reach)}


@pytest.mark.parametrize("unit", [Multiply, AddSubtract])
def test_saturation_raises_both_flags(unit):
    from sim.golden import evaluate

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
