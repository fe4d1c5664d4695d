"""What ran where: executed ops, fallbacks with reason and call site, compile counters."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from torch_neuronx import _C


class FallbackForbidden(RuntimeError):
    """An op would have run on the CPU while that was forbidden."""


@dataclass
class FallbackRecord:
    """All CPU runs of one op for one reason."""

    op: str
    reason: str
    count: int = 0
    bytes_moved: int = 0
    call_sites: Counter[str] = field(default_factory=Counter)


_lock = threading.Lock()
_records: dict[tuple[str, str], FallbackRecord] = {}
_forbidden = threading.local()


def _is_forbidden() -> bool:
    if getattr(_forbidden, "depth", 0):
        return True
    return os.environ.get("TORCH_NEURONX_DISABLE_FALLBACK", "0") not in ("", "0")


@contextmanager
def no_fallback() -> Iterator[None]:
    """Inside, an op without a native form raises FallbackForbidden instead of running on the CPU.

    Counts for the calling thread; TORCH_NEURONX_DISABLE_FALLBACK=1 forbids it everywhere.
    """
    _forbidden.depth = getattr(_forbidden, "depth", 0) + 1
    try:
        yield
    finally:
        _forbidden.depth -= 1


def _call_site() -> str:
    """The innermost Python line outside torch and this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(("torch_neuronx", "torch.")) and name != "torch":
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "<unknown>"


def _describe(args: Any) -> str:
    leaves = [x for x in torch.utils._pytree.tree_leaves(args) if isinstance(x, torch.Tensor)]
    return ", ".join(f"{str(t.dtype).removeprefix('torch.')}{tuple(t.shape)}" for t in leaves)


def refuse_or_count(name: str, reason: str, args: Any) -> None:
    """Counts one CPU run, or raises when fallbacks are forbidden."""
    if _is_forbidden():
        raise FallbackForbidden(
            f"{name}({_describe(args)}) at {_call_site()} has no native form on neuron: {reason}. "
            "It would run on the CPU, which no_fallback() or TORCH_NEURONX_DISABLE_FALLBACK=1 forbids. "
            "Use another op, or allow the fallback."
        )
    count(name, reason, args)


def count(name: str, reason: str, args: Any) -> None:
    """Counts one CPU run that nobody can forbid: the caller asked for it."""
    site = _call_site()
    moved = sum(
        t.numel() * t.itemsize
        for t in torch.utils._pytree.tree_leaves(args)
        if isinstance(t, torch.Tensor) and t.device.type == "neuron"
    )
    with _lock:
        record = _records.setdefault((name, reason), FallbackRecord(name, reason))
        record.count += 1
        record.bytes_moved += moved
        record.call_sites[site] += 1


def get_fallback_ops() -> dict[str, int]:
    """Overload name -> how often it ran on the CPU since the last clear_op_tracking()."""
    counts: Counter[str] = Counter()
    with _lock:
        for record in _records.values():
            counts[record.op] += record.count
    return dict(counts)


def get_executed_ops() -> dict[str, int]:
    """Overload name -> how often it ran on the device since the last clear_op_tracking()."""
    return _C.executed_ops()


def fallback_report() -> list[FallbackRecord]:
    """Every fallback with its reason, call sites and bytes moved, the most frequent first."""
    with _lock:
        return sorted(_records.values(), key=lambda r: -r.count)


def clear_op_tracking() -> None:
    """Forgets all counts."""
    with _lock:
        _records.clear()
    _C.clear_executed_ops()
