"""Fake quantisation: values rounded to a grid of integers and back, and the gradients of the grid's parameters.

In float32, as torch's CPU kernels compute it, for every dtype of the input:
    q = clamp(round(x / scale) + zero_point, quant_min, quant_max),   y = (q - zero_point) * scale
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.axes import axis
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.module import require
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Scalar, Value


@dataclass(frozen=True)
class _Grid:
    """scale (float32) and zero_point (a number of the compute dtype), broadcastable to the input."""

    scale: Value
    zero_point: Value
    low: int
    high: int

    def unclamped(self, x: Value) -> Value:
        """round(x / scale) + zero_point."""
        return hlo.round_even(x * hlo.convert(1.0 / self.scale, x.dtype)) + hlo.convert(self.zero_point, x.dtype)

    def inside(self, q: Value) -> Value:
        return hlo.ge(q, self.low) & hlo.le(q, self.high)

    def clamped(self, q: Value) -> Value:
        """fmin and fmax: NaN becomes the lowest integer."""
        low = hlo.select(hlo.ge(q, self.low), q, float(self.low))
        return hlo.select(hlo.le(low, self.high), low, float(self.high))

    def value_of(self, q: Value) -> Value:
        """What the integer stands for, rounded to float32."""
        return hlo.convert(q - hlo.convert(self.zero_point, q.dtype), torch.float32) * self.scale

    def apply(self, x: Value) -> tuple[Value, Value]:
        """(y in x's dtype, whether x was inside the grid)."""
        q = self.unclamped(hlo.convert(x, compute_dtype(x.dtype)))
        return hlo.convert(self.value_of(self.clamped(q)), x.dtype), self.inside(q)


def _single(x: Scalar, dtype: torch.dtype) -> Value:
    """A number or a tensor of one element as rank 0."""
    return hlo.convert(hlo.reshape(hlo.as_value(x), ()), dtype)


def _per_channel(x: Value, ndim: int, dim: int, dtype: torch.dtype) -> Value:
    return hlo.convert(hlo.reshape(x, [-1 if d == dim else 1 for d in range(ndim)]), dtype)


@lower("aten::fake_quantize_per_tensor_affine_cachemask")
def per_tensor(self: Value, scale: Scalar, zero_point: int, quant_min: int, quant_max: int) -> tuple[Value, Value]:
    zero = hlo.constant(float(zero_point), torch.float32)
    return _Grid(_single(scale, torch.float32), zero, quant_min, quant_max).apply(self)


@lower("aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def per_tensor_parameters(
    self: Value, scale: Value, zero_point: Value, fake_quant_enabled: Value, quant_min: int, quant_max: int
) -> tuple[Value, Value]:
    grid = _Grid(_single(scale, torch.float32), _single(zero_point, torch.float32), quant_min, quant_max)
    y, inside = grid.apply(self)
    on = hlo.ne(_single(fake_quant_enabled, torch.int64), 0)
    return hlo.select(on, y, self), hlo.select(on, inside, True)


@lower("aten::fake_quantize_per_channel_affine_cachemask")
def per_channel(
    self: Value, scale: Value, zero_point: Value, axis: int, quant_min: int, quant_max: int
) -> tuple[Value, Value]:
    if not zero_point.dtype.is_floating_point:
        outside = hlo.any_(hlo.lt(zero_point, quant_min) | hlo.gt(zero_point, quant_max))
        message = "`zero_point` must be between `quant_min` and `quant_max`."
        require(hlo.not_(outside), "RuntimeError", f"fake_quantize_per_channel_affine: {message}")
    dim = _axis(axis, self.ndim)
    scale = _per_channel(scale, self.ndim, dim, torch.float32)
    zero = _per_channel(zero_point, self.ndim, dim, torch.float32)
    if not zero_point.dtype.is_floating_point:
        return _Grid(scale, zero, quant_min, quant_max).apply(self)
    return _fractional(self, scale, zero, quant_min, quant_max)


def _fractional(self: Value, scale: Value, zero: Value, low: int, high: int) -> tuple[Value, Value]:
    """A zero point that is no integer is added before the rounding."""
    x = hlo.convert(self, compute_dtype(self.dtype))
    q = hlo.round_even(x * hlo.convert(1.0 / scale, x.dtype) + hlo.convert(zero, x.dtype))
    grid = _Grid(scale, zero, low, high)
    return hlo.convert(grid.value_of(grid.clamped(q)), self.dtype), grid.inside(q)


_axis = axis


def _learned_zero_point(zero_point: Value, low: int, high: int, *, forward: bool) -> Value:
    """The learned zero point as an integer inside the grid: rounded to even forward, half up backward."""
    zero = hlo.convert(zero_point, torch.float32)
    zero = hlo.round_even(zero) if forward else zero + 0.5
    zero = hlo.minimum(hlo.maximum(zero, float(low)), float(high))
    return hlo.convert(hlo.convert(zero, torch.int64), torch.float32)


def _learned(scale: Value, zero_point: Value, low: int, high: int, *, forward: bool) -> _Grid:
    zero = _learned_zero_point(_single(zero_point, torch.float32), low, high, forward=forward)
    return _Grid(_single(scale, torch.float32), zero, low, high)


@lower("aten::_fake_quantize_learnable_per_tensor_affine")
def learnable_per_tensor(
    self: Value, scale: Value, zero_point: Value, quant_min: int, quant_max: int, grad_factor: Scalar
) -> Value:
    return _learned(scale, zero_point, quant_min, quant_max, forward=True).apply(self)[0]


@lower("aten::_fake_quantize_learnable_per_channel_affine")
def learnable_per_channel(
    self: Value, scale: Value, zero_point: Value, axis: int, quant_min: int, quant_max: int, grad_factor: Scalar
) -> Value:
    dim = _axis(axis, self.ndim)
    zero = _learned_zero_point(zero_point, quant_min, quant_max, forward=True)
    grid = _Grid(
        _per_channel(scale, self.ndim, dim, torch.float32),
        _per_channel(zero, self.ndim, dim, torch.float32),
        quant_min,
        quant_max,
    )
    return grid.apply(self)[0]


def _gradients(grad: Value, x: Value, grid: _Grid, factor: Scalar) -> tuple[Value, Value, Value]:
    """Gradients of (x, scale, zero_point) for each element; the last two still to be summed.

    Inside the grid y moves with x, and scale's share is (y - x) / scale; outside y is an end of the grid.
    """
    q = grid.unclamped(x)
    inside = grid.inside(q)
    clamped = grid.clamped(q)
    zero, scale = hlo.convert(grid.zero_point, x.dtype), hlo.convert(grid.scale, x.dtype)
    weighted = grad * hlo.convert(hlo.as_value(factor), x.dtype)
    share = hlo.select(inside, hlo.divide((clamped - zero) * scale - x, scale), clamped - zero)
    d_zero = hlo.select(inside, 0.0, -scale * weighted)
    return hlo.select(inside, grad, 0.0), share * weighted, d_zero


@lower("aten::_fake_quantize_learnable_per_tensor_affine_backward")
def learnable_per_tensor_backward(
    grad: Value, self: Value, scale: Value, zero_point: Value, quant_min: int, quant_max: int, grad_factor: Scalar
) -> tuple[Value, Value, Value]:
    grid = _learned(scale, zero_point, quant_min, quant_max, forward=False)
    x, g = (hlo.convert(v, compute_dtype(v.dtype)) for v in (self, grad))
    d_x, d_scale, d_zero = _gradients(g, x, grid, grad_factor)
    sums = (hlo.reshape(hlo.sum_(v), (1,)) for v in (d_scale, d_zero))
    return (hlo.convert(d_x, self.dtype), *(hlo.convert(s, scale.dtype) for s in sums))  # type: ignore[return-value]


@lower("aten::_fake_quantize_learnable_per_channel_affine_backward")
def learnable_per_channel_backward(
    grad: Value,
    self: Value,
    scale: Value,
    zero_point: Value,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: Scalar,
) -> tuple[Value, Value, Value]:
    dim = _axis(axis, self.ndim)
    zero = _learned_zero_point(zero_point, quant_min, quant_max, forward=False)
    shaped = [_per_channel(v, self.ndim, dim, torch.float32) for v in (scale, zero)]
    x, g = (hlo.convert(v, compute_dtype(v.dtype)) for v in (self, grad))
    d_x, d_scale, d_zero = _gradients(g, x, _Grid(shaped[0], shaped[1], quant_min, quant_max), grad_factor)
    others = [d for d in range(self.ndim) if d != dim]
    return (
        hlo.convert(d_x, self.dtype),
        hlo.convert(hlo.sum_(d_scale, others), scale.dtype),
        hlo.convert(hlo.sum_(d_zero, others), scale.dtype),
    )
