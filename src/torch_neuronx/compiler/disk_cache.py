"""Executables on disk, shared by all processes of one user.

Nothing here may cost the user a run: whatever is wrong with the folder or a file becomes one warning and a recompile.
Nothing here may be believed either: a file that is damaged, foreign or open to others is removed unread.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from errno import EACCES, EPERM, EROFS
from pathlib import Path

from torch_neuronx.compiler import cache_file, cache_settings, eviction, file_lock
from torch_neuronx.compiler.container import Container, CorruptFile, decode, encode

LOCK_TIMEOUT = 300.0  # seconds; then compile here too: twice the work is better than none

_KEY = re.compile(r"[0-9a-f]{8,128}")


@dataclass(slots=True)
class CacheCounters:
    """What the cache did in this process."""

    hits: int = 0
    misses: int = 0
    stores: int = 0
    corrupt: int = 0
    evicted: int = 0


@dataclass(frozen=True, slots=True)
class CacheStatus:
    """Whether there is a cache, where, and why not."""

    directory: Path | None
    enabled: bool
    read_only: bool
    limit_bytes: int
    reason: str | None

    def __str__(self) -> str:
        if not self.enabled:
            return f"off: {self.reason}"
        return f"{self.directory}, {'read only: ' + str(self.reason) if self.read_only else 'on'}"


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One cached executable, as listed; `op` is None when the file cannot be read."""

    key: str
    op: str | None
    size: int
    last_used: float  # seconds since 1970


@dataclass(frozen=True, slots=True)
class BadFile:
    """A file that would not be loaded."""

    path: Path
    reason: str


class DiskCache:
    """Executables of one user by key. A cache that is off misses and stores nothing.

    `fingerprint` is the running engine's: files of another one are never returned. Without it, as in the command line
    tools, any is accepted. Keys must cover the program and the fingerprint.
    """

    def __init__(
        self,
        directory: Path | None,
        limit_bytes: int = cache_settings.DEFAULT_LIMIT,
        *,
        fingerprint: str | None = None,
        reason: str | None = None,
        lock_timeout: float = LOCK_TIMEOUT,
    ) -> None:
        self.counters = CacheCounters()
        self.fingerprint = fingerprint
        self.limit_bytes = limit_bytes
        self.lock_timeout = lock_timeout
        self._warned: set[str] = set()
        self._read_only = False
        self._reason = reason
        self._directory = directory
        if directory is not None and (obstacle := cache_settings.prepare(directory)) is not None:
            self._directory, self._reason = None, obstacle
            self._warn("directory", f"executables are not kept on disk: {obstacle}.")

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] = os.environ, *, fingerprint: str | None = None
    ) -> DiskCache:
        """The cache the environment asks for; `status()` says what came of it."""
        settings = cache_settings.read(environment)
        return cls(settings.directory, settings.limit_bytes, fingerprint=fingerprint, reason=settings.reason)

    def status(self) -> CacheStatus:
        """Whether the cache works, and where."""
        enabled = self._directory is not None
        return CacheStatus(self._directory, enabled, self._read_only, self.limit_bytes, self._reason)

    def load_or_compile(self, key: str, compile: Callable[[], Container]) -> Container:
        """The cached container, or a compiled and stored one; processes that want the same key compile it once."""
        found = self._find(key)
        if found is None:
            with self.lock(key) as locked:
                found = self._find(key) if locked else None
                if found is None:
                    self._count_miss()
                    made = compile()
                    self.store(made)
                    return made
        self.counters.hits += 1
        return found

    def load(self, key: str) -> Container | None:
        """The container under `key`, or None."""
        found = self._find(key)
        if found is not None:
            self.counters.hits += 1
        else:
            self._count_miss()
        return found

    def contents(self, key: str) -> bytes | None:
        """The file of `key` as it is, checked but not counted as a use by a program; None if there is none."""
        found = self._find(key)
        return None if found is None else encode(found)

    def store(self, container: Container) -> None:
        """Keeps `container` for later processes if that is possible, with one warning if it is not."""
        if self._directory is None or self._read_only:
            return
        data = encode(container)
        if len(data) > self.limit_bytes - eviction.headroom(self.limit_bytes):
            self._warn("size", _too_large(container.header.op, len(data), self.limit_bytes))
            return
        try:
            cache_file.write(self._path(container.header.key), data)
            self.counters.stores += 1
            if eviction.note_growth(self._directory, len(data)) > eviction.headroom(self.limit_bytes):
                self.counters.evicted += eviction.sweep(self._directory, self.limit_bytes)
        except OSError as error:
            self._cannot_store(error)

    def discard(self, key: str, reason: str) -> None:
        """Removes a file that must not be used: damaged, foreign, or whole but refused by the engine."""
        path = self._path(key)
        self.counters.corrupt += 1
        with suppress(OSError):
            path.unlink()
        self._warn("corrupt", f"{path} is not used and will be compiled anew: {reason}.")

    @contextmanager
    def lock(self, key: str) -> Iterator[bool]:
        """Holds `key` against other threads and processes. False inside: not locked, go on without."""
        path = self._path(key).with_suffix(eviction.LOCK_SUFFIX)
        if self._directory is None or self._read_only:
            yield False
            return
        with suppress(OSError):  # the lock is then impossible too
            cache_settings.make_private(path.parent)
        with file_lock.hold(path, self.lock_timeout) as outcome:
            if outcome is file_lock.Outcome.TAKEN:
                waited = f"another process has been compiling {key} for {self.lock_timeout:g} s"
                self._warn("lock", f"{waited}; compiling it here too.")
            yield outcome is file_lock.Outcome.HELD

    def entries(self) -> Iterator[CacheEntry]:
        """All cached executables. Their contents are not verified."""
        for file in self._files():
            header = cache_file.header(file.path)
            yield CacheEntry(file.path.stem, header.op if header else None, file.size, file.last_used)

    def clear(self) -> int:
        """Removes all executables; returns how many. Raises OSError in a read-only folder."""
        removed = 0
        for file in self._files():
            file.path.unlink(missing_ok=True)
            removed += 1
        if self._directory is not None:
            eviction.forget_growth(self._directory)
        return removed

    def verify(self) -> list[BadFile]:
        """The files that would not be loaded, read in full. None is removed."""
        return [BadFile(file.path, reason) for file in self._files() if (reason := self._fault(file.path)) is not None]

    def _files(self) -> Iterator[eviction.StoredFile]:
        return iter(()) if self._directory is None else eviction.walk(self._directory)

    def _fault(self, path: Path) -> str | None:
        try:
            self._read(path)
        except CorruptFile as corrupt:
            return corrupt.reason
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"it cannot be read ({error.strerror})"
        return None

    def _find(self, key: str) -> Container | None:
        path = self._path(key)
        if self._directory is None:
            return None
        try:
            return self._read(path)
        except FileNotFoundError:
            return None
        except CorruptFile as corrupt:
            self.discard(key, corrupt.reason)
        except OSError as error:
            self._warn("read", f"{path} cannot be read ({error.strerror}) and will be compiled anew.")
        return None

    def _read(self, path: Path) -> Container:
        container = decode(cache_file.read(path))
        if container.header.key != path.stem:
            raise CorruptFile(f"it holds the executable of another key, {container.header.key}")
        if self.fingerprint not in (None, container.header.fingerprint):
            raise CorruptFile(f"it was made for {container.header.fingerprint}, this is {self.fingerprint}")
        return container

    def _path(self, key: str) -> Path:
        if not is_key(key):
            raise ValueError(f"{key!r} cannot be a cache key: it must be 8 to 128 lower-case hexadecimal digits")
        return (self._directory or Path()) / key[:2] / f"{key}{eviction.SUFFIX}"

    def _count_miss(self) -> None:
        if self._directory is not None:
            self.counters.misses += 1

    def _cannot_store(self, error: OSError) -> None:
        self._warn("store", f"executables are not kept in {self._directory}: {error.strerror}.")
        if error.errno in (EROFS, EACCES, EPERM):  # these last; a full disk may have room later
            self._read_only, self._reason = True, error.strerror

    def _warn(self, kind: str, text: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(text, RuntimeWarning, stacklevel=4)


def is_key(key: str) -> bool:
    """Whether this can be the name of a cached executable, and so of a file."""
    return _KEY.fullmatch(key) is not None


def _too_large(op: str, size: int, limit: int) -> str:
    return (
        f"the executable of {op} is not kept: its {size} bytes do not fit into a cache of {limit}. "
        f"Raise {cache_settings.SIZE_VARIABLE}."
    )
