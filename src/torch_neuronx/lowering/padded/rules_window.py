"""Rules of ops that look at windows: pooling, padding, unfolding, over dimensions of varying size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.axes import axis
from torch_neuronx.lowering.dtypes import compute_dtype, min_value
from torch_neuronx.lowering.padded import layout
from torch_neuronx.lowering.padded.rules import Node, aligned, prefix, rule
from torch_neuronx.lowering.padded.sizes import NeedsExact, dim_of, size_of, value_of
from torch_neuronx.lowering.value import Dim, Value


def _spatial(node: Node) -> tuple[Value, int]:
    """The operand with its spatial dimensions padded behind, and how many these are."""
    first = node.op._schema.arguments[0].name
    x, n = node[first], 3 if "3d" in node.name else 2 if "2d" in node.name else 1
    for d in range(x.ndim - n, x.ndim):
        x = prefix(x, d)
    return x, n


def _varies(x: Value, n: int) -> bool:
    return any(d.padded for d in x.dims[x.ndim - n :])


def _plane_dims(x: Value, n: int) -> range:
    return range(x.ndim - n, x.ndim)


def _result_dims(node: Node, x: Value, n: int, k: int = 0) -> list[Dim]:
    return [*x.dims[: x.ndim - n], *(dim_of(s) for s in node.sizes[k][x.ndim - n :])]


def _reindexed(index: Value, x: Value, n: int, *, to_memory: bool) -> Value:
    """Positions in a plane of x's valid elements as positions in its padded plane, or the other way round."""
    planes = x.dims[x.ndim - n :]
    valid = [value_of(size_of(d)) for d in planes]
    bounds = [hlo.constant(d.bound, torch.int64) for d in planes]
    before, after = (valid, bounds) if to_memory else (bounds, valid)
    rest, out, step = layout.physical(index), hlo.full(index.shape, 0, torch.int64), hlo.constant(1, torch.int64)
    for old, new in zip(reversed(before), reversed(after), strict=True):
        old, step_now = hlo.broadcast_to(old, index.shape), hlo.broadcast_to(step, index.shape)
        out = out + hlo.remainder(rest, old) * step_now
        rest, step = hlo.divide(rest, old), step * new
    return out


@rule("aten::max_pool2d_with_indices", "aten::max_pool3d_with_indices")
def _max_pool(node: Node) -> tuple[Value, Value]:
    """What lies behind a plane is like the padding around it: it never is the largest."""
    x, n = _spatial(node)
    values, index = node.emit({"self": layout.mask(x, _plane_dims(x, n), min_value(x.dtype))})
    dims = _result_dims(node, x, n)
    if _varies(x, n):
        index = _reindexed(index, x, n, to_memory=False)
    return layout.with_dims(values, dims), layout.with_dims(index, dims)


@rule("aten::max_pool2d_with_indices_backward", "aten::max_pool3d_with_indices_backward")
def _max_pool_backward(node: Node) -> Value:
    x = node["self"]
    n = 3 if "3d" in node.name else 2
    for d in _plane_dims(x, n):
        x = prefix(x, d)
    grad, index = node["grad_output"], node["indices"]
    for d in range(x.ndim):
        grad, index = aligned(grad, d, index, d)
    for d in range(x.ndim - n):
        grad, index = layout.along(grad, d, x.dims[d]), layout.along(index, d, x.dims[d])
    grad = layout.mask(grad, range(grad.ndim), 0)
    at = layout.mask(index, range(index.ndim), 0)
    if _varies(x, n):
        at = layout.with_dims(_reindexed(at, x, n, to_memory=True), at.dims)
    return layout.with_dims(node.emit({"self": x, "grad_output": grad, "indices": at}), x.dims)


def _window_lengths(node: Node, x: Value, n: int, out: tuple[int, ...], dtype: torch.dtype) -> Value:
    """(*out,): how many elements each window of an average counts."""
    kernel, padding = _each(node["kernel_size"], n), _each(node["padding"], n)
    stride = _each(node["stride"], n) if node["stride"] else kernel
    total = hlo.full(out, 1, torch.int64)
    for i in range(n):
        size = hlo.broadcast_to(value_of(size_of(x.dims[x.ndim - n + i])), out)
        start = hlo.iota(out, i, torch.int64) * stride[i] - padding[i]
        end = hlo.minimum(start + kernel[i], size + padding[i])
        if not node["count_include_pad"]:
            start, end = hlo.maximum(start, 0), hlo.minimum(end, size)
        total = total * hlo.maximum(end - start, 1)
    return hlo.convert(total, dtype)


def _each(xs: Sequence[int], n: int) -> list[int]:
    return list(xs) * n if len(xs) == 1 else list(xs)


@rule("aten::avg_pool2d", "aten::avg_pool3d")
def _avg_pool(node: Node) -> Value:
    x, n = _spatial(node)
    dims = _result_dims(node, x, n)
    x = layout.mask(x, _plane_dims(x, n), 0)
    if not _varies(x, n) or node["divisor_override"] is not None:
        return layout.with_dims(node.emit({"self": x}), dims)
    inner = compute_dtype(x.dtype)
    wide = layout.with_dims(hlo.convert(layout.physical(x), inner), x.dims)
    total = node.emit({"self": wide, "divisor_override": 1})
    lengths = _window_lengths(node, x, n, total.shape[-n:], inner)
    return layout.with_dims(hlo.convert(total / hlo.broadcast_to(lengths, total.shape), x.dtype), dims)


@rule("aten::avg_pool2d_backward", "aten::avg_pool3d_backward")
def _avg_pool_backward(node: Node) -> Value:
    x, grad, n = node["self"], node["grad_output"], 3 if "3d" in node.name else 2
    for d in range(x.ndim):
        if d < x.ndim - n:
            x, grad = aligned(x, d, grad, d)
        else:
            x, grad = prefix(x, d), prefix(grad, d)
    grad = layout.mask(grad, _plane_dims(grad, n), 0)
    changed: dict[str, Any] = {"self": x, "grad_output": grad}
    if _varies(x, n) and node["divisor_override"] is None:
        inner = compute_dtype(grad.dtype)
        wide = hlo.convert(layout.physical(grad), inner)
        wide = wide / hlo.broadcast_to(_window_lengths(node, x, n, wide.shape[-n:], inner), wide.shape)
        changed |= {"grad_output": hlo.convert(wide, grad.dtype), "divisor_override": 1}
    return layout.with_dims(node.emit(changed), x.dims)


def _weights(d: Dim, out: int) -> tuple[Value, Value]:
    """bool (out, bound) and float64 (out, 1): the windows of adaptive pooling over a dimension, and their lengths."""
    shape = (out, d.bound)
    size = hlo.broadcast_to(value_of(size_of(d)), shape)
    i, j = (hlo.iota(shape, k, torch.int64) for k in range(2))
    start, end = hlo.divide(i * size, out), hlo.divide((i + 1) * size + (out - 1), out)
    lengths = hlo.convert(hlo.slice_dim(end - start, 1, 0, 1), torch.float64)
    return hlo.ge(j, start) & hlo.lt(j, end), lengths


@rule("aten::_adaptive_avg_pool2d", "aten::_adaptive_avg_pool3d", "aten::adaptive_avg_pool1d")
def _adaptive_avg_pool(node: Node) -> Value:
    """A product with a matrix of window weights along each varying dimension; the row does the others."""
    x, n = _spatial(node)
    wanted = list(node["output_size"])
    if not all(isinstance(k, int) for k in wanted):
        raise NeedsExact(f"{node.name} to a varying size")
    if not _varies(x, n):
        return layout.with_dims(node.emit(), [*x.dims[: x.ndim - n], *map(Dim.static, wanted)])
    inner = compute_dtype(x.dtype)
    values = layout.with_dims(hlo.convert(layout.physical(layout.mask(x, _plane_dims(x, n), 0)), inner), x.dims)
    for k, d in zip(wanted, _plane_dims(x, n), strict=True):
        inside, lengths = _weights(values.dims[d], k)
        weights = hlo.convert(inside, inner) / hlo.broadcast_to(hlo.convert(lengths, inner), inside.shape)
        dims = [*values.dims[:d], Dim.static(k), *values.dims[d + 1 :]]
        product = hlo.dot_general(layout.physical(values), weights, ([d], [1]))
        order = [*range(d), values.ndim - 1, *range(d, values.ndim - 1)]
        values = layout.with_dims(hlo.permute(product, order), dims)
    return layout.with_dims(hlo.convert(layout.physical(values), x.dtype), values.dims)


@rule("aten::_adaptive_avg_pool2d_backward", "aten::_adaptive_avg_pool3d_backward")
def _adaptive_avg_pool_backward(node: Node) -> Value:
    """The products with the transposed matrices."""
    grad, x, n = node["grad_output"], node["self"], 3 if "3d" in node.name else 2
    if any(d.padded for d in grad.dims[grad.ndim - n :]):
        raise NeedsExact(f"{node.name} to a varying size")
    for d in range(x.ndim - n):
        grad = layout.along(grad, d, x.dims[d])
    inner = compute_dtype(grad.dtype)
    values = hlo.convert(layout.physical(grad), inner)
    for d in _plane_dims(x, n):
        x = prefix(x, d)
        inside, lengths = _weights(x.dims[d], values.shape[d])
        weights = hlo.convert(inside, inner) / hlo.broadcast_to(hlo.convert(lengths, inner), inside.shape)
        product = hlo.dot_general(values, weights, ([d], [0]))
        values = hlo.permute(product, [*range(d), values.ndim - 1, *range(d, values.ndim - 1)])
    return layout.with_dims(hlo.convert(values, grad.dtype), x.dims)


def _pairs(x: Value, amounts: Sequence[Any]) -> list[tuple[int, Any, Any]]:
    """(dimension, before, behind) of F.pad's list."""
    return [(x.ndim - 1 - i, amounts[2 * i], amounts[2 * i + 1]) for i in range(len(amounts) // 2)]


@rule("aten::constant_pad_nd")
def _constant_pad(node: Node) -> Value:
    x = node["self"]
    for d, low, high in _pairs(x, node["pad"]):
        if low == 0 and high == 0:
            continue
        x = prefix(x, d)
        dim, size = dim_of(node.sizes[0][d]), value_of(size_of(x.dims[d]))
        at = hlo.iota((dim.bound,), 0, torch.int64) - hlo.broadcast_to(value_of(low), (dim.bound,))
        inside = hlo.ge(at, 0) & hlo.lt(at, hlo.broadcast_to(size, at.shape))
        moved = layout.picked(x, d, at, dim)
        fill = hlo.broadcast_to(hlo.convert(hlo.as_value(node["value"]), x.dtype), moved.shape)
        kept = hlo.select(hlo.broadcast_in_dim(inside, moved.shape, [d]), layout.physical(moved), fill)
        x = layout.with_dims(kept, moved.dims)
    return x


@rule(
    "aten::reflection_pad1d", "aten::reflection_pad2d", "aten::reflection_pad3d",
    "aten::replication_pad1d", "aten::replication_pad2d", "aten::replication_pad3d",
)  # fmt: skip
def _edge_pad(node: Node) -> Value:
    x = node["self"]
    for d, low, high in _pairs(x, node["padding"]):
        if low == 0 and high == 0:
            continue
        x = prefix(x, d)
        dim = dim_of(node.sizes[0][d])
        last = hlo.broadcast_to(value_of(size_of(x.dims[d])) - 1, (dim.bound,))
        at = hlo.iota((dim.bound,), 0, torch.int64) - hlo.broadcast_to(value_of(low), (dim.bound,))
        if "reflection" in node.name:
            at = hlo.abs_(at)
            at = last - hlo.abs_(last - at)
        else:
            at = hlo.maximum(hlo.minimum(at, last), 0)
        x = layout.picked(x, d, at, dim)
    return x


@rule("aten::unfold")
def _unfold(node: Node) -> Value:
    """out[.., w, .., k] = self[.., w * step + k, ..]."""
    x, size, step = node["self"], node["size"], node["step"]
    if not x.ndim or not isinstance(size, int) or not isinstance(step, int):
        raise NeedsExact(f"{node.name} by a varying size")
    d = axis(node["dimension"], x.ndim)
    x = prefix(x, d)
    dim = dim_of(node.sizes[0][d])
    shape = (dim.bound, size)
    at = hlo.iota(shape, 0, torch.int64) * step + hlo.iota(shape, 1, torch.int64)
    taken = hlo.take_rows(layout.physical(x), hlo.clamp(0, at, max(x.shape[d] - 1, 0)), d)
    order = [i for i in range(taken.ndim) if i != d + 1] + [d + 1]
    dims = [*x.dims[:d], dim, *x.dims[d + 1 :], Dim.static(size)]
    return layout.with_dims(hlo.permute(taken, order), dims)
