"""Seeds and states of the default generators, one for each device."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import torch

from torch_neuronx.device import availability
from torch_neuronx.device.selection import Device, current_device, device_count, index_of


@functools.cache
def default_generators() -> tuple[torch.Generator, ...]:
    """The generators ops use when they are given none, by device index."""
    core = availability.core()
    return tuple(core.default_generator(index) for index in range(device_count()))


def _generator(device: Device) -> torch.Generator:
    generators = default_generators()
    index = index_of(device)
    if not 0 <= index < len(generators):
        raise RuntimeError(
            f"neuron: invalid device ordinal {index}: this process has {len(generators)} neuron device(s). "
            "Use a smaller index, or start with TORCH_NEURONX_HOST_DEVICES=N."
        )
    return generators[index]


def manual_seed(seed: int) -> None:
    """Seeds the current device; does nothing where there is none."""
    if device_count() > 0:
        _generator(current_device()).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds every device. torch.manual_seed() calls this; it starts nothing."""
    if device_count() > 0:
        for generator in default_generators():
            generator.manual_seed(int(seed))


def seed() -> int:
    """Seeds the current device with a random number and returns it."""
    return _generator(None).seed()


def seed_all() -> int:
    """Seeds every device with one random number and returns it."""
    number = seed()
    manual_seed_all(number)
    return number


def initial_seed() -> int:
    """The seed of the current device."""
    return _generator(None).initial_seed()


def get_rng_state(device: Device = "neuron") -> torch.Tensor:
    """16 bytes: the seed and how many counters were used."""
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices."""
    return [generator.get_state() for generator in default_generators()]


def set_rng_state(new_state: torch.Tensor, device: Device = "neuron") -> None:
    """Puts back what `get_rng_state` returned."""
    _generator(device).set_state(new_state.clone(memory_format=torch.contiguous_format))


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Puts back what `get_rng_state_all` returned."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
