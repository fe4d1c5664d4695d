"""What torch.autocast and torch.amp.GradScaler ask the device module."""

from __future__ import annotations

import torch


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes `torch.autocast("neuron", dtype=...)` takes."""
    return [torch.bfloat16, torch.float16]
