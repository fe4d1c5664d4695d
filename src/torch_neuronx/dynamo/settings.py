"""Modes and options of torch.compile(backend="neuron"), and the environment's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

FRONTENDS: Final = ("table", "torch-mlir")
MODES: Final = ("default", "reduce-overhead", "max-autotune")


@dataclass(frozen=True)
class Settings:
    """What a call of torch.compile asked for.

    model_name          a name for its graphs in reports, artifacts and metrics
    fallback_execution  a graph that does not compile runs op by op, counted, instead of raising
    buckets             what varying sizes are padded to: (): powers of two and three times these; a list of sizes,
                        beyond which these again; None ("exact" as an option): nothing, each size has its executable
    exact_after         how many calls of the same sizes run in their bucket before these sizes get an executable of
                        their own, made in the background; None ("never" as an option): they never do
    frontend            what turns graphs into StableHLO: this package's table, or Torch-MLIR for fixed sizes
    """

    model_name: str = "graph"
    fallback_execution: bool = False
    buckets: tuple[int, ...] | None = ()
    exact_after: int | None = 10
    frontend: str = "table"
    mode: str = "default"

    @classmethod
    def of(cls, mode: str | None, options: Mapping[str, Any] | None) -> Settings:
        """Raises ValueError for what is unknown or of the wrong type, and lists what is valid."""
        mode = mode or "default"
        if mode not in MODES:
            raise ValueError(f"torch.compile on neuron has no mode {mode!r}. Valid modes: {', '.join(MODES)}.")
        settings = cls(fallback_execution=not _flag("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", True), mode=mode)
        return replace(settings, **{name: _option(name, value) for name, value in (options or {}).items()})


def _option(name: str, value: Any) -> Any:
    if name not in OPTIONS:
        raise ValueError(
            f"torch.compile on neuron has no option {name!r}. Valid options: {', '.join(sorted(OPTIONS))}."
        )
    if name == "buckets":
        return _buckets(value)
    if name == "exact_after":
        return _exact_after(value)
    if name == "frontend" and value not in FRONTENDS:
        raise ValueError(f"torch.compile on neuron has no frontend {value!r}. Valid frontends: {', '.join(FRONTENDS)}.")
    wanted = {"frontend": str, "model_name": str, "fallback_execution": bool}[name]
    if not isinstance(value, wanted):
        raise ValueError(f"torch.compile option {name!r} on neuron takes a {wanted.__name__}, not {value!r}")
    return value


def _buckets(value: Any) -> tuple[int, ...] | None:
    if value == "exact":
        return None
    listed = list(value) if isinstance(value, (list, tuple)) else []
    if not listed or any(not isinstance(n, int) or isinstance(n, bool) or n < 1 for n in listed):
        raise ValueError(f'torch.compile option "buckets" on neuron takes "exact" or a list of sizes, not {value!r}')
    return tuple(sorted(set(listed)))


def _exact_after(value: Any) -> int | None:
    if value == "never":
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(
            f'torch.compile option "exact_after" on neuron takes "never" or a number of calls, not {value!r}'
        )
    return value


OPTIONS: Final = frozenset(f.name for f in fields(Settings)) - {"mode"}


def _flag(name: str, default: bool) -> bool:
    text = os.environ.get(name, "")
    return default if not text else text != "0"


def copies_cpu_inputs() -> bool:
    """Whether CPU tensors among a graph's inputs are copied to the device; otherwise they are refused."""
    return not _flag("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY", False)
