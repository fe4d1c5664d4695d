"""One file of the cache: written whole or not at all, read only if nobody else could have written it."""

from __future__ import annotations

import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

from torch_neuronx.compiler.cache_settings import file_distrust, make_private
from torch_neuronx.compiler.container import CorruptFile, Header, peek

TEMPORARY_SUFFIX = ".tmp"

_TOUCH_AFTER = 60.0  # seconds; a finer clock would cost a metadata write at each load


def read(path: Path) -> bytes:
    """The file's bytes; raises CorruptFile if they are not to be trusted. Marks the file as used."""
    descriptor = _open(path)
    try:
        status = os.fstat(descriptor)
        if (distrust := file_distrust(status)) is not None:
            raise CorruptFile(distrust)
        if time.time() - status.st_mtime > _TOUCH_AFTER:
            with suppress(OSError):  # a read-only folder has no order of use
                os.utime(descriptor)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def write(path: Path, data: bytes) -> None:
    """Puts `data` at `path` in one step, readable by its owner alone."""
    make_private(path.parent)
    temporary = path.with_name(f"{path.stem}.{os.getpid()}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    try:
        # No fsync: a file torn by a power cut fails its checksum, and waiting for the disk costs as much as compiling.
        _write_new(temporary, data)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def header(path: Path) -> Header | None:
    """What the file says it is, to show; None if that cannot be read."""
    try:
        with path.open("rb") as file:
            return peek(file)
    except (OSError, CorruptFile):
        return None


def _open(path: Path) -> int:
    try:
        # Non-blocking: a pipe planted under the name must not hang us.
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise CorruptFile("it is a symbolic link") from error
        raise


def _write_new(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)
