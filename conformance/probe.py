"""What the conformance tool asks before and after each unit: the CPU runs so far. Reasons go to a file."""

from __future__ import annotations

import json
import os
from pathlib import Path

VARIABLE = "TORCH_NEURONX_CONFORMANCE_REASONS"
_seen: set[tuple[str, str]] = set()


def fallbacks() -> dict[str, int]:
    """Overload -> CPU runs; the tool keeps only the names, so each new reason is appended to a file."""
    from torch_neuronx.debug import fallback_report

    counts: dict[str, int] = {}
    for record in fallback_report():
        counts[record.op] = counts.get(record.op, 0) + record.count
        _note(record.op, record.reason)
    return counts


def _note(op: str, reason: str) -> None:
    if (op, reason) in _seen or VARIABLE not in os.environ:
        return
    _seen.add((op, reason))
    with Path(os.environ[VARIABLE]).open("a") as file:
        file.write(json.dumps({"op": op, "reason": reason}) + "\n")


def reasons(path: Path) -> dict[str, list[str]]:
    """Overload -> the reasons noted, in the order they came."""
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        record = json.loads(line)
        of_op = found.setdefault(record["op"], [])
        if record["reason"] not in of_op:
            of_op.append(record["reason"])
    return found
