"""What compiled graphs have cost, a record each."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from torch_neuronx.compiler.executables import compiled_here


@dataclass
class GraphMetrics:
    """One graph. Times are wall seconds, summed over its executables.

    traced        False: AOTAutograd's cache had the graph
    executables   programs obtained so far, one for each set of layouts and sizes, or for each set of buckets
    ahead         programs obtained in the background for the bucket that follows, and not called yet
    exact         programs obtained in the background for sizes that recur, beside their bucket's
    early         programs of a backward graph obtained in the background while its forward was compiled and ran
    early_used    how many of these a call has needed; the others were wrong guesses
    cache_hits    how many of all these were read from disk
    tuned         of mode "max-autotune", an entry for each program: the variant that was chosen, the milliseconds of
                  each, those that were dropped and why, the seconds it took
    misses        why the others were not: "new graph", "new sizes or layouts", "sizes that recur", "the next bucket"
    """

    graph_name: str
    kind: str  # forward, backward, inference
    node_count: int
    traced: bool = True
    executables: int = 0
    ahead: int = 0
    exact: int = 0
    early: int = 0
    early_used: int = 0
    cache_hits: int = 0
    lowering_time: float = 0.0
    compile_time: float = 0.0
    load_time: float = 0.0
    misses: list[str] = field(default_factory=list)
    tuned: list[dict[str, Any]] = field(default_factory=list)
    fallback: str | None = None  # why it runs op by op
    varying: bool = False  # whether sizes of its inputs vary
    exact_because: str | None = None  # why varying sizes are not padded to buckets


_lock = threading.Lock()
_records: list[GraphMetrics] = []


@contextmanager
def measured(
    metrics: GraphMetrics, *, recurring: bool = False, ahead: bool = False, early: bool = False
) -> Iterator[None]:
    """Adds what obtaining one executable took.

    recurring: for sizes whose bucket has one already; ahead: for a bucket not needed yet; early: for a call to come
    """
    before, began = compiled_here(), time.perf_counter()
    yield
    took, hit = time.perf_counter() - began, compiled_here() == before
    with _lock:
        metrics.exact += recurring
        metrics.ahead += ahead
        metrics.early += early
        metrics.executables += not (recurring or ahead or early)
        metrics.cache_hits += hit
        metrics.load_time += took if hit else 0
        metrics.compile_time += 0 if hit else took
        if not hit:
            new = "sizes that recur" if recurring else "the next bucket" if ahead else "new sizes or layouts"
            first = metrics.executables + metrics.exact + metrics.early == 1 and not ahead
            metrics.misses.append("new graph" if first else new)


def called(metrics: GraphMetrics) -> None:
    """A program that was obtained ahead is needed."""
    with _lock:
        metrics.ahead -= 1
        metrics.executables += 1


def used(metrics: GraphMetrics) -> None:
    """A program that was obtained early is needed."""
    with _lock:
        metrics.early_used += 1
        metrics.executables += 1


def record(metrics: GraphMetrics) -> GraphMetrics:
    with _lock:
        _records.append(metrics)
    return metrics


def get_dynamo_metrics() -> list[dict[str, Any]]:
    """Every compiled graph of this process, in the order Dynamo handed them over."""
    with _lock:
        return [asdict(r) for r in _records]


def clear() -> None:
    """Forgets all records."""
    with _lock:
        _records.clear()
