"""Timing two devices side by side: blocks of calls in turn, and of each device its best block."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

MOST_BLOCKS = 400


@dataclass(frozen=True)
class Timing:
    """Seconds a call: on the clock, and of the processor in all threads."""

    wall: float
    processor: float

    def to_json(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True)
class Pair:
    """One figure of both devices; None where a device has no such figure."""

    cpu: Timing | None
    neuron: Timing | None


@dataclass(frozen=True)
class Effort:
    """How long to measure a figure."""

    seconds: float = 4.0
    fewest_blocks: int = 5


def side_by_side(cpu: Callable[[], object], neuron: Callable[[], object], calls: int, effort: Effort) -> Pair:
    """Each function makes `calls` calls and waits for them. A loaded machine hurts both, and the minimum least."""
    best: list[Timing | None] = [None, None]
    for run in (cpu, neuron):
        run()
    gc.collect()
    gc.disable()
    try:
        _alternate((cpu, neuron), calls, effort, best)
    finally:
        gc.enable()
    return Pair(*best)


def _alternate(runs: tuple[Callable[[], object], ...], calls: int, effort: Effort, best: list[Timing | None]) -> None:
    end = time.perf_counter() + effort.seconds
    for block in range(MOST_BLOCKS):
        if block >= effort.fewest_blocks and time.perf_counter() > end:
            return
        for i, run in enumerate(runs):
            best[i] = better(best[i], _timed(run, calls))


def better(a: Timing | None, b: Timing) -> Timing:
    """The smaller of each clock; a block's two clocks need not belong together."""
    return b if a is None else Timing(min(a.wall, b.wall), min(a.processor, b.processor))


def _timed(run: Callable[[], object], calls: int) -> Timing:
    wall, processor = time.perf_counter(), time.process_time()
    run()
    return Timing((time.perf_counter() - wall) / calls, (time.process_time() - processor) / calls)
