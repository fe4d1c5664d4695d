"""Which engine stands behind `neuron`: TORCH_NEURONX_TARGET, TORCH_NEURONX_PJRT_PLUGIN, or the host."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from torch_neuronx.runtime.xla import XlaRuntime

MOST_HOST_DEVICES: Final = 64
TARGETS: Final = ("host", "plugin")


def target() -> str:
    """The target's name; raises ValueError for one that does not exist."""
    name = os.environ.get("TORCH_NEURONX_TARGET", "")
    if not name:
        return "plugin" if os.environ.get("TORCH_NEURONX_PJRT_PLUGIN") else "host"
    if name not in TARGETS:
        raise ValueError(
            f"TORCH_NEURONX_TARGET={name!r} is not a target. Use one of {', '.join(TARGETS)}, or unset it for the "
            "host CPU; for other hardware set TORCH_NEURONX_PJRT_PLUGIN to the path of its PJRT plugin."
        )
    return name


def host_devices() -> int:
    """TORCH_NEURONX_HOST_DEVICES, 1 by default."""
    text = os.environ.get("TORCH_NEURONX_HOST_DEVICES", "")
    if not text:
        return 1
    if not text.isdecimal() or not 1 <= int(text) <= MOST_HOST_DEVICES:
        raise ValueError(
            f"TORCH_NEURONX_HOST_DEVICES={text!r} is not a number of devices. "
            f"Use a whole number from 1 to {MOST_HOST_DEVICES}."
        )
    return int(text)


def device_count() -> int:
    """Logical devices of the target; the host target is counted without starting it."""
    return host_devices() if target() == "host" else runtime().device_count()


def _plugin_path() -> Path:
    path = os.environ.get("TORCH_NEURONX_PJRT_PLUGIN", "")
    if not path:
        raise ValueError(
            "TORCH_NEURONX_TARGET=plugin needs a plugin. Set TORCH_NEURONX_PJRT_PLUGIN to the path "
            "of a PJRT C-API library."
        )
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"TORCH_NEURONX_PJRT_PLUGIN={path!r} is not a file. Set it to the path of a PJRT C-API library, "
            "or unset it to run on the host CPU."
        )
    return Path(path)


@cache
def runtime() -> XlaRuntime:
    """The process's runtime, started at the first call."""
    from torch_neuronx.runtime import xla

    if target() == "host":
        return xla.host_runtime(host_devices())
    return xla.plugin_runtime(_plugin_path())
