"""Reading a view out of its storage's flat value, and writing one back.

Three forms, the same for both directions (XLA updates in place only then):
whole    the view covers the storage densely: reshape and transpose;
block    nested strides: the storage reshaped to the strides' chain, one dynamic slice;
points   anything else: gather or scatter over linear indices.
The offset is a run-time operand in the last two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import real_of
from torch_neuronx.lowering.value import Value


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes and strides of a view, in elements of its dtype."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def numel(self) -> int:
        return math.prod(self.sizes)

    @property
    def order(self) -> list[int]:
        """Dimensions from outermost to innermost in memory; ties keep torch's order."""
        return sorted(range(len(self.sizes)), key=lambda d: (-self.strides[d], d))

    @property
    def dense(self) -> bool:
        """Non-overlapping and without holes."""
        expected = 1
        for d in sorted((d for d, n in enumerate(self.sizes) if n != 1), key=lambda d: self.strides[d]):
            if self.strides[d] != expected:
                return False
            expected *= self.sizes[d]
        return True

    @property
    def row_major(self) -> bool:
        """What torch calls contiguous."""
        expected = 1
        for n, stride in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            if n != 1 and stride != expected:
                return self.numel == 0
            expected *= n
        return True

    @property
    def extent(self) -> int:
        """Elements from the first to the last one touched."""
        if self.numel == 0:
            return 0
        return 1 + sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True))


def contiguous_strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(sizes):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def packed(sizes: tuple[int, ...], order: Sequence[int]) -> tuple[int, ...]:
    """Strides without holes, with dimensions in memory in this order, outermost first."""
    strides, step = [0] * len(sizes), 1
    for d in reversed(order):
        strides[d] = step
        step *= sizes[d]
    return tuple(strides)


def moving_dims(layout: Layout) -> list[int]:
    """Dimensions that step through memory, outermost first (extent 1 and stride 0 do not)."""
    return [d for d in layout.order if layout.sizes[d] != 1 and layout.strides[d] != 0]


def block_chain(layout: Layout, storage_numel: int) -> list[int] | None:
    """The moving dimensions when their strides nest and divide the storage, else None."""
    dims = moving_dims(layout)
    above = storage_numel
    for d in dims:
        stride = layout.strides[d]
        if stride <= 0 or above % stride or (above == stride and above != storage_numel):
            return None
        above = stride
    return dims


def block_fits(layout: Layout, storage_numel: int, offset: int) -> bool:
    """Whether the block form reads the right elements for this offset (no row wraps).

    The core computes the same bit for its key: keep csrc/dispatch/view_key.cpp in step.
    """
    dims = block_chain(layout, storage_numel)
    if dims is None:
        return False
    above, rest = storage_numel, offset
    for d in dims:
        stride = layout.strides[d]
        if rest // stride + layout.sizes[d] > above // stride:
            return False
        rest, above = rest % stride, stride
    return True


def read(flat: Value, layout: Layout, offset: Value | None, fits: bool) -> Value:
    """The view's value. `offset` (int64 rank 0) is None for a view that covers the storage densely."""
    if layout.numel == 0:
        return hlo.full(layout.sizes, 0, flat.dtype)
    if offset is None:
        return _from_dense(flat, layout)
    if fits:
        return _read_block(flat, layout, offset)
    return hlo.take_rows(flat, _linear(layout, layout.sizes, offset))


def write(flat: Value, layout: Layout, offset: Value | None, fits: bool, value: Value) -> Value:
    """The storage's value after the view was set to `value` (of the view's shape)."""
    if layout.numel == 0:
        return flat
    if offset is None:
        return to_dense(value, layout)
    value = _drop_broadcast(value, layout)
    if fits:
        return _write_block(flat, layout, offset, value)
    sizes = tuple(1 if s == 0 else n for n, s in zip(layout.sizes, layout.strides, strict=True))
    index = hlo.reshape(_linear(layout, sizes, offset), (math.prod(sizes), 1))
    return hlo.scatter(flat, index, hlo.flatten(value), None, update_window_dims=[], inserted=[0], scatter_map=[0])


def to_dense(value: Value, layout: Layout) -> Value:
    """Flattens a value in memory order of a dense layout."""
    return hlo.flatten(hlo.permute(value, layout.order))


def to_storage(value: Value, layout: Layout) -> Value:
    """The flat storage of a fresh tensor with this layout; holes are zero."""
    if layout.numel == 0 or layout.dense:
        return to_dense(value, layout)
    empty = hlo.full((layout.extent,), 0, value.dtype)
    return write(empty, layout, hlo.constant(0, torch.int64), False, value)


def _from_dense(flat: Value, layout: Layout) -> Value:
    order = layout.order
    stored = hlo.reshape(flat, [layout.sizes[d] for d in order])
    inverse = [order.index(d) for d in range(len(order))]
    return hlo.permute(stored, inverse)


def _block(layout: Layout, numel: int) -> tuple[list[int], list[int], list[int]]:
    """(moving dims, their strides, extents of the reshaped storage incl. the rest below the last stride)."""
    dims = moving_dims(layout)
    strides = [layout.strides[d] for d in dims]
    extents = [a // b for a, b in zip([numel, *strides], [*strides, 1], strict=True)]
    return dims, strides, extents


def _starts(strides: list[int], offset: Value) -> list[Value]:
    starts, rest = [], offset
    for s in strides:
        starts.append(hlo.divide(rest, s) if s != 1 else rest)
        rest = hlo.remainder(rest, s) if s != 1 else hlo.constant(0, torch.int64)
    return [*starts, rest]


def _read_block(flat: Value, layout: Layout, offset: Value) -> Value:
    dims, strides, extents = _block(layout, flat.numel)
    sizes = [*(layout.sizes[d] for d in dims), 1]
    block = hlo.dynamic_slice(hlo.reshape(flat, extents), _starts(strides, offset), sizes)
    moved = hlo.reshape(block, sizes[:-1])
    order = sorted(range(len(dims)), key=lambda i: dims[i])
    moved = hlo.permute(moved, order)
    return hlo.broadcast_in_dim(moved, layout.sizes, sorted(dims)) if len(dims) < len(layout.sizes) else moved


def _write_block(flat: Value, layout: Layout, offset: Value, value: Value) -> Value:
    dims, strides, extents = _block(layout, flat.numel)
    order = sorted(range(len(dims)), key=lambda i: dims[i])
    moved = hlo.reshape(value, [layout.sizes[d] for d in sorted(dims)])
    moved = hlo.permute(moved, [order.index(i) for i in range(len(dims))])
    update = hlo.reshape(moved, [*(layout.sizes[d] for d in dims), 1])
    updated = hlo.dynamic_update_slice(hlo.reshape(flat, extents), update, _starts(strides, offset))
    return hlo.reshape(updated, (flat.numel,))


def _drop_broadcast(value: Value, layout: Layout) -> Value:
    """One element of each stride-0 dimension: all of them are the same memory."""
    limits = [1 if s == 0 else n for n, s in zip(layout.sizes, layout.strides, strict=True)]
    return hlo.slice_(value, [0] * value.ndim, limits)


def _linear(layout: Layout, sizes: tuple[int, ...], offset: Value) -> Value:
    """Storage index of every element, int64, of shape `sizes`."""
    index = hlo.broadcast_to(offset, sizes)
    for d, (n, stride) in enumerate(zip(sizes, layout.strides, strict=True)):
        if n != 1 and stride:
            index = index + hlo.iota(sizes, d) * stride
    return index


def reinterpret(flat: Value, dtype: torch.dtype) -> Value:
    """The storage's bytes as another dtype (view.dtype, view_as_real, view_as_complex)."""
    if flat.dtype == dtype:
        return flat
    if flat.dtype is torch.complex32:
        return reinterpret(hlo.to_storage(flat), dtype)
    if dtype is torch.complex32:
        return hlo.from_storage(reinterpret(flat, torch.uint32), dtype)
    if flat.dtype.is_complex:
        parts = hlo.concatenate([hlo.unsqueeze(hlo.real(flat), 1), hlo.unsqueeze(hlo.imag(flat), 1)], 1)
        return reinterpret(hlo.flatten(parts), dtype)
    if dtype.is_complex:
        pairs = hlo.reshape(reinterpret(flat, real_of(dtype)), (-1, 2))
        re, im = (hlo.flatten(hlo.slice_dim(pairs, 1, i, i + 1)) for i in range(2))
        return hlo.complex_(re, im)
    if torch.bool in (flat.dtype, dtype):
        return _reinterpret_bool(flat, dtype)
    ratio = dtype.itemsize // flat.dtype.itemsize
    source = hlo.reshape(flat, (-1, ratio)) if ratio > 1 else flat
    return hlo.flatten(hlo.bitcast(source, dtype))


def _reinterpret_bool(flat: Value, dtype: torch.dtype) -> Value:
    if flat.dtype is torch.bool:
        return reinterpret(hlo.convert(flat, torch.uint8), dtype)
    return hlo.convert(reinterpret(flat, torch.uint8), torch.bool)
