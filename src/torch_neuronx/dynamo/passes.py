"""Changes and questions to a graph before it is lowered."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import fx


def lift_constants(module: fx.GraphModule) -> tuple[fx.GraphModule, tuple[torch.Tensor, ...]]:
    """The graph with tensors it holds as further inputs, and these tensors."""
    held = [n for n in module.graph.nodes if n.op == "get_attr" and isinstance(_attribute(module, n), torch.Tensor)]
    if not held:
        return module, ()
    changed = copy.copy(module)
    changed.graph = copy.deepcopy(module.graph)
    *_, last = (n for n in changed.graph.nodes if n.op == "placeholder") if _has_inputs(changed) else (None,)
    tensors: list[torch.Tensor] = []
    for node in [n for n in changed.graph.nodes if n.op == "get_attr"]:
        value = _attribute(module, node)
        if not isinstance(value, torch.Tensor):
            continue
        where = changed.graph.inserting_after(last) if last is not None else changed.graph.inserting_before(node)
        with where:
            last = changed.graph.placeholder(f"constant_{len(tensors)}")
        last.meta = {**node.meta, "val": node.meta.get("val", value)}
        node.replace_all_uses_with(last)
        changed.graph.erase_node(node)
        tensors.append(value)
    changed.recompile()
    return changed, tuple(tensors)


def _attribute(module: fx.GraphModule, node: fx.Node) -> Any:
    value: Any = module
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value


def _has_inputs(module: fx.GraphModule) -> bool:
    return any(n.op == "placeholder" for n in module.graph.nodes)


def host_positions(module: fx.GraphModule) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Inputs that are CPU tensors with dimensions, or written ones; and outputs that belong on the CPU."""
    from torch_neuronx.lowering.graph import output_nodes, written_positions

    written = written_positions(module.graph)
    placeholders = [n.meta.get("val") for n in module.graph.nodes if n.op == "placeholder"]
    inputs = tuple(i for i, v in enumerate(placeholders) if _on_host(v) and (v.ndim or i in written))
    outputs = [n.meta.get("val") if isinstance(n, fx.Node) else None for n in output_nodes(module.graph)]
    return inputs, tuple(i for i, v in enumerate(outputs) if _on_host(v))


def _on_host(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cpu"


def saved_by(module: fx.GraphModule, kind: str) -> frozenset[int]:
    """The outputs of a forward graph that only its backward sees; none where AOTAutograd does not tell."""
    from torch_neuronx.lowering.graph import output_nodes

    context = torch._guards.TracingContext.try_get()
    known = context.fw_metadata if context is not None and kind == "forward" else None
    if known is None or any(type(m).__name__ != "PlainTensorMeta" for m in known.subclass_fw_graph_out_meta):
        return frozenset()
    return frozenset(range(known.num_forward, len(output_nodes(module.graph))))
