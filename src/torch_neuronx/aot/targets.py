"""Compilers of the targets a bundle can be made for."""

from __future__ import annotations

import os
from pathlib import Path

from torch_neuronx.runtime.targets import host_devices, runtime, target
from torch_neuronx.runtime.xla import XlaRuntime, host_runtime, plugin_runtime


def compiler_of(name: str) -> tuple[XlaRuntime | None, str]:
    """The compiler of a target, or None and why there is none."""
    if name == target():
        return runtime(), ""
    if name == "host":
        return host_runtime(host_devices()), ""
    if name == "plugin":
        path = os.environ.get("TORCH_NEURONX_PJRT_PLUGIN", "")
        if not path:
            return None, "TORCH_NEURONX_PJRT_PLUGIN, which says where its PJRT plugin is, is not set"
        try:
            return plugin_runtime(Path(path)), ""
        except (RuntimeError, OSError) as error:
            return None, str(error)
    return None, f"no compiler for it is installed (this torchneuron knows host and plugin, and runs on {target()})"
