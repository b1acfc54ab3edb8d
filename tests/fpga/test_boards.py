import sys
import types

import pytest
from amaranth.build import Clock, Pins, Resource
from amaranth.vendor import LatticeICE40Platform, LatticeMachXO2Platform
from amaranth_boards.icebreaker import ICEBreakerPlatform
from amaranth_boards.resources import UARTResource
from lnstesting import exactly

from fpga.boards import BOARDS, named_board


def platform(base=LatticeICE40Platform, clock="clk12", uart=None):
    """Return the class of a platform."""
    resources = [Resource("clk12", 0, Pins("35", dir="i"), Clock(12e6)), *([uart] if uart else [])]
    more = {"default_clk": clock, "resources": resources, "connectors": []}
    return type("Mine", (base,), {"device": "iCE40UP5K", "package": "SG48", **more})


@pytest.fixture
def mine(monkeypatch):
    """Return a function that names a class as a board of the user's."""

    def named(kind):
        module = types.ModuleType("my_boards")
        module.Mine = kind
        monkeypatch.setitem(sys.modules, "my_boards", module)
        return named_board("my_boards:Mine")

    return named


@pytest.mark.parametrize(
    ("name", "device", "package", "family", "mhz"),
    [
        ("icebreaker", "iCE40UP5K", "SG48", "ice40", 12),
        ("ice40-hx8k", "iCE40HX8K", "CT256", "ice40", 12),
        ("ulx3s-25f", "LFE5U-25F", "BG381", "ecp5", 25),
        ("ulx3s-85f", "LFE5U-85F", "BG381", "ecp5", 25),
    ],
)
def test_the_catalogue_is_that_of_amaranth_boards(name, device, package, family, mhz):
    board = named_board(name)
    made = board.make_platform()
    assert board is BOARDS[name] and board.loader
    assert (made.device, made.package, board.device().name) == (device, package, family)
    assert made.default_clk_frequency == mhz * 1e6
    assert set(board.versions()) == {"amaranth", "amaranth-boards"}
    assert set(BOARDS) == {"icebreaker", "ice40-hx8k", "ulx3s-25f", "ulx3s-85f"}


def test_any_platform_is_a_board(mine):
    board = named_board("amaranth_boards.icebreaker:ICEBreakerPlatform")
    assert type(board.make_platform()) is ICEBreakerPlatform
    assert (board.clock_mhz, board.loader) == (None, None)
    board = mine(platform(uart=UARTResource(0, rx="6", tx="9")))
    assert board.device().name == "ice40"
    assert set(board.versions()) == {"amaranth"}


def test_a_board_that_is_none_is_refused(mine):
    with pytest.raises(ValueError) as caught:
        named_board("icebraker")
    assert str(caught.value) == (
        "board must be one of icebreaker, ice40-hx8k, ulx3s-25f, ulx3s-85f, or module:Platform, not 'icebraker'"
    )
    with pytest.raises(ValueError, match=exactly("there is no platform 'no_module:X': No module named 'no_module'")):
        named_board("no_module:X")
    with pytest.raises(ValueError, match="there is no platform 'json:X': module 'json' has no attribute 'X'"):
        named_board("json:X")
    wanted = "platform must be Amaranth's for an iCE40 with IceStorm or an ECP5 with Trellis, not "
    with pytest.raises(ValueError, match=exactly(f"{wanted}'decimal:Context'")):
        named_board("decimal:Context")
    with pytest.raises(ValueError, match=exactly(f"{wanted}'my_boards:Mine'")):
        mine(type("Mine", (platform(LatticeMachXO2Platform),), {"device": "LCMXO2-1200HC", "speed": "4"}))


def test_a_board_without_what_it_needs_is_refused(mine):
    uart = UARTResource(0, rx="6", tx="9")
    for kind, wanted, resource in (
        (platform(clock="SB_HFOSC", uart=uart), "an oscillator at a pin", "SB_HFOSC"),
        (platform(clock="uart", uart=uart), "an oscillator at a pin", "uart"),
        (platform(), "a UART", "uart"),
        (platform(uart=Resource("uart", 0, Pins("6", dir="i"))), "a UART", "uart"),
    ):
        with pytest.raises(ValueError) as caught:
            mine(kind)
        assert str(caught.value) == (
            f"platform must have {wanted}, which 'my_boards:Mine' has not as its resource {resource!r}"
        )
