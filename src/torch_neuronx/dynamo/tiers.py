"""Which executable serves a call of varying sizes: its bucket's, or one for exactly these sizes once they recur.

What is ready never waits: exact executables, and the next bucket of sizes that grow, are made in the background. A
call that finds none of them made compiles its bucket, as the first one did. Deterministic mode stays with the bucket:
another program may round otherwise.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

import torch

from torch_neuronx.dynamo import background

EXACT_AFTER: Final = 10  # calls with the same sizes
MOST_EXACT: Final = 32  # exact executables a graph
AHEAD_AFTER: Final = 3  # calls before the next bucket is thought of
NEARLY_FULL: Final = 0.75  # of a bucket: then the next one is near

Sizes = tuple[int, ...]
Made = TypeVar("Made")


class NotMade(Exception):
    """There is no exact executable for a call yet; it has been asked for."""


class Tiers:
    """The calls of one graph that vary in size."""

    def __init__(self, exact_after: int | None) -> None:
        self._exact_after = exact_after
        self._calls = 0
        self._seen: collections.Counter[Sizes] = collections.Counter()
        self._exact: dict[str, Future[Any]] = {}
        self._ahead: set[str] = set()
        self._refused: set[Sizes] = set()
        self._lock = threading.Lock()

    def wants_exact(self, sizes: Sizes) -> bool:
        """Counts a call; True when its sizes have come often enough that a program of their own pays."""
        self._calls += 1
        seen = self._seen[sizes] = self._seen[sizes] + 1
        if self._exact_after is None or seen <= self._exact_after or sizes in self._refused:
            return False
        return not torch.are_deterministic_algorithms_enabled()

    def near_the_end(self, size: int, bound: int) -> bool:
        """Whether a size is so near its bucket's end, in a graph called so often, that the next may be needed soon."""
        return self._calls > AHEAD_AFTER and NEARLY_FULL * bound < size

    def made(self, key: str, sizes: Sizes, make: Callable[[], Made]) -> Made:
        """The exact executable known by `key`; when it is not there, asks for it and raises NotMade."""
        with self._lock:
            job = self._exact.get(key)
            if job is None and len(self._exact) < MOST_EXACT:
                job = self._exact[key] = background.submit(make)
        if job is None or (job.done() and (job.cancelled() or job.exception() is not None)):
            self._refused.add(sizes)  # the bucket's works: nothing is lost but speed
            raise NotMade
        if not job.done():
            raise NotMade
        made: Made = job.result()
        return made

    def ahead(self, key: str, make: Callable[[], object]) -> None:
        """Asks once for what may be needed soon."""
        with self._lock:
            if key not in self._ahead:
                self._ahead.add(key)
                background.submit(make)
