"""One guarded patch for each upstream bug or missing extension point, with its number."""

from __future__ import annotations

import torch


def apply() -> None:
    """Applies every patch; called once, while the device is registered."""
    from torch_neuronx.compat import (
        dlpack,
        dynamo_frames,
        fake_convolution,
        flex_attention,
        inductor,
        safetensors,
        sharing,
    )

    if torch_version() < dlpack.CHECK_AGAIN:
        dlpack.apply()
    safetensors.apply()
    sharing.apply()
    inductor.apply()
    dynamo_frames.apply()
    flex_attention.apply()
    fake_convolution.apply()


def torch_version() -> tuple[int, int]:
    """(major, minor) of the running torch."""
    major, minor, *_ = torch.__version__.split(".")
    return int(major), int(minor)
