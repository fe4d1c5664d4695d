"""Sorting, selection by rank, and the most frequent value.

Floats sort by an integer key of the same width: XLA has a fast path for a plain integer
comparison (5 to 10 times faster than a comparator that looks for NaN, and it keeps that speed with
one index beside the key but not with a third operand, so values are computed back from keys).
"""

from __future__ import annotations

import torch
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.axes import at_least_1d, axis, kept
from torch_neuronx.lowering.dtypes import is_complex
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.ops.arg_reduce import first_where
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value, static_dims

_KEY = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_BITS = {1: torch.int8, **_KEY}
_TOPK_SHARE = 8  # a selection of more than 1/8 of a row is sorted instead


def _fold(bits: Value) -> Value:
    """Sign-magnitude float bits <-> two's complement that orders alike; its own inverse."""
    return hlo.select(hlo.lt(bits, 0), hlo.xor(bits, torch.iinfo(bits.dtype).max), bits)


def to_key(x: Value) -> Value:
    """An integer that orders as torch does: NaN above everything, -0 equal to 0."""
    if x.dtype is torch.bool:
        return hlo.convert(x, torch.uint8)
    if is_complex(x.dtype):
        raise Unsupported("complex numbers have no order")
    if not x.dtype.is_floating_point:
        return x
    if x.dtype.itemsize == 1:
        x = hlo.convert(x, torch.float32)
    canonical = hlo.select(hlo.is_nan(x), float("nan"), hlo.select(hlo.eq(x, 0.0), 0.0, x))
    return _fold(hlo.bitcast(canonical, _KEY[x.dtype.itemsize]))


def from_key(key: Value, dtype: torch.dtype) -> Value:
    if not dtype.is_floating_point:
        return hlo.convert(key, dtype)
    wide = torch.float32 if dtype.itemsize == 1 else dtype
    return hlo.convert(hlo.bitcast(_fold(key), wide), dtype)


def sorted_keys(x: Value, dim: int, descending: bool = False) -> tuple[Value, Value]:
    """(sorted keys, int32 or int64 source positions), stable."""
    small = torch.int32 if x.shape[dim] < 2**31 else torch.int64
    less = hlo.gt if descending else hlo.lt
    key, index = hlo.sort([to_key(x), hlo.iota(x.shape, dim, small)], dim, lambda a, b, *_: less(a, b))
    return key, index


def _sorted_floats(x: Value, dim: int, descending: bool) -> tuple[Value, Value]:
    """(values, positions), stable. The key of -0 is that of 0: which of them it was goes with the position."""
    small = torch.int32 if x.shape[dim] < 2**30 else torch.int64
    negative = hlo.eq(x, 0.0) & hlo.lt(hlo.bitcast(x, _BITS[x.dtype.itemsize]), 0)
    tagged = hlo.iota(x.shape, dim, small) * 2 + hlo.convert(negative, small)
    less = hlo.gt if descending else hlo.lt
    key, tagged = hlo.sort([to_key(x), tagged], dim, lambda a, b, *_: less(a, b))
    values = hlo.select(hlo.ne(tagged & 1, 0), -0.0, from_key(key, x.dtype))
    return values, hlo.shift_right_arithmetic(tagged, 1)


@lower("aten::sort.stable")
def sort_stable(
    self: Value, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Value, Value]:
    x = at_least_1d(self)
    if self.dtype.is_floating_point:
        values, index = _sorted_floats(x, axis(dim, self.ndim), descending)
    else:
        key, index = sorted_keys(x, axis(dim, self.ndim), descending)
        values = from_key(key, self.dtype)
    return hlo.reshape(values, self.shape), hlo.reshape(hlo.convert(index, torch.int64), self.shape)


@lower("aten::sort")
def sort(self: Value, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    return sort_stable(self, dim=dim, descending=descending)


def _top_k_last(key: Value, k: int) -> tuple[Value, Value]:
    """The k greatest int32 keys along the last dimension, through XLA's float top-k, which orders by bits."""
    bits = hlo.bitcast(_fold(key), torch.float32)
    values, index = chlo.TopKOp(bits.ssa, k).results
    dims = static_dims(ir.RankedTensorType(values.type).shape)
    best = _fold(hlo.bitcast(Value(values, torch.float32, dims), torch.int32))
    return best, Value(index, torch.int32, dims)


def _narrow(dtype: torch.dtype) -> bool:
    return dtype.itemsize <= 4 and dtype is not torch.uint32


def _to_last(x: Value, dim: int) -> tuple[Value, list[int]]:
    order = [d for d in range(x.ndim) if d != dim] + [dim]
    back = [order.index(d) for d in range(x.ndim)]
    return hlo.permute(x, order), back


@lower("aten::topk")
def topk(self: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Value, Value]:
    x, d = at_least_1d(self), axis(dim, self.ndim)
    shape = [k if i == d else n for i, n in enumerate(x.shape)]
    if x.numel and 0 < k <= x.shape[d] // _TOPK_SHARE and _narrow(self.dtype):
        floating = self.dtype.is_floating_point
        wide = torch.float32 if floating else torch.int32
        rows, back = _to_last(to_key(hlo.convert(x, wide)), d)
        best, index = _top_k_last(rows if largest else hlo.not_(rows), k)
        best = best if largest else hlo.not_(best)
        best, index = hlo.permute(best, back), hlo.permute(index, back)
        values = hlo.convert(from_key(best, wide), self.dtype)
    else:
        key, index = sorted_keys(x, d, largest)
        values = from_key(hlo.slice_dim(key, d, 0, k), self.dtype)
        index = hlo.slice_dim(index, d, 0, k)
    out = shape if self.ndim else [k] if k != 1 else []
    return hlo.reshape(values, out), hlo.reshape(hlo.convert(index, torch.int64), out)


def _drop(x: Value, out: Value, dim: int, keepdim: bool, ndim: int) -> Value:
    """out (extent 1 along dim) as a reduction of x returns it."""
    shape = kept(x, [dim]) if keepdim else [n for i, n in enumerate(x.shape) if i != dim]
    return hlo.reshape(out, shape if ndim else [])


def _ranked(self: Value, k: int, dim: int, keepdim: bool, nan_wins: bool) -> tuple[Value, Value]:
    x, d = at_least_1d(self), axis(dim, self.ndim)
    key, index = sorted_keys(x, d)
    value = from_key(hlo.slice_dim(key, d, k, k + 1), self.dtype)
    place = hlo.convert(hlo.slice_dim(index, d, k, k + 1), torch.int64)
    if nan_wins and self.dtype.is_floating_point:
        nan = hlo.is_nan(x)
        has = hlo.any_(nan, d, True)
        value = hlo.select(has, float("nan"), value)
        place = hlo.select(has, first_where(nan, d), place)
    return _drop(x, value, d, keepdim, self.ndim), _drop(x, place, d, keepdim, self.ndim)


@lower("aten::kthvalue")
def kthvalue(self: Value, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    return _ranked(self, k - 1, dim, keepdim, nan_wins=False)


@lower("aten::median.dim")
def median_dim(self: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    n = self.shape[axis(dim, self.ndim)] if self.ndim else 1
    return _ranked(self, (n - 1) // 2, dim, keepdim, nan_wins=True)


@lower("aten::median")
def median(self: Value) -> Value:
    if self.numel == 0:
        return hlo.convert(hlo.constant(float("nan"), torch.float64), self.dtype)
    return median_dim(hlo.flatten(self), 0)[0]


@lower("aten::nanmedian.dim")
def nanmedian_dim(self: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    if not self.dtype.is_floating_point:
        return median_dim(self, dim, keepdim)
    x, d = at_least_1d(self), axis(dim, self.ndim)
    key, index = sorted_keys(x, d)
    present = hlo.sum_(hlo.convert(hlo.not_(hlo.is_nan(x)), torch.int64), d, True)
    rank = hlo.shift_right_arithmetic(hlo.maximum(present - 1, 0), 1)
    chosen = hlo.eq(hlo.iota(x.shape, d), rank)
    value = from_key(hlo.sum_(hlo.select(chosen, key, 0), d, True), self.dtype)
    place = hlo.convert(hlo.sum_(hlo.select(chosen, index, 0), d, True), torch.int64)
    return _drop(x, value, d, keepdim, self.ndim), _drop(x, place, d, keepdim, self.ndim)


@lower("aten::nanmedian")
def nanmedian(self: Value) -> Value:
    return median(self) if self.numel == 0 else nanmedian_dim(hlo.flatten(self), 0)[0]


def starts_run(key: Value, dim: int) -> Value:
    """True where a sorted key differs from the one before it."""
    n = key.shape[dim]
    if n == 0:
        return hlo.full(key.shape, True, torch.bool)
    changed = hlo.ne(hlo.slice_dim(key, dim, 1, n), hlo.slice_dim(key, dim, 0, n - 1))
    low = [1 if i == dim else 0 for i in range(key.ndim)]
    return hlo.pad(changed, low, [0] * key.ndim, True)


@lower("aten::mode")
def mode(self: Value, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """The most frequent value (the smallest of equals) and its last position."""
    x, d = at_least_1d(self), axis(dim, self.ndim)
    key, index = sorted_keys(x, d)
    here = hlo.iota(x.shape, d)
    start = hlo.select(starts_run(key, d), here, 0)
    start = hlo.cumulative([start], [0], d, lambda a, b: [hlo.maximum(a, b)])[0]
    length = here - start
    best = first_where(hlo.eq(length, hlo.reduce_max(length, d, True)), d)
    chosen = hlo.eq(here, best)
    value = from_key(hlo.sum_(hlo.select(chosen, key, 0), d, True), self.dtype)
    place = hlo.convert(hlo.sum_(hlo.select(chosen, index, 0), d, True), torch.int64)
    return _drop(x, value, d, keepdim, self.ndim), _drop(x, place, d, keepdim, self.ndim)
