import random

import pytest
from amaranth.lib import data

from hdl.bus.slice import RegisterSlice

LAYOUT = data.StructLayout({"value": 8})


def test_one_payload_a_clock_one_clock_later(run_unit):
    sent, received = run_unit(RegisterSlice(LAYOUT), range(1, 30))
    assert [payload for _, payload in received] == list(range(1, 30))
    assert sent == list(range(sent[0], sent[0] + 29))
    assert [clock for clock, _ in received] == [clock + 1 for clock in sent]


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_doubled_or_moved_whatever_stalls(seed, run_unit):
    rng = random.Random(seed)
    stalls = [(rng.random() < 0.6, rng.random() < 0.5) for _ in range(2000)]
    payloads = [rng.getrandbits(8) for _ in range(200)]
    _, received = run_unit(
        RegisterSlice(LAYOUT), payloads, valid=lambda clock: stalls[clock][0], ready=lambda clock: stalls[clock][1]
    )
    assert [payload for _, payload in received] == payloads


@pytest.mark.parametrize("stalled", range(1, 5))
def test_after_a_stall_it_goes_on_with_one_payload_a_clock(stalled, run_unit):
    until = 10 + stalled
    _, received = run_unit(RegisterSlice(LAYOUT), range(30), ready=lambda clock: not 10 <= clock < until)
    assert [payload for _, payload in received] == list(range(30))
    clocks = [clock for clock, _ in received]
    assert clocks == [*range(clocks[0], 10), *range(until, until + 30 - (10 - clocks[0]))]
