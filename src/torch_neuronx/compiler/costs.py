"""What making programs has cost: the slowest of this process."""

from __future__ import annotations

import heapq
import threading
import time
from dataclasses import dataclass
from typing import Final

KEPT: Final = 64


@dataclass(frozen=True, slots=True, order=True)
class CompileRecord:
    """One program. Processor seconds are of the whole process and do not grow with what else the machine does."""

    processor_seconds: float
    seconds: float
    emitting_seconds: float
    op: str
    signature: str


_lock = threading.Lock()
_slowest: list[CompileRecord] = []


class Stopwatch:
    """Started when a program begins to be emitted."""

    def __init__(self) -> None:
        self._began, self._processor = time.perf_counter(), time.process_time()
        self._emitted = self._began

    def emitted(self) -> None:
        self._emitted = time.perf_counter()

    def compiled(self, op: str, signature: str) -> None:
        """Remembers the program, if it is among the slowest."""
        processor, now = time.process_time() - self._processor, time.perf_counter()
        record = CompileRecord(processor, now - self._began, self._emitted - self._began, op, signature)
        with _lock:
            if len(_slowest) < KEPT:
                heapq.heappush(_slowest, record)
            else:
                heapq.heappushpop(_slowest, record)


def compile_report() -> list[CompileRecord]:
    """The programs that took longest to make in this process, the slowest first."""
    with _lock:
        return sorted(_slowest, reverse=True)


def clear() -> None:
    with _lock:
        _slowest.clear()
