"""What is said about the errors of an adder, against mpmath."""

import dataclasses
import itertools

import mpmath
import pytest
import torch
from lnstesting import Off

from xlnstorch import Exact, LNSFormat, lns8, lns12, lns16
from xlnstorch.adders import AdderQuality, measure

mp = mpmath.MPContext()
mp.dps = 40

BLOCK = 1 << 16
#: Three whole blocks of distances and most of a fourth.
FOUR_BLOCKS = LNSFormat(6, 14)


@dataclasses.dataclass(frozen=True)
class OffFrom(Off):
    """Wrong from a distance on, rather than up to one."""

    def gaussian(self, format, d, subtract):
        off = torch.where(subtract, -self.by, self.by) * (d >= self.below)
        return Exact.gaussian(self, format, d, subtract) + off


@dataclasses.dataclass(frozen=True)
class Between(Off):
    """Wrong in the second block of distances only."""

    def gaussian(self, format, d, subtract):
        off = torch.where(subtract, -self.by, self.by) * (d // BLOCK == 1)
        return Exact.gaussian(self, format, d, subtract) + off


def with_adder(format, adder):
    return dataclasses.replace(format, adder=adder)


def by_hand(format):
    """Return the quality of a format's adder, distance by distance."""
    reach = max(format.adder.reach(format), Exact().reach(format))
    columns = []
    for sign, start in ((+1, 0), (-1, 1)):
        errors, nearest = [], 0
        for d in range(start, reach):
            logarithm = mp.log(1 + sign * mp.mpf(2) ** (-mp.mpf(d) / 2**format.frac_bits), 2)
            real = sign * logarithm * 2**format.frac_bits
            integer = sign * int(format.adder.gaussian(format, torch.tensor([d]), torch.tensor([sign < 0])))
            errors.append(abs(integer - real))
            nearest += integer == int(mp.nint(real))
        columns.append((float(max(errors)), float(sum(errors) / len(errors)), nearest / len(errors)))
    return AdderQuality(*itertools.chain(*zip(*columns, strict=True)), points=reach)


@pytest.mark.parametrize(
    "format",
    [
        LNSFormat(3, 0),
        lns8,
        lns12,
        with_adder(lns8, Off()),
        with_adder(lns8, Off(by=-1, below=9)),
        with_adder(lns8, Off(by=3, below=100)),  # beyond the reach of the exact adder
    ],
    ids=repr,
)
def test_the_errors_are_those_of_every_distance(format):
    quality, expected = measure(format), by_hand(format)
    for field in dataclasses.fields(AdderQuality):
        found, wanted = getattr(quality, field.name), getattr(expected, field.name)
        if field.name.startswith(("max", "mean")):
            assert found == pytest.approx(wanted, rel=0, abs=2.0**-20)
        else:
            assert found == wanted
    assert quality.max == max(quality.max_sum, quality.max_difference)
    assert quality.mean == (quality.mean_sum + quality.mean_difference) / 2
    assert quality.rounded == (quality.rounded_sum + quality.rounded_difference) / 2


@pytest.mark.parametrize("frac_bits", range(0, 15, 2))
def test_the_exact_adder_errs_by_half_a_unit_at_most(frac_bits):
    format = LNSFormat(6, frac_bits)
    quality = measure(format)
    assert 0.1 < quality.max <= 0.5
    assert quality.mean < quality.max
    assert quality.rounded_sum == quality.rounded_difference == quality.rounded == 1.0
    assert quality.points == format.scale.gaussian_reach


def test_a_single_wrong_integer_is_seen():
    reach = lns16.scale.gaussian_reach
    exact, off = measure(lns16), measure(with_adder(lns16, OffFrom(below=reach - 1)))
    # The last real values are just above half a unit, and their integers are 2 now.
    assert (exact.max, exact.rounded) == (pytest.approx(0.5, abs=0.01), 1.0)
    assert off.max_sum == pytest.approx(1.5, abs=0.01)
    assert off.max_difference == pytest.approx(1.5, abs=0.01)
    assert off.mean > exact.mean
    assert (off.rounded_sum, off.rounded_difference) == ((reach - 1) / reach, (reach - 2) / (reach - 1))


def test_one_of_so_many_blocks_is_measured_and_the_first_and_the_last_always():
    reach = FOUR_BLOCKS.scale.gaussian_reach
    assert 3 * BLOCK < reach < 4 * BLOCK
    last = reach - 3 * BLOCK
    for every, points in ((1, reach), (2, 2 * BLOCK + last), (3, BLOCK + last), (4, BLOCK + last), (99, BLOCK + last)):
        assert measure(FOUR_BLOCKS, every=every).points == points
    # Wrong from the second block on, in the last distance, and nowhere.
    for below, wrong in ((BLOCK, True), (reach - 1, True), (reach + 1, False)):
        off = with_adder(FOUR_BLOCKS, OffFrom(by=3, below=below))
        assert [measure(off, every=every).max > 2 for every in (1, 2, 3)] == [wrong] * 3
    inside = with_adder(FOUR_BLOCKS, Between(by=3))
    assert [measure(inside, every=every).max > 2 for every in (1, 2, 3)] == [True, False, False]
    quality = measure(inside)
    assert quality.rounded_sum == (reach - BLOCK) / reach
    assert quality.rounded_difference == (reach - 1 - BLOCK) / (reach - 1)
    assert quality.mean_difference == pytest.approx(measure(FOUR_BLOCKS).mean + 3 * BLOCK / reach, abs=0.1)


@pytest.mark.parametrize("every", [0, -1])
def test_a_number_of_blocks_below_one_is_refused(every):
    with pytest.raises(ValueError) as caught:
        measure(lns8, every=every)
    assert str(caught.value) == f"every must be at least 1, not {every}"


@pytest.mark.parametrize("every", [1, 2, 3, 4, 5])
def test_progress_rises_to_all_there_is(every):
    calls = []
    measure(FOUR_BLOCKS, every=every, progress=lambda done, total: calls.append((done, total)))
    reach = FOUR_BLOCKS.scale.gaussian_reach
    assert {total for _, total in calls} == {reach}
    done = [done for done, _ in calls]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, reach)
    assert len(done) == {1: 5, 2: 4}.get(every, 3)  # one a block, and one at the end
