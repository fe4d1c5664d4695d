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

    executables   programs obtained so far, one for each set of layouts and sizes, or for each set of buckets
    exact         programs obtained in the background for sizes that recur, beside their bucket's
    cache_hits    how many of all these were read from disk
    misses        why the others were not: "new graph", "new sizes or layouts", "sizes that recur"
    """

    graph_name: str
    kind: str  # forward, backward, inference
    node_count: int
    executables: int = 0
    exact: int = 0
    cache_hits: int = 0
    lowering_time: float = 0.0
    compile_time: float = 0.0
    load_time: float = 0.0
    misses: list[str] = field(default_factory=list)
    fallback: str | None = None  # why it runs op by op
    varying: bool = False  # whether sizes of its inputs vary
    exact_because: str | None = None  # why varying sizes are not padded to buckets


_lock = threading.Lock()
_records: list[GraphMetrics] = []


@contextmanager
def measured(metrics: GraphMetrics, *, recurring: bool = False) -> Iterator[None]:
    """Adds what obtaining one executable took; `recurring` tells one for sizes whose bucket has one already."""
    before, began = compiled_here(), time.perf_counter()
    yield
    took, hit = time.perf_counter() - began, compiled_here() == before
    with _lock:
        metrics.exact += recurring
        metrics.executables += not recurring
        metrics.cache_hits += hit
        metrics.load_time += took if hit else 0
        metrics.compile_time += 0 if hit else took
        if not hit:
            new = "sizes that recur" if recurring else "new sizes or layouts"
            metrics.misses.append("new graph" if metrics.executables + metrics.exact == 1 else new)


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
