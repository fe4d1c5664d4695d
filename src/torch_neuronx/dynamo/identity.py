"""A graph's name on disk: equal graphs in different processes have equal ones."""

from __future__ import annotations

import hashlib
from typing import Any, cast

import torch
from torch import fx


def graph_identity(module: fx.GraphModule) -> str:
    """SHA-256 over nodes, arguments, traced layouts and subgraphs; names of nodes do not matter."""
    digest = hashlib.sha256()
    for line in _lines(module):
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


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
