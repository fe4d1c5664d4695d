"""python -m conformance: runs what is missing, writes results.json and docs/op_support.md, and compares with gaps.toml.

The first whole run takes an hour or two on two cores; interrupted, it goes on where it was. After a change to the
package it begins anew, except with --ops, which measures some entries again and keeps the rest.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from pathlib import Path

from conformance import databases, gaps, page, passes, probe, results, units
from conformance.passes import PASSES

TOOL = passes.ROOT.parent / "shared" / "tools" / "conformance.py"


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tool", type=Path, default=TOOL, help="conformance.py")
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--ops", help="regular expression on entries: measure these again, keep the rest")
    options.add_argument("--passes", nargs="*", choices=[*PASSES, "databases"], help="only these; default all")
    options.add_argument("--page", action="store_true", help="only write the page from results.json and gaps.toml")
    options.add_argument("--keep", action="store_true", help="go on with lines that other code has written")
    return options.parse_args()


def collect(before: results.Results | None, ops: str | None) -> results.Results:
    """The verdicts of all the lines there are."""
    of = {name: one.outcomes() for name, one in PASSES.items()}
    verdicts = units.judge_all(of["cpu"], of["values"], of["seeded"])
    verdicts |= units.judge_all(of["cpu_all"], of["values_all"], of["seeded_all"])
    verdicts |= units.judge_all({}, of["layouts"], {})
    fallbacks: dict[str, set[str]] = {}
    for name in ("values", "values_all"):
        for unit, outcome in of[name].items():
            for op in outcome.fallbacks:
                fallbacks.setdefault(op, set()).add(unit.op)
    return results.Results(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        versions=results.versions(),
        overloads=results.overloads(),
        verdicts=verdicts,
        fallbacks={op: sorted(names) for op, names in sorted(fallbacks.items())},
        databases=databases.read() or (before.databases if before else {}),
        reruns=[*(before.reruns if before else []), ops] if ops else [],
    )


def _missing(verdicts: dict[units.Unit, units.Verdict]) -> list[str]:
    """Modes without a single unit: a pass that has not been run."""
    seen = {u.mode for u in verdicts}
    return [f"no unit of mode {m} was measured" for m in units.MODES if m not in seen]


def main() -> int:
    chosen = _options()
    known = gaps.load()
    before = results.read() if results.FILE.exists() else None
    if chosen.page:
        assert before is not None, "there is no results.json yet: run without --page"
        page.FILE.write_text(page.write(before, known))
        return 0
    if chosen.ops is None and not chosen.keep:
        passes.start_over_if_changed()
    for one in (p for p in PASSES.values() if chosen.passes is None or p.name in chosen.passes):
        passes.run(one, chosen.tool, chosen.jobs, chosen.ops)
    broken = databases.run(chosen.jobs) if _wants_databases(chosen) else []
    found = collect(before, chosen.ops)
    results.FILE.write_text(found.to_json())
    page.FILE.write_text(page.write(found, known))
    print(page.summary(found))
    wrong = [*_missing(found.verdicts), *broken, *gaps.disagreements(known, found.verdicts, found.fallbacks)]
    _explain(wrong)
    return 1 if wrong else 0


def _wants_databases(chosen: argparse.Namespace) -> bool:
    return chosen.ops is None and (chosen.passes is None or "databases" in chosen.passes)


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
