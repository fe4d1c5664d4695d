"""Rules of ops that move, join and make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.padded import layout
from torch_neuronx.lowering.padded.rules import Node, aligned, prefix, rule
from torch_neuronx.lowering.padded.sizes import NeedsExact, bound_of, dim_of, expression, same, size_of, value_of
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
    return layout.with_dims(hlo.squeeze(layout.window(x, d, at, 1), d), rest)


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
    x = prefix(x, d)
    target, at = dim_of(size[d]), _start(x, d, start)
    if step != 1:
        places = hlo.iota((target.bound,), 0, torch.int64) * hlo.broadcast_to(value_of(step), (target.bound,))
        return layout.picked(x, d, places + hlo.broadcast_to(at, places.shape), target)
    return layout.with_dims(layout.window(x, d, at, target.bound), [*x.dims[:d], target, *x.dims[d + 1 :]])


def _start(x: Value, d: int, start: Size | None) -> Value:
    """Where a slice begins, int64 rank 0: as torch clamps it."""
    full = value_of(size_of(x.dims[d]))
    at = hlo.constant(0, torch.int64) if start is None else value_of(start)
    return hlo.select(hlo.lt(at, 0), hlo.maximum(at + full, hlo.constant(0, torch.int64)), hlo.minimum(at, full))


@rule("aten::slice_scatter", "aten::select_scatter")
def _write_slice(node: Node) -> Value:
    """Every place looks whether it is written, and where its new value lies in the source."""
    x, source = node["self"], node["src"]
    d, step = node["dim"] % x.ndim, node.arguments.get("step", 1)
    x = prefix(x, d)
    if node.name == "aten::select_scatter":
        dims = [*source.dims[:d], Dim.static(1), *source.dims[d:]]
        source = layout.with_dims(hlo.unsqueeze(layout.physical(source), d), dims)
        start, count = _start(x, d, node["index"]), hlo.constant(1, torch.int64)
    else:
        source = prefix(source, d)
        start, count = _start(x, d, node["start"]), value_of(size_of(source.dims[d]))
    for i in range(x.ndim):
        if i != d:
            x, source = aligned(x, i, source, i)
    place = hlo.iota((x.shape[d],), 0, torch.int64)
    behind = place - hlo.broadcast_to(start, place.shape)
    stride = hlo.broadcast_to(value_of(step), place.shape)
    at = hlo.divide(behind, stride)
    written = hlo.ge(behind, 0) & hlo.eq(hlo.remainder(behind, stride), 0)
    written = written & hlo.lt(at, hlo.broadcast_to(count, place.shape))
    new = hlo.convert(layout.physical(layout.picked(source, d, at, x.dims[d])), x.dtype)
    chosen = hlo.broadcast_in_dim(written, x.shape, [d])
    return layout.with_dims(hlo.select(chosen, new, layout.physical(x)), x.dims)


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


@rule("aten::repeat")
def _repeat(node: Node) -> Value:
    """Every repetition is a factor in front of the dimension's own: nothing moves."""
    x, repeats = node["self"], node["repeats"]
    own = [Dim.static(1)] * (len(repeats) - x.ndim) + list(x.dims)
    times = [dim_of(r) for r in repeats]
    shape = [n for t, d in zip(times, own, strict=True) for n in (t.bound, d.bound)]
    spread = hlo.broadcast_in_dim(
        hlo.reshape(layout.physical(x), [d.bound for d in own]), shape, range(1, len(shape), 2)
    )
    dims = [layout.merged(Dim((*t.factors, *d.factors))) for t, d in zip(times, own, strict=True)]
    return layout.with_dims(hlo.reshape(spread, [d.bound for d in dims]), dims)


@rule("aten::stack")
def _stack(node: Node) -> Value:
    parts, d = list(node["tensors"]), node["dim"] % (node["tensors"][0].ndim + 1)
    for i in range(parts[0].ndim):
        target = layout.common([x.dims[i] for x in parts])
        parts = [layout.along(x, i, target) for x in parts]
    dims = parts[0].dims
    return layout.with_dims(node.emit({"tensors": parts}), [*dims[:d], Dim.static(len(parts)), *dims[d:]])


@rule(
    "aten::split.Tensor", "aten::split_with_sizes", "aten::unsafe_split.Tensor", "aten::unsafe_split_with_sizes",
    "aten::unbind.int",
)  # fmt: skip
def _split(node: Node) -> Any:
    x = node["self"]
    d = node["dim"] % x.ndim
    if x.dims[d].padded:
        return _split_varying(node, prefix(x, d), d)
    out = node.emit()
    rest = [*x.dims[:d], *x.dims[d + 1 :]]
    if "unbind" in node.name:
        return [layout.with_dims(o, rest) for o in out]
    return [layout.with_dims(o, [*x.dims[:d], Dim.static(o.shape[d]), *x.dims[d + 1 :]]) for o in out]


def _split_varying(node: Node, x: Value, d: int) -> list[Value]:
    """How many parts there are is known; where they begin is the sum of the sizes before."""
    if "unbind" in node.name:
        raise NeedsExact(f"{node.name} along a dimension of varying size")
    parts: list[Value] = []
    at: Any = 0
    for sizes in node.sizes:
        target = dim_of(sizes[d])
        rest = [*x.dims[:d], target, *x.dims[d + 1 :]]
        parts.append(layout.with_dims(layout.window(x, d, value_of(expression(at)), target.bound), rest))
        at = at + sizes[d]
    return parts


@rule("aten::diagonal")
def _diagonal(node: Node) -> Value:
    x, offset = node["self"], node["offset"]
    rows, columns = node["dim1"] % x.ndim, node["dim2"] % x.ndim
    x = prefix(prefix(x, rows), columns)
    dim = dim_of(node.sizes[0][-1])
    place = hlo.iota((dim.bound,), 0, torch.int64)
    low = hlo.broadcast_to(hlo.maximum(value_of(-offset), hlo.constant(0, torch.int64)), place.shape)
    high = hlo.broadcast_to(hlo.maximum(value_of(offset), hlo.constant(0, torch.int64)), place.shape)
    i, j = hlo.clamp(0, place + low, x.shape[rows] - 1), hlo.clamp(0, place + high, x.shape[columns] - 1)
    order = [k for k in range(x.ndim) if k not in (rows, columns)] + [rows, columns]
    turned = hlo.permute(x, order)
    shape = turned.shape
    flat = hlo.reshape(layout.physical(turned), (*shape[:-2], shape[-2] * shape[-1]))
    if not flat.numel:
        return layout.with_dims(hlo.full((*shape[:-2], dim.bound), 0, x.dtype), [*turned.dims[:-2], dim])
    taken = hlo.take_rows(flat, i * shape[-1] + j, flat.ndim - 1)
    return layout.with_dims(taken, [*turned.dims[:-2], dim])


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
    given = [x for x in (start, node["end"], step) if isinstance(x, (float, Value))]
    real = any(isinstance(x, float) or x.dtype.is_floating_point for x in given)
    dtype = node.arguments.get("dtype") or (torch.get_default_dtype() if real else torch.int64)
    if dtype.is_complex:
        raise NeedsExact(f"{node.name} of {dtype}")
    size = node.sizes[0][0]
    wide = torch.float64 if dtype.is_floating_point else torch.int64
    place = hlo.iota((bound_of(size),), 0, wide)
    first, step = (hlo.broadcast_to(hlo.convert(_number(x), wide), place.shape) for x in (start, step))
    values = place * step + first
    return layout.with_dims(hlo.convert(values, dtype), [dim_of(size)])


@rule("aten::scalar_tensor")
def _scalar_tensor(node: Node) -> Value:
    dtype = node.arguments.get("dtype") or torch.get_default_dtype()
    return hlo.convert(node["s"], dtype).strong()


def _number(x: Any) -> Value:
    """A number or a size among a call's arguments."""
    return value_of(x) if isinstance(x, (int, sympy.Expr)) else hlo.as_value(x)
