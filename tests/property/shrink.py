"""Makes a failing program short: lines that the failure does not need are left out."""

from __future__ import annotations

from tests.property.check import Difference, check
from tests.property.program import Program


def shrink(program: Program, difference: Difference) -> tuple[Program, Difference]:
    """The shortest program found that differs in the same way after the same line."""
    lines = [step.code for step in program.steps]
    steps = list(program.steps[: lines.index(difference.line) + 1])
    difference = failure(Program(tuple(steps))) or difference
    for i in reversed(range(len(steps) - 1)):
        candidate = Program(tuple(steps[:i] + steps[i + 1 :]))
        found = failure(candidate)
        if found is not None and (found.kind, found.line) == (difference.kind, difference.line):
            steps, difference = list(candidate.steps), found
    return Program(tuple(steps)), difference


def failure(program: Program) -> Difference | None:
    try:
        check(program)
    except Difference as difference:
        return difference
    return None
