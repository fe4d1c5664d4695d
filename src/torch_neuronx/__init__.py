"""TorchNeuron: PyTorch's `neuron` device on XLA. Importing it, or just torch, registers the device."""

from __future__ import annotations

import torch  # noqa: F401 - torch's libraries must be loaded before the C++ core

from torch_neuronx import _autoload

__version__ = "0.1.0"

_autoload.register()
