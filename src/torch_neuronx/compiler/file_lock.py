"""A lock between processes that lives exactly as long as its holder, however the holder ends."""

from __future__ import annotations

import enum
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.1


class Outcome(enum.Enum):
    """How an attempt to lock ended."""

    HELD = "held"
    TAKEN = "taken"  # by somebody else until the timeout
    IMPOSSIBLE = "impossible"  # no lock can be made there: read-only folder, file system without locks


_held: set[int] = set()


def _forget_inherited() -> None:
    # flock belongs to the open file, which a forked child shares: a worker that outlives a killed parent would hold on.
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_forget_inherited)


@contextmanager
def hold(path: Path, timeout: float) -> Iterator[Outcome]:
    """Locks `path` (made, and removed again), waiting at most `timeout` seconds. Not reentrant."""
    try:
        got = _acquire(path, timeout)
    except OSError:
        got = Outcome.IMPOSSIBLE
    if isinstance(got, Outcome):
        yield got
        return
    try:
        yield Outcome.HELD
    finally:
        _release(path, got)


def _acquire(path: Path, timeout: float) -> int | Outcome:
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while (descriptor := _attempt(path)) is None:
        if time.monotonic() >= deadline:
            return Outcome.TAKEN
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)
    return descriptor


def _attempt(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    _held.add(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locked = _is_at(path, descriptor)
    except BlockingIOError:
        locked = False
    except BaseException:
        _close(descriptor)
        raise
    if not locked:
        _close(descriptor)
    return descriptor if locked else None


def _is_at(path: Path, descriptor: int) -> bool:
    """False when the last holder removed the file after we had opened it: the next one locks a new file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _release(path: Path, descriptor: int) -> None:
    if descriptor not in _held:  # a forked child leaves its parent's block
        return
    with suppress(OSError):
        path.unlink()
    fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing alone would leave it to forked children
    _close(descriptor)


def _close(descriptor: int) -> None:
    _held.discard(descriptor)
    os.close(descriptor)
