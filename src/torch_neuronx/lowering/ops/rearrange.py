"""Moving elements by a fixed rule: roll, flip, padding, shuffles."""

from __future__ import annotations

from collections.abc import Sequence

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Scalar, Value


@lower("aten::flip")
def flip(self: Value, dims: Sequence[int]) -> Value:
    return hlo.reverse(self, dims) if self.ndim else self


@lower("aten::roll")
def roll(self: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    if not self.numel:
        return self
    if not dims:
        return hlo.reshape(_roll(hlo.flatten(self), shifts[0], 0), self.shape)
    x = self
    for shift, dim in zip(shifts, dims, strict=True):
        x = _roll(x, shift, dim) if x.ndim else x
    return x


def _roll(x: Value, shift: int, dim: int) -> Value:
    extent = x.shape[dim]
    cut = -shift % extent if extent else 0
    if not cut:
        return x
    return hlo.concatenate([hlo.slice_dim(x, dim, cut, extent), hlo.slice_dim(x, dim, 0, cut)], dim)


def pad_pairs(pad: Sequence[int], ndim: int) -> tuple[list[int], list[int]]:
    """(low, high) per dimension from torch's list, which starts with the last dimension."""
    low, high = [0] * ndim, [0] * ndim
    for i in range(len(pad) // 2):
        low[ndim - 1 - i], high[ndim - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return low, high


@lower("aten::constant_pad_nd")
def constant_pad_nd(self: Value, pad: Sequence[int], value: Scalar = 0) -> Value:
    low, high = pad_pairs(pad, self.ndim)
    fill = hlo.convert(hlo.as_value(value), self.dtype)
    shape = [n + a + b for n, a, b in zip(self.shape, low, high, strict=True)]
    if not self.numel:
        return hlo.full(shape, fill)
    return hlo.pad(self, low, high, fill)


def _edge(x: Value, dim: int, start: int, stop: int) -> list[Value]:
    return [hlo.slice_dim(x, dim, start, stop)] if stop > start else []


def _reflect(x: Value, dim: int, low: int, high: int) -> Value:
    n = x.shape[dim]
    before = [hlo.reverse(v, [dim]) for v in _edge(x, dim, 1, low + 1)]
    after = [hlo.reverse(v, [dim]) for v in _edge(x, dim, n - 1 - high, n - 1)]
    return _crop(hlo.concatenate([*before, x, *after], dim), dim, low, high)


def _replicate(x: Value, dim: int, low: int, high: int) -> Value:
    def repeated(i: int, count: int) -> list[Value]:
        shape = [count if d == dim else n for d, n in enumerate(x.shape)]
        return [hlo.broadcast_to(hlo.slice_dim(x, dim, i, i + 1), shape)] if count > 0 else []

    n = x.shape[dim]
    return _crop(hlo.concatenate([*repeated(0, low), x, *repeated(n - 1, high)], dim), dim, low, high)


def _crop(x: Value, dim: int, low: int, high: int) -> Value:
    """Negative padding removes elements."""
    return hlo.slice_dim(x, dim, max(-low, 0), x.shape[dim] - max(-high, 0))


@lower("aten::reflection_pad1d", "aten::reflection_pad2d", "aten::reflection_pad3d")
def reflection_pad(self: Value, padding: Sequence[int]) -> Value:
    x = self
    for dim, (low, high) in enumerate(zip(*pad_pairs(padding, x.ndim), strict=True)):
        x = _reflect(x, dim, low, high) if low or high else x
    return x


@lower("aten::replication_pad1d", "aten::replication_pad2d", "aten::replication_pad3d")
def replication_pad(self: Value, padding: Sequence[int]) -> Value:
    x = self
    for dim, (low, high) in enumerate(zip(*pad_pairs(padding, x.ndim), strict=True)):
        x = _replicate(x, dim, low, high) if low or high else x
    return x


def _place(x: Value, dim: int, start: int, extent: int) -> Value:
    low, high = ([n if i == dim else 0 for i in range(x.ndim)] for n in (start, extent - start - x.shape[dim]))
    return hlo.pad(x, low, high)


def _centre(grad: Value, dim: int, low: int, high: int, extent: int) -> Value:
    """The part of grad that lies over the input, with zeros where it was cropped."""
    inner = hlo.slice_dim(grad, dim, max(low, 0), grad.shape[dim] - max(high, 0))
    return _place(inner, dim, max(-low, 0), extent)


def _unreflect(grad: Value, dim: int, low: int, high: int, extent: int) -> Value:
    out, n = _centre(grad, dim, low, high, extent), grad.shape[dim]
    for edge in _edge(grad, dim, 0, low):
        out = out + _place(hlo.reverse(edge, [dim]), dim, 1, extent)
    for edge in _edge(grad, dim, n - high, n):
        out = out + _place(hlo.reverse(edge, [dim]), dim, extent - 1 - high, extent)
    return out


def _unreplicate(grad: Value, dim: int, low: int, high: int, extent: int) -> Value:
    out, n = _centre(grad, dim, low, high, extent), grad.shape[dim]
    for edge in _edge(grad, dim, 0, low):
        out = out + _place(hlo.sum_(edge, dim, keepdim=True), dim, 0, extent)
    for edge in _edge(grad, dim, n - high, n):
        out = out + _place(hlo.sum_(edge, dim, keepdim=True), dim, extent - 1, extent)
    return out


@lower("aten::reflection_pad1d_backward", "aten::reflection_pad2d_backward", "aten::reflection_pad3d_backward")
def reflection_pad_backward(grad_output: Value, self: Value, padding: Sequence[int]) -> Value:
    grad = hlo.convert(grad_output, compute_dtype(grad_output.dtype))
    for dim, (low, high) in enumerate(zip(*pad_pairs(padding, self.ndim), strict=True)):
        grad = _unreflect(grad, dim, low, high, self.shape[dim]) if low or high else grad
    return hlo.convert(grad, grad_output.dtype)


@lower("aten::replication_pad1d_backward", "aten::replication_pad2d_backward", "aten::replication_pad3d_backward")
def replication_pad_backward(grad_output: Value, self: Value, padding: Sequence[int]) -> Value:
    grad = hlo.convert(grad_output, compute_dtype(grad_output.dtype))
    for dim, (low, high) in enumerate(zip(*pad_pairs(padding, self.ndim), strict=True)):
        grad = _unreplicate(grad, dim, low, high, self.shape[dim]) if low or high else grad
    return hlo.convert(grad, grad_output.dtype)


@lower("aten::channel_shuffle")
def channel_shuffle(self: Value, groups: int) -> Value:
    n, c, *spatial = self.shape
    x = hlo.reshape(self, (n, groups, c // groups, *spatial))
    return hlo.reshape(hlo.permute(x, [0, 2, 1, *range(3, x.ndim)]), self.shape)


@lower("aten::pixel_shuffle")
def pixel_shuffle(self: Value, upscale_factor: int) -> Value:
    r = upscale_factor
    *batch, c, h, w = self.shape
    b = len(batch)
    x = hlo.reshape(self, (*batch, c // (r * r), r, r, h, w))
    order = [*range(b), b, b + 3, b + 1, b + 4, b + 2]
    return hlo.reshape(hlo.permute(x, order), (*batch, c // (r * r), h * r, w * r))


@lower("aten::pixel_unshuffle")
def pixel_unshuffle(self: Value, downscale_factor: int) -> Value:
    r = downscale_factor
    *batch, c, h, w = self.shape
    b = len(batch)
    x = hlo.reshape(self, (*batch, c, h // r, r, w // r, r))
    order = [*range(b), b, b + 2, b + 4, b + 1, b + 3]
    return hlo.reshape(hlo.permute(x, order), (*batch, c * r * r, h // r, w // r))
