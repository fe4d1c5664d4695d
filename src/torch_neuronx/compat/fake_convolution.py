"""Tracing takes a convolution on a device it does not know to be contiguous; eager keeps channels_last, as the CPU."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from torch_neuronx.compat.on_import import on_import


def apply() -> None:
    on_import("torch._subclasses.fake_impls", patch)


def patch(module: ModuleType) -> None:
    aten = torch.ops.aten
    table = module.op_implementations_dict
    for op in (aten.convolution.default, aten._convolution.default):
        table[op] = _keeping_format(table[op])


def _keeping_format(original: Any) -> Any:
    def conv(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        out = original(mode, func, *args, **kwargs)
        tensors = [x for x in args[:2] if isinstance(x, torch.Tensor)]
        if out.device.type != "neuron" or not all(isinstance(n, int) for x in (*tensors, out) for n in x.shape):
            return out
        from torch._prims_common import suggest_memory_format

        formats = [suggest_memory_format(x) for x in tensors]
        chosen = next((f for f in formats if f is not torch.contiguous_format), None)
        if chosen is None or out.is_contiguous(memory_format=chosen):
            return out
        with mode:
            return torch.empty_like(out, memory_format=chosen)

    return conv
