"""Interpolation: each dimension is resampled by a sparse matrix of constants.

The scale factors are attributes, so indices and weights are computed at emission, in float32 for
the dtypes torch computes in float32. A gradient uses the transposed matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import HALVES, compute_dtype
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value

Ints = Sequence[int]
FUSED_TAPS: Final = 8  # more taps than this are one gather and a reduction


@dataclass(frozen=True)
class Resampling:
    """result[j] = sum over l of weight[j, l] * x[index[j, l]]; weights of None are ones.

    valid marks the taps that exist (all when None).
    """

    index: np.ndarray
    weight: np.ndarray | None
    valid: np.ndarray | None = None

    def transposed(self, size: int) -> Resampling:
        """The adjoint, from len(index) elements back to `size`; taps on one element are merged."""
        out, taps = self.index.shape
        source = np.repeat(np.arange(out), taps)
        weight = np.ones(out * taps) if self.weight is None else self.weight.reshape(-1).astype(np.float64)
        keep = np.ones(out * taps, bool) if self.valid is None else self.valid.reshape(-1)
        pairs, position = np.unique(self.index.reshape(-1)[keep] * out + source[keep], return_inverse=True)
        target, source, weight = pairs // out, pairs % out, np.bincount(position, weight[keep], len(pairs))
        count = np.bincount(target, minlength=size)
        width = max(int(count.max(initial=0)), 1)
        slot = np.arange(len(target)) - np.repeat(np.cumsum(count) - count, count)
        index, values, valid = np.zeros((size, width), np.int64), np.zeros((size, width)), np.zeros((size, width), bool)
        index[target, slot], values[target, slot], valid[target, slot] = source, weight, True
        return Resampling(index, None if self.weight is None else values, None if valid.all() else valid)


def _along(table: Value, x: Value, dim: int) -> Value:
    return hlo.broadcast_in_dim(table, x.shape, [dim])


def resample(x: Value, dim: int, r: Resampling) -> Value:
    """Applies a resampling along one dimension, in x's dtype."""
    if r.index.shape[1] == 1 and r.weight is None and r.valid is None:
        return _take(x, r.index[:, 0], dim)
    if r.index.shape[1] > FUSED_TAPS:
        return _resample_many(x, dim, r)
    total: Value | None = None
    for tap in range(r.index.shape[1]):
        rows = hlo.take_rows(x, hlo.table(r.index[:, tap], torch.int64), dim)
        if r.weight is not None:
            rows = rows * _along(hlo.table(r.weight[:, tap], x.dtype), rows, dim)
        if r.valid is not None and not r.valid[:, tap].all():
            rows = hlo.select(_along(hlo.table(r.valid[:, tap], torch.bool), rows, dim), rows, 0)
        total = rows if total is None else total + rows
    assert total is not None
    return total


def _resample_many(x: Value, dim: int, r: Resampling) -> Value:
    rows = hlo.take_rows(x, hlo.table(r.index, torch.int64), dim)
    if r.weight is not None:
        rows = rows * hlo.broadcast_in_dim(hlo.table(r.weight, x.dtype), rows.shape, [dim, dim + 1])
    if r.valid is not None:
        rows = hlo.select(hlo.broadcast_in_dim(hlo.table(r.valid, torch.bool), rows.shape, [dim, dim + 1]), rows, 0)
    return hlo.sum_(rows, dim + 1)


def _take(x: Value, index: np.ndarray, dim: int) -> Value:
    """x at constant indices: a repetition or a strided slice where the indices are one."""
    size, out = x.shape[dim], len(index)
    if size and out % size == 0 and (index == np.arange(out) // (out // size)).all():
        times = out // size
        shape = (*x.shape[: dim + 1], times, *x.shape[dim + 1 :])
        wide = hlo.broadcast_in_dim(x, shape, [d for d in range(len(shape)) if d != dim + 1])
        return hlo.reshape(wide, (*x.shape[:dim], out, *x.shape[dim + 1 :]))
    if out and size % out == 0 and (index == index[0] + np.arange(out) * (size // out)).all():
        first, step = int(index[0]), size // out
        return hlo.slice_dim(x, dim, first, first + (out - 1) * step + 1, step)
    return hlo.take_rows(x, hlo.table(index, torch.int64), dim)


def _ratio(size: int, out: int, align_corners: bool, scale: float | None, real: Any) -> Any:
    """Source elements per result element, rounded as torch rounds it."""
    if align_corners:
        return real(size - 1) / real(out - 1) if out > 1 else real(0)
    return real(1.0 / scale) if scale is not None and scale > 0 else real(size) / real(out)


def _source(size: int, out: int, align_corners: bool, scale: float | None, real: Any, *, cubic: bool) -> np.ndarray:
    """Real-valued source positions of the results."""
    ratio, j = _ratio(size, out, align_corners, scale, real), np.arange(out).astype(real)
    position: np.ndarray = ratio * j if align_corners else ratio * (j + real(0.5)) - real(0.5)
    return position if cubic or align_corners else np.clip(position, real(0), None)


def _nearest(size: int, out: int, align_corners: bool, scale: float | None, real: Any) -> Resampling:
    j = np.arange(out)
    if out == size:
        index = j
    elif out == 2 * size:
        index = j >> 1
    else:
        ratio = _ratio(size, out, False, scale, np.float32)
        index = np.minimum(np.floor(j.astype(np.float32) * ratio).astype(np.int64), size - 1)
    return Resampling(index[:, None], None)


def _nearest_exact(size: int, out: int, align_corners: bool, scale: float | None, real: Any) -> Resampling:
    ratio = _ratio(size, out, False, scale, np.float32)
    position = (np.arange(out).astype(np.float32) + np.float32(0.5)) * ratio
    return Resampling(np.minimum(np.floor(position).astype(np.int64), size - 1)[:, None], None)


def _split(position: np.ndarray, size: int, real: Any) -> tuple[np.ndarray, np.ndarray]:
    """Integer part (at most size - 1) and the fraction above it, within [0, 1]."""
    whole = np.minimum(np.floor(position).astype(np.int64), size - 1)
    return whole, np.clip(position - whole.astype(real), real(0), real(1))


def _linear(size: int, out: int, align_corners: bool, scale: float | None, real: Any) -> Resampling:
    if size == out:
        return Resampling(np.arange(out)[:, None], None)
    low, t = _split(_source(size, out, align_corners, scale, real, cubic=False), size, real)
    high = np.minimum(low + 1, size - 1)
    return Resampling(np.stack([low, high], 1), np.stack([real(1) - t, t], 1))


def cubic_weights(t: Any, a: float) -> list[Any]:
    """Weights of the four taps around a position with fraction t (numpy arrays or Values)."""

    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Any) -> Any:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _cubic(size: int, out: int, align_corners: bool, scale: float | None, real: Any) -> Resampling:
    if size == out and not align_corners and scale is None:
        return Resampling(np.arange(out)[:, None], None)
    whole, t = _split(_source(size, out, align_corners, scale, real, cubic=True), size, real)
    index = np.clip(whole[:, None] + np.arange(-1, 3)[None, :], 0, size - 1)
    return Resampling(index, np.stack(cubic_weights(t, -0.75), 1))


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.clip(1 - np.abs(x), 0, None)


def _keys(x: np.ndarray) -> np.ndarray:
    a, x = -0.5, np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _lanczos(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


def _antialias(taps: int, kernel: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Resampling]:
    """Filters as wide as the scale, as PIL does."""

    def build(size: int, out: int, align_corners: bool, scale: float | None, real: Any) -> Resampling:
        ratio = _ratio(size, out, align_corners, scale, real)
        support = real(taps * 0.5) * ratio if ratio >= 1 else real(taps * 0.5)
        inverse = real(1) / ratio if ratio >= 1 else real(1)
        centre = ratio * (np.arange(out).astype(real) + real(0.5))
        first = np.maximum((centre - support + real(0.5)).astype(np.int64), 0)
        last = np.minimum((centre + support + real(0.5)).astype(np.int64), size)
        count = np.clip(last - first, 0, math.ceil(support) * 2 + 1)
        width = max(int(count.max(initial=0)), 1)
        at = first[:, None] + np.arange(width)[None, :]
        valid = np.arange(width)[None, :] < count[:, None]
        weight = kernel((at.astype(real) - centre[:, None] + real(0.5)) * inverse) * valid
        total = weight.sum(1, keepdims=True)
        weight = np.where(total != 0, weight / np.where(total == 0, 1, total), weight)
        return Resampling(np.minimum(at, size - 1), weight, None if valid.all() else valid)

    return build


Build = Callable[[int, int, bool, float | None, Any], Resampling]


def _resample_bytes(x: Value, dim: int, r: Resampling) -> Value:
    """uint8 (held in int32) with weights of 15 bits and a rounded result, as torch's CPU kernels do."""
    if r.weight is None:
        return resample(x, dim, r)
    r = r.transposed(x.shape[dim]).transposed(len(r.index))
    assert r.weight is not None
    largest, bits = float(r.weight.max()), 0
    while bits < 22 and int(0.5 + largest * (1 << (bits + 1))) < 1 << 15:
        bits += 1
    weight = np.trunc(r.weight * (1 << bits) + np.copysign(0.5, r.weight)).astype(np.int64)
    total = resample(x, dim, Resampling(r.index, weight, None)) + (1 << (bits - 1))
    return hlo.clamp(0, hlo.shift_right_arithmetic(total, bits), 255)


def _with_rounded_weights(r: Resampling, build: Build, dtype: torch.dtype) -> Resampling:
    """As the CPU's general kernel keeps them; its kernels for two linear dimensions and for gradients do not round."""
    if r.weight is None:
        return r
    weight = torch.from_numpy(r.weight).to(dtype)
    if build is _linear:
        weight = torch.stack([1 - weight[:, 1], weight[:, 1]], 1)
    return Resampling(r.index, weight.double().numpy(), r.valid)


def _interpolate(x: Value, build: Build, sizes: Ints, align_corners: bool, scales: Sequence[float | None]) -> Value:
    n, dtype = len(sizes), x.dtype
    if 0 in x.shape or 0 in sizes:
        return hlo.full((*x.shape[:-n], *sizes), 0, dtype)
    exact, byte = build in (_nearest, _nearest_exact), dtype is torch.uint8
    inner = dtype if exact else torch.int32 if byte else compute_dtype(dtype)
    real = np.float64 if byte or inner is torch.float64 else np.float32
    y = hlo.convert(x, inner)
    for i in reversed(range(n)):  # the last dimension first, as torch's kernels do
        dim = x.ndim - n + i
        matrix = build(x.shape[dim], sizes[i], align_corners, scales[i], real)
        if dtype in HALVES and (build is _cubic or (build is _linear and n != 2)):
            matrix = _with_rounded_weights(matrix, build, dtype)
        y = _resample_bytes(y, dim, matrix) if byte and not exact else resample(y, dim, matrix)
    return hlo.convert(y, dtype)


def _interpolate_backward(
    grad: Value, build: Build, sizes: Ints, align_corners: bool, scales: Sequence[float | None]
) -> Value:
    """`sizes` are the input's spatial extents."""
    n, dtype = len(sizes), grad.dtype
    shape = (*grad.shape[:-n], *sizes)
    if 0 in shape or grad.numel == 0:
        return hlo.full(shape, 0, dtype)
    y = hlo.convert(grad, compute_dtype(dtype))
    real = np.float64 if y.dtype is torch.float64 else np.float32
    for i in range(n):
        dim = grad.ndim - n + i
        forward = build(sizes[i], grad.shape[dim], align_corners, scales[i], real)
        y = resample(y, dim, forward.transposed(sizes[i]))
    return hlo.convert(y, dtype)


# (name, spatial dimensions, matrix of one dimension, whether the overload takes align_corners)
MODES: Final[tuple[tuple[str, int, Build, bool], ...]] = (
    *((f"upsample_nearest{n}d", n, _nearest, False) for n in (1, 2, 3)),
    *((f"_upsample_nearest_exact{n}d", n, _nearest_exact, False) for n in (1, 2, 3)),
    ("upsample_linear1d", 1, _linear, True),
    ("upsample_bilinear2d", 2, _linear, True),
    ("upsample_trilinear3d", 3, _linear, True),
    ("upsample_bicubic2d", 2, _cubic, True),
    ("_upsample_bilinear2d_aa", 2, _antialias(2, _triangle), True),
    ("_upsample_bicubic2d_aa", 2, _antialias(4, _keys), True),
    ("_upsample_lanczos2d_aa", 2, _antialias(6, _lanczos), True),
)
SCALES: Final = {1: ["scales"], 2: ["scales_h", "scales_w"], 3: ["scales_d", "scales_h", "scales_w"]}


def _rows(name: str, n: int, build: Build, aligned: bool) -> None:
    def options(rest: tuple[Any, ...]) -> tuple[bool, tuple[float | None, ...]]:
        return (rest[0], rest[1:]) if aligned else (False, rest)

    @lower(f"aten::{name}", attributes=SCALES[n])
    def forward(self: Value, output_size: Ints, *rest: Any) -> Value:
        align_corners, scales = options(rest)
        return _interpolate(self, build, output_size, align_corners, scales)

    @lower(f"aten::{name}_backward", attributes=SCALES[n])
    def backward(grad_output: Value, output_size: Ints, input_size: Ints, *rest: Any) -> Value:
        align_corners, scales = options(rest)
        return _interpolate_backward(grad_output, build, input_size[2:], align_corners, scales)


for _mode in MODES:
    _rows(*_mode)
