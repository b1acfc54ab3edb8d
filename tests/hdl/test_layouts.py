import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.sim import Simulator

from hdl.layouts import FlagsLayout, WordLayout, fit
from xlnstorch import LNSFormat, lns8, lns16, lns32
from xlnstorch.observe import FLAGS


@pytest.mark.parametrize("format", [lns8, lns16, lns32, LNSFormat(3, 0)], ids=repr)
def test_a_word_has_the_bits_of_the_format(format):
    layout = WordLayout(format)
    assert layout.size == format.width
    assert (layout["field"].offset, layout["field"].width) == (0, format.log_bits)
    assert (layout["sign"].offset, layout["sign"].width) == (format.log_bits, 1)


def test_flags_are_in_the_order_of_the_golden_model():
    layout = FlagsLayout()
    assert [name for name, _ in layout] == list(FLAGS)
    assert [field.offset for _, field in layout] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("field", "zero", "word", "flags"),
    [
        (0x80, 0, 0x180, {}),  # in range, with the sign
        (0, 0, 0, {"underflow"}),
        (-1, 0, 0, {"underflow"}),
        (1, 0, 0x101, {}),
        (0xFF, 0, 0x1FF, {}),
        (0x100, 0, 0x1FF, {"overflow"}),
        (0x80, 1, 0, {}),  # exactly zero: whatever the field says, and without a sign
        (-5, 1, 0, {}),
        (0x1FF, 1, 0, {}),
    ],
)
def test_fit_saturates_above_and_flushes_below(field, zero, word, flags):
    format = LNSFormat(4, 4)
    m = Module()
    wide, is_zero = Signal(signed(format.log_bits + 2)), Signal()
    result, raised = Signal(WordLayout(format)), Signal(FlagsLayout())
    fit(m, format, sign=1, field=wide, zero=is_zero, result=result, flags=raised)
    seen = {}

    async def check(ctx):
        ctx.set(wide, field)
        ctx.set(is_zero, zero)
        seen["word"] = ctx.get(result.as_value())
        seen["flags"] = {flag for flag in FLAGS if ctx.get(raised[flag])}

    simulator = Simulator(m)
    simulator.add_testbench(check)
    simulator.run()
    assert seen == {"word": word, "flags": set(flags)}
