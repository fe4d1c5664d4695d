"""pytorch #195815: Tensor.__dlpack_device__ compares with the literal 'privateuse1', not with the device's name."""

from __future__ import annotations

import functools
from enum import IntEnum

import torch

_EXTENSION_DEVICE = 12  # kDLExtDev


def apply() -> None:
    """Answers for neuron tensors; all others go to torch."""
    original = torch.Tensor.__dlpack_device__

    @functools.wraps(original)
    def __dlpack_device__(self: torch.Tensor) -> tuple[IntEnum, int]:
        if type(self) in _PLAIN and self.device.type == "neuron":
            from torch.utils.dlpack import DLDeviceType

            return DLDeviceType(_EXTENSION_DEVICE), self.device.index or 0
        return original(self)

    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign, assignment]


_PLAIN = (torch.Tensor, torch.nn.Parameter)
