"""Keeping a cache folder under its limit: the least recently used files go first.

Walking a folder of thousands of files is too slow to do at each store. All processes together count what they add in
the size of one file, and the folder is walked once a sixteenth of the limit has been added. A walk leaves that
sixteenth free, so the limit holds at all times.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torch_neuronx.compiler import file_lock
from torch_neuronx.compiler.cache_file import TEMPORARY_SUFFIX

SUFFIX = ".neff"
LOCK_SUFFIX = ".lock"

_GROWTH_UNIT = 4096  # one byte of the growth file stands for this many
_ABANDONED_AFTER = 3600.0  # seconds


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of the cache."""

    path: Path
    size: int
    last_used: float  # seconds since 1970


def headroom(limit: int) -> int:
    """How much may be added between two walks."""
    return limit // 16


def walk(directory: Path, suffix: str = SUFFIX) -> Iterator[StoredFile]:
    """The cache's files. Files that other processes remove meanwhile are left out."""
    for shard in _scan(directory):
        if len(shard.name) != 2 or not shard.is_dir(follow_symlinks=False):
            continue
        for entry in _scan(Path(shard.path)):
            with suppress(FileNotFoundError):
                if entry.name.endswith(suffix) and entry.is_file(follow_symlinks=False):
                    stat = entry.stat(follow_symlinks=False)
                    yield StoredFile(Path(entry.path), stat.st_size, stat.st_mtime)


def note_growth(directory: Path, size: int) -> int:
    """Counts `size` bytes as added; returns what all processes added since the last walk."""
    descriptor = os.open(_growth_file(directory), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        os.write(descriptor, bytes(1 + size // _GROWTH_UNIT))
        return os.fstat(descriptor).st_size * _GROWTH_UNIT
    finally:
        os.close(descriptor)


def sweep(directory: Path, limit: int) -> int:
    """Removes old files until the limit and the headroom are kept; returns how many. One process does it at a time."""
    with file_lock.hold(directory / f"sweep{LOCK_SUFFIX}", timeout=0) as outcome:
        if outcome is not file_lock.Outcome.HELD:
            return 0
        with suppress(FileNotFoundError):
            os.truncate(_growth_file(directory), 0)
        _remove_abandoned(directory)
        return _remove_oldest(directory, limit - headroom(limit))


def forget_growth(directory: Path) -> None:
    """For a folder that has been emptied."""
    _growth_file(directory).unlink(missing_ok=True)


def _growth_file(directory: Path) -> Path:
    return directory / "growth"


def _scan(directory: Path) -> Iterator[os.DirEntry[str]]:
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        yield from entries


def _remove_oldest(directory: Path, target: int) -> int:
    files = sorted(walk(directory), key=lambda file: file.last_used)
    total = sum(file.size for file in files)
    removed = 0
    for file in files:
        if total <= target:
            break
        with suppress(OSError):  # one that cannot go, or has gone, must not keep the others
            file.path.unlink()
            removed += 1
        total -= file.size
    return removed


def _remove_abandoned(directory: Path) -> None:
    """What killed processes left behind. A lock file is removed by whoever holds it, so take it first."""
    oldest = time.time() - _ABANDONED_AFTER
    for file in walk(directory, TEMPORARY_SUFFIX):
        if file.last_used < oldest:
            with suppress(OSError):
                file.path.unlink()
    for file in walk(directory, LOCK_SUFFIX):
        if file.last_used < oldest:
            with file_lock.hold(file.path, timeout=0):
                pass
