"""flex_attention has a closed list of devices, and `neuron` is not on it."""

from __future__ import annotations

from types import ModuleType

import torch

from torch_neuronx.compat.on_import import on_import


def apply() -> None:
    """Lets neuron tensors through, once torch.nn.attention.flex_attention is imported."""
    on_import("torch.nn.attention.flex_attention", patch)


def patch(module: ModuleType) -> None:
    original = module._validate_device

    def validate(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != "neuron":
            original(query, key, value)

    module._validate_device = validate  # type: ignore[attr-defined]
