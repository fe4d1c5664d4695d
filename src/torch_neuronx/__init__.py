"""TorchNeuron: PyTorch's `neuron` device on XLA. Importing it, or just torch, registers the device."""

from __future__ import annotations

import importlib
from typing import Any

import torch  # noqa: F401 - torch's libraries must be loaded before the C++ core

from torch_neuronx import _autoload

__version__ = "0.1.0"

_autoload.register()

# Public names that live deeper and are imported when first asked for: `import torch` stays quick.
_LAZY = {
    "BundleError": "torch_neuronx.aot.errors",
    "aot_compile": "torch_neuronx.aot.compile",
    "clear_op_tracking": "torch_neuronx.debug.tracking",
    "get_dynamo_metrics": "torch_neuronx.dynamo.metrics",
    "get_executed_ops": "torch_neuronx.debug.tracking",
    "get_fallback_ops": "torch_neuronx.debug.tracking",
    "load": "torch_neuronx.aot.loaded",
    "no_fallback": "torch_neuronx.debug.tracking",
    "debug": "torch_neuronx",
    "dynamo": "torch_neuronx",
}

__all__ = ["__version__", *_LAZY]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'torch_neuronx' has no attribute {name!r}")
    if _LAZY[name] == "torch_neuronx":
        return importlib.import_module(f"torch_neuronx.{name}")
    return getattr(importlib.import_module(_LAZY[name]), name)
