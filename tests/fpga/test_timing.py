from fpga.timing import Timing


def step(kind, delay, source, target, net=None):
    """Return a step of a path as nextpnr reports it; an end is a cell and its port."""
    ends = [{"cell": cell, "port": port, "loc": [len(cell), 3]} for cell, port in (source, target)]
    return {"type": kind, "delay": delay, "from": ends[0], "to": ends[1], **({"net": net} if net else {})}


PATH = [
    step("clk-to-q", 1.5, ("top.unit.a_SB_DFF_Q_LC", "O"), ("top.unit.a_SB_DFF_Q_LC", "O")),
    step("routing", 2.0, ("top.unit.a_SB_DFF_Q_LC", "O"), ("sum_0", "I1"), "top.unit.a[3]"),
    step("logic", 0.5, ("sum_0", "I1"), ("sum_0", "COUT")),
    step("routing", 0.0, ("sum_0", "COUT"), ("sum_12", "CIN"), "carry"),
    step("logic", 0.25, ("sum_12", "CIN"), ("sum_12", "COUT")),
    step("routing", 0.25, ("sum_12", "COUT"), ("last", "I3"), "top.unit.sum_SB_LUT4_I3_O"),
    step("setup", 0.5, ("last", "I3"), ("last", "I3")),
]
CLOCKS = {"clk": {"achieved": 200.0, "constraint": 250.0}, "slow": {"achieved": 13.0, "constraint": 12.0}}


def test_the_path_of_the_clock_that_is_furthest_from_its_goal_is_told_in_words():
    other = {"from": "<async>", "to": "posedge clk", "path": PATH[:1]}
    own = {"from": "posedge clk", "to": "posedge clk", "path": PATH}
    timing = Timing.of(CLOCKS, [other, own])
    assert (timing.clock, timing.met) == ("clk", False)
    assert timing.in_words().splitlines() == [
        "the longest path of the clock clk takes 5.00 ns, which allows 200.00 MHz; 250.00 MHz are not met",
        "   1.50 ns  from the clock to O of top.unit.a… at X22/Y3",
        "   2.00 ns  along the net top.unit.a[3] to X5/Y3",
        "   0.75 ns  along the carries of 2 cells, from sum_0 at X5/Y3",
        "   0.25 ns  along the net top.unit.sum… to X4/Y3",
        "   0.50 ns  at I3 of last at X4/Y3, before the next clock",
    ]


def test_a_clock_that_is_just_reached_is_met():
    timing = Timing.of({"$glbnet$clk": {"achieved": 48.0, "constraint": 48.0}}, [])
    assert timing.met
    assert timing.in_words() == (
        "the longest path of the clock clk takes 0.00 ns, which allows 48.00 MHz; 48.00 MHz are met\n"
    )


def test_one_carry_is_a_cell_like_any_other():
    words = Timing("clk", 1.0, 1.0, [PATH[2], PATH[5]]).in_words().splitlines()
    assert words[1] == "   0.50 ns  through sum_0 at X5/Y3, I1 to COUT"
