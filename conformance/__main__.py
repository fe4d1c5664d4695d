"""python -m conformance: runs what is missing, writes results.json and docs/op_support.md, and compares with gaps.toml.

The first whole run takes an hour or two on two cores; interrupted, it goes on where it was. After a change to the
package it begins anew, except with --ops, which measures some entries again and keeps the rest.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from conformance import compile_cost, databases, gaps, page, passes, probe, results, units
from conformance.passes import PASSES

TOOL = passes.ROOT.parent / "shared" / "tools" / "conformance.py"
OTHERS = ("compile_cost", "databases")  # not about units


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tool", type=Path, default=TOOL, help="conformance.py")
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--ops", help="regular expression on entries: measure these again, keep the rest")
    options.add_argument("--passes", nargs="*", default=[*PASSES, "databases"], help="only these; default all")
    options.add_argument("--page", action="store_true", help="only write the pages from the committed results")
    options.add_argument("--keep", action="store_true", help="go on with lines that other code has written")
    return options.parse_args()


def collect(before: results.Results | None, ops: str | None) -> results.Results:
    """The verdicts of all the lines there are; with `ops`, those of the matching entries put into `before`.

    Passes may be run one by one, on different days: a unit that has no line now keeps its verdict.
    """
    of = {p.name: p.outcomes() for p in PASSES.values()}
    verdicts = units.judge_all(of["cpu"], of["values"], of["seeded"])
    verdicts |= units.judge_all(of["cpu_all"], of["values_all"], of["seeded_all"])
    verdicts |= units.judge_all({}, of["layouts"], {})
    found = results.Results(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        versions=results.versions(),
        overloads=results.overloads(),
        verdicts=verdicts,
        fallbacks=_fallbacks([of["values"], of["values_all"]]),
        databases=databases.read() or (before.databases if before else {}),
        passes={p.name: datetime.date.fromtimestamp(p.file.stat().st_mtime).isoformat() for p in _measured(of)},
    )
    if before is None or before.versions != found.versions:
        return found
    return before.completed(found) if ops is None else before.updated(found, ops)


def _measured(of: dict[str, units.Outcomes]) -> list[passes.Pass]:
    return [p for p in PASSES.values() if p.ours and of[p.name]]


def _fallbacks(ran: Sequence[units.Outcomes]) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for unit, outcome in (item for outcomes in ran for item in outcomes.items()):
        for op in outcome.fallbacks:
            found.setdefault(op, set()).add(unit.op)
    return {op: sorted(names) for op, names in sorted(found.items())}


def _not_measured() -> list[str]:
    """Units that CPU torch was measured on and neuron was not: a pass is missing or was interrupted."""
    found = []
    for cpu, ours in (("cpu", "values"), ("cpu_all", "values_all")):
        lacking = PASSES[cpu].outcomes().keys() - PASSES[ours].outcomes().keys()
        if lacking or not PASSES[cpu].file.exists():
            found.append(f"pass {ours} lacks {len(lacking)} units: run `make conformance` to its end")
    return found


def main() -> int:
    chosen = _options()
    known = gaps.load()
    before = results.read() if results.FILE.exists() else None
    if chosen.page:
        assert before is not None, "there is no results.json yet: run without --page"
        _write(before, known)
        return 0
    if chosen.ops is None and not chosen.keep:
        passes.start_over_if_changed()
    broken = _measure(chosen)
    found = collect(before, chosen.ops)
    results.FILE.write_text(found.to_json())
    _write(found, known)
    print(page.summary(found))
    wrong = [*broken, *gaps.disagreements(known, found.verdicts, found.fallbacks)]
    wrong += compile_cost.unexplained(known.slow)
    if chosen.ops is None:
        wrong += _not_measured()
    _explain(wrong)
    return 1 if wrong else 0


def _measure(chosen: argparse.Namespace) -> list[str]:
    """Runs the chosen passes; with --ops only those about units. What fails in the databases comes back."""
    wanted = [n for n in chosen.passes if chosen.ops is None or n not in OTHERS]
    for one in (p for p in PASSES.values() if p.name in wanted):
        passes.run(one, chosen.tool, chosen.jobs, chosen.ops)
    if "compile_cost" in wanted:
        compile_cost.record(PASSES["compile_cost"].file)
    return databases.run(chosen.jobs) if "databases" in wanted else []


def _write(found: results.Results, known: gaps.Known) -> None:
    page.FILE.write_text(page.write(found, known))
    if compile_cost.FILE.exists():
        data = json.loads(compile_cost.FILE.read_text())
        compile_cost.PAGE.write_text(compile_cost.page(data, known.slow))


def _explain(wrong: list[str]) -> None:
    """Every disagreement with its message, so that a run says what to look at."""
    messages = {str(u): o.message for p in PASSES.values() for u, o in p.outcomes().items() if not o.passed}
    for line in wrong:
        unit = " ".join(line.split()[:3])
        print(f"conformance: {line}" + (f"\n    {messages[unit]}" if unit in messages else ""), file=sys.stderr)
    for op, why in probe.reasons(PASSES["values"].reasons).items():
        print(f"on the CPU: {op}: {'; '.join(why)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
