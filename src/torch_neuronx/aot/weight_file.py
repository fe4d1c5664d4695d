"""The weights of a bundle: what is stored of them, and how they come back to the device."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from torch_neuronx.aot import safetensors
from torch_neuronx.aot.errors import BundleError
from torch_neuronx.aot.manifest import Weight
from torch_neuronx.aot.runner import canonical, fresh
from torch_neuronx.lowering.views import Layout, contiguous_strides


def describe(
    weights: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor]
) -> tuple[list[Weight], list[int], list[torch.Tensor]]:
    """The distinct weights, the number of each name's, and the tensors as programs read them.

    `state` has further names of theirs.
    """
    described: list[Weight] = []
    tensors: list[torch.Tensor] = []
    numbers: list[int] = []
    known: dict[tuple[object, ...], int] = {}
    for name, tensor in weights.items():
        same = _identity(tensor)
        if tensor.numel() and same in known:
            numbers.append(known[same])
            described[known[same]].names.append(name)
            continue
        known[same] = len(described)
        numbers.append(len(described))
        shape = tuple(tensor.shape)
        stride = tensor.stride() if Layout(shape, tensor.stride()).dense else contiguous_strides(shape)
        where = "cpu" if tensor.device.type == "cpu" and not tensor.ndim else "neuron"
        described.append(Weight([name], name, tensor.dtype, shape, tuple(stride), where))
        tensors.append(_placed(tensor, tuple(stride), where))
    for name, tensor in state.items():
        number = known.get(_identity(tensor))
        if tensor.numel() and number is not None and name not in weights:
            described[number].names.append(name)
    return described, numbers, tensors


def _identity(x: torch.Tensor) -> tuple[object, ...]:
    return x.untyped_storage()._cdata, x.storage_offset(), x.shape, x.stride(), x.dtype


def _placed(tensor: torch.Tensor, stride: tuple[int, ...], where: str) -> torch.Tensor:
    if where == "cpu" or tensor.device.type == "neuron":
        return canonical(tensor, stride)
    return fresh(tensor, stride, torch.device("neuron", 0))


def encode(weights: Sequence[Weight], tensors: Sequence[torch.Tensor]) -> bytes:
    return safetensors.encode({w.key: t for w, t in zip(weights, tensors, strict=True)})


def refer(path: Path, weights: Sequence[Weight], tensors: Sequence[torch.Tensor]) -> str:
    """The hash of a file with these weights, which is written unless it is there. Raises BundleError if it differs."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = encode(weights, tensors)
        path.write_bytes(data)
        return hashlib.sha256(data).hexdigest()
    file = safetensors.File(data, str(path))
    for w, t in zip(weights, tensors, strict=True):
        if file.elements(w.key, w.dtype, w.shape) != safetensors.raw(t):
            raise BundleError(f"{path} is there already, and its {w.key} differs from the program's")
    return hashlib.sha256(data).hexdigest()


def decode(data: bytes, name: str, weights: Sequence[Weight], device: torch.device) -> list[torch.Tensor]:
    """The weights in memory of their own on the device. Raises BundleError."""
    file = safetensors.File(data, name)
    return [
        fresh(file.tensor(w.key, w.dtype, w.shape), w.stride, device if w.device == "neuron" else torch.device("cpu"))
        for w in weights
    ]
