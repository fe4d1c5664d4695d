"""The backend that torch.compile calls: AOTAutograd in front, compiled graphs behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx

from torch_neuronx.dynamo.early import Pair
from torch_neuronx.dynamo.graph import CompiledGraph
from torch_neuronx.dynamo.settings import Settings
from torch_neuronx.lowering.graph import output_nodes


def neuron(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """torch.compile(backend="neuron"): forward, backward and inference graphs, an executable each."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch import config as functorch
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    settings = Settings.of(mode, options)
    pair = Pair()
    kinds = ("forward", "backward", "inference")
    compiler = {kind: partial(_compile, kind=kind, settings=settings, pair=pair) for kind in kinds}
    backend = aot_autograd(
        fw_compiler=compiler["forward"],
        bw_compiler=compiler["backward"],
        inference_compiler=compiler["inference"],
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    # The backward graph is handed over with the forward's, not at its first call: see dynamo/early.py.
    with functorch.patch(force_non_lazy_backward_lowering=True):
        return backend(module, inputs)


def _compile(
    module: fx.GraphModule, inputs: Sequence[Any], *, kind: str, settings: Settings, pair: Pair
) -> Callable[..., Any]:
    if not torch.neuron.is_available():  # type: ignore[attr-defined]
        raise RuntimeError("torch.compile(backend='neuron') needs the neuron device, which is not available")
    saved = _saved(module) if kind == "forward" else frozenset()
    return CompiledGraph(module, kind, settings, pair, saved).entry_point()


def _saved(module: fx.GraphModule) -> frozenset[int]:
    """The outputs of a forward graph that only its backward sees; none where AOTAutograd does not tell."""
    context = torch._guards.TracingContext.try_get()
    known = context.fw_metadata if context is not None else None
    if known is None or any(type(m).__name__ != "PlainTensorMeta" for m in known.subclass_fw_graph_out_meta):
        return frozenset()
    return frozenset(range(known.num_forward, len(output_nodes(module.graph))))
