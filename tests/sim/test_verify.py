"""``lns verify`` on sound gates."""

import argparse
import dataclasses
import json
import shlex
import shutil

import pytest
from lnstesting import Off

import hdl
from sim import capture
from sim.naming import named_unit
from sim.results import Report, Result
from sim.simulators import SIMULATORS, BuildFailed, Verilator
from sim.stimulus import GENERATED, applies
from sim.verify import EXHAUSTIVE, STIMULI, _command, verify
from sim.workloads import digits_step
from xlnstorch import (
    Exact,
    LinearAccumulator,
    LNSFormat,
    LogAccumulator,
    Mitchell,
    Piecewise,
    lns8,
    lns16,
    lns16e5,
    lns32,
    lnstensor,
)
from xlnstorch.accumulators import ACCUMULATORS
from xlnstorch.adders import ADDERS
from xlnstorch.cli import add_format_options, format_of, main

needs_icarus = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="Icarus Verilog is not installed (apt-get install iverilog)"
)

FORMAT_KEYS = ["format", "adder", "accumulator", "specials"]
RUN_KEYS = ["level", "simulator", "runner", "stimulus", "vectors", "mismatches", "seconds", "earlier", "device"]
KEYS = ["unit", *FORMAT_KEYS, *RUN_KEYS]

# Multiplications of one step of the 64-16-10 perceptron on 16 digits, counted by hand: both layers forward; both weight
# gradients and one input gradient; two for each of the 160 logits, in the backward of the loss; and for each parameter
# one to clip its gradient and five of Adam: one for the first moment, three for the second, one for the step.
LAYERS = 16 * 64 * 16 + 16 * 16 * 10
BACKWARD = 16 * 64 * 16 + 16 * 16 * 10 + 16 * 10 * 16
PARAMETERS = 64 * 16 + 16 + 16 * 10 + 10
LOSS = 2 * 160


def specials(format):
    return dataclasses.replace(format, specials=True)


def with_adder(format, adder):
    return dataclasses.replace(format, adder=adder)


# Every unit, with each kind of specials, adder, accumulator and simulator somewhere; compiled, some seconds each.
GUARDED = LogAccumulator("tree", guard_bits=2)
UNITS = [
    ("multiply", lns8, "icarus"),
    ("multiply", specials(lns16), "verilator"),
    ("divide", specials(lns8), "icarus"),
    ("divide", lns16, "verilator"),
    ("square", specials(lns16), "icarus"),
    ("sqrt", specials(lns8), "icarus"),
    ("add:rom=luts", specials(lns8), "icarus"),
    ("add", with_adder(specials(lns16), Piecewise()), "verilator"),
    ("add", with_adder(lns32, Mitchell()), "icarus"),
    ("mac", with_adder(specials(lns16), Mitchell()), "icarus"),
    ("mac", dataclasses.replace(lns8, accumulator=LogAccumulator(guard_bits=3)), "icarus"),
    ("signs", specials(lns16), "icarus"),
    ("compare", specials(lns8), "icarus"),
    ("minmax", specials(lns16), "icarus"),
    ("relu", specials(lns8), "icarus"),
    ("alu", specials(lns8), "verilator"),
    ("alu", with_adder(lns16, Mitchell()), "icarus"),
    ("from_float:dtype=float16", specials(lns8), "icarus"),
    ("from_float", lns16, "verilator"),
    ("to_float:dtype=bfloat16", lns16, "icarus"),
    ("to_float:dtype=float16", specials(lns16), "icarus"),
    ("from_fixed:width=20,frac_bits=9", lns16, "icarus"),
    ("to_fixed:width=12,frac_bits=-3,signed=False", specials(lns8), "icarus"),
    ("dot:lanes=2", specials(lns8), "icarus"),
    ("dot:lanes=2", dataclasses.replace(lns8, accumulator=GUARDED), "verilator"),
    ("dot:lanes=1,channels=4", with_adder(lns16, Mitchell()), "icarus"),
    ("dot:lanes=2", dataclasses.replace(lns8, accumulator=LinearAccumulator()), "icarus"),
    ("matvec:rows=2,lanes=2,columns=4", dataclasses.replace(specials(lns8), accumulator=GUARDED), "icarus"),
]


def test_every_unit_is_among_them():
    assert {text.partition(":")[0] for text, _, _ in UNITS} == set(hdl.UNITS)


@pytest.mark.sim
@pytest.mark.parametrize(("text", "format", "simulator"), UNITS, ids=lambda value: str(value).replace(":", "-"))
def test_every_unit_equals_the_golden_model(text, format, simulator):
    if simulator == "icarus" and shutil.which("iverilog") is None:
        pytest.skip("Icarus Verilog is not installed (apt-get install iverilog)")
    stimuli = [name for name in GENERATED if applies(name, named_unit(text, format))]
    report = verify([text], format, stimuli=stimuli, vectors=400, simulator=simulator)
    assert report.passed, (report.problems, report.counterexamples)
    assert [result.stimulus for result in report.results] == stimuli
    assert all(result.vectors > 20 for result in report.results)


@pytest.mark.sim
def test_the_report_is_one_json_object(capsys):
    assert main(["verify", "multiply", "add", "--json", "--vectors", "500"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    report = json.loads(out)
    assert (report["schema"], report["passed"]) == (2, True)
    assert [list(result) for result in report["results"]] == [KEYS] * 11
    assert [(result["unit"], result["stimulus"]) for result in report["results"]] == [
        (unit, stimulus)
        for unit in ("multiply", "add")
        for stimulus in STIMULI
        if (unit, stimulus) != ("multiply", "table") and stimulus != "rounding"
    ]
    assert report["not_replayed"] == {"exp": 320, "log": 16}
    for result in report["results"]:
        assert result["mismatches"] == 0
        assert result["vectors"] >= 500
        assert result["seconds"] > 0
        assert [result[key] for key in FORMAT_KEYS] == ["lns16", "exact", "log", False]
        assert result["level"] == "rtl"


@pytest.mark.sim
def test_every_operation_of_the_training_step_is_replayed():
    report = verify(["multiply", "alu"], lns8, stimuli=["captured"], runner="batch")
    assert report.passed
    multiplications, everything = (result.vectors for result in report.results)
    with capture(lns8) as trace:
        digits_step(lns8, 0)
    assert multiplications == trace.counts["mul"] == LAYERS + BACKWARD + LOSS + 6 * PARAMETERS
    assert everything == sum(trace.counts.values()) - trace.counts["exp"] - trace.counts["log"]


@pytest.mark.sim
@pytest.mark.parametrize("format", [lns16e5, LNSFormat(20, 10)], ids=repr)
def test_other_formats_pass(format):
    report = verify(["multiply", "add"], format, stimuli=["corners", "near-cancelling"], vectors=2000)
    assert report.passed, report.counterexamples


@pytest.mark.sim
def test_a_trace_of_ones_own_is_replayed():
    x = lnstensor([[1.5, -2.0], [0.25, 3.0]], format=lns8)
    with capture(lns8) as trace:
        (x @ x) ** 2
    report = verify([hdl.Multiply], lns8, stimuli=["captured"], trace=trace)
    assert report.passed
    assert report.results[0].vectors == 8
    assert report.not_replayed == {}


def test_a_trace_must_have_something_for_each_unit_and_be_of_the_format():
    x = lnstensor([1.5, -2.0], format=lns8)
    with capture(lns8) as trace:
        x * x
    with pytest.raises(ValueError, match=r"^the trace has no operation of add: add or sub$"):
        verify(["multiply", "add"], lns8, stimuli=["captured"], trace=trace)
    with pytest.raises(ValueError, match=r"^the trace must be of lns16e5, not lns8$"):
        verify([hdl.Multiply], lns16e5, stimuli=["captured"], trace=trace)


def test_a_unit_must_be_of_the_format_and_have_something_to_do():
    with pytest.raises(ValueError, match=r"^multiply must be of lns16e5, not lns8$"):
        verify([hdl.Multiply(format=lns8)], lns16e5)
    with pytest.raises(ValueError, match=r"^the stimulus 'captured' has nothing for compare$"):
        verify(["multiply", "compare"], lns8, stimuli=["captured"])


@pytest.mark.sim
def test_without_units_all_are_verified_to_which_a_stimulus_means_anything(monkeypatch):
    chosen = {name: hdl.UNITS[name] for name in ("compare", "multiply", "sqrt")}
    monkeypatch.setattr(hdl, "UNITS", chosen)
    report = verify([], lns8, stimuli=["captured"])
    assert [result.unit for result in report.results] == ["multiply", "sqrt"]


@pytest.mark.sim
def test_a_unit_with_parameters_is_verified_as_it_is():
    report = verify([hdl.AddSubtract(format=lns8, rom="luts")], lns8, stimuli=["random"], vectors=50)
    assert report.passed
    assert report.results[0].unit == "add"


def test_a_bench_that_reports_other_segments_than_asked_has_not_run(monkeypatch):
    def run(self, build, bench, environment, folder, *args):
        (folder / "result.json").write_text(json.dumps({"segments": [], "problems": [], "seconds": []}))

    monkeypatch.setattr(Verilator, "build", lambda *args: None)
    monkeypatch.setattr(Verilator, "run", run)
    with pytest.raises(BuildFailed, match="the bench was to run"):
        verify([hdl.Multiply], lns8, stimuli=["random"], vectors=10)


@pytest.mark.sim
@pytest.mark.long  # one and two minutes, nearly all of it to compile the 65,536 and 131,072 entries of the ROM
@pytest.mark.parametrize("frac_bits", [11, 12])
def test_the_largest_roms_pass(frac_bits):
    report = verify([hdl.AddSubtract], LNSFormat(5, frac_bits), stimuli=["table"], vectors=4000)
    assert report.passed, report.counterexamples
    assert report.results[0].vectors == 4000


class Nameless(LogAccumulator):
    """Of another package, which the command line does not know."""


def command_of(format):
    return _command(["multiply"], format, ["--simulator", "verilator", "--vectors", "10"])


@pytest.mark.parametrize(
    "format",
    [
        LNSFormat(8, 7, accumulator=Nameless()),
        LNSFormat(8, 7, base=3.0),
        LNSFormat(52, 0, base=1.5, accumulator=LogAccumulator("tree")),
        LNSFormat(8, 7, adder=Off()),  # of no name
    ],
    ids=repr,
)
def test_a_format_that_the_command_line_cannot_name_has_no_command(format):
    assert command_of(format) == (
        "the same call of sim.verify.verify: the command line cannot name this unit, format or trace"
    )


def asked_by(command):
    """Return the format of which a command asks."""
    parser = argparse.ArgumentParser()
    add_format_options(parser)
    return format_of(parser.parse_known_args(shlex.split(command)[3:])[0])


@dataclasses.dataclass(frozen=True)
class Spelled(Exact):
    """An adder whose parameter a shell would take apart."""

    how: str = "plain"


def test_the_command_names_format_adder_and_accumulator(monkeypatch):
    monkeypatch.setitem(ADDERS, "off", Off)
    monkeypatch.setitem(ADDERS, "spelled", Spelled)
    rest = "--simulator verilator --vectors 10"
    assert command_of(lns8) == f"lns verify multiply --format lns8 {rest}"
    assert command_of(specials(lns8)) == f"lns verify multiply --format lns8 --specials {rest}"
    for format, words in (
        (LNSFormat(8, 7, adder=Off()), "--format lns16 --adder off"),
        (LNSFormat(20, 9, adder=Off(below=7, by=-2)), "--format 20,9 --adder off:by=-2,below=7"),
        (LNSFormat(8, 7, adder=Spelled("it's; rm")), """--format lns16 --adder 'spelled:how=it'"'"'s; rm'"""),
    ):
        assert command_of(format) == f"lns verify multiply {words} {rest}"
        assert format.adder.name in shlex.split(command_of(format))
    for accumulator, words in (
        (GUARDED, "--accumulator log:order=tree,guard_bits=2"),
        (LinearAccumulator(frac_bits=6), "--accumulator linear:frac_bits=6"),
    ):
        format = LNSFormat(8, 7, adder=Mitchell(), accumulator=accumulator, specials=True)
        assert command_of(format) == f"lns verify multiply --format lns16 --adder mitchell {words} --specials {rest}"
        assert asked_by(command_of(format)) == format
    # Another adder of the same name is not what the command would run.
    monkeypatch.setitem(ADDERS, "off", Spelled)
    assert command_of(LNSFormat(8, 7, adder=Off())).startswith("the same call")
    monkeypatch.setitem(ACCUMULATORS, "linear", LogAccumulator)
    assert command_of(LNSFormat(8, 7, accumulator=LinearAccumulator())).startswith("the same call")


@pytest.mark.sim
def test_waves_are_written_where_asked(tmp_path):
    file = tmp_path / "waves.vcd"
    assert verify([hdl.Multiply], lns8, stimuli=["random"], vectors=50, waves=file).passed
    content = file.read_text()
    assert "o__payload" in content
    assert content.count("\n#") > 100  # times at which something changed


@needs_icarus
@pytest.mark.sim
def test_waves_of_several_units_have_a_file_each(tmp_path):
    verify(["multiply", "add"], lns8, stimuli=["random"], vectors=50, simulator="icarus", waves=tmp_path / "waves.fst")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["waves.add.fst", "waves.multiply.fst"]
    assert all(file.stat().st_size > 500 for file in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stimuli": ["everything"]}, f"stimulus must be one of {', '.join((*STIMULI, EXHAUSTIVE))}, not 'everything'"),
        ({"stimuli": []}, "verify needs at least one stimulus"),
        ({"seed": -1}, "seed must be at least 0 and below 2**63, not -1"),
        ({"vectors": 1}, "vectors must be between 2 and 10,000,000, not 1"),
        ({"simulator": "spice"}, f"simulator must be one of {', '.join(SIMULATORS)}, not 'spice'"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_built(options, message, monkeypatch):
    monkeypatch.setattr("sim.simulators.Simulator.build", lambda *args: pytest.fail("built"))
    with pytest.raises(ValueError) as caught:
        verify([hdl.Multiply], lns8, **options)
    assert str(caught.value) == message


def test_a_report_of_nothing_has_not_passed():
    def result(**changes):
        values = ("add", "lns8", "exact", "log", False, "rtl", "verilator", "cocotb", "random", 5, 0, 1.0, 0, None)
        return Result(**{**dict(zip(KEYS, values, strict=True)), **changes})

    assert not Report(0).passed
    assert Report(0, [result()]).passed
    assert not Report(0, [result(vectors=0)]).passed
    assert not Report(0, [result(mismatches=1)]).passed
    assert not Report(0, [result()], problems=["late"]).passed
