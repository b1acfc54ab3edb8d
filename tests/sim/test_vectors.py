"""Vectors for other benches: what is in each kind of file, read back by other means, against the reference."""

import csv
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from hdltesting import REFERENCE, flag_bits, reference_of

from hdl import UNITS
from sim import vectors
from sim.naming import named_unit
from sim.vectors import KINDS, make_vectors
from xlnstorch import lns8, lns16
from xlnstorch.cli import main


def expected(format, operation, *operands):
    word, flags = REFERENCE[operation](reference_of(format), *operands)
    return word, flag_bits(flags)


def written(tmp_path, suffix, unit="add", *options):
    file = tmp_path / f"vectors{suffix}"
    assert main(["vectors", unit, "-n", "40", "-o", str(file), *options]) == 0
    assert [path.name for path in tmp_path.iterdir()] == [file.name]  # nothing beside it
    return file


def test_npz_has_an_array_a_field_and_says_what_it_is(tmp_path):
    file = written(tmp_path, ".npz", "add", "--seed", "3", "--stimulus", "random", "--stimulus", "saturation")
    with np.load(file) as found:
        columns = {name: found[name] for name in found.files}
    metadata = json.loads(str(columns.pop("metadata")))
    assert (metadata["unit"], metadata["format"]["name"], metadata["seed"]) == ("add", "lns16", 3)
    assert metadata["stimuli"] == {"random": 40, "saturation": 40}
    assert columns.pop("stimulus").tolist() == ["random"] * 40 + ["saturation"] * 40
    assert {name: column.dtype.name for name, column in columns.items()} == {
        "i_a": "uint16",
        "i_b": "uint16",
        "i_op": "uint8",
        "o_word": "uint16",
        "o_flags": "uint8",
    }
    rows = list(zip(*(column.tolist() for column in columns.values()), strict=True))
    assert [row[3:] for row in rows] == [expected(lns16, ("add", "sub")[op], a, b) for a, b, op, *_ in rows]
    assert len({row[4] for row in rows}) > 1


def test_csv_has_a_line_of_names_and_hexadecimal_numbers(tmp_path):
    with written(tmp_path, ".csv", "divide", "--stimulus", "corners").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 1444
    assert list(rows[0]) == ["stimulus", "i_a", "i_b", "o_word", "o_flags"]
    for row in rows:
        assert row.pop("stimulus") == "corners"
        a, b, word, flags = (int(text, 16) for text in row.values())
        assert (word, flags) == expected(lns16, "div", a, b)
    assert [len(text) for text in row.values()] == [6, 6, 6, 3]


def test_txt_is_operands_result_and_flags_as_testfloat_has_them(tmp_path):
    lines = written(tmp_path, ".txt", "multiply", "--format", "lns8", "--stimulus", "exhaustive").read_text()
    rows = [line.split(" ") for line in lines.splitlines()]
    assert [row[:2] for row in rows] == [[f"{a:02X}", f"{b:02X}"] for a in range(256) for b in range(256)]
    for a, b, word, flags in rows:
        assert (int(word, 16), int(flags, 16)) == expected(lns8, "mul", int(a, 16), int(b, 16))


BENCH = """
module bench;
  {memory}
  integer k;
  initial begin
    $readmemh("{file}", vectors);
    for (k = 0; k < {count}; k = k + 1)
      $display("{shown}", {parts});
  end
endmodule
"""


def places(text):
    """Return where a file for $readmemh says that each field is."""
    return re.findall(r"^//   (\[[\d:]+\]) (.*)$", text, flags=re.MULTILINE)


def read_by_icarus(tmp_path, file):
    """Return the fields that a simulator finds at the places that the file states, a row a vector."""
    text = file.read_text()
    found = places(text)
    count = sum(not line.startswith("//") for line in text.splitlines())
    bench = tmp_path / "bench.v"
    bench.write_text(
        BENCH.format(
            memory=re.search(r"^// (reg .*;)$", text, flags=re.MULTILINE)[1],
            file=file,
            count=count,
            shown=" ".join(["%h"] * len(found)),
            parts=", ".join(f"vectors[k]{place}" for place, _ in found),
        )
    )
    subprocess.run(["iverilog", "-g2001", "-Wall", "-o", str(tmp_path / "bench"), str(bench)], check=True)
    done = subprocess.run(["vvp", "-n", str(tmp_path / "bench")], capture_output=True, text=True, check=True)
    assert not re.search("warning|error", (done.stdout + done.stderr).lower())
    rows = [[int(word, 16) for word in line.split()] for line in done.stdout.splitlines()]
    assert len(rows) == count
    return rows


needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")


@pytest.mark.sim
@needs_icarus
def test_hex_is_what_readmemh_reads(tmp_path):
    rows = read_by_icarus(tmp_path, written(tmp_path, ".hex", "minmax", "--format", "lns16"))
    assert len(rows) == 2888 + 2 * 40
    for a, b, op, word, flags in rows:
        assert (word, flags) == expected(lns16, ("max", "min")[op], a, b)


@pytest.mark.sim
@needs_icarus
def test_hex_of_a_sum_says_which_operands_bring_a_result(tmp_path):
    file = written(tmp_path, ".hex", "dot:lanes=2,channels=2", "--stimulus", "random")
    names = [name for _, name in places(file.read_text())]
    assert names[:-1] == ["a[0]", "a[1]", "b[0]", "b[1]", "channel", "last", "word", "flags", "channel"]
    assert names[-1] == "whether the operands bring a result"
    reference, sums, results = reference_of(lns16), {}, 0
    for a0, a1, b0, b1, channel, last, word, flags, of, brings in read_by_icarus(tmp_path, file):
        total, raised = sums.get(channel, (None, set()))
        for a, b in ((a0, b0), (a1, b1)):
            product, more = reference.mul(a, b)
            added, again = (product, ()) if total is None else reference.add(total, product)
            total, raised = added, {*raised, *more, *again}
        assert brings == last
        if last:
            assert (word, flags, of) == (total, flag_bits(raised), channel)
            results += 1
        else:
            assert (word, flags, of) == (0, 0, 0)
        sums[channel] = (None, set()) if last else (total, raised)
    assert results > 5


@pytest.mark.parametrize("name", UNITS)
def test_every_unit_has_vectors_in_every_kind(tmp_path, name):
    found = make_vectors(named_unit(name, lns8), name, count=8)
    sizes = {kind(found).count(b"\n") for suffix, kind in KINDS.items() if suffix in (".csv", ".txt")}
    assert sizes == {len(found), len(found) + 1}
    assert len([line for line in KINDS[".hex"](found).splitlines() if not line.startswith(b"//")]) == len(found)
    for suffix in KINDS:
        found.write(tmp_path / f"x{suffix}")


def test_the_same_seed_gives_the_same_file(tmp_path):
    texts = [written(tmp_path, ".hex", "mac", "--seed", seed).read_text() for seed in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2]


def test_the_summary_is_text_or_json(tmp_path, capsys):
    file = written(tmp_path, ".txt", "sqrt", "--stimulus", "corners", "--stimulus", "random")
    assert capsys.readouterr().out == f"{file}: 78 vectors of sqrt: 38 corners, 40 random\n"
    written(tmp_path, ".txt", "sqrt", "--stimulus", "random", "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["file"], found["vectors"], found["results"]) == (1, str(file), 40, 40)
    assert [field["name"] for field in found["operands"] + found["expected"]] == ["a", "word", "flags"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "x.dat"], "'x.dat' cannot be written: its name must end in .npz or .csv or .hex or .txt"),
        (["-o", "nowhere/x.csv"], "'nowhere/x.csv' cannot be written: its folder does not exist"),
        (["-o", "/proc/x.csv"], "'/proc/x.csv' cannot be written: No such file or directory"),
        (["-n", "1"], "vectors must be between 2 and 1,048,576, not 1"),
        (["--seed", "-1"], "seed must be at least 0 and below 2**63, not -1"),
        (["--stimulus", "table"], "the stimulus 'table' has nothing for multiply"),
        (
            ["--stimulus", "all"],
            "stimulus must be one of corners, random, table, near-cancelling, saturation, rounding, captured, "
            "exhaustive, not 'all'",
        ),
        (
            ["--stimulus", "exhaustive"],
            "at most 1,048,576 vectors are written, but multiply has 4,294,967,296 operands in all",
        ),
        (["-n", "1000000"], "at most 1,048,576 vectors are written, not 3,001,444"),
        (["--format", "lns7"], None),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(tmp_path, capsys, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    assert main(["vectors", "multiply", "-o", "x.csv", *options]) == 2
    printed = capsys.readouterr()
    assert message is None or printed.err == f"lns vectors: {message}\n"
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_cannot_be_written_is_refused_before_any_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(vectors, "make_vectors", None)
    (tmp_path / "x.csv").mkdir()
    assert main(["vectors", "multiply", "-o", str(tmp_path / "x.csv")]) == 2
    assert capsys.readouterr().err == f"lns vectors: '{tmp_path / 'x.csv'}' cannot be written: it is a folder\n"


def test_what_was_there_stays_where_writing_fails(tmp_path, monkeypatch):
    file = tmp_path / "x.csv"
    file.write_text("before")

    def full(self, content):
        raise OSError(28, "No space left on device")

    found = make_vectors(named_unit("sqrt", lns8), "sqrt", count=2)
    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(OSError, match=rf"^'{file}' cannot be written: No space left on device$"):
        found.write(file)
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]
    assert file.read_text() == "before"
