"""Rules of ops that move, join and make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.padded import layout
from torch_neuronx.lowering.padded.rules import Node, prefix, rule
from torch_neuronx.lowering.padded.sizes import NeedsExact, bound_of, dim_of, same, size_of, value_of
from torch_neuronx.lowering.value import Dim, Size, Value


@rule("aten::view", "aten::_unsafe_view", "aten::reshape", "aten::_reshape_copy", "aten::view_copy")
def _view(node: Node) -> Value:
    return layout.regroup(node["self"], node.sizes[0])


@rule("aten::squeeze", "aten::squeeze.dim", "aten::squeeze.dims", "aten::unsqueeze")
def _squeeze(node: Node) -> Value:
    return layout.regroup(node["self"], node.sizes[0])


@rule("aten::permute")
def _permute(node: Node) -> Value:
    return hlo.permute(node["self"], node["dims"])


@rule("aten::transpose.int")
def _transpose(node: Node) -> Value:
    order = list(range(node["self"].ndim))
    a, b = node["dim0"], node["dim1"]
    order[a], order[b] = order[b], order[a]
    return hlo.permute(node["self"], order)


@rule("aten::t")
def _t(node: Node) -> Value:
    return hlo.permute(node["self"], [1, 0]) if node["self"].ndim == 2 else node["self"]


@rule("aten::expand")
def _expand(node: Node) -> Value:
    """New dimensions, and those of extent 1, are filled to their bounds."""
    x, sizes = node["self"], node.sizes[0]
    new = len(sizes) - x.ndim
    dims: list[Dim] = []
    for i, s in enumerate(sizes):
        old = x.dims[i - new] if i >= new else None
        kept = old is not None and same(size_of(old), s)
        dims.append(old if kept and old is not None else dim_of(s))
    return layout.with_dims(hlo.broadcast_to(layout.physical(x), [d.bound for d in dims]), dims)


@rule("aten::alias", "aten::detach", "aten::clone", "aten::lift_fresh_copy", "aten::contiguous")
def _same(node: Node) -> Value:
    return node["self"]


@rule("aten::_to_copy")
def _to_copy(node: Node) -> Value:
    return layout.with_dims(node.emit(), node["self"].dims)


@rule("aten::select.int")
def _select(node: Node) -> Value:
    x, index = node["self"], node["index"]
    d = node["dim"] % x.ndim
    rest = [*x.dims[:d], *x.dims[d + 1 :]]
    if not x.dims[d].padded and isinstance(index, int):
        return layout.with_dims(node.emit(), rest)
    x = prefix(x, d)
    negative = isinstance(index, int) and index < 0
    at = value_of(index + size_of(x.dims[d])) if negative else value_of(index)
    return layout.with_dims(hlo.squeeze(_window(x, d, at, 1), d), rest)


def _window(x: Value, d: int, start: Value, extent: int) -> Value:
    """Places start ... start + extent - 1 along d; beyond the array there is garbage, and no start is moved."""
    zero = hlo.constant(0, torch.int64)
    high = [extent if i == d else 0 for i in range(x.ndim)]
    wide = hlo.pad(layout.physical(x), [0] * x.ndim, high)
    starts = [start if i == d else zero for i in range(x.ndim)]
    return hlo.dynamic_slice(wide, starts, [extent if i == d else n for i, n in enumerate(x.shape)])


@rule("aten::slice.Tensor")
def _slice(node: Node) -> Value:
    x, size = node["self"], node.sizes[0]
    d, step = node["dim"] % x.ndim, node["step"]
    start, end = node["start"], node["end"]
    static = not x.dims[d].padded and all(isinstance(i, int) or i is None for i in (start, end))
    if static:
        out = node.emit()
        return layout.with_dims(out, [*x.dims[:d], Dim.static(out.shape[d]), *x.dims[d + 1 :]])
    if same(size[d], size_of(x.dims[d])):
        return x
    if step != 1:
        raise NeedsExact(f"{node.name} with a step along a dimension of varying size")
    x = prefix(x, d)
    target = dim_of(size[d])
    full = value_of(size_of(x.dims[d]))
    at = hlo.constant(0, torch.int64) if start is None else value_of(start)
    at = hlo.select(hlo.lt(at, 0), hlo.maximum(at + full, hlo.constant(0, torch.int64)), hlo.minimum(at, full))
    return layout.with_dims(_window(x, d, at, target.bound), [*x.dims[:d], target, *x.dims[d + 1 :]])


@rule("aten::cat")
def _cat(node: Node) -> Value:
    parts = [x for x in node["tensors"] if not (x.ndim == 1 and x.shape == (0,))]
    ndim = parts[0].ndim
    d = node["dim"] % ndim
    for i in range(ndim):
        if i != d:
            target = layout.common([x.dims[i] for x in parts])
            parts = [layout.along(x, i, target) for x in parts]
    dtype = parts[0].dtype
    for x in parts[1:]:
        dtype = torch.promote_types(dtype, x.dtype)
    parts = [hlo.convert(x, dtype) if x.dtype != dtype else x for x in parts]
    if not any(x.dims[d].padded for x in parts):
        out = hlo.concatenate([layout.physical(x) for x in parts], d)
        return layout.with_dims(out, [*parts[0].dims[:d], Dim.static(out.shape[d]), *parts[0].dims[d + 1 :]])
    return _cat_padded([prefix(x, d) for x in parts], d, node.sizes[0][d])


def _cat_padded(parts: Sequence[Value], d: int, size: Size) -> Value:
    """Each part is written behind the one before; what a part has of garbage is written over by the next."""
    room = sum(x.shape[d] for x in parts)
    shape = [room if i == d else n for i, n in enumerate(parts[0].shape)]
    out, at = hlo.full(shape, 0, parts[0].dtype), hlo.constant(0, torch.int64)
    zero = hlo.constant(0, torch.int64)
    for x in parts:
        starts = [at if i == d else zero for i in range(x.ndim)]
        out = hlo.dynamic_update_slice(out, layout.physical(x), starts)
        at = at + value_of(size_of(x.dims[d]))
    target = dim_of(size)
    return layout.with_dims(
        hlo.slice_dim(out, d, 0, target.bound), [*parts[0].dims[:d], target, *parts[0].dims[d + 1 :]]
    )


@rule("aten::stack")
def _stack(node: Node) -> Value:
    parts, d = list(node["tensors"]), node["dim"] % (node["tensors"][0].ndim + 1)
    for i in range(parts[0].ndim):
        target = layout.common([x.dims[i] for x in parts])
        parts = [layout.along(x, i, target) for x in parts]
    dims = parts[0].dims
    return layout.with_dims(node.emit({"tensors": parts}), [*dims[:d], Dim.static(len(parts)), *dims[d:]])


@rule("aten::split.Tensor", "aten::split_with_sizes", "aten::unbind.int", "aten::chunk")
def _split(node: Node) -> Any:
    x = node["self"]
    d = node["dim"] % x.ndim
    if x.dims[d].padded:
        raise NeedsExact(f"{node.name} along a dimension of varying size")
    out = node.emit()
    rest = [*x.dims[:d], *x.dims[d + 1 :]]
    if node.name == "aten::unbind.int":
        return [layout.with_dims(o, rest) for o in out]
    return [layout.with_dims(o, [*x.dims[:d], Dim.static(o.shape[d]), *x.dims[d + 1 :]]) for o in out]


@rule("aten::tril", "aten::triu")
def _triangle(node: Node) -> Value:
    x = node["self"]
    for d in (x.ndim - 2, x.ndim - 1):
        x = prefix(x, d)
    return layout.with_dims(node.emit({"self": x}), x.dims)


@rule(
    "aten::full", "aten::zeros", "aten::ones", "aten::empty.memory_format", "aten::new_zeros", "aten::new_ones",
    "aten::new_full", "aten::new_empty", "aten::full_like", "aten::zeros_like", "aten::ones_like", "aten::empty_like",
)  # fmt: skip
def _fill(node: Node) -> Value:
    dims = layout.dims_for(node.sizes[0], node.values())
    changed = {"size": [d.bound for d in dims]} if "size" in node.arguments else {}
    return layout.with_dims(node.emit(changed), dims)


@rule("aten::arange", "aten::arange.start", "aten::arange.start_step")
def _arange(node: Node) -> Value:
    """start + i * step for as many i as the bound has."""
    start, step = node.arguments.get("start", 0), node.arguments.get("step", 1)
    dtype = node.arguments.get("dtype") or torch.int64
    if not isinstance(step, int) or dtype.is_complex or isinstance(start, float):
        raise NeedsExact(f"{node.name} with a step that is no integer")
    size = node.sizes[0][0]
    place = hlo.iota((bound_of(size),), 0, torch.int64)
    values = place * step + hlo.broadcast_to(value_of(start), place.shape)
    return layout.with_dims(hlo.convert(values, dtype), [dim_of(size)])


@rule("aten::constant_pad_nd")
def _pad(node: Node) -> Value:
    x, amounts = node["self"], node["pad"]
    pairs = [tuple(amounts[i : i + 2]) for i in range(0, len(amounts), 2)]
    for i, (low, high) in enumerate(pairs):
        d = x.ndim - 1 - i
        if (low or high) and (x.dims[d].padded or not all(isinstance(n, int) for n in (low, high))):
            raise NeedsExact(f"{node.name} along a dimension of varying size")
    return node.sized(node.emit())
