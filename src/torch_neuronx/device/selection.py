"""Which neuron devices there are, and which one is current."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch

from torch_neuronx.device import availability

type_name = "neuron"

Device = torch.device | int | str | None


def is_available() -> bool:
    """Whether neuron tensors can be made. Never raises and starts nothing; see `availability.reason()`."""
    return device_count() > 0


def device_count() -> int:
    """Logical devices in this process; 0 when the device cannot be used."""
    try:
        count: int = availability.core().device_count()
    except (RuntimeError, ValueError, OSError) as error:
        if availability.reason() is None:
            availability.refuse(str(error))
        return 0
    return count


def init() -> None:
    """Starts the runtime. Every op does this by itself."""
    availability.core().ensure_initialized()


_lazy_init = init


def is_initialized() -> bool:
    """Whether the runtime has started."""
    return availability.reason() is None and availability.core().is_initialized()


def _is_in_bad_fork() -> bool:
    return availability.reason() is None and availability.core().in_bad_fork()


def index_of(device: Device, *, optional: bool = True) -> int:
    """The index a user means: None and 'neuron' are the current device."""
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    if device is None and optional:
        return current_device()
    if isinstance(device, str):
        device = torch.device(device)
    if not isinstance(device, torch.device):
        raise TypeError(f"expected a device, got {device!r}. Use an index, 'neuron:<index>' or a torch.device.")
    if device.type != type_name:
        raise ValueError(f"expected a neuron device, got '{device}'. Use 'neuron' or 'neuron:<index>'.")
    return current_device() if device.index is None else device.index


def current_device() -> int:
    """Index of this thread's current device."""
    index: int = availability.core().current_device()
    return index


def set_device(device: Device) -> None:
    """Makes `device` this thread's current device; a negative index changes nothing."""
    index = index_of(device, optional=False)
    if index >= 0:
        _exchange_device(index)


def _exchange_device(index: int) -> int:
    before: int = availability.core().exchange_device(index)
    return before


def _maybe_exchange_device(index: int) -> int:
    return -1 if index < 0 else _exchange_device(index)


def synchronize(device: Device = None) -> None:
    """Waits for all work of a device, then raises the first error that work left."""
    availability.core().synchronize(index_of(device))


class device:  # noqa: N801 - torch.cuda.device is spelled so
    """Context manager that changes the current device; a negative index changes nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _maybe_exchange_device(self.idx)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _maybe_exchange_device(self.prev_idx)


class device_of(device):  # noqa: N801
    """Makes the device of a tensor or storage current; changes nothing for one that is not on neuron."""

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage) -> None:
        super().__init__(obj.get_device() if obj.device.type == type_name else -1)
