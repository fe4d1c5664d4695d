"""The bundle's container: a zip file of stored entries with known names, read into memory, never unpacked to disk."""

from __future__ import annotations

import os
import re
import secrets
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from torch_neuronx.aot.errors import BundleError

MANIFEST: Final = "manifest.json"
WEIGHTS: Final = "weights.safetensors"
MOST_ENTRIES: Final = 1 << 16

_NAME = re.compile(r"manifest\.json|weights\.safetensors|programs/[0-9]{4}\.neff")
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # equal contents are equal bytes


def program_name(index: int) -> str:
    return f"programs/{index:04d}.neff"


def write(path: Path, entries: Mapping[str, bytes]) -> None:
    """Puts the bundle at `path` in one step."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with zipfile.ZipFile(temporary, "x", zipfile.ZIP_STORED) as archive:
            for name, data in entries.items():
                info = zipfile.ZipInfo(name, _EPOCH)
                info.external_attr = 0o644 << 16
                archive.writestr(info, data)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def read(path: Path) -> dict[str, bytes]:
    """All entries. Raises BundleError for anything but a whole archive of such entries, OSError if there is no file."""
    try:
        with zipfile.ZipFile(path) as archive:
            listed = archive.infolist()
            if len(listed) > MOST_ENTRIES:
                raise BundleError(f"{path} has {len(listed)} entries, more than a bundle can have")
            return {info.filename: _entry(path, archive, info) for info in _known(path, listed)}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeDecodeError, ValueError) as error:
        raise BundleError(f"{path} is not a whole bundle: {error}. Copy or write it again.") from error


def _known(path: Path, listed: list[zipfile.ZipInfo]) -> list[zipfile.ZipInfo]:
    seen: set[str] = set()
    for info in listed:
        name = info.orig_filename
        if _NAME.fullmatch(name) is None or name != info.filename:
            raise BundleError(f"{path} has an entry named {name[:200]!r}, which no bundle has; it is not used")
        if name in seen:
            raise BundleError(f"{path} has two entries named {name}; it is not used")
        # Stored entries are as large as they look: nothing small becomes large in memory.
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or info.file_size != info.compress_size:
            raise BundleError(f"{path}: {name} is compressed or encrypted, which no bundle's entries are")
        seen.add(name)
    if MANIFEST not in seen:
        raise BundleError(f"{path} is a zip file without {MANIFEST}, so no bundle. Write one with aot_compile().")
    return listed


def _entry(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    if info.file_size > path.stat().st_size:
        raise BundleError(f"{path}: {info.filename} announces {info.file_size} bytes, more than the file has")
    with archive.open(info) as file:
        data = file.read()
    if len(data) != info.file_size:
        raise BundleError(f"{path}: {info.filename} has {len(data)} bytes where {info.file_size} are announced")
    return data
