"""Random ops that take the CPU's numbers: TORCH_NEURONX_RNG=cpu and torch_neuronx.debug.cpu_random()."""

from __future__ import annotations

import os
from typing import Any, Final

import torch

from torch_neuronx import _C
from torch_neuronx.debug import tracking
from torch_neuronx.eager import host

VARIABLE: Final = "TORCH_NEURONX_RNG"
SOURCES: Final = ("philox", "cpu")
REASON: Final = f"{VARIABLE}=cpu or debug.cpu_random() asks for the CPU's random numbers"


def obey_environment() -> None:
    """Switches the mode on for the process when the variable asks for it; raises ValueError for an unknown source."""
    source = os.environ.get(VARIABLE, "") or "philox"
    if source not in SOURCES:
        raise ValueError(
            f"{VARIABLE}={source!r} is not a source of random numbers. Use one of {', '.join(SOURCES)}, or unset it "
            "for philox, the device's own."
        )
    if source == "cpu":
        _C.hold_random_on_cpu(1)


def draw(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The random op on the CPU, with the CPU's default generator or the twin of the one given."""
    tracking.count(name, REASON, args)
    return host.on_cpu(name, args, _same_layout, _C.cpu_twin)


def _same_layout(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU copy with the tensor's own strides, gaps included: the CPU draws in an order that follows from them."""
    sizes, strides = tensor.shape, tensor.stride()
    extent = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) if tensor.numel() else 0
    return tensor.as_strided((extent,), (1,)).cpu().as_strided(sizes, strides)
