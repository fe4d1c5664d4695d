"""Fused attention over padded lengths: padded keys are masked like any other key that is not to be seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.module import current
from torch_neuronx.lowering.padded import layout
from torch_neuronx.lowering.padded.rules import Node, aligned, masked, prefix, rule
from torch_neuronx.lowering.padded.rules_random import drawing
from torch_neuronx.lowering.padded.sizes import NeedsExact, same, size_of
from torch_neuronx.lowering.value import Value


@rule("aten::_scaled_dot_product_fused_attention_overrideable")
def _forward(node: Node) -> Any:
    return _attend(node, {})


@rule("aten::_scaled_dot_product_fused_attention_overrideable_backward")
def _backward(node: Node) -> Any:
    """Padded queries take no part in the gradients of keys and values."""
    length = node["query"].ndim - 2
    dims = [*range(length + 1)]
    return _attend(node, masked(node, [(n, dims, 0) for n in ("grad_out", "query", "out", "logsumexp")]))


def _attend(node: Node, changed: dict[str, Any]) -> Any:
    length = node["query"].ndim - 2
    query = changed.get("query", node["query"])
    key, value = (prefix(node[n], length) for n in ("key", "value"))
    for d in range(length):
        query, key = aligned(query, d, key, d)
        query, value = aligned(query, d, value, d)
    key, value = (layout.mask(x, [length], 0) for x in (key, value))
    changed |= {"query": query, "key": key, "value": value}
    if "max_q" in node.arguments:  # lengths, which the row does not look at
        changed |= {"max_q": query.shape[length], "max_k": key.shape[length]}
    if key.dims[length].padded:
        _hide_padding(node, changed, length)
    with _drawing_scores(query, key) if node["dropout_p"] else _no_random_state():
        return node.sized(node.emit(changed))


def _drawing_scores(query: Value, key: Value) -> AbstractContextManager[None]:
    """The row draws a number a score."""
    return drawing((*query.dims[:-1], key.dims[-2]))


@contextmanager
def _no_random_state() -> Iterator[None]:
    """The rows ask where the generator stands, though nothing is drawn without dropout."""
    program = current()
    kept = program.rng_seed, program.rng_offset
    program.rng_seed = program.rng_offset = hlo.constant(0, torch.int64)
    try:
        yield
    finally:
        program.rng_seed, program.rng_offset = kept


def _hide_padding(node: Node, changed: dict[str, Any], length: int) -> None:
    query, key, bias = changed["query"], changed["key"], node["attn_bias"]
    if node["is_causal"]:
        if not same(size_of(query.dims[length]), size_of(key.dims[length])):
            raise NeedsExact(f"{node.name}: a causal mask between two lengths")
        return  # a query sees no key behind it, so none that is padding
    seen = layout.valid(key.dims[length])
    assert seen is not None
    shape = [*([1] * (length + 1)), key.shape[length]]
    visible = hlo.reshape(seen, shape)
    if bias is None:
        changed["attn_bias"] = visible
        return
    allowed = hlo.broadcast_to(visible, (*bias.shape[:-1], key.shape[length]))
    full = hlo.broadcast_to(layout.physical(bias), allowed.shape)
    if bias.dtype is torch.bool:
        changed["attn_bias"] = layout.with_dims(hlo.and_(full, allowed), bias.dims)
    else:
        changed["attn_bias"] = layout.with_dims(
            hlo.select(allowed, full, hlo.full(full.shape, float("-inf"), bias.dtype)), bias.dims
        )
