"""Views on values: metadata in eager mode, slices and reshapes inside programs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from torch_neuronx.lowering import hlo, views
from torch_neuronx.lowering.axes import axis
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value


@lower("aten::view", "aten::_unsafe_view", "aten::reshape", "aten::view_copy", "aten::_reshape_copy", bind=False)
def view(self: Value, size: Sequence[int]) -> Value:
    return hlo.reshape(self, size)


@lower("aten::_reshape_alias", bind=False)
def reshape_alias(self: Value, size: Sequence[int], stride: Sequence[int]) -> Value:
    return hlo.reshape(self, size)


@lower("aten::view.dtype", "aten::view_copy.dtype", bind=False)
def view_dtype(self: Value, dtype: torch.dtype) -> Value:
    if not self.ndim:
        return hlo.reshape(views.reinterpret(hlo.flatten(self), dtype), ())
    shape = (*self.shape[:-1], self.shape[-1] * self.dtype.itemsize // dtype.itemsize)
    if not self.numel:
        return hlo.full(shape, 0, dtype)
    return hlo.reshape(views.reinterpret(hlo.flatten(self), dtype), shape)


@lower("aten::view_as_real", "aten::view_as_real_copy", bind=False)
def view_as_real(self: Value) -> Value:
    return hlo.concatenate([hlo.unsqueeze(part(self), -1) for part in (hlo.real, hlo.imag)], self.ndim)


@lower("aten::view_as_complex", "aten::view_as_complex_copy", bind=False)
def view_as_complex(self: Value) -> Value:
    re, im = (hlo.squeeze(hlo.slice_dim(self, -1, i, i + 1), -1) for i in range(2))
    return hlo.complex_(re, im)


@lower("aten::_conj", "aten::_conj_copy", bind=False)
def conj(self: Value) -> Value:
    if not self.dtype.is_complex:
        return self
    return hlo.complex_(hlo.real(self), hlo.negate(hlo.imag(self)))


@lower("aten::_neg_view", "aten::_neg_view_copy", bind=False)
def neg_view(self: Value) -> Value:
    return hlo.negate(self)


@lower(
    "aten::alias",
    "aten::alias_copy",
    "aten::detach",
    "aten::detach_copy",
    "aten::lift",
    "aten::lift_fresh",
    "aten::lift_fresh_copy",
    bind=False,
)
def alias(self: Value) -> Value:
    return self


@lower("aten::expand", "aten::expand_copy", bind=False)
def expand(self: Value, size: Sequence[int], *, implicit: bool = False) -> Value:
    new = len(size) - self.ndim
    return hlo.broadcast_to(self, [self.shape[i - new] if n == -1 else n for i, n in enumerate(size)])


@lower("aten::permute", "aten::permute_copy", bind=False)
def permute(self: Value, dims: Sequence[int]) -> Value:
    return hlo.permute(self, dims)


@lower("aten::transpose.int", "aten::transpose_copy.int", bind=False)
def transpose(self: Value, dim0: int, dim1: int) -> Value:
    order = list(range(self.ndim))
    if not order:
        return self
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return hlo.permute(self, order)


@lower("aten::t", "aten::t_copy", bind=False)
def t(self: Value) -> Value:
    return self if self.ndim < 2 else hlo.permute(self, [1, 0])


@lower("aten::squeeze", "aten::squeeze_copy", bind=False)
def squeeze(self: Value) -> Value:
    return hlo.reshape(self, [n for n in self.shape if n != 1])


@lower("aten::squeeze.dim", "aten::squeeze_copy.dim", bind=False)
def squeeze_dim(self: Value, dim: int) -> Value:
    return squeeze_dims(self, [dim])


@lower("aten::squeeze.dims", "aten::squeeze_copy.dims", bind=False)
def squeeze_dims(self: Value, dim: Sequence[int]) -> Value:
    drop = {axis(d, self.ndim) for d in dim}
    return hlo.reshape(self, [n for i, n in enumerate(self.shape) if n != 1 or i not in drop])


@lower("aten::unsqueeze", "aten::unsqueeze_copy", bind=False)
def unsqueeze(self: Value, dim: int) -> Value:
    return hlo.unsqueeze(self, dim)


def slice_bounds(extent: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Python's clamping of start:end for one dimension."""
    low, high, _ = slice(start, end).indices(extent)
    return low, max(low, high)


@lower("aten::slice.Tensor", "aten::slice_copy.Tensor", bind=False)
def slice_(self: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Value:
    low, high = slice_bounds(self.shape[dim], start, end)
    return hlo.slice_dim(self, dim, low, high, step)


@lower("aten::narrow_copy", bind=False)
def narrow(self: Value, dim: int, start: int, length: int) -> Value:
    start = start + self.shape[dim] if start < 0 else start
    return hlo.slice_dim(self, dim, start, start + length)


@lower("aten::select.int", "aten::select_copy.int", bind=False)
def select(self: Value, dim: int, index: int) -> Value:
    index %= self.shape[dim]
    return hlo.squeeze(hlo.slice_dim(self, dim, index, index + 1), dim)


@lower("aten::split.Tensor", "aten::split_copy.Tensor", "aten::unsafe_split.Tensor", bind=False)
def split(self: Value, split_size: int, dim: int = 0) -> list[Value]:
    extent = self.shape[dim]
    if not extent:
        return [self]
    starts = range(0, extent, split_size)
    return [hlo.slice_dim(self, dim, i, min(i + split_size, extent)) for i in starts]


@lower("aten::split_with_sizes", "aten::split_with_sizes_copy", "aten::unsafe_split_with_sizes", bind=False)
def split_with_sizes(self: Value, split_sizes: Sequence[int], dim: int = 0) -> list[Value]:
    parts, start = [], 0
    for n in split_sizes:
        parts.append(hlo.slice_dim(self, dim, start, start + n))
        start += n
    return parts


@lower("aten::unbind.int", "aten::unbind_copy.int", bind=False)
def unbind(self: Value, dim: int = 0) -> list[Value]:
    return [select(self, dim, i) for i in range(self.shape[dim])]


@lower("aten::unfold", "aten::unfold_copy", bind=False)
def unfold(self: Value, dimension: int, size: int, step: int) -> Value:
    """out[.., w, .., k] = self[.., w * step + k, ..]."""
    x = self if self.ndim else hlo.reshape(self, (1,))
    dim = axis(dimension, x.ndim)
    count = (x.shape[dim] - size) // step + 1
    if not self.ndim:
        return hlo.reshape(self, (size,))
    if step >= size:
        return _disjoint_windows(x, dim, size, step, count)
    starts = hlo.reshape(hlo.iota((count,), 0) * step, (count, 1))
    sizes = [size if i == dim else n for i, n in enumerate(x.shape)]
    offsets = [i for i in range(x.ndim + 1) if i != dim]
    windows = hlo.gather(
        x, starts, offset_dims=offsets, collapsed=[], index_map=[dim], slice_sizes=sizes, sorted_indices=True
    )
    order = [i for i in range(x.ndim + 1) if i != dim + 1]
    return hlo.permute(windows, [*order, dim + 1])


def _disjoint_windows(x: Value, dim: int, size: int, step: int, count: int) -> Value:
    whole = hlo.pad(x, [0] * x.ndim, [count * step - x.shape[dim] if i == dim else 0 for i in range(x.ndim)])
    split_shape = (*x.shape[:dim], count, step, *x.shape[dim + 1 :])
    windows = hlo.slice_dim(hlo.reshape(whole, split_shape), dim + 1, 0, size)
    order = [i for i in range(x.ndim + 1) if i != dim + 1]
    return hlo.permute(windows, [*order, dim + 1])


def diagonal_extent(rows: int, columns: int, offset: int) -> int:
    return max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))


@lower("aten::diagonal", "aten::diagonal_copy", bind=False)
def diagonal(self: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """A strided slice of the flattened matrices: neighbours on a diagonal are columns + 1 apart."""
    dim1, dim2 = dim1 % self.ndim, dim2 % self.ndim
    rest = [i for i in range(self.ndim) if i not in (dim1, dim2)]
    x = hlo.permute(self, [*rest, dim1, dim2])
    *batch, rows, columns = x.shape
    n = diagonal_extent(rows, columns, offset)
    if not n:
        return hlo.full((*batch, 0), 0, x.dtype)
    first = offset if offset >= 0 else -offset * columns
    flat = hlo.reshape(x, (*batch, rows * columns))
    return hlo.slice_dim(flat, -1, first, first + (n - 1) * (columns + 1) + 1, columns + 1)


@lower("aten::as_strided", "aten::as_strided_copy", bind=False)
def as_strided(self: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Value:
    """Values are contiguous inside a program, so the strides are those of the row-major order."""
    layout = views.Layout(tuple(size), tuple(stride))
    start = storage_offset or 0
    fits = views.block_fits(layout, self.numel, start)
    return views.read(hlo.flatten(self), layout, hlo.constant(start, torch.int64), fits)


@lower("aten::as_strided_scatter", bind=False)
def as_strided_scatter(
    self: Value, src: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Value:
    layout = views.Layout(tuple(size), tuple(stride))
    start = storage_offset or 0
    fits = views.block_fits(layout, self.numel, start)
    update = hlo.broadcast_to(hlo.convert(src, self.dtype), layout.sizes)
    flat = views.write(hlo.flatten(self), layout, hlo.constant(start, torch.int64), fits, update)
    return hlo.reshape(flat, self.shape)


@lower("aten::slice_scatter")
def slice_scatter(
    self: Value, src: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    dim = dim % self.ndim
    low, high = slice_bounds(self.shape[dim], start, end)
    count = -(-(high - low) // step)
    shape = [count if i == dim else n for i, n in enumerate(self.shape)]
    if not math.prod(shape):
        return self
    update = hlo.broadcast_to(hlo.convert(src, self.dtype), shape)
    if step == 1 or count == 1:
        return hlo.dynamic_update_slice(self, update, [low if i == dim else 0 for i in range(self.ndim)])
    spread = _spread(update, dim, low, step, self.shape[dim])
    position = hlo.iota(self.shape, dim) - low
    inside = hlo.ge(position, 0) & hlo.lt(position, high - low) & hlo.eq(hlo.remainder(position, step), 0)
    return hlo.select(inside, spread, self)


def _spread(x: Value, dim: int, start: int, step: int, extent: int) -> Value:
    """Places x at start, start + step, ... of a zero dimension of `extent`."""
    end = start + (x.shape[dim] - 1) * step + 1
    low, high, inner = ([n if i == dim else 0 for i in range(x.ndim)] for n in (start, extent - end, step - 1))
    return hlo.pad(x, low, high, 0, inner)


@lower("aten::slice_backward")
def slice_backward(grad_output: Value, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Value:
    if not grad_output.numel:
        return hlo.full(tuple(input_sizes), 0, grad_output.dtype)
    dim = dim % len(input_sizes)
    low, _ = slice_bounds(input_sizes[dim], start, end)
    return _spread(grad_output, dim, low, step, input_sizes[dim])


@lower("aten::select_scatter")
def select_scatter(self: Value, src: Value, dim: int, index: int) -> Value:
    dim = dim % self.ndim
    update = hlo.broadcast_to(hlo.convert(src, self.dtype), [n for i, n in enumerate(self.shape) if i != dim])
    starts = [index % self.shape[dim] if i == dim else 0 for i in range(self.ndim)]
    return hlo.dynamic_update_slice(self, hlo.unsqueeze(update, dim), starts)


@lower("aten::select_backward")
def select_backward(grad_output: Value, input_sizes: Sequence[int], dim: int, index: int) -> Value:
    dim = dim % len(input_sizes)
    return _spread(hlo.unsqueeze(grad_output, dim), dim, index % input_sizes[dim], 1, input_sizes[dim])


def embed_diagonal(x: Value, rows: int, columns: int, offset: int) -> Value:
    """Matrices (*, rows, columns) of zeros with the last dimension of x on their diagonal."""
    batch = x.shape[:-1]
    if not x.numel:
        return hlo.full((*batch, rows, columns), 0, x.dtype)
    first = offset if offset >= 0 else -offset * columns
    return hlo.reshape(_spread(x, x.ndim - 1, first, columns + 1, rows * columns), (*batch, rows, columns))


def _matrices_last(ndim: int, dim1: int, dim2: int) -> tuple[list[int], list[int]]:
    """(order that moves dim1, dim2 to the end, its inverse)."""
    order = [i for i in range(ndim) if i not in (dim1, dim2)] + [dim1, dim2]
    return order, [order.index(i) for i in range(ndim)]


@lower("aten::diagonal_backward")
def diagonal_backward(grad_output: Value, input_sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> Value:
    dim1, dim2 = dim1 % len(input_sizes), dim2 % len(input_sizes)
    _, inverse = _matrices_last(len(input_sizes), dim1, dim2)
    return hlo.permute(embed_diagonal(grad_output, input_sizes[dim1], input_sizes[dim2], offset), inverse)


@lower("aten::diagonal_scatter")
def diagonal_scatter(self: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    spread = diagonal_backward(hlo.convert(src, self.dtype), self.shape, offset, dim1, dim2)
    on_diagonal = hlo.eq(hlo.iota(self.shape, dim2 % self.ndim) - hlo.iota(self.shape, dim1 % self.ndim), offset)
    return hlo.select(on_diagonal, spread, self)


@lower("aten::diag_embed")
def diag_embed(self: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    n, ndim = self.shape[-1] + abs(offset), self.ndim + 1
    _, inverse = _matrices_last(ndim, dim1 % ndim, dim2 % ndim)
    return hlo.permute(embed_diagonal(self, n, n, offset), inverse)


@lower("aten::unfold_backward")
def unfold_backward(grad_in: Value, input_sizes: Sequence[int], dim: int, size: int, step: int) -> Value:
    """Adds overlapping windows: each is cut into pieces of `step`, and pieces at one place are summed."""
    if not input_sizes:
        return hlo.reshape(grad_in, ())
    dim, count = dim % len(input_sizes), grad_in.shape[dim % len(input_sizes)]
    order = [*range(dim + 1), grad_in.ndim - 1, *range(dim + 1, grad_in.ndim - 1)]
    windows = hlo.permute(hlo.convert(grad_in, torch.float32) if grad_in.dtype.itemsize < 4 else grad_in, order)
    pieces = -(-size // step)
    fill = [pieces * step - size if i == dim + 1 else 0 for i in range(windows.ndim)]
    windows = hlo.pad(windows, [0] * windows.ndim, fill)
    total: Value | None = None
    for k in range(pieces):
        piece = hlo.slice_dim(windows, dim + 1, k * step, (k + 1) * step)
        low, high = ([n if i == dim else 0 for i in range(piece.ndim)] for n in (k, pieces - 1 - k))
        moved = hlo.pad(piece, low, high)
        total = moved if total is None else total + moved
    assert total is not None
    extent = (count + pieces - 1) * step
    joined = hlo.reshape(total, (*input_sizes[:dim], extent, *input_sizes[dim + 1 :]))
    rest = [input_sizes[dim] - extent if i == dim else 0 for i in range(joined.ndim)]
    return hlo.convert(hlo.pad(joined, [0] * joined.ndim, rest), grad_in.dtype)
