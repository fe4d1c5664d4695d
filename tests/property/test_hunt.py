"""The long run: what it prints, and that a process that dies is reported and not the end of it."""

from __future__ import annotations

import sys

import pytest

from tests.property import hunt

# Reports one program a seed; seed 8 has a failure, and at seed 9 the process dies.
_STAND_IN = """
import json, os, sys
for seed in map(int, sys.argv[1:]):
    print(json.dumps({"seed": seed, "program": f"program {seed}", "ops": ["add", "mul"]}), flush=True)
    if seed == 8:
        print(json.dumps({"seed": 8, "op": "add", "kind": "values", "text": "t1 differs"}), flush=True)
    if seed == 9:
        os.abort()
"""


def test_a_process_that_dies_costs_one_seed(monkeypatch, capfd) -> None:
    monkeypatch.setattr(hunt, "WORKER", [sys.executable, "-c", _STAND_IN])
    assert hunt.main(["--programs", str(5 * hunt.PER_SEED), "--jobs", "1", "--seed", "7"]) == 1
    printed = capfd.readouterr().out
    assert "--- seed 8: t1 differs" in printed
    assert "--- seed 9: the process ended with -6 at\nprogram 9" in printed
    assert printed.endswith("property: 5 programs, 2 failures, ops covered 2\n")


def test_a_short_run(capfd: pytest.CaptureFixture[str]) -> None:
    assert hunt.main(["--programs", "20", "--jobs", "1", "--seed", "0"]) == 0
    assert "property: 20 programs, 0 failures, ops covered" in capfd.readouterr().out
