"""Obtaining the executable of a call: from disk by its key, or lowered and compiled."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from torch_neuronx import _C
from torch_neuronx.lowering.call import Meta, lower_call
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.meta import NoMeta, ResizeNeeded, infer
from torch_neuronx.lowering.spec import Call, Result
from torch_neuronx.lowering.views import Layout
from torch_neuronx.runtime.protocol import Executable, ResultType
from torch_neuronx.runtime.targets import runtime


class LoweringFailed(RuntimeError):
    """A row or a decomposition did not produce a valid program: a defect of this package."""


@dataclass(frozen=True)
class ResultInfo:
    kind: str
    dtype: Any
    layout: Layout
    storage_numel: int
    slot: int

    @property
    def type(self) -> ResultType:
        return ResultType(self.dtype, None if self.kind in ("count", "check") else self.storage_numel)


@dataclass(frozen=True)
class Obtained:
    executable: Executable
    results: tuple[ResultInfo, ...]
    returns: tuple[Any, ...]
    rng_blocks: int
    checks: tuple[tuple[str, str], ...]


@dataclass
class Counters:
    compiled: int = 0
    loaded: int = 0
    failed: int = 0


_counters = Counters()
_lock = threading.Lock()


def compile_counters() -> dict[str, int]:
    return {
        "compiled": _counters.compiled,
        "loaded": _counters.loaded,
        "failed": _counters.failed,
        "live_buffers": _C.live_buffer_count() if hasattr(_C, "live_buffer_count") else 0,
    }


def obtain(call: Call, device: int) -> Obtained:
    """The executable of `call` on logical device `device`.

    Raises the meta kernel's own errors, Unsupported when there is no native form, ResizeNeeded when
    an out= argument must grow first, LoweringFailed when the program is not valid.
    """
    metas = _infer(call)
    try:
        lowered = lower_call(call, metas)
    except (Unsupported, ResizeNeeded):
        raise
    except Exception as error:
        with _lock:
            _counters.failed += 1
        raise LoweringFailed(f"lowering failed: {type(error).__name__}: {error}") from error
    results = tuple(_info(r) for r in lowered.results)
    try:
        executable = runtime().compile(lowered.built.bytecode, device, [r.type for r in results])
    except Exception as error:
        with _lock:
            _counters.failed += 1
        raise LoweringFailed(f"compilation failed: {type(error).__name__}: {error}") from error
    with _lock:
        _counters.compiled += 1
    return Obtained(executable, results, lowered.returns, lowered.built.rng_blocks, lowered.built.checks)


def _infer(call: Call) -> list[Meta | None]:
    try:
        inferred = infer(call)
    except NoMeta:
        return []
    if inferred.resized:
        raise ResizeNeeded(inferred.resized)
    return list(inferred.metas)


def _info(r: Result) -> ResultInfo:
    if r.kind in ("count", "check"):
        return ResultInfo(r.kind, r.dtype, r.layout, 1, r.slot)
    numel = r.layout.numel if r.layout.dense else r.layout.extent
    return ResultInfo(r.kind, r.dtype, r.layout, numel, r.slot)
