"""torch.compile without a backend means Inductor, which cannot compile for `neuron`: such graphs go to ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

_OURS = "_neuron_request"


def apply() -> None:
    """Wraps the object that stands for Inductor in torch.compile; its own graphs still go to it."""
    wrapper: Any = torch._TorchCompileInductorWrapper
    original_init, original_call = wrapper.__init__, wrapper.__call__

    def init(self: Any, mode: str | None, options: Mapping[str, Any] | None, dynamic: bool | None, *rest: Any) -> None:
        mine = {k: v for k, v in (options or {}).items() if k in _option_names()}
        others = {k: v for k, v in (options or {}).items() if k not in mine}
        original_init(self, mode, others, dynamic, *rest)
        setattr(self, _OURS, (mode, mine))

    def call(self: Any, module: fx.GraphModule, inputs: Sequence[Any], **kwargs: Any) -> Any:
        if any(_on_neuron(x) for x in _tensors(module, inputs)):
            from torch_neuronx.dynamo.backend import neuron

            mode, options = getattr(self, _OURS, (None, {}))
            return neuron(module, inputs, mode=_our_mode(mode), options=options)
        return original_call(self, module, inputs, **kwargs)

    wrapper.__init__, wrapper.__call__ = init, call


def _option_names() -> frozenset[str]:
    from torch_neuronx.dynamo.settings import OPTIONS

    return OPTIONS


def _our_mode(mode: str | None) -> str | None:
    """Inductor has a mode more."""
    return "max-autotune" if mode == "max-autotune-no-cudagraphs" else mode


def _tensors(module: fx.GraphModule, inputs: Sequence[Any]) -> Iterator[Any]:
    yield from inputs
    if isinstance(module, torch.nn.Module):
        yield from module.parameters()
        yield from module.buffers()
    for node in module.graph.nodes if isinstance(module, fx.GraphModule) else ():
        yield node.meta.get("example_value")


def _on_neuron(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.device.type == "neuron"
