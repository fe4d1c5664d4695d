"""Writing elements at given indices: scatter, index_add, index_copy, index_fill, put.

Updates go straight into the donated operand, so an in-place form costs what it writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.axes import at_least_1d, axis
from torch_neuronx.lowering.bounds import checked, out_of_bounds, wrapped
from torch_neuronx.lowering.dtypes import is_integral, max_value, min_value
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Scalar, Value

Combine = Callable[[Value, Value], Value]
Place = Callable[[Value, Value, Combine | None], Value]  # (operand, updates, combine) -> operand

COMBINE: dict[str, Combine] = {
    "sum": hlo.add,
    "add": hlo.add,
    "mean": hlo.add,
    "prod": hlo.multiply,
    "multiply": hlo.multiply,
    "amax": hlo.maximum,
    "amin": hlo.minimum,
}


def identity(reduce: str, dtype: torch.dtype) -> int | float | bool:
    if reduce in ("amax", "amin"):
        return min_value(dtype) if reduce == "amax" else max_value(dtype)
    return 1 if reduce in ("prod", "multiply") else 0


def scatter_elements(x: Value, dim: int, index: Value, updates: Value, combine: Combine | None) -> Value:
    """x[index[i][j]][j] = updates[i][j] for dim 0, elements in row-major order."""
    linear, stride = hlo.full(index.shape, 0, torch.int64), 1
    for d in reversed(range(x.ndim)):
        along = index if d == dim else hlo.iota(index.shape, d)
        linear, stride = linear + along * stride, stride * x.shape[d]
    flat = scatter_flat(hlo.flatten(x), hlo.flatten(linear), hlo.flatten(updates), combine)
    return hlo.reshape(flat, x.shape)


def scatter_flat(flat: Value, index: Value, updates: Value, combine: Combine | None) -> Value:
    return hlo.scatter(
        flat,
        hlo.reshape(index, (index.numel, 1)),
        updates,
        combine,
        update_window_dims=[],
        inserted=[0],
        scatter_map=[0],
    )


def scatter_blocks(x: Value, rows: Value, depth: int, updates: Value, combine: Combine | None) -> Value:
    """Writes whole blocks of the dimensions behind the first `depth`, which `rows` indexes as one.

    Index and window are kept in memory order: XLA transposes the operand of any other scatter,
    which costs a copy of it. A row out of range is dropped.
    """
    inner = math.prod(x.shape[depth:])
    index = hlo.flatten(rows)
    if inner == 1:
        return hlo.reshape(scatter_flat(hlo.flatten(x), index, hlo.flatten(updates), combine), x.shape)
    out = hlo.scatter(
        hlo.reshape(x, (math.prod(x.shape[:depth]), inner)),
        hlo.reshape(index, (index.numel, 1)),
        hlo.reshape(updates, (index.numel, inner)),
        combine,
        update_window_dims=[1],
        inserted=[0],
        scatter_map=[0],
    )
    return hlo.reshape(out, x.shape)


def scatter_rows(x: Value, dim: int, index: Value, updates: Value, combine: Combine | None) -> Value:
    """x[.., index[k], ..] = updates[.., k, ..]; an index out of range is dropped."""
    outer, n = math.prod(x.shape[:dim]), x.shape[dim]
    rows = hlo.reshape(index, (1, index.numel))
    if outer > 1:
        inside = hlo.ge(rows, 0) & hlo.lt(rows, n)
        rows = hlo.select(inside, hlo.iota((outer, index.numel), 0) * n + rows, -1)
    return scatter_blocks(x, rows, dim + 1, updates, combine)


def reduced(place: Place, x: Value, updates: Value, reduce: str, include_self: bool) -> Value:
    """A scatter reduction: `place` scatters `updates` into an operand of x's shape."""
    start = x if include_self else place(x, hlo.full_like(updates, identity(reduce, x.dtype)), None)
    total = place(start, updates, COMBINE[reduce])
    if reduce != "mean":
        return total
    count_dtype = x.dtype if x.dtype in (torch.float32, torch.float64) else torch.int64
    counts = hlo.full(x.shape, int(include_self), count_dtype)
    counts = hlo.maximum(place(counts, hlo.full(updates.shape, 1, count_dtype), hlo.add), 1)
    if is_integral(x.dtype):
        return hlo.convert(_floor_divide(hlo.convert(total, torch.int64), counts), x.dtype)
    return hlo.divide(total, hlo.convert(counts, x.dtype))


def _floor_divide(a: Value, b: Value) -> Value:
    """b > 0."""
    q = hlo.divide(a, b)
    return hlo.select(hlo.lt(a - q * b, 0), q - 1, q)


def _elements(self: Value, dim: int, index: Value) -> tuple[Value, Value, int]:
    x, i = at_least_1d(self), at_least_1d(index)
    dim = axis(dim, x.ndim)
    extent = x.shape[dim]
    return x, checked(i, extent, "RuntimeError", f"scatter(): {out_of_bounds(dim, extent)}"), dim


def _scatter(self: Value, dim: int, index: Value, src: Scalar, reduce: str | None, include_self: bool = True) -> Value:
    if not index.numel:
        return self
    x, i, dim = _elements(self, dim, index)
    if isinstance(src, Value) and (src.ndim or not index.ndim) and not src.weak:
        source = at_least_1d(src)
        updates = hlo.slice_(source, [0] * source.ndim, i.shape)
    else:
        updates = hlo.full(i.shape, hlo.as_value(src), self.dtype)

    def place(operand: Value, values: Value, combine: Combine | None) -> Value:
        return scatter_elements(operand, dim, i, values, combine)

    out = place(x, updates, None) if reduce is None else reduced(place, x, updates, reduce, include_self)
    return hlo.reshape(out, self.shape)


@lower("aten::scatter.src", "aten::scatter.value")
def scatter(self: Value, dim: int, index: Value, src: Scalar) -> Value:
    return _scatter(self, dim, index, src, None)


@lower("aten::scatter.reduce", "aten::scatter.value_reduce")
def scatter_with(self: Value, dim: int, index: Value, src: Scalar, *, reduce: str) -> Value:
    return _scatter(self, dim, index, src, reduce)


@lower("aten::scatter_add")
def scatter_add(self: Value, dim: int, index: Value, src: Value) -> Value:
    return _scatter(self, dim, index, src, "sum")


@lower("aten::scatter_reduce.two")
def scatter_reduce(self: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True) -> Value:
    return _scatter(self, dim, index, src, reduce, include_self)


def _rows(self: Value, dim: int, source: Value) -> tuple[Value, Value, int]:
    x = at_least_1d(self)
    dim = axis(dim, x.ndim)
    shape = [source.numel if x.ndim == 1 else source.shape[dim] if d == dim else n for d, n in enumerate(x.shape)]
    return x, hlo.reshape(source, shape), dim


@lower("aten::index_add")
def index_add(self: Value, dim: int, index: Value, source: Value, *, alpha: Scalar = 1) -> Value:
    if not source.numel or not self.numel:
        return self
    x, updates, dim = _rows(self, dim, source)
    i = checked(index, x.shape[dim], "IndexError", "index_add(): index out of range in self")
    updates = hlo.convert(updates, x.dtype)
    if isinstance(alpha, Value) or alpha != 1:
        updates = updates * hlo.convert(hlo.as_value(alpha), x.dtype)
    return hlo.reshape(scatter_rows(x, dim, hlo.flatten(i), updates, hlo.add), self.shape)


@lower("aten::index_copy")
def index_copy(self: Value, dim: int, index: Value, source: Value) -> Value:
    if not source.numel or not self.numel:
        return self
    x, updates, dim = _rows(self, dim, source)
    text = f"index_copy_(): {out_of_bounds(dim, x.shape[dim])}"
    i = checked(index, x.shape[dim], "IndexError", text)
    return hlo.reshape(scatter_rows(x, dim, hlo.flatten(i), updates, None), self.shape)


@lower("aten::index_fill.int_Scalar", "aten::index_fill.int_Tensor", host_inputs=True)
def index_fill(self: Value, dim: int, index: Value, value: Scalar) -> Value:
    if not index.numel or not self.numel:
        return self
    x = at_least_1d(self)
    dim = axis(dim, x.ndim)
    text = f"index_fill_(): {out_of_bounds(dim, x.shape[dim])}"
    i = wrapped(hlo.flatten(index), x.shape[dim], "IndexError", text)
    shape = [i.numel if d == dim else n for d, n in enumerate(x.shape)]
    updates = hlo.full(shape, hlo.as_value(value), x.dtype)
    return hlo.reshape(scatter_rows(x, dim, i, updates, None), self.shape)


@lower("aten::index_reduce")
def index_reduce(
    self: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    if not source.numel or not self.numel:
        return self
    x, updates, dim = _rows(self, dim, source)
    i = hlo.flatten(checked(index, x.shape[dim], "IndexError", "index_reduce(): index out of range in self"))

    def place(operand: Value, values: Value, combine: Combine | None) -> Value:
        return scatter_rows(operand, dim, i, values, combine)

    return hlo.reshape(reduced(place, x, updates, reduce, include_self), self.shape)


@lower("aten::put")
def put(self: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    if not index.numel:
        return self
    text = f"put_(): index out of range: tried to access an element of a tensor of {self.numel} elements"
    i = wrapped(hlo.flatten(index), self.numel, "IndexError", text)
    flat = scatter_flat(hlo.flatten(self), i, hlo.flatten(source), hlo.add if accumulate else None)
    return hlo.reshape(flat, self.shape)
