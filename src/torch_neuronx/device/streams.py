"""Streams and events. The runtime orders work by data, so they say what to wait for, not what may overlap."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch

from torch_neuronx.device import availability
from torch_neuronx.device.selection import Device, _exchange_device, current_device, index_of

_DEVICE_TYPE = 20  # c10::DeviceType::PrivateUse1, which torch.Stream takes as a number


class Stream(torch.Stream):
    """A queue of work on one device."""

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs: Any) -> Stream:
        if "stream_id" in kwargs:
            return super().__new__(cls, **kwargs)
        return super().__new__(cls, device=torch.device("neuron", index_of(device)), priority=priority)

    @property
    def priority(self) -> int:
        """-1 for high, 0 for normal: kept for scripts, the runtime makes no difference."""
        number: int = availability.core().stream_priority(self.stream_id, self.device_index)
        return number

    def __repr__(self) -> str:
        return f"torch.neuron.Stream(device={self.device}, stream_id={self.stream_id})"


class _EventType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "neuron"


class Event(metaclass=_EventType):
    """A mark in a stream, with a true completion time when `enable_timing`.

    Makes a torch.Event: torch compares events by exact type, so a subclass would not work with its own methods.
    """

    def __new__(  # type: ignore[misc]
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> torch.Event:
        if interprocess:
            raise RuntimeError(
                "torch.neuron.Event(interprocess=True): events of another process cannot be waited for. "
                "Synchronize in the process that did the work."
            )
        return torch.Event(device="neuron", enable_timing=enable_timing, blocking=blocking)


def _stream(index: int, stream_id: int) -> Stream:
    return Stream(stream_id=stream_id, device_index=index, device_type=_DEVICE_TYPE)


def current_stream(device: Device = None) -> Stream:
    """The stream new work of a device joins."""
    index = index_of(device)
    return _stream(index, availability.core().current_stream(index))


def default_stream(device: Device = None) -> Stream:
    """The stream a device starts with."""
    index = index_of(device)
    availability.core().current_stream(index)  # raises when there is no such device
    return _stream(index, 0)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes `stream` and its device current; None changes nothing."""
    if stream is None:
        return
    _check(stream)
    availability.core().exchange_stream(stream.stream_id, stream.device_index)
    _exchange_device(stream.device_index)


def _check(stream: torch.Stream) -> None:
    if stream.device.type != "neuron":
        raise ValueError(f"expected a neuron stream, got one of {stream.device}. Make it with torch.neuron.Stream().")


class StreamContext:
    """Makes a stream and its device current for a `with` block; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._before: tuple[int, Stream] | None = None

    def __enter__(self) -> None:
        if self.stream is None:
            return
        _check(self.stream)
        self._before = (current_device(), current_stream(self.stream.device))
        set_stream(self.stream)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            device, stream = self._before
            set_stream(stream)
            _exchange_device(device)


def stream(stream: torch.Stream | None) -> StreamContext:
    """`with torch.neuron.stream(s):` runs the block's work on `s`."""
    return StreamContext(stream)
