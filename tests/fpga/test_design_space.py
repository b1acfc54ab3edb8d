import dataclasses
import itertools
import json
import random

import pytest
import torch
from lnstesting import exactly

from fpga import design_space, flow
from fpga.design_space import Point, Result, area, candidates, explore, front, points_of
from fpga.flow import DEVICES, Implementation
from fpga.runner import Runner
from hdl import AddSubtract
from sim.simulators import BuildFailed
from xlnstorch import LNSFormat, lns8, lns12, lns16, lns16e5, lns32
from xlnstorch.adders import ADDERS, AdderQuality, Exact, Mitchell, Piecewise, measure

ICE40, ECP5 = DEVICES["ice40"], DEVICES["ecp5"]


@dataclasses.dataclass(frozen=True)
class Cut(Exact):
    """The exact adder without its last bits."""

    bits: int = 1

    def gaussian(self, format, d, subtract):
        exact = super().gaussian(format, d, subtract)
        return torch.where(exact < 0, -1, 1) * (exact.abs() >> self.bits << self.bits)


CUT = dataclasses.replace(lns8, adder=Cut())


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Keep results in a new folder, and return the (device, seed) of each unit that would be implemented."""
    calls = []

    def implement(self, rtlil, device, seed):
        calls.append((device.name, seed))
        return Implementation(luts=len(rtlil), registers=2, block_rams=1, dsps=0, mhz=100.0 + len(calls))

    monkeypatch.setenv("LNS_CACHE", str(tmp_path))
    monkeypatch.setattr(Runner, "implement", implement)
    return calls


# What there is to compare ------------------------------------------------------------------------------------------


def names(format):
    return [adder.name for adder in candidates(format)]


def test_candidates_are_the_adders_that_there_are(monkeypatch):
    assert names(lns16)[0] == "exact"
    assert {Mitchell(corrections=n) for n in (0, 1, 2)} < set(candidates(lns16))
    monkeypatch.delitem(ADDERS, "mitchell")
    assert not any("mitchell" in name for name in names(lns16))
    monkeypatch.setitem(ADDERS, "cut", Cut)
    assert names(lns16)[-1] == "cut"


def test_candidates_are_those_that_a_format_can_have(monkeypatch):
    def check(self, format):
        if format.frac_bits > 5:
            raise ValueError("too wide")

    monkeypatch.setattr(Mitchell, "check", check)
    assert "mitchell" in names(lns8)
    assert "mitchell" not in names(lns12)
    assert "exact" in names(LNSFormat(4, 12))
    assert "exact" not in names(LNSFormat(4, 13))
    assert "piecewise:error=0.5" in names(LNSFormat(4, 10))
    assert "piecewise:error=0.5" not in names(LNSFormat(4, 11))
    assert "piecewise:degree=2,error=4.0" in names(LNSFormat(4, 11))


def test_tables_are_in_both_places_where_that_is_practical():
    def places(format, adder=Exact(), **options):  # noqa: B008
        return [point.rom for point in points_of(format, [adder], **options)]

    assert places(LNSFormat(4, 8)) == ["block", "luts"]
    assert places(LNSFormat(4, 9)) == ["block"]
    assert places(LNSFormat(4, 9), rom="luts") == ["luts"]
    assert places(lns8, rom="block") == ["block"]
    assert places(LNSFormat(4, 9), Piecewise(error=0.5)) == ["block"]
    assert places(LNSFormat(4, 9), Piecewise(error=0.6)) == ["block", "luts"]
    assert len(points_of(lns8, [Exact(), Exact()])) == 2


def test_what_is_no_place():
    message = exactly("rom must be one of block, luts, not 'flash'")
    with pytest.raises(ValueError, match=message):
        points_of(lns8, [Exact()], rom="flash")
    with pytest.raises(ValueError, match=message):
        Point(lns8, "flash")


# Measuring ---------------------------------------------------------------------------------------------------------


def test_a_result_has_what_the_adder_the_unit_and_the_runner_say(runs):
    (result,) = explore([Point(CUT)], [ICE40, ECP5], seed=3)
    assert result.quality == measure(CUT)
    assert 0.5 < result.quality.max <= 1.5
    assert result.rom_bits == CUT.adder.cost(CUT).rom_bits > 0
    assert (result.multipliers, result.latency) == ((), AddSubtract(format=CUT).latency)
    assert sorted(runs) == [("ecp5", 3), ("ice40", 3)]
    assert {name: found.registers for name, found in result.devices.items()} == {"ice40": 2, "ecp5": 2}
    assert area(result, ICE40) == result.devices["ice40"].luts + 240


def test_without_devices_nothing_is_implemented(runs):
    (result,) = explore([Point(CUT)])
    assert (result.devices, runs) == ({}, [])


def test_an_adder_without_tables_is_there_once(runs):
    results = explore(points_of(lns8, [Mitchell(), Exact()]), [ICE40])
    assert [str(result.point) for result in results] == ["mitchell, block", "exact, block", "exact, luts"]
    assert len(runs) == 3


def test_an_adder_without_gates_does_not_stop_the_others(runs):
    results = explore([Point(lns32), Point(lns8)], [ICE40])
    reason = (
        "the gates of the exact adder are a ROM, so a format must have at most 12 fraction bits, not the 23 of lns32"
    )
    assert results[0] == Result(Point(lns32), reason=reason)
    assert results[1].devices["ice40"].mhz == 101.0


def test_tables_that_no_block_ram_can_hold_are_not_synthesized(runs):
    small = dataclasses.replace(ICE40, block_rams=2, ram_bits=143)
    results = explore(points_of(lns8, [Exact()]), [small])
    reason = "288 bits of ROM do not fit into the 286 of its block RAM"
    assert results[0].devices["ice40"] == Implementation(None, None, None, None, None, reason)
    assert results[1].devices["ice40"].mhz == 101.0
    assert area(results[0], small) is None
    assert front(results, small) == [False, True]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"jobs": 0}, ValueError, "jobs must be between 1 and 1024, not 0"),
        ({"jobs": 1.5}, TypeError, "jobs must be an integer, not 1.5"),
        ({"seed": -1}, ValueError, "seed must be between 0 and 2147483647, not -1"),
        ({"seed": 1 << 31}, ValueError, "seed must be between 0 and 2147483647, not 2147483648"),
    ],
)
def test_bad_input(options, error, message, runs):
    with pytest.raises(error, match=exactly(message)):
        explore([Point(lns8)], [ICE40], **options)


def test_progress_counts_to_the_end(runs):
    seen = []
    explore(
        [*points_of(lns8, [Mitchell(), Exact()]), Point(lns32)],
        [ICE40, ECP5],
        jobs=2,
        progress=lambda *step: seen.append(step),
    )
    assert seen[0] == (0, 10, "measuring mitchell, block")
    assert [done for done, *_ in seen] == sorted(done for done, *_ in seen)
    assert seen[-1][:2] == (8, 8)
    assert any(text.startswith("mitchell, block, ecp5: 10") and text.endswith(" MHz") for *_, text in seen)


# Keeping -----------------------------------------------------------------------------------------------------------


def test_a_second_run_measures_nothing(runs, monkeypatch):
    points = points_of(lns8, [Exact(), Cut()])
    first = explore(points, [ICE40, ECP5])
    assert len(runs) == 8
    for name in ("measure", "to_rtlil"):
        monkeypatch.setattr(design_space, name, lambda *args, **options: pytest.fail("measured again"))
    assert explore(points, [ICE40, ECP5]) == first
    assert explore(points[:1], [ECP5]) == [
        dataclasses.replace(first[0], devices={"ecp5": first[0].devices["ecp5"]}),
    ]
    assert len(runs) == 8


def test_each_unit_is_implemented_from_its_own_rtlil(runs):
    points = [Point(lns8), Point(lns12), Point(CUT)]
    explore(points)  # after which the digests of their RTLIL are known
    results = explore(points, [ICE40, ECP5])
    for point, result in zip(points, results, strict=True):
        length = len(flow.to_rtlil(AddSubtract(format=point.format)))
        assert [found.luts for found in result.devices.values()] == [length] * 2
    assert len({found.devices["ice40"].luts for found in results}) > 1


def test_force_measures_all_again_but_the_errors_of_an_adder_once(runs, monkeypatch):
    points = points_of(lns8, [Exact()])
    explore(points, [ICE40])
    measured = []
    monkeypatch.setattr(design_space, "measure", lambda f, **options: measured.append(f) or measure(f, **options))
    explore(points, [ICE40], force=True)
    assert (len(runs), measured) == (4, [lns8])


def files(tmp_path, kind="*"):
    return sorted((tmp_path / "fpga").glob(f"{kind}/*.json"))


def damaged(text):
    kept = json.loads(text)
    yield from ("", "{", "[]", text[: len(text) // 2], json.dumps({**kept, "value": {}}), text.replace("0", "1"))


def test_a_damaged_file_is_measured_again(runs, tmp_path):
    first = explore([Point(lns8)], [ICE40])
    assert len(files(tmp_path)) == 3
    for file in files(tmp_path):
        text = file.read_text()
        for wrong in damaged(text):
            assert wrong != text
            file.write_text(wrong)
            (again,) = explore([Point(lns8)], [ICE40])
            assert dataclasses.replace(again, devices={}) == dataclasses.replace(first[0], devices={})
            assert set(json.loads(file.read_text())) == {"digest", "value"}
    assert len(runs) == 1 + len(list(damaged(text)))


def changes():
    def seed(monkeypatch):
        return {"seed": 2}

    def device(monkeypatch):
        return {"devices": [dataclasses.replace(ICE40, arguments=("--lp8k",))]}

    def version(monkeypatch):
        monkeypatch.setattr(design_space, "tool_versions", lambda device: {"pyosys": "1000"})
        return {}

    def unit(monkeypatch):
        monkeypatch.setattr(design_space, "_package_digest", lambda folder: "another")
        real = flow.to_rtlil
        monkeypatch.setattr(design_space, "to_rtlil", lambda unit: real(unit) + "\n")
        return {}

    return [seed, device, version, unit]


@pytest.mark.parametrize("change", changes(), ids=lambda change: change.__name__)
def test_what_goes_in_decides_whether_a_unit_is_implemented_again(change, runs, monkeypatch):
    explore([Point(lns8)], [ICE40])
    explore([Point(lns8)], **{"devices": [ICE40], **change(monkeypatch)})
    assert len(runs) == 2


def test_changed_sources_measure_again_and_implement_only_changed_gates(runs, monkeypatch):
    explore([Point(lns8)], [ICE40])
    measured = []
    monkeypatch.setattr(design_space, "measure", lambda f, **options: measured.append(f) or measure(f, **options))
    monkeypatch.setattr(design_space, "_package_digest", lambda folder: "another")
    explore([Point(lns8)], [ICE40])
    assert (len(runs), measured) == (1, [lns8])


def test_the_file_of_an_adder_is_among_its_sources(monkeypatch):
    assert len(design_space._sources(Cut())) == len(design_space._sources(Exact())) + 1


def test_an_adder_without_a_file_is_measured_each_time(runs, monkeypatch):
    typed = dataclasses.replace(lns8, adder=type("Typed", (Cut,), {"__module__": "nowhere"})())
    measured = []
    monkeypatch.setattr(design_space, "measure", lambda f, **options: measured.append(f) or measure(f, **options))
    for _ in range(2):
        explore([Point(typed)], [ICE40])
    assert measured == [typed] * 2
    assert len(runs) == 1  # the gates are the same


def test_two_adders_of_a_format_are_kept_apart(runs):
    (one,) = explore([Point(CUT)], [ICE40])
    (two,) = explore([Point(dataclasses.replace(lns8, adder=Cut(2)))], [ICE40])
    assert len(runs) == 2
    assert two.quality.max > one.quality.max


def test_a_failure_is_told_when_the_others_are_finished_and_kept(runs, tmp_path, monkeypatch):
    real = Runner.implement

    def failing(self, rtlil, device, seed):
        if device is ICE40:
            raise BuildFailed("it broke")
        return real(self, rtlil, device, seed)

    monkeypatch.setattr(Runner, "implement", failing)
    with pytest.raises(BuildFailed, match=exactly("exact, block: it broke\nexact, luts: it broke")):
        explore(points_of(lns8, [Exact()]), [ICE40, ECP5])
    assert len(files(tmp_path, "implementations")) == 2


def test_an_interrupt_keeps_what_is_finished(runs, tmp_path):
    def progress(done, total, text):
        if text.startswith("measuring cut"):
            while not files(tmp_path, "implementations"):
                pass
            raise KeyboardInterrupt

    points = [Point(lns8), Point(CUT)]
    with pytest.raises(KeyboardInterrupt):
        explore(points, [ICE40], progress=progress)
    assert runs == [("ice40", 1)]
    explore(points, [ICE40])
    assert runs == [("ice40", 1)] * 2


# Comparing ---------------------------------------------------------------------------------------------------------


def result(error, luts, mhz=100.0, rom_bits=0, multipliers=()):
    quality = AdderQuality(error, error / 2, 0.0, 0.0, 1.0, 1.0, 10)
    devices = {"ice40": Implementation(luts, 1, 0, 0, mhz)}
    return Result(Point(lns16e5), rom_bits, multipliers, 6, quality, devices)


def test_the_front_is_what_nothing_is_better_than():
    generator = random.Random(1)
    results = [result(generator.randrange(8), generator.randrange(8)) for _ in range(40)]
    costs = [(r.quality.max, r.devices["ice40"].luts) for r in results]
    better = [any(c[0] <= a and c[1] <= b and (c[0] < a or c[1] < b) for c in costs) for a, b in costs]
    assert front(results, ICE40) == [not is_worse for is_worse in better]
    assert 0 < sum(front(results, ICE40)) < 40


def test_what_is_not_known_is_not_on_the_front():
    nothing = Result(Point(lns32), reason="no gates")
    unplaced = result(0.1, 1, mhz=None)
    assert front([result(0.5, 10), unplaced], ICE40) == [True, False]
    assert front([nothing, result(0.5, 10)]) == [False, True]


def test_before_synthesis_multipliers_count_beside_the_bits():
    table, product = result(0.5, 0, rom_bits=1000), result(0.5, 0, rom_bits=100, multipliers=((8, 8),))
    assert front([table, product]) == [True, True]
    assert front([table, dataclasses.replace(product, multipliers=())]) == [False, True]
    worse = dataclasses.replace(product, multipliers=((8, 9),))
    for results in itertools.permutations([table, product, worse]):
        assert front(results) == [r is not worse for r in results]
