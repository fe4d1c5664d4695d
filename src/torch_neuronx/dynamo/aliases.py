"""Outputs of a graph that are views of its inputs or of other outputs."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx

from torch_neuronx.lowering.graph import NOT_STRIDED, output_nodes


@dataclass(frozen=True)
class Window:
    """A view's traced layout, the offset relative to what it looks at."""

    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Any

    @classmethod
    def of(cls, view: torch.Tensor, base: torch.Tensor) -> Window:
        offset = _expression(view.storage_offset()) - _expression(base.storage_offset())
        return cls(tuple(map(_expression, view.shape)), tuple(map(_expression, view.stride())), offset)

    def at(self, symbols: dict[Any, int]) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        def number(x: Any) -> int:
            return int(x.subs(symbols)) if isinstance(x, sympy.Expr) else int(x)

        return tuple(map(number, self.sizes)), tuple(map(number, self.strides)), number(self.offset)

    @property
    def symbols(self) -> set[Any]:
        parts = (*self.sizes, *self.strides, self.offset)
        return {s for x in parts if isinstance(x, sympy.Expr) for s in x.free_symbols}


def _expression(n: Any) -> Any:
    return n.node.expr if isinstance(n, torch.SymInt) else int(n)


class Aliases:
    """AOTAutograd makes what it returns anew from the layouts a graph's outputs have: a view must stay one.

    of_inputs    output -> (input, window)
    of_outputs   output -> (another output, window)
    windows      those of the first whose view is an as_strided, which no program returns as a view
    """

    def __init__(self, module: fx.GraphModule) -> None:
        self.placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        self.of_inputs: dict[int, tuple[int, Window]] = {}
        self.of_outputs: dict[int, tuple[int, Window]] = {}
        self.windows: dict[int, tuple[int, Window]] = {}
        outputs = output_nodes(module.graph)
        known = set(self.bound([n.meta.get("val") for n in self.placeholders]))
        for k, node in enumerate(outputs):
            root = root_of(node) if isinstance(node, fx.Node) else node
            if root is node or root.meta["val"].dtype != node.meta["val"].dtype:
                continue
            window = Window.of(node.meta["val"], root.meta["val"])
            if not window.symbols <= known:
                continue
            if root.op == "placeholder":
                self.of_inputs[k] = self.placeholders.index(root), window
                if isinstance(node, fx.Node) and node.target is torch.ops.aten.as_strided.default:
                    self.windows[k] = self.of_inputs[k]
            elif root in outputs:
                self.of_outputs[k] = outputs.index(root), window

    def bound(self, args: list[Any]) -> dict[Any, Any]:
        """The traced symbols of the inputs' sizes, strides and offsets, and what they are in `args`."""
        found: dict[Any, Any] = {}
        for node, x in zip(self.placeholders, args, strict=True):
            traced = node.meta.get("val")
            if isinstance(traced, torch.Tensor):
                pairs = zip(_numbers(traced), _numbers(x), strict=True)
            else:
                pairs = zip((traced,), (x,), strict=True)
            for t, real in pairs:
                if isinstance(t, torch.SymInt) and t.node.expr.is_symbol:
                    found[t.node.expr] = real
        return found

    def look(self, args: list[Any], wanted: dict[int, tuple[int, Window]]) -> dict[int, torch.Tensor]:
        """The outputs that are views of inputs."""
        if not wanted:
            return {}
        symbols = self.bound(args)
        views = {}
        for k, (position, window) in wanted.items():
            sizes, strides, offset = window.at(symbols)
            base = args[position].detach()
            views[k] = base.as_strided(sizes, strides, base.storage_offset() + offset)
        return views


def _numbers(x: torch.Tensor) -> tuple[Any, ...]:
    return (*x.shape, *x.stride(), x.storage_offset())


def root_of(node: fx.Node) -> fx.Node:
    """The node whose memory a node's tensor looks at; itself when it has its own."""
    while True:
        made = node.args[0] if node.target is operator.getitem else node
        op = made.target if isinstance(made, fx.Node) else None
        if not isinstance(op, torch._ops.OpOverload) or not op.is_view or op in NOT_STRIDED:
            return node
        assert isinstance(made, fx.Node)
        source = made.args[0]
        if not isinstance(source, fx.Node) or not isinstance(source.meta.get("val"), torch.Tensor):
            return node
        node = source
