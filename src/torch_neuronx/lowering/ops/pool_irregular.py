"""Pooling whose windows differ in size or place: adaptive and fractional."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.ops.pool import max_over, plane_index, planes, scatter_planes
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value

Ints = Sequence[int]


def _bounds(size: int, out: int) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of each of `out` windows over `size` elements."""
    i = np.arange(out)
    return i * size // out, ((i + 1) * size + out - 1) // out


def _window_sums(x: Value, dim: int, start: np.ndarray, end: np.ndarray) -> Value:
    """Replaces `dim` by sums over x[start:end] for constant bounds."""
    length = end - start
    longest = int(length.max(initial=0))
    if longest == 1:
        return hlo.take_rows(x, hlo.table(start, torch.int64), dim)
    if (start == np.arange(len(start)) * longest).all() and (length == longest).all():
        shape = (*x.shape[:dim], len(start), longest, *x.shape[dim + 1 :])
        return hlo.sum_(hlo.reshape(x, shape), dim + 1)
    at = start[:, None] + np.arange(longest)[None, :]
    rows = hlo.take_rows(x, hlo.table(np.minimum(at, x.shape[dim] - 1), torch.int64), dim)
    inside = hlo.table(at < end[:, None], torch.bool)
    inside = hlo.broadcast_in_dim(inside, rows.shape, [dim, dim + 1])
    return hlo.sum_(hlo.select(inside, rows, 0), dim + 1)


def _per_dim(lengths: np.ndarray, dim: int, x: Value) -> Value:
    return hlo.broadcast_in_dim(hlo.table(lengths, x.dtype), x.shape, [dim])


def _adaptive_avg(self: Value, output_size: Ints, n: int) -> Value:
    shape = (*self.shape[:-n], *output_size)
    if math.prod(shape) == 0:
        return hlo.full(shape, 0, self.dtype)
    x = hlo.convert(planes(self, n), compute_dtype(self.dtype))
    bounds = [_bounds(size, out) for size, out in zip(self.shape[-n:], output_size, strict=True)]
    for i, (start, end) in enumerate(bounds):
        x = _window_sums(x, i + 1, start, end)
    for i, (start, end) in enumerate(bounds):
        x = hlo.divide(x, _per_dim(end - start, i + 1, x))
    return hlo.reshape(hlo.convert(x, self.dtype), shape)


def _adaptive_avg_backward(grad: Value, self: Value, n: int) -> Value:
    if grad.numel == 0 or self.numel == 0:
        return hlo.zeros_like(self)
    g = hlo.convert(planes(grad, n), compute_dtype(grad.dtype))
    sizes, outs = self.shape[-n:], grad.shape[-n:]
    for i, (size, out) in enumerate(zip(sizes, outs, strict=True)):
        start, end = _bounds(size, out)
        g = hlo.divide(g, _per_dim(end - start, i + 1, g))
    for i, (size, out) in enumerate(zip(sizes, outs, strict=True)):
        g = _window_sums(g, i + 1, *_bounds(out, size))  # the windows that hold an element: the same rule
    return hlo.reshape(hlo.convert(g, grad.dtype), self.shape)


@lower("aten::_adaptive_avg_pool2d")
def adaptive_avg_pool2d(self: Value, output_size: Ints) -> Value:
    return _adaptive_avg(self, output_size, 2)


@lower("aten::_adaptive_avg_pool3d")
def adaptive_avg_pool3d(self: Value, output_size: Ints) -> Value:
    return _adaptive_avg(self, output_size, 3)


@lower("aten::_adaptive_avg_pool2d_backward")
def adaptive_avg_pool2d_backward(grad_output: Value, self: Value) -> Value:
    return _adaptive_avg_backward(grad_output, self, 2)


@lower("aten::_adaptive_avg_pool3d_backward")
def adaptive_avg_pool3d_backward(grad_output: Value, self: Value) -> Value:
    return _adaptive_avg_backward(grad_output, self, 3)


def _max_at(self: Value, n: int, coordinates: Sequence[Value], shape: Ints) -> tuple[Value, Value]:
    """Maxima over windows given by in-range coordinates, one (planes or 1, out, length) per dimension."""
    x = planes(self, n)
    x = hlo.reshape(hlo.convert(x, compute_dtype(self.dtype)), (x.shape[0], -1))
    grid = [x.shape[0], *(e for c in coordinates for e in c.shape[1:])]
    spread = []
    for i, c in enumerate(coordinates):
        extents = [1] * len(grid)
        extents[0], extents[1 + 2 * i], extents[2 + 2 * i] = c.shape
        spread.append(hlo.broadcast_to(hlo.reshape(c, extents), grid))
    index = plane_index(spread, self.shape[-n:])
    values = hlo.reshape(hlo.take_along(x, hlo.reshape(index, (x.shape[0], -1)), 1), grid)
    value, at = max_over(values, index, [2 + 2 * i for i in range(n)])
    return hlo.reshape(hlo.convert(value, self.dtype), shape), hlo.reshape(at, shape)


def _adaptive_max(self: Value, output_size: Ints, n: int) -> tuple[Value, Value]:
    shape = (*self.shape[:-n], *output_size)
    if math.prod(shape) == 0:
        return hlo.full(shape, 0, self.dtype), hlo.full(shape, 0, torch.int64)
    coordinates = []
    for size, out in zip(self.shape[-n:], output_size, strict=True):
        start, end = _bounds(size, out)
        at = start[:, None] + np.arange(int((end - start).max()))[None, :]
        coordinates.append(hlo.table(np.minimum(at, end[:, None] - 1)[None], torch.int64))
    return _max_at(self, n, coordinates, shape)


@lower("aten::adaptive_max_pool2d")
def adaptive_max_pool2d(self: Value, output_size: Ints) -> tuple[Value, Value]:
    return _adaptive_max(self, output_size, 2)


@lower("aten::adaptive_max_pool3d")
def adaptive_max_pool3d(self: Value, output_size: Ints) -> tuple[Value, Value]:
    return _adaptive_max(self, output_size, 3)


@lower("aten::adaptive_max_pool2d_backward")
def adaptive_max_pool2d_backward(grad_output: Value, self: Value, indices: Value) -> Value:
    return scatter_planes(grad_output, indices, self, 2, add=True)


@lower("aten::adaptive_max_pool3d_backward")
def adaptive_max_pool3d_backward(grad_output: Value, self: Value, indices: Value) -> Value:
    return scatter_planes(grad_output, indices, self, 3, add=True)


def _fractional_starts(samples: Value, size: int, out: int, kernel: int) -> Value:
    """(planes, out): pseudo-random but increasing window starts; the last window ends at the border."""
    last = hlo.full((*samples.shape, 1), size - kernel, torch.int64)
    if out == 1:
        return last
    u = hlo.unsqueeze(samples, 1)
    alpha = hlo.divide(hlo.constant(size - kernel, u.dtype), out - 1)
    i = hlo.iota((1, out - 1), 1, u.dtype)
    starts = hlo.convert((i + u) * alpha, torch.int64) - hlo.convert(u * alpha, torch.int64)
    return hlo.concatenate([starts, last], 1)


def _fractional(
    self: Value, kernel: Ints, output_size: Ints, samples: Value, n: int, order: Ints
) -> tuple[Value, Value]:
    shape = (*self.shape[:-n], *output_size)
    if math.prod(shape) == 0:
        return hlo.full(shape, 0, self.dtype), hlo.full(shape, 0, torch.int64)
    u = hlo.reshape(hlo.convert(samples, compute_dtype(samples.dtype)), (-1, n))
    coordinates = []
    for i in range(n):
        column = hlo.squeeze(hlo.slice_dim(u, 1, order[i], order[i] + 1), 1)
        starts = _fractional_starts(column, self.shape[i - n], output_size[i], kernel[i])
        at = hlo.unsqueeze(starts, 2) + hlo.iota((1, 1, kernel[i]), 2)
        coordinates.append(at)
    return _max_at(self, n, coordinates, shape)


@lower("aten::fractional_max_pool2d")
def fractional_max_pool2d(
    self: Value, kernel_size: Ints, output_size: Ints, random_samples: Value
) -> tuple[Value, Value]:
    return _fractional(self, kernel_size, output_size, random_samples, 2, (1, 0))


@lower("aten::fractional_max_pool3d")
def fractional_max_pool3d(
    self: Value, kernel_size: Ints, output_size: Ints, random_samples: Value
) -> tuple[Value, Value]:
    return _fractional(self, kernel_size, output_size, random_samples, 3, (0, 1, 2))


@lower("aten::fractional_max_pool2d_backward")
def fractional_max_pool2d_backward(
    grad_output: Value, self: Value, kernel_size: Ints, output_size: Ints, indices: Value
) -> Value:
    return scatter_planes(grad_output, indices, self, 2, add=True)


@lower("aten::fractional_max_pool3d_backward")
def fractional_max_pool3d_backward(
    grad_output: Value, self: Value, kernel_size: Ints, output_size: Ints, indices: Value
) -> Value:
    return scatter_planes(grad_output, indices, self, 3, add=True)
