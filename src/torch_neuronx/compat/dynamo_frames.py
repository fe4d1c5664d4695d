"""Dynamo must not look at the Python that runs an op: it is called in the middle of frames that Dynamo compiles."""

from __future__ import annotations

from types import ModuleType

from torch_neuronx.compat.on_import import on_import

# A user calls nothing in these inside a compiled function.
_OURS = ("compiler", "debug", "device", "dynamo", "eager", "lowering", "runtime", "sparse")


def apply() -> None:
    on_import("torch._dynamo.trace_rules", patch)


def patch(module: ModuleType) -> None:
    for name in _OURS:
        module.add(f"torch_neuronx.{name}")
