"""Executables made beside the program: one at a time, in a thread of their own, in the order they were asked for."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Made = TypeVar("Made")
_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_owner = 0  # the process the pool's thread lives in: a fork has none


def submit(make: Callable[[], Made]) -> Future[Made]:
    """Runs `make` when what was asked for before is done. Python joins the thread at exit, after the job it is at."""
    global _pool, _owner
    with _lock:
        if _pool is None or _owner != os.getpid():
            _pool, _owner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="neuron-compile"), os.getpid()
            threading._register_atexit(_cancel, _pool)  # type: ignore[attr-defined]
        return _pool.submit(make)


def _cancel(pool: ThreadPoolExecutor) -> None:
    pool.shutdown(wait=False, cancel_futures=True)


def drain() -> None:
    """Waits until everything asked for so far is made. For tests, and before a measurement."""
    with _lock:
        pool = _pool if _owner == os.getpid() else None
    if pool is not None:
        pool.submit(lambda: None).result()
