from sim.bench import PATIENCE, Scoreboard, StallPattern, draining, quiet, settled


def test_results_are_compared_in_order_and_counted_by_segment():
    scoreboard = Scoreboard([10, 11, 12, 13, 14], [("first", 2), ("second", 3)])
    for cycle, payload in enumerate([10, 99, 12, 13]):
        scoreboard.receive(payload, cycle)
    assert not scoreboard.complete
    scoreboard.receive(None, 9)  # unknown bits equal nothing
    assert scoreboard.complete
    first, second = scoreboard.segments
    assert (first["mismatches"], first["first"]) == (1, {"index": 1, "payload": 99, "cycle": 1})
    assert (second["mismatches"], second["first"]) == (1, {"index": 4, "payload": None, "cycle": 9})
    assert scoreboard.problems == []


def test_only_the_first_mismatch_of_a_segment_is_kept():
    scoreboard = Scoreboard([0] * 5, [("all", 5)])
    for cycle in range(5):
        scoreboard.receive(cycle + 1, cycle)
    assert scoreboard.segments[0]["mismatches"] == 5
    assert scoreboard.segments[0]["first"]["payload"] == 1


def test_a_result_too_many_is_a_problem():
    scoreboard = Scoreboard([7], [("all", 1)])
    scoreboard.receive(7, 3)
    scoreboard.receive(7, 4)
    assert scoreboard.complete
    assert scoreboard.problems == ["a result came at cycle 4 that nothing was sent for"]


def test_an_empty_segment_is_passed_over():
    scoreboard = Scoreboard([1, 2], [("a", 1), ("none", 0), ("b", 1)])
    scoreboard.receive(1, 0)
    scoreboard.receive(3, 1)
    assert [segment["mismatches"] for segment in scoreboard.segments] == [0, 0, 1]


def test_stalls_are_seeded_leave_quiet_stretches_and_end():
    latency = 6
    patterns = [StallPattern(seed, latency) for seed in ("1", "1", "2")]
    a, b, c = ([pattern.stalled(cycle) for cycle in range(20_000)] for pattern in patterns)
    assert a == b != c
    assert not any(stall for cycle, stall in enumerate(a) if quiet(cycle, latency))
    assert sum(settled(cycle, latency) for cycle in range(20_000)) == 10 * 62
    for cycle in range(20_000):
        assert quiet(cycle, latency) or not (settled(cycle, latency) or draining(cycle, latency))
        assert not (settled(cycle, latency) and draining(cycle, latency))
    assert 0.05 < sum(a) / len(a) < 0.5
    runs = [len(run) for run in "".join("x" if stall else " " for stall in a).split()]
    assert 100 < max(runs) < PATIENCE / 2  # longer than any unit can hide, well below what is taken for a hang
