"""The backend that torch.compile calls: AOTAutograd in front, compiled graphs behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import fx

from torch_neuronx.compiler.executables import disk_cache
from torch_neuronx.dynamo.early import Pair
from torch_neuronx.dynamo.graph import CompiledGraph
from torch_neuronx.dynamo.passes import saved_by
from torch_neuronx.dynamo.settings import Settings


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

    from torch_neuronx.dynamo import stored

    if not torch.neuron.is_available():  # type: ignore[attr-defined]  # registered at run time
        raise RuntimeError("torch.compile(backend='neuron') needs the neuron device, which is not available")
    settings = Settings.of(mode, options)
    stores = disk_cache().status().enabled and stored.may_be_stored(module, inputs)
    compiler, pair = (stored.compiler if stores else _compiler), Pair()
    backend = aot_autograd(
        fw_compiler=compiler("forward", settings, pair),
        bw_compiler=compiler("backward", settings, pair),
        inference_compiler=compiler("inference", settings, pair),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    # The backward graph is handed over with the forward's, not at its first call: see dynamo/early.py.
    eager = functorch.patch(force_non_lazy_backward_lowering=True)
    with eager, stored.keyed(settings) if stores else nullcontext():
        return backend(module, inputs)


def _compiler(kind: str, settings: Settings, pair: Pair) -> Callable[..., Any]:
    return partial(_compile, kind=kind, settings=settings, pair=pair)


def _compile(
    module: fx.GraphModule, inputs: Sequence[Any], *, kind: str, settings: Settings, pair: Pair
) -> Callable[..., Any]:
    return CompiledGraph(module, kind, settings, pair, saved_by(module, kind)).entry_point()
