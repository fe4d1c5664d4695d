"""What a unit's outcomes mean, and where a measurement and the listed gaps disagree."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from conformance import gaps, page, probe, units, workers
from conformance.gaps import Gap, Known
from conformance.results import Results
from conformance.units import Outcome, Unit, Verdict

PASS, FAIL, HOST = Outcome("pass"), Outcome("fail", "values"), Outcome("fallback", "", ("aten::x",))
NONE, NO_CPU = Outcome("skip", "no samples"), Outcome("skip", "cpu reference: RuntimeError")
CRASH = Outcome("crash")


@pytest.mark.parametrize(
    ("cpu", "ours", "seeded", "verdict"),
    [
        (PASS, PASS, None, Verdict.NATIVE),
        (PASS, HOST, None, Verdict.FALLBACK),
        (PASS, FAIL, None, Verdict.FAILS),
        (PASS, FAIL, HOST, Verdict.SEEDED),
        (PASS, PASS, FAIL, Verdict.NATIVE),
        (PASS, FAIL, FAIL, Verdict.FAILS),
        (FAIL, FAIL, None, Verdict.CPU_FAILS),
        (FAIL, PASS, None, Verdict.CPU_FAILS),
        (FAIL, CRASH, None, Verdict.FAILS),
        (NO_CPU, NO_CPU, None, Verdict.CPU_FAILS),
        (NONE, NONE, None, Verdict.ABSENT),
        (None, FAIL, None, Verdict.FAILS),
    ],
)
def test_judge(cpu: Outcome | None, ours: Outcome, seeded: Outcome | None, verdict: Verdict) -> None:
    assert units.judge(cpu, ours, seeded) is verdict


def test_an_interrupted_file_is_read_up_to_the_torn_line(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    first = {"id": "add|int64|forward", "status": "fail", "msg": "m", "fallback_ops": {"aten::x": 2}}
    file.write_text("\n".join([json.dumps(first), json.dumps({**first, "status": "fallback"}), '{"id": "ad']))
    assert units.read(file, {"forward": "forward"}) == {
        Unit("add", "int64", "forward"): Outcome("fallback", "m", ("aten::x",))
    }


UNIT, OTHER = Unit("add", "int64", "forward"), Unit("add", "float32", "forward")
NOTHING = Known((), (), {}, {})


def _known(dtype: str) -> Known:
    return Known((Gap(("add",), (dtype,), ("forward",), "why"),), (), {}, {})


def test_a_failure_that_is_not_listed() -> None:
    assert gaps.disagreements(NOTHING, {UNIT: Verdict.FAILS}, {}) == ["add int64 forward fails and is not in gaps.toml"]
    assert gaps.disagreements(_known("int64"), {UNIT: Verdict.FAILS, OTHER: Verdict.NATIVE}, {}) == []


def test_a_listed_gap_that_passes() -> None:
    found = gaps.disagreements(_known("*"), {UNIT: Verdict.FAILS, OTHER: Verdict.NATIVE}, {})
    assert found == ["add float32 forward is a gap in gaps.toml and passes: remove it"]
    assert len(gaps.disagreements(_known("int64"), {OTHER: Verdict.NATIVE}, {})) == 1  # it covers nothing
    assert gaps.disagreements(_known("int64"), {UNIT: Verdict.CPU_FAILS, OTHER: Verdict.NATIVE}, {}) == []
    assert gaps.disagreements(_known("int64"), {OTHER: Verdict.NATIVE}, {}, whole=False) == []


def test_seeds_and_fallbacks_that_are_not_needed_or_not_listed() -> None:
    known = Known((), ("add",), {"aten::a": "why"}, {})
    assert len(gaps.disagreements(known, {UNIT: Verdict.NATIVE}, {"aten::b": []})) == 3
    assert gaps.disagreements(known, {UNIT: Verdict.SEEDED}, {"aten::a": []}) == []


def test_results_survive_their_file() -> None:
    verdicts = {UNIT: Verdict.FAILS, OTHER: Verdict.NATIVE, Unit("mul", "bool", "out_layout"): Verdict.FALLBACK}
    results = Results("2026-01-01", {"torch": "1"}, ["aten::add"], verdicts, {"aten::x": ["add"]}, {"modules": [3, 4]})
    assert Results.from_json(results.to_json()) == results


def test_a_part_measured_again_leaves_the_rest() -> None:
    mul = Unit("mul", "bool", "forward")
    before = Results("d", {}, [], {UNIT: Verdict.FAILS, mul: Verdict.FAILS}, {"aten::x": ["add", "mul"]})
    again = Results("e", {}, [], {UNIT: Verdict.NATIVE}, {})
    found = before.updated(again, "add")
    assert found.verdicts == {UNIT: Verdict.NATIVE, mul: Verdict.FAILS}
    assert (found.fallbacks, found.reruns, found.date) == ({"aten::x": ["mul"]}, ["add"], "d")


def test_passes_run_on_different_days_are_put_together() -> None:
    layout = Unit("add", "bool", "out_layout")
    before = Results("d", {}, [], {UNIT: Verdict.FAILS}, {"aten::x": ["add"]}, passes={"values": "d"})
    found = before.completed(Results("e", {}, [], {layout: Verdict.NATIVE}, {}, passes={"layouts": "e"}))
    assert found.verdicts == {UNIT: Verdict.FAILS, layout: Verdict.NATIVE}
    assert found.passes == {"values": "d", "layouts": "e"}
    assert found.fallbacks == {"aten::x": ["add"]}


def test_dtypes_are_named_in_groups_where_the_entry_claims_no_more() -> None:
    floats = ["float16", "bfloat16", "float32", "float64"]
    assert page.names([*floats, "bool"], [*floats, "bool", "int64"]) == "bool, float"
    assert page.names(["float32", "float64"], ["float32", "float64", "int64"]) == "float"
    assert page.names(["float32"], floats) == "float32"


def test_a_cell_says_what_does_not_pass_and_why() -> None:
    results = Results("d", {}, [], {UNIT: Verdict.FAILS, OTHER: Verdict.NATIVE}, {})
    assert "| `add` | float32; no [1]: int64 |  |  |  |  |" in page.write(results, _known("int64"))


def test_shares_are_rounded_down() -> None:
    assert (page.percent(9996, 10000), page.percent(1, 1), page.percent(0, 0)) == ("99.9 %", "100.0 %", "-")


def test_the_probe_writes_each_reason_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "reasons"
    monkeypatch.setenv(probe.VARIABLE, str(file))
    monkeypatch.setattr(probe, "_seen", set())
    for _ in range(2):
        probe._note("aten::x", "no kernel")
    probe._note("aten::x", "too large")
    assert probe.reasons(file) == {"aten::x": ["no kernel", "too large"]}


def test_a_worker_that_dies_costs_one_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "dies_at_three.py"
    module.write_text(
        "import os\nfrom conformance import workers\n"
        "workers.serve(lambda i: os._exit(9) if i == '3' else {'status': 'pass'})\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    workers.run("dies_at_three", [str(i) for i in range(6)], tmp_path / "out", 2)
    records = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert {r["id"]: r["status"] for r in records} == {**dict.fromkeys("012345", "pass"), "3": "crash"}
