"""One guarded patch for each upstream bug, with its number. A patch that is no longer needed says so and does nothing."""

from __future__ import annotations


def apply() -> None:
    """Applies every patch; called once, while the device is registered."""
    from torch_neuronx.compat import dlpack, safetensors

    dlpack.apply()
    safetensors.apply()
