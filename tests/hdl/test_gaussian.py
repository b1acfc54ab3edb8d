"""The gates of the approximate adders against the reference and the golden model."""

import dataclasses
import functools
import random

import pytest
import torch
from lnstesting import exactly

from hdl import AddSubtract
from hdl.gaussian import MitchellDatapath, PiecewiseDatapath, datapath_of
from sim.stimulus import GENERATED
from sim.verify import verify
from xlnstorch import LNSFormat, LNSTensor, lns8, lns12, lns16, lns16e5, lns24, lns32
from xlnstorch.adders import Mitchell, Piecewise
from xlnstorch.observe import FLAGS
from xlnstorch.reference_adders import AdderReference, mitchell, piecewise

CORRECTIONS = [0, 1, 2]
FAITHFUL, SHORT, NEAREST, COARSE = Piecewise(), Piecewise(2), Piecewise(error=0.5), Piecewise(2, 8.0)
LOGARITHM, SHORTEST = Piecewise(singularity="logarithm"), Piecewise(2, singularity="logarithm")


def with_adder(format, adder):
    return dataclasses.replace(format, adder=adder)


def reference_of(format):
    """Return the reference whose adder is that of a format."""
    if isinstance(format.adder, Mitchell):
        gaussian = functools.partial(mitchell, corrections=format.adder.corrections)
    else:
        design = dataclasses.asdict(format.adder.design(format))

        def gaussian(frac_bits, d, subtract):
            return piecewise(design, d, subtract)

    return AdderReference(format.int_bits, format.frac_bits, gaussian)


def payload(format, op, a, b):
    return a | b << format.width | op << 2 * format.width


def check(format, cases, run_unit):
    """Assert that the gates give the words and flags of the reference, and the words of the golden model."""
    reference = reference_of(format)
    _, received = run_unit(AddSubtract(format=format), [payload(format, *case) for case in cases])
    assert len(received) == len(cases)
    for (op, a, b), (_, got) in zip(cases, received, strict=True):
        word, flags = (reference.sub if op else reference.add)(a, b)
        want = word | sum(1 << FLAGS.index(flag) for flag in flags) << format.width
        assert got == want, ("sub" if op else "add", hex(a), hex(b))

    op, a, b = torch.tensor(cases).unbind(1)
    a, b = (LNSTensor(format.from_unsigned(words), format) for words in (a, b))
    golden = torch.where(op.bool(), format.to_unsigned((a - b).words), format.to_unsigned((a + b).words))
    assert [got % (1 << format.width) for _, got in received] == golden.tolist()


@pytest.mark.parametrize(
    ("format", "adder"),
    [
        *((LNSFormat(1, 3), Mitchell(n)) for n in CORRECTIONS),
        *((LNSFormat(1, 1), Mitchell(1)), (LNSFormat(2, 0), Mitchell()), (LNSFormat(2, 1), Mitchell())),
        *((LNSFormat(1, 3), adder) for adder in (FAITHFUL, SHORT, NEAREST, COARSE)),
        *((LNSFormat(1, 1), FAITHFUL), (LNSFormat(2, 0), SHORT), (LNSFormat(3, 1), NEAREST)),
    ],
    ids=str,
)
def test_all_pairs_of_words_of_a_small_format(format, adder, run_unit):
    format = with_adder(format, adder)
    words = range(1 << format.width)
    check(format, [(op, a, b) for op in (0, 1) for a in words for b in words], run_unit)


@pytest.mark.parametrize(
    ("format", "adder"),
    [
        *((lns8, Mitchell(0)), (lns8, Mitchell(2)), (lns12, Mitchell(1)), (lns16, Mitchell(2))),
        *((lns8, FAITHFUL), (lns8, COARSE), (lns12, SHORT), (lns16, FAITHFUL), (lns16, NEAREST)),
        *((LNSFormat(5, 8), LOGARITHM), (LNSFormat(1, 8), SHORTEST)),
    ],
    ids=str,
)
def test_every_distance(format, adder, run_unit):
    format = with_adder(format, adder)
    # From here all sums and differences are in range, so that nothing hides behind a saturated result.
    larger = format.max_field - (1 << format.frac_bits)
    distances = range(min(format.adder.reach(format) + 10, larger))
    minus = 1 << format.log_bits
    cases = [(0, larger, larger - d) for d in distances]
    cases += [(0, larger - d, larger | minus) for d in distances]
    cases += [(1, larger | minus, larger - d) for d in distances[::7]]
    cases += [(1, larger, larger - d) for d in distances[::7]]
    check(format, cases, run_unit)


@pytest.mark.parametrize(
    ("format", "adder"),
    [
        *((lns24, Mitchell(n)) for n in CORRECTIONS),
        *((format, Mitchell()) for format in (lns16e5, LNSFormat(3, 12), lns32)),
        *((lns16e5, Mitchell(0)), (lns24, FAITHFUL), (LNSFormat(3, 12), FAITHFUL), (lns32, SHORT)),
        *((format, SHORTEST) for format in (lns16e5, lns24, lns32)),
    ],
    ids=str,
)
def test_corners_and_random_distances_of_wide_formats(format, adder, run_unit):
    format = with_adder(format, adder)
    rng, reach = random.Random(repr(format)), format.adder.reach(format)
    distances = [1, 2, 3, reach - 2, reach - 1, reach, reach + 1]
    distances += [(1 << n) + off for n in range(format.log_bits) for off in (-1, 0, 1)]
    distances += [(n << format.frac_bits) + off for n in range(2, 7) for off in (-1, 0, 1)]
    distances += [int(2 ** rng.uniform(0, format.frac_bits + 5)) for _ in range(150)]
    cases = []
    for d in distances:
        larger = rng.randint(min(d, format.max_field), format.max_field)
        pair = [larger, max(0, larger - d)]
        rng.shuffle(pair)
        signs = [rng.getrandbits(1) << format.log_bits for _ in pair]
        cases += [(op, pair[0] | signs[0], pair[1] | signs[1]) for op in (0, 1)]
    check(format, cases, run_unit)


@pytest.mark.parametrize("adder", [Mitchell(), FAITHFUL, SHORT], ids=str)
@pytest.mark.parametrize("format", [lns16, lns24], ids=str)
def test_adding_zero_changes_nothing_wherever_the_other_lies(format, adder, run_unit):
    format = with_adder(format, adder)
    minus = 1 << format.log_bits
    fields = [*range(40), 1 << format.frac_bits, 3 << format.frac_bits, format.bias, format.max_field]
    cases = [
        (op, *pair)
        for field in fields
        for word in (field, field | minus)
        for zero in (0, minus)
        for pair in ((word, zero), (zero, word))
        for op in (0, 1)
    ]
    check(format, cases, run_unit)


@pytest.mark.parametrize("adder", [Mitchell(), FAITHFUL, SHORT], ids=str)
def test_no_stall_changes_a_result_or_its_order(adder, run_unit):
    format, rng = with_adder(lns16, adder), random.Random(adder.name)
    payloads = [rng.getrandbits(33) for _ in range(150)]
    stalls = [(rng.random() < 0.5, rng.random() < 0.4) for _ in range(5000)]
    _, calm = run_unit(AddSubtract(format=format), payloads)
    _, stalled = run_unit(
        AddSubtract(format=format),
        payloads,
        valid=lambda clock: stalls[clock][0],
        ready=lambda clock: stalls[clock][1],
    )
    assert len(calm) == 150
    assert [word for _, word in stalled] == [word for _, word in calm]


@pytest.mark.parametrize(
    ("format", "adder", "latency"),
    [
        *((lns16, Mitchell(0), 5), (lns16, Mitchell(1), 6), (lns16, Mitchell(2), 6), (lns32, Mitchell(0), 4)),
        *((LNSFormat(4, 11), Mitchell(), 6), (LNSFormat(4, 12), Mitchell(), 5)),
        *((LNSFormat(2, 0), FAITHFUL, 5), (lns16, FAITHFUL, 8), (lns16, SHORT, 10), (lns32, SHORT, 13)),
        *((lns16e5, LOGARITHM, 10), (lns16e5, SHORTEST, 12)),
    ],
    ids=str,
)
def test_latency_and_rate_are_as_stated(format, adder, latency, run_unit):
    format = with_adder(format, adder)
    assert datapath_of(format.adder, format).latency == latency
    unit = AddSubtract(format=format)
    sent, received = run_unit(unit, [payload(format, 0, format.bias, format.bias)] * 12)
    clocks = [clock for clock, _ in received]
    assert [after - before for before, after in zip(sent, clocks, strict=True)] == [unit.latency] * 12
    assert clocks == list(range(clocks[0], clocks[0] + 12))


def test_the_adders_have_these_gates_and_no_other_place_for_a_table():
    format = with_adder(lns32, Mitchell())
    assert type(datapath_of(format.adder, format)) is MitchellDatapath
    with pytest.raises(ValueError, match=exactly("rom must be 'block' or 'luts', not 'flash'")):
        datapath_of(format.adder, format, rom="flash")
    format = with_adder(lns16, FAITHFUL)
    assert type(datapath_of(format.adder, format)) is PiecewiseDatapath


@pytest.mark.sim
@pytest.mark.parametrize(
    ("format", "adder"), [(lns16, Mitchell()), (lns32, Mitchell()), (lns16, NEAREST), (lns32, SHORTEST)], ids=str
)
def test_in_the_simulator(format, adder):
    report = verify([AddSubtract], with_adder(format, adder), stimuli=GENERATED, vectors=2000)
    assert report.passed, report.counterexamples
