import itertools

import pytest
from amaranth.hdl import signed, unsigned

from hdl import FlagsLayout, Unit, WordLayout
from hdl.fitting import FITTING_STAGES, fit_in_stages
from xlnstorch import LNSFormat

KINDS = ("sign", "zero", "infinite", "nan", "invalid", "zero_divide")


class Both(Unit):
    """What `fit` and `fit_in_stages` give for the same, beside each other."""

    name, operations, latency = "both", {"fit": None}, FITTING_STAGES

    def operands(self):
        return {"field": signed(self.format.log_bits + 2), **dict.fromkeys(KINDS, unsigned(1))}

    def results(self):
        layouts = {"word": WordLayout(self.format), "flags": FlagsLayout()}
        return {f"{name}_{way}": layout for way in (1, 2) for name, layout in layouts.items()}

    def datapath(self, m, pipeline, operands):
        before = {name: operands[name] for name in self.operands()}
        one = self.fitted(m, pipeline.branch(), **before)
        one = pipeline.branch().delay(FITTING_STAGES - 1, word_1=one.word, flags_1=one.flags)
        two = fit_in_stages(m, pipeline, self.format, **before)
        one.word_2, one.flags_2 = two.word, two.flags
        return one


@pytest.mark.parametrize("specials", [False, True])
def test_two_stages_give_what_one_does(specials, run_unit):
    unit = Both(format=LNSFormat(2, 2, specials=specials))
    bits = unit.format.log_bits + 2
    payloads = []
    for field, kinds in itertools.product(range(1 << bits), itertools.product((0, 1), repeat=len(KINDS))):
        _, zero, infinite, nan, _, _ = kinds
        if (zero and infinite) or (not specials and (infinite or nan)):
            continue
        payloads.append(field | sum(kind << bits + i for i, kind in enumerate(kinds)))
    _, received = run_unit(unit, payloads)
    assert len(received) == len(payloads) == (1 << bits) * (48 if specials else 16)
    half = unit.o.payload.shape().size // 2
    for payload, (_, got) in zip(payloads, received, strict=True):
        assert got >> half == got & ((1 << half) - 1), bin(payload)
    assert len({got for _, got in received}) > 100
