"""Giving an existing tensor, sparse or dense, the value of another: what in-place and out= forms do."""

from __future__ import annotations

import torch

from torch_neuronx import _C


def write(target: torch.Tensor, value: torch.Tensor) -> None:
    """A sparse target takes the indices and values over; a dense one is copied into."""
    if value is target:
        return
    if not torch.can_cast(value.dtype, target.dtype):
        raise RuntimeError(
            f"result type {_name(value.dtype)} can't be cast to the desired output type {_name(target.dtype)}. "
            "Give an out= tensor of the result's dtype."
        )
    if target.layout == torch.strided:
        if value.layout != torch.strided:
            value = value.to_dense()
        if target.shape != value.shape:
            target.resize_(value.shape)
        target.copy_(value)
        return
    if target.layout != value.layout:
        raise RuntimeError(
            f"cannot write a result of layout {value.layout} to a tensor of layout {target.layout}. "
            "Give an out= tensor of the result's layout."
        )
    _C.assign_sparse(target, value.to(target.dtype))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
