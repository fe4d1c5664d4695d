"""The module torch shows as `torch.neuron`: what `torch.cuda` has, for the neuron device."""

from __future__ import annotations

import torch

from torch_neuronx.device import amp, memory, random, streams
from torch_neuronx.device.amp import get_amp_supported_dtype
from torch_neuronx.device.memory import (
    empty_cache,
    get_per_process_memory_fraction,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from torch_neuronx.device.properties import (
    DeviceProperties,
    can_device_access_peer,
    get_device_capability,
    get_device_name,
    get_device_properties,
    is_bf16_supported,
)
from torch_neuronx.device.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_neuronx.device.selection import (
    _exchange_device,
    _is_in_bad_fork,
    _lazy_init,
    _maybe_exchange_device,
    current_device,
    device,
    device_count,
    device_of,
    init,
    is_available,
    is_initialized,
    set_device,
    synchronize,
)
from torch_neuronx.device.streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
)

OutOfMemoryError = torch.OutOfMemoryError
default_generators: tuple[torch.Generator, ...]


def __getattr__(name: str) -> object:
    if name == "default_generators":  # made at first use: counting devices reads the environment
        return random.default_generators()
    if name == "_initialized":  # torch.utils.checkpoint saves the random state of devices that say so
        return is_initialized()
    raise AttributeError(f"module 'torch.neuron' has no attribute '{name}'")


__all__ = [
    "DeviceProperties",
    "Event",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "_exchange_device",
    "_is_in_bad_fork",
    "_lazy_init",
    "_maybe_exchange_device",
    "amp",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "random",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "streams",
    "synchronize",
]
