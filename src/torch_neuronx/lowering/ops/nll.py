"""Negative log likelihood, on vectors and on images."""

from __future__ import annotations

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.module import require
from torch_neuronx.lowering.ops.loss import MEAN, NONE
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value


def _classes(self: Value) -> int:
    """The class dimension: the last of (C,) and (N, C), the second of (N, C, H, W)."""
    return 1 if self.ndim > 1 else 0


def _targets(self: Value, target: Value, ignore_index: int) -> tuple[Value, Value]:
    """(class index, counted) shaped like self with extent 1 along the classes."""
    axis = _classes(self)
    c = self.shape[axis]
    shape = tuple(1 if d == axis else n for d, n in enumerate(self.shape))
    t = hlo.reshape(hlo.convert(target, torch.int64), shape)
    counted = hlo.ne(t, ignore_index)
    inside = hlo.ge(t, 0) & hlo.lt(t, c)
    require(hlo.all_(inside | hlo.not_(counted)), "IndexError", f"Target is out of bounds: want 0 <= target < {c}.")
    return hlo.select(counted, t, 0), counted


def _weights(self: Value, t: Value, counted: Value, weight: Value | None, inner: torch.dtype) -> Value:
    """The weight of each target's class; 0 where it is ignored."""
    if weight is None:
        return hlo.convert(counted, inner)
    w = hlo.take_rows(hlo.convert(weight, inner), hlo.clamp(0, t, max(weight.numel - 1, 0)))
    return hlo.select(counted, w, 0.0)


@lower("aten::nll_loss_forward", "aten::nll_loss2d_forward")
def nll_loss(
    self: Value, target: Value, weight: Value | None, reduction: int, ignore_index: int
) -> tuple[Value, Value]:
    inner = compute_dtype(self.dtype)
    axis = _classes(self)
    t, counted = _targets(self, target, ignore_index)
    if self.numel == 0:
        picked = hlo.full(t.shape, 0.0, inner)
    else:
        picked = hlo.convert(hlo.take_along(self, hlo.clamp(0, t, self.shape[axis] - 1), axis), inner)
    w = _weights(self, t, counted, weight, inner)
    loss = hlo.select(counted, -picked * w, 0.0)
    if reduction == NONE and self.ndim > 1:
        return hlo.convert(hlo.squeeze(loss, axis), self.dtype), hlo.full((), 0.0, self.dtype)
    total, total_weight = hlo.sum_(loss), hlo.sum_(w)
    if reduction == MEAN:
        total = total / total_weight
    return hlo.convert(total, self.dtype), hlo.convert(total_weight, self.dtype)


@lower("aten::nll_loss_backward", "aten::nll_loss2d_backward")
def nll_loss_backward(
    grad_output: Value,
    self: Value,
    target: Value,
    weight: Value | None,
    reduction: int,
    ignore_index: int,
    total_weight: Value,
) -> Value:
    inner = compute_dtype(self.dtype)
    axis = _classes(self)
    t, counted = _targets(self, target, ignore_index)
    g = hlo.convert(grad_output, inner)
    if g.numel == t.numel and reduction == NONE:
        g = hlo.reshape(g, t.shape)
    elif reduction == MEAN:
        g = g / hlo.convert(total_weight, inner)
    g = hlo.broadcast_to(-g * _weights(self, t, counted, weight, inner), t.shape)
    hot = hlo.eq(hlo.iota(self.shape, axis), t) & counted
    return hlo.convert(hlo.select(hot, g, 0.0), self.dtype)
