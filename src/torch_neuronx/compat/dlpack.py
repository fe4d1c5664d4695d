"""DLPack for neuron tensors.

pytorch #195815: Tensor.__dlpack_device__ compares with the literal 'privateuse1', not with the device's name.
DLPack has one pointer for a storage and an offset; a neuron storage is a variable, known by its start alone. So a
tensor that goes from torch to torch skips the capsule, which keeps views views.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

CHECK_AGAIN = (2, 14)  # the bug was open when 2.13 was the newest

_EXTENSION_DEVICE = 12  # kDLExtDev


def apply() -> None:
    """Answers for neuron tensors; all others go to torch."""
    tensor: Any = torch.Tensor
    tensor.__dlpack_device__ = _dlpack_device(tensor.__dlpack_device__)
    wrapped = _from_dlpack(torch.utils.dlpack.from_dlpack)
    for module in (torch, torch.utils.dlpack):
        vars(module)["from_dlpack"] = wrapped


def _dlpack_device(original: Any) -> Any:
    @functools.wraps(original)
    def of_neuron(self: torch.Tensor) -> tuple[Any, int]:
        if self.device.type != "neuron" or torch.overrides.has_torch_function_unary(self):
            device: tuple[Any, int] = original(self)
            return device
        from torch.utils.dlpack import DLDeviceType

        return DLDeviceType(_EXTENSION_DEVICE), self.device.index or 0

    return of_neuron


def _from_dlpack(original: Any) -> Any:
    @functools.wraps(original)
    def of_neuron(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> torch.Tensor:
        if not isinstance(ext_tensor, torch.Tensor) or ext_tensor.device.type != "neuron":
            tensor: torch.Tensor = original(ext_tensor, device=device, copy=copy)
            return tensor
        return _between_tensors(ext_tensor, device, copy)

    return of_neuron


def _between_tensors(source: torch.Tensor, device: Any, copy: bool | None) -> torch.Tensor:
    if source.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    target = source.device if device is None else torch.device(device)
    if target == source.device or (target.type == "neuron" and target.index is None):
        return source.clone() if copy else source.detach()
    if copy is False:
        raise ValueError(
            f"cannot move DLPack tensor from device {source.device} to {target} without copying. "
            "Set copy=None or copy=True."
        )
    return source.to(target)
