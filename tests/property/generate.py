"""Draws a number of programs and hands each to a function."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from tests.property.program import Program
from tests.property.programs import gradient_programs, programs


def generate(use: Callable[[Program], None], count: int, seed: int, *, autograd: bool = False) -> None:
    strategy = gradient_programs() if autograd else programs()

    @seeded(seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def each(program: Program) -> None:
        use(program)

    each()
