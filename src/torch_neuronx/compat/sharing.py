"""Sharing between processes, of which torch knows two kinds: CUDA's, and everything else through CPU memory.

A neuron tensor sent through a torch.multiprocessing queue arrives as a copy on the same device. share_memory_(), which
torch takes for done on every device but the CPU, is refused: nothing would be shared.
"""

from __future__ import annotations

import functools
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions


def apply() -> None:
    """Answers for neuron tensors and storages; all others go to torch."""
    storage: Any = torch.UntypedStorage
    storage.share_memory_ = _share_memory(storage.share_memory_)
    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, _reduce)


def _share_memory(original: Any) -> Any:
    @functools.wraps(original)
    def not_on_neuron(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.device.type == "neuron":
            raise RuntimeError(
                "share_memory_(): memory of a neuron device belongs to one process. Share a CPU tensor "
                "(tensor.cpu().share_memory_()), or send the tensor through a torch.multiprocessing queue: it copies."
            )
        return original(self, *args, **kwargs)

    return not_on_neuron


def _reduce(tensor: torch.Tensor) -> Any:
    if tensor.device.type != "neuron":
        return reductions.reduce_tensor(tensor)
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "cannot send a neuron tensor that requires grad and is not a leaf to another process: autograd does not "
            "cross processes. Send tensor.detach()."
        )
    return _rebuild, (tensor.detach().cpu(), str(tensor.device), tensor.requires_grad, type(tensor))


def _rebuild(values: torch.Tensor, device: str, requires_grad: bool, kind: type[torch.Tensor]) -> torch.Tensor:
    tensor = values.to(device)
    if issubclass(kind, torch.nn.Parameter):
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)
