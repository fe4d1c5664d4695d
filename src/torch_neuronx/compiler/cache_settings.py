"""Where the executable cache lives, how large it may grow, and whether its folder can be trusted."""

from __future__ import annotations

import itertools
import os
import re
import stat
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DIRECTORY_VARIABLE = "TORCH_NEURONX_NEFF_CACHE_DIR"
SIZE_VARIABLE = "TORCH_NEURONX_NEFF_CACHE_SIZE"
DISABLE_VARIABLE = "TORCH_NEURONX_DISABLE_NEFF_CACHE"

DEFAULT_LIMIT = 2 << 30

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", re.IGNORECASE)
_EXPONENT = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_SWITCH = {"": False, "0": False, "false": False, "no": False, "off": False} | dict.fromkeys(
    ("1", "true", "yes", "on"), True
)
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment asks for. `directory` is None, with a `reason`, when there is to be no cache."""

    directory: Path | None
    limit_bytes: int
    reason: str | None = None


def read(environment: Mapping[str, str]) -> Settings:
    """Never raises: a value that cannot be understood is warned about and the default is used."""
    limit = _limit(environment)
    if _switched_off(environment):
        return Settings(None, limit, f"{DISABLE_VARIABLE} is set")
    if limit == 0:
        return Settings(None, limit, f"{SIZE_VARIABLE} is 0")
    try:
        return Settings(_directory(environment), limit)
    except RuntimeError:  # what pathlib says when there is no home
        return Settings(None, limit, f"there is no home directory; set {DIRECTORY_VARIABLE} to a directory")


def parse_size(text: str) -> int:
    """Bytes in "512M", "2G", "1.5 GiB" or "1048576"."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size; write a number of bytes, or one with K, M, G or T such as 512M")
    number, unit = match.groups()
    return int(float(number) * (1 << _EXPONENT[unit.upper()]))


def prepare(directory: Path) -> str | None:
    """Makes the directory for its owner alone if it is missing; returns why it must not be used, or None."""
    try:
        make_private(directory)
        link, target = directory.lstat(), directory.stat()
    except OSError as error:
        return f"{directory} cannot be made or read ({error.strerror}); set {DIRECTORY_VARIABLE} to another directory"
    if not stat.S_ISDIR(target.st_mode):
        return f"{directory} is not a directory; set {DIRECTORY_VARIABLE} to one"
    for status in (link, target):
        if not owner_is_trusted(status):
            return (
                f"{directory} belongs to user {status.st_uid}, who could plant executables in it; "
                f"set {DIRECTORY_VARIABLE} to a directory of yours"
            )
    if target.st_mode & _OTHERS_WRITE:
        return f"{directory} can be written by other users, who could plant executables in it; `chmod 700 {directory}`"
    return None


def make_private(directory: Path) -> None:
    """Makes the directory and its missing parents, all for their owner alone."""
    missing = itertools.takewhile(lambda path: not path.exists(), (directory, *directory.parents))
    for path in reversed(list(missing)):
        path.mkdir(mode=0o700, exist_ok=True)


def owner_is_trusted(status: os.stat_result) -> bool:
    """Ours, or root's, who can do anything anyway: a cache baked into a container image is root's."""
    return status.st_uid in (os.geteuid(), 0)


def file_distrust(status: os.stat_result) -> str | None:
    """Why a file in a good directory must not be loaded all the same, or None."""
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if not owner_is_trusted(status):
        return f"it belongs to user {status.st_uid}"
    if status.st_mode & _OTHERS_WRITE:
        return "it can be written by other users"
    return None


def _limit(environment: Mapping[str, str]) -> int:
    text = environment.get(SIZE_VARIABLE, "").strip()
    if not text:
        return DEFAULT_LIMIT
    try:
        return parse_size(text)
    except ValueError as error:
        _warn(f"{SIZE_VARIABLE}: {error}. Using the default, 2G.")
        return DEFAULT_LIMIT


def _switched_off(environment: Mapping[str, str]) -> bool:
    text = environment.get(DISABLE_VARIABLE, "").strip().lower()
    if text not in _SWITCH:
        _warn(f"{DISABLE_VARIABLE}: {text!r} is neither 0 nor 1. The cache stays on.")
    return _SWITCH.get(text, False)


def _directory(environment: Mapping[str, str]) -> Path:
    """Absolute, so that a later chdir does not move the cache."""
    chosen = environment.get(DIRECTORY_VARIABLE, "").strip()
    if chosen:
        return Path(chosen).expanduser().absolute()
    base = Path(environment.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # the XDG specification: ignore a relative one
        base = Path.home() / ".cache"
    return base / "torch_neuronx" / "neff"


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=4)
