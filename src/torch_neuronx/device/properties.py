"""What a neuron device is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from torch_neuronx.device import availability
from torch_neuronx.device.selection import Device, device_count, index_of
from torch_neuronx.runtime import targets


@dataclass(frozen=True)
class DeviceProperties:
    """Of one logical device."""

    name: str
    target: str
    total_memory: int
    multi_processor_count: int
    major: int = 0
    minor: int = 0


def _name(target: str) -> str:
    if target == "host":
        return "Neuron host target (XLA CPU)"
    return f"Neuron PJRT plugin ({Path(os.environ.get('TORCH_NEURONX_PJRT_PLUGIN', '')).stem})"


def _checked(device: Device) -> int:
    index = index_of(device)
    if not 0 <= index < device_count():
        raise AssertionError(
            f"neuron: invalid device ordinal {index}: this process has {device_count()} neuron device(s). "
            "Use a smaller index, or start with TORCH_NEURONX_HOST_DEVICES=N."
        )
    return index


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Name, target and memory of a device. Starts nothing."""
    index = _checked(device)
    _, total = availability.core().memory_info(index)
    kind = targets.target()
    return DeviceProperties(
        name=_name(kind),
        target=kind,
        total_memory=total,
        multi_processor_count=len(os.sched_getaffinity(0)),
    )


def get_device_name(device: Device = None) -> str:
    """The name a user reads."""
    return get_device_properties(device).name


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """(major, minor); devices here have no compute capability, so it says (0, 0)."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Every target computes in bfloat16."""
    return True


def can_device_access_peer(device: Device, peer: Device) -> bool:
    """Logical devices of one process copy to each other through the runtime, never by address."""
    _checked(device), _checked(peer)
    return False
