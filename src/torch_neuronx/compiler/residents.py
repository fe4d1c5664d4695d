"""How many executables a process keeps: each takes about three memory mappings, and Linux gives a process 65,530.

Beyond that an allocation inside the compiler fails and takes the process with it. So well before, the executables in
memory are let go; those still wanted are read again from disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from torch_neuronx import _C

EVERY: Final = 256  # executables between two counts: a count reads a file of some 10,000 lines
SHARE: Final = 0.6  # of the mappings a process may have

_lock = threading.Lock()
_since = 0
_holders: list[Callable[[], None]] = []


def on_letting_go(forget: Callable[[], None]) -> None:
    """Registers what drops the executables that somebody keeps beside the core."""
    _holders.append(forget)


def let_go() -> None:
    """Drops every executable in memory; those still wanted are read again from disk."""
    for forget in _holders:
        forget()
    _C.clear_executables()


def one_more() -> None:
    """Call for every executable made or loaded, with the GIL held."""
    global _since
    with _lock:
        _since += 1
        due = _since >= EVERY
        if due:
            _since = 0
    if due and mappings() > SHARE * most_mappings():
        let_go()


def mappings() -> int:
    """Memory mappings of this process; 0 where the system does not tell."""
    try:
        with Path("/proc/self/maps").open("rb") as lines:
            return sum(1 for _ in lines)
    except OSError:
        return 0


@cache
def most_mappings() -> int:
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return 65530
