"""What compiled graphs have cost, a record each."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from torch_neuronx.compiler.executables import compile_counters


@dataclass
class GraphMetrics:
    """One graph. Times are wall seconds, summed over its executables.

    executables   programs obtained so far, one for each set of layouts and sizes
    cache_hits    how many of them were read from disk
    misses        why the others were not: "new graph", "new sizes", "cache off"
    """

    graph_name: str
    kind: str  # forward, backward, inference
    node_count: int
    executables: int = 0
    cache_hits: int = 0
    lowering_time: float = 0.0
    compile_time: float = 0.0
    load_time: float = 0.0
    misses: list[str] = field(default_factory=list)
    fallback: str | None = None  # why it runs op by op
    exact_because: str | None = None  # why varying sizes are not padded to buckets


_lock = threading.Lock()
_records: list[GraphMetrics] = []


@contextmanager
def measured(metrics: GraphMetrics) -> Iterator[None]:
    """Adds what obtaining one executable took."""
    before, began = compile_counters(), time.perf_counter()
    yield
    took, after = time.perf_counter() - began, compile_counters()
    metrics.executables += 1
    if after["compiled"] == before["compiled"]:
        metrics.cache_hits += 1
        metrics.load_time += took
    else:
        metrics.misses.append("new graph" if metrics.executables == 1 else "new sizes or layouts")
        metrics.compile_time += took


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
