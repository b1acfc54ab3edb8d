"""The piecewise adder: its integers against the reference, its errors against the targets, its tables pinned."""

import dataclasses
import hashlib
import json
import random

import pytest
import torch
from lnstesting import exactly

from xlnstorch import Exact, LNSFormat, Piecewise, arithmetic, lns8, lns12, lns16, lns16e5, lns24, lns32
from xlnstorch.adders import generator, measure, named_adder, piecewise
from xlnstorch.adders.regions import RegionList
from xlnstorch.reference_adders import AdderReference
from xlnstorch.reference_adders import piecewise as reference


def with_piecewise(format, *parameters):
    return dataclasses.replace(format, adder=Piecewise(*parameters))


def label(parameters):
    return Piecewise(*parameters).name


PARAMETERS = [(1, 1.0), (2, 1.0), (1, 0.5), (2, 0.5), (1, 0.75), (1, 4.0), (2, 64.0)]
LOGARITHM = [(1, 1.0, "logarithm"), (2, 0.75, "logarithm"), (2, 3.0, "logarithm")]


def longer(*values):
    """Return parameters of a test that takes the longer for them, of which others are tried as well."""
    return pytest.param(*values, marks=pytest.mark.long)


WIDE = [
    *(with_piecewise(lns24, 1), with_piecewise(lns24, 2), with_piecewise(lns24, 2, 1.0, "logarithm")),
    *(with_piecewise(lns32, 2), with_piecewise(lns32, 2, 1.0, "logarithm")),
]


def check(format, ds):
    adder, design = format.adder, dataclasses.asdict(format.adder.design(format))
    d = torch.tensor(list(ds))
    for subtract in (False, True):
        got = adder.gaussian(format, d, torch.full_like(d, subtract, dtype=torch.bool))
        expected = [reference(design, int(x), subtract) if x or not subtract else 0 for x in d]
        assert (-got if subtract else got).tolist() == expected


@pytest.mark.parametrize("parameters", PARAMETERS, ids=label)
@pytest.mark.parametrize("format", [LNSFormat(2, 0), LNSFormat(1, 1), LNSFormat(4, 2), lns8, lns12, lns16], ids=str)
def test_every_integer_is_the_reference(format, parameters):
    format = with_piecewise(format, *parameters)
    check(format, range(format.adder.reach(format) + 20))


@pytest.mark.parametrize("parameters", LOGARITHM, ids=label)
@pytest.mark.parametrize("format", [LNSFormat(1, 8), LNSFormat(8, 9)], ids=str)
def test_every_integer_by_a_logarithm_is_the_reference(format, parameters):
    format = with_piecewise(format, *parameters)
    check(format, range(format.adder.reach(format) + 20))


@pytest.mark.parametrize("format", WIDE, ids=lambda format: f"{format.name} {format.adder.name}")
def test_integers_of_wide_formats_are_the_reference(format):
    rng, corners = random.Random(format.name), list(format.adder.corners(format))
    ds = [int(2 ** rng.uniform(0, format.frac_bits + 5)) for _ in range(300)]
    design = format.adder.design(format)
    ends = [end - off for end in (*design.ends, 1 << design.top) for off in (0, 1)]
    check(format, [0, 1, 2, *rng.sample(corners, min(200, len(corners))), *ds, *ends, 2**40])


@pytest.mark.parametrize("parameters", PARAMETERS, ids=label)
@pytest.mark.parametrize("frac_bits", [0, 1, 2, 3, 5, 7, 8])
def test_no_error_reaches_the_target(frac_bits, parameters):
    _, error = parameters
    quality = measure(with_piecewise(LNSFormat(8, frac_bits), *parameters))
    if error == 0.5:
        assert quality.rounded_sum == quality.rounded_difference == 1.0
    else:
        assert quality.max < error


@pytest.mark.parametrize(
    "frac_bits, parameters",
    [
        *((frac_bits, parameters) for frac_bits in (8, 9) for parameters in LOGARITHM),
        (12, LOGARITHM[0]),
        *(longer(12, parameters) for parameters in LOGARITHM[1:]),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else label(value),
)
def test_no_error_by_a_logarithm_reaches_the_target(frac_bits, parameters):
    assert measure(with_piecewise(LNSFormat(8, frac_bits), *parameters)).max < parameters[1]


@pytest.mark.parametrize("parameters", [(1,), (2,), (2, 1.0, "logarithm")], ids=label)
def test_no_error_of_lns24_reaches_the_target(parameters):
    assert 0.8 < measure(with_piecewise(lns24, *parameters)).max < 1.0


@pytest.mark.parametrize("parameters", [(2,), (2, 1.0, "logarithm")], ids=label)
def test_a_share_of_lns32_is_faithful(parameters):
    quality = measure(with_piecewise(lns32, *parameters), every=97)
    assert quality.points > 2_000_000
    assert 0.8 < quality.max < 1.0


@pytest.mark.long
@pytest.mark.parametrize("parameters", [(2,), (2, 1.0, "logarithm")], ids=label)
def test_every_distance_of_lns32_is_faithful(parameters):
    quality = measure(with_piecewise(lns32, *parameters))
    assert quality.points == lns32.scale.gaussian_reach
    assert 0.8 < quality.max < 1.0


@pytest.mark.parametrize("frac_bits", [10, longer(12)])
def test_correct_rounding_is_reached_where_a_table_would_be_long(frac_bits):
    format = with_piecewise(LNSFormat(8, frac_bits), 1, 0.5)
    assert measure(format).rounded == 1.0
    assert format.adder.cost(format).rom_bits < Exact().cost(format).rom_bits / 2


def test_errors_are_below_the_public_ones_of_the_same_words():
    """Of the xlns16 and xlns32 programs, in units of the last place, sums and differences."""
    default, nearest = measure(with_piecewise(lns16)), measure(with_piecewise(lns16, 1, 0.5))
    assert default.max_sum < 3.8 and default.max_difference < 8.0
    assert nearest.max_sum <= 0.5 and nearest.max_difference <= 0.5 < 1.49
    wide = measure(with_piecewise(lns32, 2), every=97)
    assert wide.max_sum < 1.9 and wide.max_difference < 4.1


def test_words_are_those_of_the_reference():
    format = with_piecewise(lns16, 2)
    design = dataclasses.asdict(format.adder.design(format))
    third = AdderReference(8, 7, lambda frac_bits, d, subtract: reference(design, d, subtract))
    generator = torch.Generator().manual_seed(7)
    a = torch.randint(0, 1 << 16, (3000,), generator=generator)
    near = (a & 0x7FFF) + torch.randint(-300, 300, (3000,), generator=generator)
    b = near.clamp(0, 0x7FFF) | (torch.randint(0, 2, (3000,), generator=generator) << 15)
    for name in ("add", "sub"):
        result = getattr(arithmetic, name)(format, format.from_unsigned(a), format.from_unsigned(b))
        expected = [getattr(third, name)(x, y)[0] for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        assert format.to_unsigned(result).tolist() == expected


# Designs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", [with_piecewise(lns8), with_piecewise(lns16, 1, 0.5), *WIDE], ids=repr)
def test_a_design_is_what_the_gates_can_build(format):
    design = format.adder.design(format)
    first = 1 << (design.top - 1) if design.fall else 1
    regions_are_whole(design.polynomials, {False: (0, design.ends[0]), True: (first, design.ends[1])})
    if design.fall:
        regions_are_whole(design.fall, {True: (0, 1 << design.top)})
        assert design.polynomials.guard_bits >= max(1, design.fall.guard_bits)
    regions = RegionList(design, format.log_bits)
    assert format.adder.cost(format).rom_bits == design.rom_bits + regions.rom_bits


def regions_are_whole(polynomials, ranges):
    taken = [False] * len(polynomials.rows)
    for subtract, (first, end) in ranges.items():
        regions = sorted((r for r in polynomials.regions if r.subtract == subtract), key=lambda region: region.start)
        starts = [region.start for region in regions]
        assert [first, *(region.start + (1 << region.size) for region in regions)] == [*starts, end]
        for region in regions:
            assert region.start % (1 << region.size) == 0 and 0 <= region.width <= region.size
            assert region.row % region.segments == 0  # so that an address is an or
            for row in range(region.row, region.row + region.segments):
                assert not taken[row]
                taken[row] = True
    assert all(taken)
    assert all(c >= 0 for row in polynomials.rows for c in row)
    if polynomials.degree == 2:
        assert all(c1 >= c2 for _, c1, c2 in polynomials.rows)  # no slope changes its sign
    assert 0 <= polynomials.inner_bits <= polynomials.offset_bits
    assert polynomials.rom_bits == len(polynomials.rows) * sum(polynomials.coefficient_bits)


@pytest.mark.parametrize(
    "format",
    [
        *(with_piecewise(lns8, 2, 64.0), with_piecewise(lns16, 1, 8.0), with_piecewise(lns16, 2)),
        *(with_piecewise(LNSFormat(8, 9), *parameters) for parameters in LOGARITHM),
        *(longer(with_piecewise(LNSFormat(8, 12), *parameters)) for parameters in LOGARITHM),
    ],
    ids=repr,
)
def test_no_polynomial_is_negative(format):
    """Gates have no sign for it."""
    design = format.adder.design(format)
    for subtract, end in zip((False, True), design.ends, strict=True):
        d = torch.arange(1 << (design.top - 1) if design.fall and subtract else int(subtract), end)
        assert int(design.polynomials.evaluate(d, torch.full(d.shape, subtract)).min()) >= 0
    if design.fall:
        d = torch.arange(1 << design.top)
        assert int(design.fall.evaluate(d, torch.ones(d.shape, dtype=torch.bool)).min()) >= 0


@pytest.mark.parametrize(
    ("format", "rows", "rom_bits", "digest"),
    [
        (with_piecewise(lns8), 18, 126, "a707d01a15110942"),
        (with_piecewise(lns16), 56, 1008, "18194159db6773f0"),
        (with_piecewise(lns16, 1, 0.5), 121, 3267, "522e98eb6d04d263"),
        (with_piecewise(lns16, 2), 49, 931, "d310237976e81562"),
        (with_piecewise(lns16e5, 2), 69, 2208, "f15fce8919524e90"),
        (with_piecewise(lns24, 2), 243, 11421, "aed66561f337fe95"),
        (with_piecewise(lns24, 2, 1.0, "logarithm"), 108, 5552, "7af6595c0dae9268"),
        (with_piecewise(lns32, 2), 2035, 134310, "a3a0b6c201e58aa7"),
        (with_piecewise(lns32, 2, 1.0, "logarithm"), 468, 35120, "dcaf5dede1782d52"),
    ],
    ids=lambda value: value.adder.name + " " + value.name if isinstance(value, LNSFormat) else "",
)
def test_designs_are_the_same_everywhere(format, rows, rom_bits, digest):
    """The tables are part of the arithmetic, so another machine, or another search, must not change them unnoticed."""
    design = format.adder.design(format)
    text = json.dumps(dataclasses.asdict(design), sort_keys=True)
    found = (len(design.polynomials.rows), design.rom_bits, hashlib.sha256(text.encode()).hexdigest()[:16])
    assert found == (rows, rom_bits, digest)


@pytest.mark.parametrize("frac_bits", [3, 7, 10])
def test_an_error_that_samples_cannot_tell_from_a_half_is_a_half(frac_bits):
    quality = measure(with_piecewise(LNSFormat(8, frac_bits), 1, 0.50001))
    assert quality.max < 0.50001


@pytest.mark.parametrize("error", [48.0, 56.0, 64.0])
def test_what_a_logarithm_covers_ends_where_the_gates_end(error):
    """Whatever the exponent of the x below which there is a logarithm: the generator takes the cheapest."""
    for near in (0, 1, 2):
        problem = generator._Problem(8, 2, error, near, margin=1 << 12)
        assert problem.ends[1] >= 1 << 8 + near
        assert max(part.start + (1 << part.size) for part in problem.parts if part.curve != "sum") == problem.ends[1]


@pytest.mark.parametrize(
    "frac_bits, error", [(13, 8.0), (15, 40.0), (13, 62.5), longer(13, 40.0), longer(15, 8.0), longer(15, 62.5)]
)
def test_large_errors_hold_between_samples_too(frac_bits, error):
    assert measure(with_piecewise(LNSFormat(8, frac_bits), 2, error)).max < error


def test_a_smaller_error_never_costs_less():
    costs = [generator._cost(Piecewise(1, error).design(lns16)) for error in (0.5, 0.75, 1.0, 2.0, 4.0, 8.0)]
    assert costs == sorted(costs, reverse=True)


def test_a_cached_design_is_read_again_and_a_damaged_one_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("LNS_CACHE", str(tmp_path))
    calls = []
    original = generator.generate

    def counting(*arguments):
        calls.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(generator, "generate", counting)
    piecewise._design.cache_clear()
    first = piecewise._design(13, 1, 3.0, False)
    (file,) = tmp_path.glob("piecewise/*.json")
    piecewise._design.cache_clear()
    assert piecewise._design(13, 1, 3.0, False) == first and len(calls) == 1
    file.write_text(file.read_text().replace('"guard_bits": ', '"guard_bits": 1'))
    piecewise._design.cache_clear()
    assert piecewise._design(13, 1, 3.0, False) == first and len(calls) == 2


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LNS_CACHE", str(tmp_path / "file"))
    piecewise._design.cache_clear()
    assert piecewise._design(13, 1, 3.0, False).polynomials.degree == 1


# Parameters -----------------------------------------------------------------------------------------------------------


def test_parameters():
    assert Piecewise() == Piecewise(degree=1, error=1.0) == Piecewise(1, 1)
    assert repr(Piecewise(2, 1)) == "Piecewise(degree=2, error=1.0, singularity='segments')"
    assert [Piecewise().name, Piecewise(2).name, Piecewise(2, 0.5).name] == [
        "piecewise",
        "piecewise:degree=2",
        "piecewise:degree=2,error=0.5",
    ]
    assert named_adder("piecewise:error=0.5,degree=2") == Piecewise(2, 0.5)
    assert named_adder("piecewise:singularity=logarithm") == Piecewise(singularity="logarithm")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Piecewise(3), ValueError, "degree must be 1 or 2, not 3"),
        (lambda: Piecewise(1.0), TypeError, "degree must be an integer, not 1.0"),
        (lambda: Piecewise(error="1"), TypeError, "error must be a number, not '1'"),
        (
            lambda: Piecewise(error=0.4),
            ValueError,
            "error must be between 0.5 and 64 units of the last place, not 0.4",
        ),
        (
            lambda: Piecewise(error=float("nan")),
            ValueError,
            "error must be between 0.5 and 64 units of the last place, not nan",
        ),
        (
            lambda: Piecewise(singularity="log"),
            ValueError,
            "singularity must be 'segments' or 'logarithm', not 'log'",
        ),
        (
            lambda: Piecewise(2, 0.5, "logarithm"),
            ValueError,
            "with the singularity 'logarithm' error must be at least 0.75, not 0.5",
        ),
        (
            lambda: with_piecewise(LNSFormat(8, 7, base=3.0)),
            ValueError,
            "the adder piecewise needs base 2, not 3.0",
        ),
        (
            lambda: with_piecewise(LNSFormat(8, 24)),
            ValueError,
            "the adder piecewise needs 0 to 23 fraction bits, not 24",
        ),
        (
            lambda: with_piecewise(lns16, 2, 1.0, "logarithm"),
            ValueError,
            "the adder piecewise:degree=2,singularity=logarithm needs 8 to 23 fraction bits, not 7",
        ),
        (
            lambda: with_piecewise(lns32, 1, 0.5),
            ValueError,
            "the error of the adder piecewise:error=0.5 must be at least 0.75 with more than 12 fraction bits, "
            "not 0.5 with 23",
        ),
    ],
)
def test_what_cannot_be_is_refused_at_the_door(make, error, message):
    with pytest.raises(error, match=exactly(message)):
        make()
