"""A graph's name on disk: equal graphs in different processes have equal ones."""

from __future__ import annotations

import hashlib
from typing import Any, cast

import torch
from torch import fx

from torch_neuronx.lowering.padded.sizes import symbolic_in


def graph_identity(module: fx.GraphModule) -> str:
    """SHA-256 over nodes, arguments, traced layouts and subgraphs; names of nodes do not matter."""
    digest = hashlib.sha256()
    for line in _lines(module):
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def known_of_sizes(module: fx.GraphModule) -> str:
    """SHA-256 over what was found out about the sizes of a graph while it was traced: guards, ranges, equalities."""
    sizes = [s for n in module.graph.nodes for s in symbolic_in(n.meta.get("val"))]
    if not sizes:
        return ""
    env = sizes[0].node.shape_env
    symbols = {x for s in sizes for x in s.node.expr.free_symbols}
    known = {str(g.expr) for g in env.guards if g.expr.free_symbols & symbols}
    known |= {str(told.expr) for s in symbols for told in env.deferred_runtime_asserts.get(s, ())}
    known |= {f"{s} in {r}" for s, r in env.var_to_range.items() if s in symbols}
    known |= {f"{s} = {x}" for s, x in env.replacements.items() if x.free_symbols & symbols}
    return hashlib.sha256("\n".join(sorted(known)).encode()).hexdigest()


def _lines(module: fx.GraphModule) -> list[str]:
    numbers = {node: i for i, node in enumerate(module.graph.nodes)}
    lines = []
    for node in module.graph.nodes:
        named: Any = lambda n: _Ref(numbers[n])  # noqa: E731
        args, kwargs = cast(Any, fx.node.map_arg((node.args, node.kwargs), named))
        target = "" if node.op in ("placeholder", "output") else str(node.target)
        lines.append(f"{node.op} {target} {args!r} {kwargs!r} {_traced(node.meta.get('val'))}")
        if node.op == "get_attr":
            inner = getattr(module, str(node.target))
            lines += _lines(inner) if isinstance(inner, fx.GraphModule) else [repr(inner)]
    return lines


class _Ref:
    def __init__(self, number: int) -> None:
        self.number = number

    def __repr__(self) -> str:
        return f"%{self.number}"


def _traced(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        layout = (tuple(value.shape), value.stride(), value.storage_offset())
        return f"{value.dtype} {value.device.type} {layout}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_traced(v) for v in value)}]"
    return str(value)
