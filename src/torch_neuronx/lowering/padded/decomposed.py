"""Ops without a rule: torch's own decomposition, traced for sizes that vary."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves, tree_map

from torch_neuronx.lowering.decompose import decompose
from torch_neuronx.lowering.padded.sizes import NeedsExact
from torch_neuronx.lowering.table import overload_name

# Kept with the node: the next bucket is lowered in the background, and a trace there would show in all threads.
_TRACED = "neuron_decomposed"


class _Here(threading.local):
    traces: bool = True


_here = _Here()


@contextmanager
def without_tracing() -> Iterator[None]:
    """Inside, what is not traced yet is not: other threads that call compiled functions meanwhile would be refused."""
    before, _here.traces = _here.traces, False
    try:
        yield
    finally:
        _here.traces = before


def decomposed(node: fx.Node) -> tuple[fx.GraphModule, list[fx.Node]]:
    """The op of a node as a graph of other ops, and the nodes whose values it takes.

    Raises NeedsExact when torch has no decomposition of it, or one that takes different ways for different sizes.
    """
    known = node.meta.get(_TRACED)
    if known is None:
        if not _here.traces:
            raise NeedsExact(f"{node.target} is to be traced first")
        known = node.meta[_TRACED] = _trace(node)
    return known


def _trace(node: fx.Node) -> tuple[fx.GraphModule, list[fx.Node]]:
    op: Any = node.target
    name = overload_name(op)
    if torch.Tag.nondeterministic_seeded in op.tags:
        raise NeedsExact(f"{name} has no rule for padded sizes")  # its numbers would not be the ones eager mode draws
    inputs = list(dict.fromkeys(x for x in tree_leaves((node.args, node.kwargs)) if isinstance(x, fx.Node)))
    traced = [x.meta["val"] for x in inputs]
    mode = detect_fake_mode(traced)
    if mode is None or mode.shape_env is None:
        raise NeedsExact(f"{name} has no rule for padded sizes")

    def call(*values: Any) -> Any:
        of = dict(zip(inputs, values, strict=True))
        args, kwargs = tree_map(lambda x: of[x] if isinstance(x, fx.Node) else x, (node.args, node.kwargs))
        return decompose(op, list(args), dict(kwargs))

    try:
        with mode, mode.shape_env.error_on_new_guards():
            graph = make_fx(torch.func.functionalize(call, remove="mutations"))(*traced)
        if not any(n.target is op for n in graph.graph.nodes):
            return graph, inputs
        raise NeedsExact(f"{name} is made of itself")
    except NeedsExact:
        raise
    except Exception as error:
        raise NeedsExact(f"{name} has no rule for padded sizes ({_why(error)})") from error


def _why(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    return text if len(text) < 120 else text[:117] + "..."
