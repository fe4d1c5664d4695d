"""Rules of ops that read or write where a tensor of indices says.

An index in the padding reads the first element, and writes to a row of its own behind the others, which is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sympy
import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.axes import axis
from torch_neuronx.lowering.bounds import out_of_bounds
from torch_neuronx.lowering.module import require
from torch_neuronx.lowering.padded import data_sizes, layout
from torch_neuronx.lowering.padded.rules import Node, aligned, all_prefix, prefix, rule
from torch_neuronx.lowering.padded.sizes import NeedsExact, expression, size_of, value_of
from torch_neuronx.lowering.value import Dim, Factor, Value

MASKS = (torch.bool, torch.uint8)


def checked(
    index: Value, x: Value, d: int, message: str | None, *, wrap: bool = False, error: str = "IndexError"
) -> Value:
    """Indices into dimension d of x: int64, counted from the front, 0 in the padding.

    Required to be in range, `wrap`ped or not, unless there is no message.
    """
    dims, size = index.dims, size_of(x.dims[d])
    at = layout.physical(layout.mask(hlo.convert(index, torch.int64), range(index.ndim), 0))
    n = hlo.broadcast_to(value_of(size), at.shape)
    low = -n if wrap else hlo.zeros_like(n)
    if at.numel and message is not None:
        inside = layout.with_dims(hlo.ge(at, low) & hlo.lt(at, n), dims)  # no index is, where x has no rows
        require(hlo.all_(layout.physical(layout.mask(inside, range(index.ndim), True))), error, message)
    return replace(hlo.select(hlo.lt(at, 0), at + n, at), dims=dims)


def _outside(x: Value, d: int) -> str:
    return out_of_bounds(d, size_of(x.dims[d]))


def _replaced(x: Value, d: int, dim: Dim) -> list[Dim]:
    return [*x.dims[:d], dim, *x.dims[d + 1 :]]


def with_spare(x: Value, d: int) -> Value:
    """x with one more row along d."""
    return hlo.pad(layout.physical(x), [0] * x.ndim, [1 if i == d else 0 for i in range(x.ndim)])


def without_spare(out: Value, x: Value, d: int) -> Value:
    return layout.with_dims(hlo.slice_dim(layout.physical(out), d, 0, x.shape[d]), x.dims)


@rule("aten::index_select")
def _index_select(node: Node) -> Value:
    x, index = node["self"], node["index"]
    if not x.ndim or not index.ndim:
        return node.sized(node.emit())
    d = axis(node["dim"], x.ndim)
    x, index = prefix(x, d), prefix(index, 0)
    error = "RuntimeError" if d == 1 else "IndexError"
    at = checked(index, x, d, "index_select(): index out of range in self", error=error)
    return layout.with_dims(node.emit({"self": x, "index": at}), _replaced(x, d, index.dims[0]))


@rule("aten::gather")
def _gather(node: Node) -> Value:
    x, index = node["self"], node["index"]
    if not x.ndim or not index.ndim:
        return node.sized(node.emit())
    d = axis(node["dim"], x.ndim)
    x, index = all_prefix(x), all_prefix(index)
    at = checked(index, x, d, f"gather(): {_outside(x, d)}", error="RuntimeError")
    return layout.with_dims(node.emit({"self": x, "index": at}), index.dims)


def _cut(x: Value, bounds: Sequence[int]) -> Value:
    """x, padded behind, with no more room than `bounds`."""
    dims = [
        Dim((Factor(size_of(d), b),)) if b < d.bound and d.padded else d for d, b in zip(x.dims, bounds, strict=True)
    ]
    shape = [d.bound for d in dims]
    return layout.with_dims(hlo.slice_(layout.physical(x), [0] * x.ndim, shape), dims)


@rule(
    *("aten::scatter.src", "aten::scatter.value", "aten::scatter.reduce", "aten::scatter.value_reduce"),
    *("aten::scatter_add", "aten::scatter_reduce.two"),
)
def _scatter(node: Node) -> Value:
    x, index, source = node["self"], node["index"], node.arguments.get("src")
    if not x.ndim or not index.ndim:
        return node.sized(node.emit())
    d = axis(node["dim"], x.ndim)
    x, index = all_prefix(x), all_prefix(index)
    changed: dict[str, Value] = {}
    room = [index.shape[i] if i == d else min(index.shape[i], x.shape[i]) for i in range(x.ndim)]
    if isinstance(source, Value) and source.ndim:
        changed["src"] = source = all_prefix(source)
        room = [min(a, b) for a, b in zip(room, source.shape, strict=True)]
    index = _cut(index, room)
    at = checked(index, x, d, f"scatter(): {_outside(x, d)}", error="RuntimeError")
    changed |= {"index": layout.mask(at, range(at.ndim), x.shape[d]), "self": with_spare(x, d)}
    return without_spare(node.emit(changed), x, d)


@rule(
    "aten::index_add", "aten::index_copy", "aten::index_reduce", "aten::index_fill.int_Scalar",
    "aten::index_fill.int_Tensor",
)  # fmt: skip
def _index_rows(node: Node) -> Value:
    x, index = node["self"], node["index"]
    if not x.ndim or not index.ndim:
        return node.sized(node.emit())
    d = axis(node["dim"], x.ndim)
    x, index = prefix(x, d), prefix(index, 0)
    changed: dict[str, Value] = {}
    source = node.arguments.get("source")
    if isinstance(source, Value) and source.ndim == x.ndim:
        source, index = aligned(source, d, index, 0)
        for i in (i for i in range(x.ndim) if i != d):
            x, source = aligned(x, i, source, i)
        changed["source"] = source
    name = node.name.removeprefix("aten::").partition(".")[0]
    at = checked(index, x, d, f"{name}_(): {_outside(x, d)}", wrap=name == "index_fill")
    changed |= {"index": layout.mask(at, [0], x.shape[d]), "self": with_spare(x, d)}
    return without_spare(node.emit(changed), x, d)


def _one_dimension(x: Value) -> Value:
    total: Any = math.prod([sympy.sympify(n) for n in layout.sizes_of(x)])
    return layout.regroup(x, [expression(total)])


@rule("aten::take")
def _take(node: Node) -> Value:
    flat, index = prefix(_one_dimension(node["self"]), 0), node["index"]
    at = checked(index, flat, 0, f"take(): {_outside(flat, 0)}", wrap=True)
    return layout.with_dims(node.emit({"self": flat, "index": at}), index.dims)


@rule("aten::put")
def _put_flat(node: Node) -> Value:
    x, index, source = node["self"], prefix(_one_dimension(node["index"]), 0), _one_dimension(node["source"])
    flat = prefix(_one_dimension(x), 0)
    index, source = aligned(index, 0, source, 0)
    at = layout.mask(checked(index, flat, 0, f"put_(): {_outside(flat, 0)}", wrap=True), [0], flat.shape[0])
    out = node.emit({"self": with_spare(flat, 0), "index": at, "source": source})
    return layout.regroup(without_spare(out, flat, 0), layout.sizes_of(x))


def _entries(node: Node, x: Value, check: bool) -> tuple[Value, dict[int, Value], tuple[Dim, ...]]:
    """x padded behind where it is indexed, the indices by dimension, checked, and the dimensions they have together."""
    listed = node["indices"]
    if any(i is not None and i.dtype in MASKS for i in listed):
        raise NeedsExact(f"{node.name} by a mask beside other indices")
    places = [d for d, i in enumerate(listed) if i is not None]
    brought, dims = layout.broadcast([listed[d] for d in places])
    for d in places:
        x = prefix(x, d)
    entries = {
        d: checked(i, x, d, _outside(x, d) if check else None, wrap=True) for d, i in zip(places, brought, strict=True)
    }
    return x, entries, dims


def _result_dims(x: Value, entries: dict[int, Value], dims: Sequence[Dim]) -> list[Dim]:
    places = sorted(entries)
    adjacent = places == list(range(places[0], places[-1] + 1))
    first = places[0] if adjacent else 0
    kept = [x.dims[d] for d in range(x.ndim) if d not in entries]
    return [*kept[:first], *dims, *kept[first:]]


@rule("aten::index.Tensor", "aten::_unsafe_index.Tensor")
def _index(node: Node) -> Value:
    given = [(d, i) for d, i in enumerate(node["indices"]) if i is not None]
    if len(given) == 1 and given[0][1].dtype in MASKS:
        return data_sizes.chosen(node, given[0][1], given[0][0])
    x, entries, dims = _entries(node, node["self"], check=node.name == "aten::index.Tensor")
    listed = [entries.get(d) for d in range(len(node["indices"]))]
    return layout.with_dims(node.emit({"self": x, "indices": listed}), _result_dims(x, entries, dims))


@rule("aten::index_put", "aten::_unsafe_index_put", "aten::_index_put_impl")
def _index_put(node: Node) -> Value:
    given = [i for i in node["indices"] if i is not None]
    if len(given) == 1 and given[0].dtype in MASKS:
        return _put_by_mask(node, given[0])
    unsafe = node.name == "aten::_unsafe_index_put" or bool(node.arguments.get("unsafe"))
    x, entries, dims = _entries(node, node["self"], check=not unsafe)
    target, values = _result_dims(x, entries, dims), node["values"]
    for i in range(values.ndim):
        if values.dims[i].padded or values.shape[i] != 1:
            values = layout.along(values, i, target[len(target) - values.ndim + i])
    first = min(entries)
    inside = layout.with_dims(hlo.broadcast_to(layout.physical(entries[first]), [d.bound for d in dims]), dims)
    entries[first] = layout.mask(inside, range(len(dims)), x.shape[first])
    listed = [entries.get(d) for d in range(len(node["indices"]))]
    out = node.emit({"self": with_spare(x, first), "indices": listed, "values": values})
    return without_spare(out, x, first)


def _put_by_mask(node: Node, mask: Value) -> Value:
    """Values wherever the mask is set: a choice element by element."""
    x, values = node["self"], node["values"]
    first = next(d for d, i in enumerate(node["indices"]) if i is not None)
    if any(d.padded or d.bound != 1 for d in values.dims):
        return data_sizes.put_counted(node, mask, first)
    for k in range(mask.ndim):
        x, mask = aligned(x, first + k, mask, k)
    listed = [mask if i is not None else None for i in node["indices"]]
    return layout.with_dims(node.emit({"self": x, "indices": listed}), x.dims)
