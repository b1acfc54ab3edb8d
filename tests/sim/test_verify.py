"""``lns verify`` on sound gates."""

import dataclasses
import json
import shlex
import shutil

import pytest
from lnstesting import Off

import hdl
from sim.capture import capture
from sim.results import Report, Result
from sim.simulators import SIMULATORS, BuildFailed, Verilator
from sim.verify import STIMULI, _command, verify
from xlnstorch import Exact, LNSFormat, LogAccumulator, lns8, lns16e5, lnstensor
from xlnstorch.adders import ADDERS
from xlnstorch.cli import main

needs_icarus = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="Icarus Verilog is not installed (apt-get install iverilog)"
)

KEYS = ["unit", "format", "adder", "level", "simulator", "stimulus", "vectors", "mismatches", "seconds"]

# Multiplications of one step of the 64-16-10 perceptron on 16 digits, counted by hand: both layers forward; both weight
# gradients and one input gradient; each parameter's gradient by the learning rate; and two for each of the 160 logits,
# in the backward of the loss.
LAYERS = 16 * 64 * 16 + 16 * 16 * 10
BACKWARD = 16 * 64 * 16 + 16 * 16 * 10 + 16 * 10 * 16
PARAMETERS = 64 * 16 + 16 + 16 * 10 + 10
LOSS = 2 * 160


@pytest.mark.sim
def test_the_default_run_passes_and_reports_one_json_object(capsys):
    assert main(["verify", "--json", "--vectors", "2000"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    report = json.loads(out)
    assert (report["schema"], report["passed"]) == (1, True)
    assert [list(result) for result in report["results"]] == [KEYS] * 11
    assert [(result["unit"], result["stimulus"]) for result in report["results"]] == [
        (unit, stimulus)
        for unit in ("multiply", "add")
        for stimulus in STIMULI
        if (unit, stimulus) != ("multiply", "table")
    ]
    assert report["not_replayed"] == {"div": 2, "exp": 320, "log": 16}
    for result in report["results"]:
        assert result["mismatches"] == 0
        assert result["vectors"] >= 1000
        assert result["seconds"] > 0
        assert (result["format"], result["adder"], result["level"]) == ("lns16", "exact", "rtl")


@pytest.mark.sim
def test_every_multiplication_of_the_training_step_is_replayed():
    report = verify([hdl.Multiply], lns8, stimuli=["captured"])
    assert report.passed
    assert report.results[0].vectors == LAYERS + BACKWARD + PARAMETERS + LOSS


@pytest.mark.sim
@pytest.mark.parametrize("format", [lns16e5, LNSFormat(20, 10)], ids=repr)
def test_other_formats_pass(format):
    report = verify(list(hdl.UNITS.values()), format, stimuli=["corners", "near-cancelling"], vectors=2000)
    assert report.passed, report.counterexamples


@pytest.mark.sim
def test_a_trace_of_ones_own_is_replayed():
    x = lnstensor([[1.5, -2.0], [0.25, 3.0]], format=lns8)
    with capture(lns8) as trace:
        (x @ x) ** 2
    report = verify([hdl.Multiply], lns8, stimuli=["captured"], trace=trace)
    assert report.passed
    assert report.results[0].vectors == 8
    assert report.not_replayed == {"pow2": 4}


def test_a_trace_must_have_something_for_each_unit_and_be_of_the_format():
    x = lnstensor([1.5, -2.0], format=lns8)
    with capture(lns8) as trace:
        x * x
    with pytest.raises(ValueError, match=r"^the trace has no operation of add: add or sub$"):
        verify(list(hdl.UNITS.values()), lns8, stimuli=["captured"], trace=trace)
    with pytest.raises(ValueError, match=r"^the trace must be of lns16e5, not lns8$"):
        verify([hdl.Multiply], lns16e5, stimuli=["captured"], trace=trace)


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


def command_of(format):
    return _command(hdl.Multiply, format, STIMULI, 0, 10, "verilator", False)


@pytest.mark.parametrize(
    "format",
    [
        LNSFormat(8, 7, accumulator=LogAccumulator("tree")),
        LNSFormat(8, 7, base=3.0),
        LNSFormat(52, 0, base=1.5, accumulator=LogAccumulator("tree")),
        LNSFormat(8, 7, adder=Off()),  # of no name
    ],
    ids=repr,
)
def test_a_format_that_the_command_line_cannot_name_has_no_command(format):
    assert command_of(format) == (
        "the same call of sim.verify.verify: the command line cannot name this format or trace"
    )


@dataclasses.dataclass(frozen=True)
class Spelled(Exact):
    """An adder whose parameter a shell would take apart."""

    how: str = "plain"


def test_the_command_names_format_and_adder(monkeypatch):
    monkeypatch.setitem(ADDERS, "off", Off)
    monkeypatch.setitem(ADDERS, "spelled", Spelled)
    rest = "--simulator verilator --seed 0 --vectors 10"
    assert command_of(lns8) == f"lns verify multiply --format lns8 {rest}"
    for format, words in (
        (LNSFormat(8, 7, adder=Off()), "--format lns16 --adder off"),
        (LNSFormat(20, 9, adder=Off(below=7, by=-2)), "--format 20,9 --adder off:by=-2,below=7"),
        (LNSFormat(8, 7, adder=Spelled("it's; rm")), """--format lns16 --adder 'spelled:how=it'"'"'s; rm'"""),
    ):
        assert command_of(format) == f"lns verify multiply {words} {rest}"
        assert format.adder.name in shlex.split(command_of(format))
    # Another adder of the same name is not what the command would run.
    monkeypatch.setitem(ADDERS, "off", Spelled)
    assert command_of(LNSFormat(8, 7, adder=Off())).startswith("the same call")


@needs_icarus
@pytest.mark.sim
def test_icarus_agrees():
    report = verify(list(hdl.UNITS.values()), lns8, stimuli=["corners", "saturation"], vectors=2000, simulator="icarus")
    assert report.passed, report.counterexamples
    assert {result.simulator for result in report.results} == {"icarus"}


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
    units = list(hdl.UNITS.values())
    verify(units, lns8, stimuli=["random"], vectors=50, simulator="icarus", waves=tmp_path / "waves.fst")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["waves.add.fst", "waves.multiply.fst"]
    assert all(file.stat().st_size > 500 for file in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stimuli": ["everything"]}, f"stimulus must be one of {', '.join(STIMULI)}, not 'everything'"),
        ({"stimuli": []}, "verify needs at least one unit and one stimulus"),
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
        values = dict(zip(KEYS, ("add", "lns8", "exact", "rtl", "verilator", "random", 5, 0, 1.0), strict=True))
        return Result(**{**values, **changes})

    assert not Report(0).passed
    assert Report(0, [result()]).passed
    assert not Report(0, [result(vectors=0)]).passed
    assert not Report(0, [result(mismatches=1)]).passed
    assert not Report(0, [result()], problems=["late"]).passed
