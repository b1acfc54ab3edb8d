"""PyTorch's own test databases, against what was measured: see the package pytorch_coverage beside this folder."""

import pytest
import torch
from pytorch_coverage import accepted, comparing, operators, optimizers, page

from xlnstorch import arithmetic, lnstensor

EXPECTED = page.load()
ENTRIES = [(database, name) for database, entries in EXPECTED.items() for name in entries]
#: Samples of one entry in an ordinary run.
SHARE = {"op_db": 3, "module_db": 2, "optim_db": 1}
#: Those that would take most of an ordinary run; the slow one has them.
LONG = {"nn.functional.ctc_loss", "nn.CTCLoss", "nn.TransformerEncoder", "nn.LinearCrossEntropyLoss", "LBFGS"}
SHORT = [entry for entry in ENTRIES if entry[1] not in LONG]


def test_every_entry_is_expected():
    assert {d: set(entries) for d, entries in EXPECTED.items()} == {
        database: set(module.entries()) for database, module in page.DATABASES.items()
    }


@pytest.mark.parametrize(("database", "name"), SHORT, ids=map("-".join, SHORT))
def test_a_share_of_the_samples(database, name):
    measured = page.record(database, name, SHARE[database])
    expected = EXPECTED[database][name]
    if (expected["forward"] or "").startswith("refused"):
        # The sample that is refused may not be in the share.
        assert measured["forward"] in ("pass", None, expected["forward"])
        assert measured["backward"] in ("pass", None)
    else:
        assert measured["forward"] == expected["forward"]
        assert measured["backward"] in (expected["backward"], None)  # nor the one with a gradient


@pytest.mark.long
@pytest.mark.parametrize(("database", "name"), ENTRIES, ids=map("-".join, ENTRIES))
def test_all_samples(database, name):
    assert page.differences(EXPECTED[database][name], page.record(database, name)) == []


def test_what_is_promised():
    assert not [e for d in EXPECTED.values() for e in d.values() if "wrong" in f"{e['forward']} {e['backward']}"]
    passes = {d: [page._count(EXPECTED[d], way, "pass") for way in ("forward", "backward")] for d in EXPECTED}
    assert passes["op_db"][0] >= 500
    assert passes["op_db"][1] >= 430
    missing = {n for d in ("module_db", "optim_db") for n, e in EXPECTED[d].items() if e["forward"] != "pass"}
    assert missing == set(accepted.REASONS)


def test_the_page_is_made_of_what_was_measured():
    assert page.PAGE.read_text() == page.render(EXPECTED)


def test_a_wrong_sum_is_seen(monkeypatch):
    add = arithmetic.add

    def one_unit_in_a_million(format, a, b):
        words = add(format, a, b)
        return words + (1 << 20) * (words % 2 == 1)

    monkeypatch.setattr(arithmetic, "add", one_unit_in_a_million)
    assert page.record("op_db", "matmul")["forward"].startswith("wrong: Mismatch: result 0")
    assert page.record("module_db", "nn.Linear")["forward"].startswith("wrong")
    outcome = optimizers.measure(optimizers.entries()["SGD"], 1)
    assert outcome.forward.startswith("wrong")


def test_a_wrong_derivative_is_seen(monkeypatch):
    from xlnstorch.ops import _registry

    handler = _registry._HANDLERS[torch.ops.aten.threshold_backward.default]
    monkeypatch.setitem(
        _registry._HANDLERS,
        torch.ops.aten.threshold_backward.default,
        lambda func, grad, x, limit: handler(func, grad, x, limit) * 1.000001,
    )
    measured = page.record("op_db", "nn.functional.relu")
    assert measured["forward"] == "pass"
    assert measured["backward"].startswith("wrong: Mismatch: gradient 0")


def test_a_float_in_place_of_an_lns_result_is_seen(monkeypatch):
    from xlnstorch.ops import _registry

    monkeypatch.setitem(_registry._HANDLERS, torch.ops.aten.sin.default, lambda func, x: torch.sin(x.value))
    assert "a plain tensor" in page.record("op_db", "sin")["forward"]


def test_what_compare_allows():
    one = lnstensor(1.0, format=comparing.WIDE)
    comparing.compare(one, torch.tensor(1.0 + 1000 * comparing.UNIT, dtype=torch.float64), 0.0, "result")
    with pytest.raises(comparing.Mismatch):
        comparing.compare(one, torch.tensor(1.0 + 1200 * comparing.UNIT, dtype=torch.float64), 0.0, "result")


def test_all_families_are_of_the_database():
    names = set(operators.entries()) | set(optimizers.entries())
    assert [s for starts in accepted.FAMILIES.values() for s in starts if not any(n.startswith(s) for n in names)] == []
    assert set(accepted.DIFFERENT) <= names
