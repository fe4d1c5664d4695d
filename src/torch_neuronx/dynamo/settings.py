"""Modes and options of torch.compile(backend="neuron"), and the environment's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

MODES: Final = ("default", "reduce-overhead", "max-autotune")


@dataclass(frozen=True)
class Settings:
    """What a call of torch.compile asked for.

    model_name          a name for its graphs in reports, artifacts and metrics
    fallback_execution  a graph that does not compile runs op by op, counted, instead of raising
    """

    model_name: str = "graph"
    fallback_execution: bool = False
    mode: str = "default"

    @classmethod
    def of(cls, mode: str | None, options: Mapping[str, Any] | None) -> Settings:
        """Raises ValueError for what is unknown or of the wrong type, and lists what is valid."""
        mode = mode or "default"
        if mode not in MODES:
            raise ValueError(f"torch.compile on neuron has no mode {mode!r}. Valid modes: {', '.join(MODES)}.")
        settings = cls(fallback_execution=not _flag("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", True), mode=mode)
        known = {f.name: f.type for f in fields(cls) if f.name in OPTIONS}
        for name, value in (options or {}).items():
            if name not in known:
                raise ValueError(
                    f"torch.compile on neuron has no option {name!r}. Valid options: {', '.join(sorted(known))}."
                )
            if type(value).__name__ != known[name]:
                raise ValueError(
                    f"torch.compile option {name!r} on neuron takes a {known[name]}, not {type(value).__name__}"
                )
        return replace(settings, **(options or {}))


OPTIONS: Final = frozenset(f.name for f in fields(Settings)) - {"mode"}


def _flag(name: str, default: bool) -> bool:
    text = os.environ.get(name, "")
    return default if not text else text != "0"


def copies_cpu_inputs() -> bool:
    """Whether CPU tensors among a graph's inputs are copied to the device; otherwise they are refused."""
    return not _flag("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY", False)
