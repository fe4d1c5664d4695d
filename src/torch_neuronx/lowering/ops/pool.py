"""Max and average pooling with regular windows, forward and backward.

Leading dimensions are one: a tensor is (planes, *spatial). A small window is a chain of strided
slices (three times faster than a reduce_window of pairs); a large one is a reduce_window.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from torch_neuronx.lowering import hlo, module
from torch_neuronx.lowering.dtypes import compute_dtype, min_value
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value

Ints = Sequence[int]
SMALL_WINDOW = 27


@dataclass(frozen=True)
class Window:
    """The geometry of a pooling: one entry per spatial dimension."""

    sizes: tuple[int, ...]
    out: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @classmethod
    def of(cls, x: Value, n: int, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool) -> Window:
        kernel, padding, dilation = (_each(v, n) for v in (kernel, padding, dilation))
        stride = _each(stride, n) if stride else kernel
        sizes = x.shape[-n:]
        geometry = zip(sizes, kernel, stride, padding, dilation, strict=True)
        return cls(sizes, tuple(_extent(*g, ceil_mode) for g in geometry), kernel, stride, padding, dilation)

    @property
    def high(self) -> list[int]:
        """Padding behind that the last window needs; negative when the input has a rest."""
        return [
            (o - 1) * s + d * (k - 1) + 1 - n - p
            for n, o, k, s, p, d in zip(
                self.sizes, self.out, self.kernel, self.stride, self.padding, self.dilation, strict=True
            )
        ]

    def taps(self) -> Iterator[tuple[int, ...]]:
        """Offsets of the window's elements in row-major order."""
        return itertools.product(*([i * d for i in range(k)] for k, d in zip(self.kernel, self.dilation, strict=True)))


def _each(xs: Ints, n: int) -> tuple[int, ...]:
    return tuple(xs) * n if len(xs) == 1 else tuple(xs)


def _extent(size: int, k: int, s: int, p: int, d: int, ceil_mode: bool) -> int:
    out = (size + 2 * p - d * (k - 1) - 1 + (s - 1 if ceil_mode else 0)) // s + 1
    return out - 1 if ceil_mode and (out - 1) * s >= size + p else out


def planes(x: Value, n: int) -> Value:
    """(planes, *spatial)."""
    return hlo.reshape(x, (math.prod(x.shape[:-n]), *x.shape[-n:]))


def strides_of(sizes: Ints) -> list[int]:
    return [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]


def plane_index(parts: Sequence[Value], sizes: Ints) -> Value:
    """Row-major position in a plane from one coordinate per dimension (broadcasting)."""
    total: Value | None = None
    for part, stride in zip(parts, strides_of(sizes), strict=True):
        term = part * stride
        total = term if total is None else total + term
    assert total is not None
    return total


def larger(av: Value, ai: Value, bv: Value, bi: Value) -> list[Value]:
    """(value, index) of the first maximum, or of the last NaN: torch updates on `val > max || isnan(val)`."""
    take = hlo.gt(bv, av) | (hlo.eq(bv, av) & hlo.lt(bi, ai))
    if av.dtype.is_floating_point:
        take = take | (hlo.is_nan(bv) & (hlo.not_(hlo.is_nan(av)) | hlo.gt(bi, ai)))
    return [hlo.select(take, bv, av), hlo.select(take, bi, ai)]


def max_over(values: Value, indices: Value, dims: Ints) -> tuple[Value, Value]:
    """Variadic reduce with `larger`."""
    last = torch.iinfo(indices.dtype).max
    value, index = hlo.reduce([values, indices], [min_value(values.dtype), last], dims, larger)
    return value, index


def _index_dtype(sizes: Ints) -> torch.dtype:
    return torch.int32 if math.prod(sizes) < 2**30 else torch.int64


def _max_by_taps(x: Value, w: Window) -> tuple[Value, Value]:
    n, kind, lowest = len(w.sizes), _index_dtype(w.sizes), min_value(x.dtype)
    shape = (x.shape[0], *w.out)
    starts = [hlo.iota(shape, i + 1, kind) * w.stride[i] - w.padding[i] for i in range(n)]
    first = []
    for i, start in enumerate(starts):  # the window's first element that is no padding
        d = w.dilation[i]
        skipped = hlo.divide(hlo.maximum(-start, 0) + (d - 1), d) * d
        first.append(start + skipped)
    base = plane_index(starts, w.sizes)
    best, at = hlo.full(shape, lowest, x.dtype), plane_index(first, w.sizes)
    padded = hlo.pad(x, [0, *w.padding], [0, *(max(h, 0) for h in w.high)], lowest)
    steps = strides_of(w.sizes)
    for tap in w.taps():
        stop = [t + (o - 1) * s + 1 for t, o, s in zip(tap, w.out, w.stride, strict=True)]
        value = hlo.slice_(padded, [0, *tap], [x.shape[0], *stop], [1, *w.stride])
        take = hlo.gt(value, best)
        if x.dtype.is_floating_point:
            take = take | hlo.is_nan(value)
        best = hlo.select(take, value, best)
        at = hlo.select(take, base + sum(t * s for t, s in zip(tap, steps, strict=True)), at)
    return best, at


def _max_by_window(x: Value, w: Window) -> tuple[Value, Value]:
    kind = _index_dtype(w.sizes)
    index = plane_index([hlo.iota(x.shape, i + 1, kind) for i in range(len(w.sizes))], w.sizes)
    value, at = hlo.reduce_window(
        [x, index],
        [min_value(x.dtype), torch.iinfo(kind).max],
        [1, *w.kernel],
        [1, *w.stride],
        [(0, 0), *zip(w.padding, w.high, strict=True)],
        larger,
        [1, *w.dilation],
    )
    return value, at


def _max_pool(
    self: Value, n: int, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> tuple[Value, Value]:
    w = Window.of(self, n, kernel, stride, padding, dilation, ceil_mode)
    shape = (*self.shape[:-n], *w.out)
    if math.prod(shape) == 0:
        return hlo.full(shape, 0, self.dtype), hlo.full(shape, 0, torch.int64)
    x = hlo.convert(planes(self, n), compute_dtype(self.dtype))
    run = _max_by_taps if math.prod(w.kernel) <= SMALL_WINDOW else _max_by_window
    value, index = run(x, w)
    value = hlo.reshape(hlo.convert(value, self.dtype), shape)
    return value, hlo.reshape(hlo.convert(index, torch.int64), shape)


@lower("aten::max_pool2d_with_indices")
def max_pool2d_with_indices(
    self: Value, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> tuple[Value, Value]:
    return _max_pool(self, 2, kernel_size, stride, padding, dilation, ceil_mode)


@lower("aten::max_pool3d_with_indices")
def max_pool3d_with_indices(
    self: Value, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> tuple[Value, Value]:
    return _max_pool(self, 3, kernel_size, stride, padding, dilation, ceil_mode)


def scatter_planes(source: Value, indices: Value, like: Value, n: int, *, add: bool) -> Value:
    """A tensor of like's shape: each plane of source added (or put) at its indices, zero elsewhere."""
    if source.numel == 0 or like.numel == 0:
        return hlo.zeros_like(like)
    size = math.prod(like.shape[-n:])
    kind = _index_dtype(like.shape)
    flat_planes = math.prod(like.shape[:-n])
    index = hlo.convert(hlo.reshape(indices, (flat_planes, -1)), kind)
    index = index + hlo.iota(index.shape, 0, kind) * size
    inner = compute_dtype(source.dtype)
    out = hlo.scatter(
        hlo.full((like.numel,), 0, inner),
        hlo.reshape(index, (-1, 1)),
        hlo.flatten(hlo.convert(source, inner)),
        hlo.add if add else None,
        update_window_dims=[],
        inserted=[0],
        scatter_map=[0],
    )
    return hlo.reshape(hlo.convert(out, source.dtype), like.shape)


def _max_grad_by_taps(grad: Value, indices: Value, like: Value, w: Window) -> Value:
    """Stride 1: every tap adds the gradients whose index it is; no scatter."""
    n, kind = len(w.sizes), _index_dtype(w.sizes)
    dtype = compute_dtype(grad.dtype)
    g, at = hlo.convert(planes(grad, n), dtype), hlo.convert(planes(indices, n), kind)
    base = plane_index([hlo.iota(g.shape, i + 1, kind) - w.padding[i] for i in range(n)], w.sizes)
    relative, steps = at - base, strides_of(w.sizes)
    total = hlo.full((g.shape[0], *w.sizes), 0, dtype)
    for tap in w.taps():
        hit = hlo.eq(relative, sum(t * s for t, s in zip(tap, steps, strict=True)))
        low = [t - p for t, p in zip(tap, w.padding, strict=True)]
        high = [size - a - o for size, a, o in zip(w.sizes, low, w.out, strict=True)]
        total = total + hlo.pad(hlo.select(hit, g, 0), [0, *low], [0, *high])
    return hlo.reshape(hlo.convert(total, grad.dtype), like.shape)


@lower("aten::max_pool2d_with_indices_backward", "aten::max_pool3d_with_indices_backward")
def max_pool_backward(
    grad_output: Value,
    self: Value,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
    indices: Value,
) -> Value:
    n = len(kernel_size) if len(kernel_size) > 1 else 2
    w = Window.of(self, n, kernel_size, stride, padding, dilation, ceil_mode)
    distinct = all(k == 1 or d < size for k, d, size in zip(w.kernel, w.dilation, w.sizes, strict=True))
    if set(w.stride) == {1} and math.prod(w.kernel) <= SMALL_WINDOW and grad_output.numel and distinct:
        return _max_grad_by_taps(grad_output, indices, self, w)
    return scatter_planes(grad_output, indices, self, n, add=True)


@lower("aten::max_unpool2d")
def max_unpool2d(self: Value, indices: Value, output_size: Ints) -> Value:
    return _unpool(self, indices, output_size, 2)


@lower("aten::max_unpool3d")
def max_unpool3d(self: Value, indices: Value, output_size: Ints, stride: Ints, padding: Ints) -> Value:
    return _unpool(self, indices, output_size, 3)


def _unpool(self: Value, indices: Value, output_size: Ints, n: int) -> Value:
    size = math.prod(output_size)
    inside = hlo.all_(hlo.ge(indices, 0) & hlo.lt(indices, size))
    module.require(inside, "RuntimeError", f"Found an invalid max index: it must be in [0, {size})")
    like = hlo.full((*self.shape[:-n], *output_size), 0, self.dtype)
    return scatter_planes(self, indices, like, n, add=False)


def _divisors(w: Window, count_include_pad: bool, override: int | None, dtype: torch.dtype) -> Value:
    """How many elements each window averages over, of shape (1, *out) or rank 0."""
    if override is not None:
        return hlo.constant(override, dtype)
    total = np.ones((1,) * (len(w.out) + 1))
    for i, (size, out, k, s, p) in enumerate(zip(w.sizes, w.out, w.kernel, w.stride, w.padding, strict=True)):
        start = np.arange(out) * s - p
        end = np.minimum(start + k, size + p)
        if not count_include_pad:
            start, end = np.maximum(start, 0), np.minimum(end, size)
        shape = [1] * (len(w.out) + 1)
        shape[i + 1] = out
        total = total * (end - start).reshape(shape)
    if total.size and (total == total.flat[0]).all():
        return hlo.constant(float(total.flat[0]), dtype)
    return hlo.table(total, dtype)


def window_sum(x: Value, kernel: Ints, stride: Ints, padding: Sequence[tuple[int, int]]) -> Value:
    """Sums over windows of (planes, *spatial); one dimension at a time once the window is large."""
    n = len(kernel)
    together = math.prod(kernel) <= SMALL_WINDOW
    for dims in [list(range(n))] if together else [[i] for i in range(n)]:
        at = [i in dims for i in range(n)]
        (x,) = hlo.reduce_window(
            [x],
            [0],
            [1, *(k if a else 1 for k, a in zip(kernel, at, strict=True))],
            [1, *(s if a else 1 for s, a in zip(stride, at, strict=True))],
            [(0, 0), *(p if a else (0, 0) for p, a in zip(padding, at, strict=True))],
            lambda a, b: [a + b],
        )
    return x


def _avg_pool(
    self: Value, n: int, kernel: Ints, stride: Ints, padding: Ints, ceil_mode: bool, include: bool, override: int | None
) -> Value:
    w = Window.of(self, n, kernel, stride, padding, [1], ceil_mode)
    shape = (*self.shape[:-n], *w.out)
    if math.prod(shape) == 0:
        return hlo.full(shape, 0, self.dtype)
    x = hlo.convert(planes(self, n), compute_dtype(self.dtype))
    total = window_sum(x, w.kernel, w.stride, list(zip(w.padding, w.high, strict=True)))
    mean = hlo.divide(total, _divisors(w, include, override, x.dtype))
    return hlo.reshape(hlo.convert(mean, self.dtype), shape)


@lower("aten::avg_pool2d")
def avg_pool2d(
    self: Value,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Value:
    return _avg_pool(self, 2, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@lower("aten::avg_pool3d")
def avg_pool3d(
    self: Value,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Value:
    return _avg_pool(self, 3, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _avg_pool_backward(
    grad: Value,
    self: Value,
    n: int,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    include: bool,
    override: int | None,
) -> Value:
    w = Window.of(self, n, kernel, stride, padding, [1], ceil_mode)
    if grad.numel == 0 or self.numel == 0:
        return hlo.zeros_like(self)
    g = hlo.convert(planes(grad, n), compute_dtype(grad.dtype))
    g = hlo.divide(g, _divisors(w, include, override, g.dtype))
    out = _repeat(g, w) if w.kernel == w.stride else _spread(g, w)
    return hlo.reshape(hlo.convert(out, grad.dtype), self.shape)


def _repeat(g: Value, w: Window) -> Value:
    """Windows that tile the input: every element of a window gets the same gradient."""
    n = len(w.out)
    tiled = [x for pair in zip(w.out, w.kernel, strict=True) for x in pair]
    x = hlo.broadcast_in_dim(g, (g.shape[0], *tiled), [0, *range(1, 2 * n, 2)])
    x = hlo.reshape(x, (g.shape[0], *(o * k for o, k in zip(w.out, w.kernel, strict=True))))
    high = [size + p - o * k for size, p, o, k in zip(w.sizes, w.padding, w.out, w.kernel, strict=True)]
    return hlo.pad(x, [0, *(-p for p in w.padding)], [0, *high])


def _spread(g: Value, w: Window) -> Value:
    """The adjoint of a window sum: a window sum over the dilated gradient."""
    low = [k - 1 - p for k, p in zip(w.kernel, w.padding, strict=True)]
    interior = [s - 1 for s in w.stride]
    spans = [(o - 1) * s + 1 for o, s in zip(w.out, w.stride, strict=True)]
    high = [size + k - 1 - a - m for size, k, a, m in zip(w.sizes, w.kernel, low, spans, strict=True)]
    wide = hlo.pad(g, [0, *low], [0, *high], 0, [0, *interior])
    ones = [1] * len(w.out)
    return window_sum(wide, w.kernel, ones, [(0, 0)] * len(w.out))


@lower("aten::avg_pool2d_backward")
def avg_pool2d_backward(
    grad_output: Value,
    self: Value,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Value:
    rest = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return _avg_pool_backward(grad_output, self, 2, *rest)


@lower("aten::avg_pool3d_backward")
def avg_pool3d_backward(
    grad_output: Value,
    self: Value,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Value:
    rest = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return _avg_pool_backward(grad_output, self, 3, *rest)
