"""Run-time checks of index tensors, in torch's words."""

from __future__ import annotations

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.module import require
from torch_neuronx.lowering.value import Size, Value


def checked(index: Value, extent: int, error: str, message: str) -> Value:
    """The index as int64, required to lie in [0, extent)."""
    index = hlo.convert(index, torch.int64)
    if index.numel:
        require(hlo.all_(hlo.ge(index, 0) & hlo.lt(index, extent)), error, message)
    return index


def wrapped(index: Value, extent: int, error: str, message: str) -> Value:
    """As `checked`, but -extent .. -1 count from the end."""
    index = hlo.convert(index, torch.int64)
    if index.numel:
        require(hlo.all_(hlo.ge(index, -extent) & hlo.lt(index, extent)), error, message)
    return hlo.select(hlo.lt(index, 0), index + extent, index)


def out_of_bounds(dim: int, extent: Size) -> str:
    return f"index is out of bounds for dimension {dim} with size {extent}"
