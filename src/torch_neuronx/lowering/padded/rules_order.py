"""Rules of ops that look at the order of elements along a dimension: padding is brought behind, and sorts last."""

from __future__ import annotations

import math
from typing import Any

import sympy
import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.axes import axis
from torch_neuronx.lowering.ops.arg_reduce import first_where
from torch_neuronx.lowering.padded import layout
from torch_neuronx.lowering.padded.rules import Mix, Node, least, mixing, prefix, rule
from torch_neuronx.lowering.padded.sizes import NeedsExact, bound_of, dim_of, expression, size_of, value_of
from torch_neuronx.lowering.value import Dim, Scalar, Value


def last_of_all(dtype: torch.dtype) -> Scalar:
    """What no value of a dtype sorts behind: NaN for floats. Sorting is stable, so padding comes behind its equals."""
    if dtype is torch.bool:
        return True
    return float("nan") if dtype.is_floating_point else torch.iinfo(dtype).max


def _sortable(node: Node, descending: bool) -> tuple[Value, int]:
    """`self` with padding that sorts last, and the dimension."""
    x = node["self"]
    if x.dtype.is_complex:
        raise NeedsExact(f"{node.name} of complex numbers")
    d = axis(node["dim"], x.ndim) if x.ndim else 0
    if x.ndim:
        x = prefix(x, d)
        x = layout.mask(x, [d], least(x.dtype) if descending else last_of_all(x.dtype))
    return x, d


@rule("aten::sort", "aten::sort.stable")
def _sort(node: Node) -> tuple[Value, ...]:
    x, _ = _sortable(node, bool(node["descending"]))
    return tuple(layout.with_dims(r, x.dims) for r in node.emit({"self": x}))


@rule("aten::topk")
def _topk(node: Node) -> tuple[Value, ...]:
    x, d = _sortable(node, bool(node["largest"]))
    k = node["k"]
    results = node.emit({"self": x, "k": min(bound_of(k), x.shape[d]) if x.ndim else k})
    if not x.ndim:
        return tuple(results)
    dim = dim_of(k)
    room = [dim.bound - x.shape[d] if i == d else 0 for i in range(x.ndim)]
    wide = (hlo.pad(r, [0] * r.ndim, room) if dim.bound > x.shape[d] else r for r in results)
    return tuple(layout.with_dims(r, [*x.dims[:d], dim, *x.dims[d + 1 :]]) for r in wide)


def _at_rank(node: Node, x: Value, d: int, rank: Value) -> tuple[Value, Value]:
    """Value and position of the element of a rank, extent 1 along d; NaN, when there is one, for the median."""
    from torch_neuronx.lowering.ops.sort import from_key, sorted_keys

    key, index = sorted_keys(layout.physical(x), d)
    at = [rank if i == d else 0 for i in range(x.ndim)]
    one = [1 if i == d else n for i, n in enumerate(x.shape)]
    return from_key(hlo.dynamic_slice(key, at, one), x.dtype), hlo.convert(
        hlo.dynamic_slice(index, at, one), torch.int64
    )


@rule("aten::kthvalue", "aten::median.dim")
def _ranked(node: Node) -> tuple[Value, ...]:
    x, d = _sortable(node, descending=False)
    if not x.ndim:
        return tuple(node.emit({"self": x}))
    middle = hlo.divide(value_of(size_of(x.dims[d])) - 1, 2)
    rank = value_of(node["k"] - 1) if node.name == "aten::kthvalue" else middle
    value, place = _at_rank(node, x, d, rank)
    if node.name != "aten::kthvalue" and x.dtype.is_floating_point:
        nan = hlo.is_nan(layout.physical(layout.mask(x, [d], 0)))
        has = hlo.any_(nan, d, True)
        value, place = hlo.select(has, float("nan"), value), hlo.select(has, first_where(nan, d), place)
    rest = [Dim.static(1)] if node["keepdim"] else []
    if not node["keepdim"]:
        value, place = hlo.squeeze(value, d), hlo.squeeze(place, d)
    return tuple(layout.with_dims(r, [*x.dims[:d], *rest, *x.dims[d + 1 :]]) for r in (value, place))


@rule("aten::nanmedian.dim")
def _nanmedian(node: Node) -> tuple[Value, ...]:
    """The row ranks among what is not NaN, and padding is."""
    if not node["self"].dtype.is_floating_point:
        return _ranked(node)
    x, _ = _sortable(node, descending=False)
    return node.sized(node.emit({"self": x}))


@rule("aten::median", "aten::nanmedian")
def _median_of_all(node: Node) -> Value:
    x = node["self"]
    total: Any = math.prod([sympy.sympify(n) for n in layout.sizes_of(x)])
    flat = layout.regroup(x, [expression(total)])
    inner = Node(f"{node.name}.dim", getattr(torch.ops.aten, node.name.removeprefix("aten::")).dim, {}, [[], []])
    inner.arguments = {"self": flat, "dim": 0, "keepdim": False}
    return (_ranked if node.name == "aten::median" else _nanmedian)(inner)[0]


@mixing("aten::searchsorted.Tensor", "aten::searchsorted.Scalar", "aten::bucketize.Tensor", "aten::bucketize.Scalar")
def _search(node: Node) -> list[Mix]:
    name = "boundaries" if "boundaries" in node.arguments else "sorted_sequence"
    return [(name, [node[name].ndim - 1], None)]


@rule("aten::flip")
def _flip(node: Node) -> Value:
    x = node["self"]
    for d in (axis(d, x.ndim) for d in node["dims"]) if x.ndim else ():
        x = prefix(x, d)
        if not x.dims[d].padded:
            x = layout.with_dims(hlo.reverse(layout.physical(x), [d]), x.dims)
            continue
        start = hlo.constant(x.shape[d], torch.int64) - value_of(size_of(x.dims[d]))
        turned = layout.with_dims(hlo.reverse(layout.physical(x), [d]), x.dims)
        x = layout.with_dims(layout.window(turned, d, start, x.shape[d]), x.dims)
    return x


@rule("aten::roll")
def _roll(node: Node) -> Value:
    x, shifts, dims = node["self"], node["shifts"], node["dims"]
    if not dims:
        total: Any = math.prod([sympy.sympify(n) for n in layout.sizes_of(x)])
        flat = layout.regroup(x, [expression(total)])
        return layout.regroup(_rolled(flat, shifts[0], 0), layout.sizes_of(x))
    for shift, d in zip(shifts, dims, strict=True):
        x = _rolled(x, shift, axis(d, x.ndim))
    return x


def _rolled(x: Value, shift: Any, d: int) -> Value:
    x = prefix(x, d)
    n = hlo.maximum(value_of(size_of(x.dims[d])), hlo.constant(1, torch.int64))
    first = hlo.remainder(hlo.remainder(n - hlo.remainder(value_of(shift), n), n) + n, n)
    place = hlo.iota((x.shape[d],), 0, torch.int64)
    return layout.picked(x, d, hlo.remainder(place + first, n), x.dims[d])
