from fractions import Fraction

import pytest
from amaranth_boards.ice40_hx8k_b_evn import ICE40HX8KBEVNPlatform
from amaranth_boards.icebreaker import ICEBreakerPlatform
from amaranth_boards.ulx3s import ULX3S_25F_Platform
from lnstesting import exactly

from fpga.clocking import Clock, choose_clock

MHZ = 1_000_000


def ice40(clock):
    """Return the output of SB_PLL40 with simple feedback, having checked the data sheet's limits."""
    detector = clock.oscillator / (clock.pll["DIVR"] + 1)
    oscillation = detector * (clock.pll["DIVF"] + 1)
    assert 10 * MHZ <= detector <= 133 * MHZ and 533 * MHZ <= oscillation <= 1066 * MHZ
    return oscillation / 2 ** clock.pll["DIVQ"]


def ecp5(clock):
    """Return the output CLKOS of EHXPLLL with feedback by CLKOP, likewise."""
    detector = clock.oscillator / clock.pll["CLKI_DIV"]
    oscillation = detector * clock.pll["CLKFB_DIV"] * clock.pll["CLKOP_DIV"]
    assert 10 * MHZ <= detector <= 400 * MHZ and 400 * MHZ <= oscillation <= 800 * MHZ
    return oscillation / clock.pll["CLKOS_DIV"]


@pytest.mark.parametrize("platform", [ICEBreakerPlatform(), ICE40HX8KBEVNPlatform()])
@pytest.mark.parametrize("mhz", [16.125, 24, 27.3, 48, 100, 141.999, 275])
def test_the_pll_of_an_ice40_makes_the_highest_clock_not_above(platform, mhz):
    clock = choose_clock(platform, mhz)
    assert clock.oscillator == 12 * MHZ
    assert clock.frequency == ice40(clock) <= mhz * MHZ
    # From 12 MHz the only reference is undivided: each step of DIVF is 12 MHz / 2**DIVQ.
    assert mhz * MHZ - clock.frequency < 12 * MHZ / 2 ** clock.pll["DIVQ"]


@pytest.mark.parametrize("mhz", [3.125, 24, 60, 75, 97, 120, 133.3, 400])
def test_the_pll_of_an_ecp5_makes_the_highest_clock_not_above(mhz):
    clock = choose_clock(ULX3S_25F_Platform(), mhz)
    assert clock.oscillator == 25 * MHZ
    assert clock.frequency == ecp5(clock) <= mhz * MHZ
    candidates = [
        Fraction(25 * MHZ, r) * n / d
        for r in (1, 2)
        for n in range(16, 65)
        for d in range(1, 129)
        if 400 * MHZ <= Fraction(25 * MHZ, r) * n <= 800 * MHZ
    ]
    assert clock.frequency == max(c for c in candidates if c <= Fraction(str(mhz)) * MHZ)


def test_what_is_known_of_other_designs_is_chosen():
    assert choose_clock(ICEBreakerPlatform(), 48).pll == {"DIVR": 0, "DIVF": 63, "DIVQ": 4, "FILTER_RANGE": 1}
    assert choose_clock(ICEBreakerPlatform(), 39.75).frequency == 39_750_000
    found = choose_clock(ULX3S_25F_Platform(), 75)
    assert (found.frequency, found.pll["CLKI_DIV"]) == (75 * MHZ, 1)


def test_without_a_wish_the_gates_have_the_oscillator():
    for mhz in (None, 12):
        assert choose_clock(ICEBreakerPlatform(), mhz) == Clock(Fraction(12 * MHZ), Fraction(12 * MHZ), None)


@pytest.mark.parametrize(
    ("platform", "mhz", "text"),
    [
        (ICEBreakerPlatform, 5, "16.125 to 275 MHz, the range of the iCE40's PLL, or the oscillator's 12 MHz, not 5"),
        (
            ICEBreakerPlatform,
            276,
            "16.125 to 275 MHz, the range of the iCE40's PLL, or the oscillator's 12 MHz, not 276",
        ),
        (ICEBreakerPlatform, 0, "16.125 to 275 MHz, the range of the iCE40's PLL, or the oscillator's 12 MHz, not 0"),
        (ULX3S_25F_Platform, 3, "3.125 to 400 MHz, the range of the ECP5's PLL, or the oscillator's 25 MHz, not 3"),
        (ULX3S_25F_Platform, -1, "3.125 to 400 MHz, the range of the ECP5's PLL, or the oscillator's 25 MHz, not -1"),
        *(
            (
                ULX3S_25F_Platform,
                x,
                f"3.125 to 400 MHz, the range of the ECP5's PLL, or the oscillator's 25 MHz, not {x}",
            )
            for x in (float("inf"), float("nan"))
        ),
    ],
)
def test_a_clock_that_the_pll_cannot_make_is_refused(platform, mhz, text):
    with pytest.raises(ValueError, match=exactly(f"clock must be {text}")):
        choose_clock(platform(), mhz)
