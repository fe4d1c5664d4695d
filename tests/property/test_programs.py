"""Random programs agree with CPU torch; `make property` runs many more of them."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from tests.property.check import check
from tests.property.program import Program
from tests.property.programs import gradient_programs, programs

# Shards: both workers have some. The same programs in every run, so that a push fails for what it changed.
_SHARDS = 20
_PER_PUSH = settings(
    max_examples=25,
    database=None,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("shard", range(_SHARDS))
def test_programs(shard: int) -> None:
    @seeded(shard)
    @_PER_PUSH
    @given(programs(most_steps=6))
    def each(program: Program) -> None:
        check(program)

    each()


@pytest.mark.parametrize("shard", range(2))
def test_gradients(shard: int) -> None:
    @seeded(shard)
    @_PER_PUSH
    @given(gradient_programs())
    def each(program: Program) -> None:
        check(program)

    each()
