"""Pairwise p-norm distances: cdist and pdist."""

from __future__ import annotations

import numpy as np
import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value

MATMUL_ROWS = 25  # torch switches to a matrix product above this many rows
INFINITY = float("inf")


def _norm(difference: Value, p: float) -> Value:
    """The p-norm over the last dimension."""
    a = hlo.abs_(difference)
    if p == 0:
        return hlo.sum_(hlo.convert(hlo.ne(a, 0), a.dtype), -1)
    if p == 1:
        return hlo.sum_(a, -1)
    if p == 2:
        return hlo.sqrt(hlo.sum_(a * a, -1))
    if p == INFINITY:
        return hlo.maximum(hlo.reduce_max(a, -1), 0) if a.shape[-1] else hlo.sum_(a, -1)
    return hlo.power(hlo.sum_(hlo.power(a, p), -1), 1 / p)


def _slope(difference: Value, distance: Value, p: float) -> Value:
    """d distance / d difference; `distance` has a last dimension of one."""
    if p == 0:
        return hlo.zeros_like(difference)
    sign, a = hlo.sign(difference), hlo.abs_(difference)
    if p == 1:
        return sign
    zero = hlo.eq(distance, 0)
    safe = hlo.select(zero, 1, distance)
    if p == 2:
        return hlo.select(zero, 0, hlo.divide(difference, safe))
    if p == INFINITY:
        return hlo.select(hlo.eq(a, distance), sign, 0)
    if p < 2:
        share = sign * hlo.divide(hlo.power(a, p - 1), hlo.power(safe, p - 1))
        return hlo.select(zero | hlo.eq(difference, 0), 0, share) if p < 1 else hlo.select(zero, 0, share)
    share = difference * hlo.divide(hlo.power(a, p - 2), hlo.power(safe, p - 1))
    return hlo.select(zero, 0, share)


def _batched(x1: Value, x2: Value) -> tuple[Value, Value, tuple[int, ...]]:
    """Both with the broadcast batch dimensions."""
    batch = hlo.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    return hlo.broadcast_to(x1, (*batch, *x1.shape[-2:])), hlo.broadcast_to(x2, (*batch, *x2.shape[-2:])), batch


def _euclidean(x1: Value, x2: Value) -> Value:
    """sqrt(|a|^2 + |b|^2 - 2ab): one matrix product."""
    batch = list(range(x1.ndim - 2))
    last = x1.ndim - 1
    product = hlo.dot_general(x1, x2, ([last], [last]), (batch, batch))
    left = hlo.sum_(x1 * x1, -1, keepdim=True)
    right = hlo.unsqueeze(hlo.sum_(x2 * x2, -1), -2)
    return hlo.sqrt(hlo.maximum(left + right - product * 2, 0))


@lower("aten::_cdist_forward", attributes=["p"])
def cdist(x1: Value, x2: Value, p: float, compute_mode: int | None) -> Value:
    x1, x2, batch = _batched(x1, x2)
    shape = (*batch, x1.shape[-2], x2.shape[-2])
    if 0 in shape or x1.shape[-1] == 0:
        return hlo.full(shape, 0, x1.dtype)
    large = x1.shape[-2] > MATMUL_ROWS or x2.shape[-2] > MATMUL_ROWS
    if p == 2 and (compute_mode == 1 or (not compute_mode and large)):
        return _euclidean(x1, x2)
    return _norm(hlo.unsqueeze(x1, -2) - hlo.unsqueeze(x2, -3), p)


@lower("aten::_cdist_backward", attributes=["p"])
def cdist_backward(grad: Value, x1: Value, x2: Value, p: float, cdist: Value) -> Value:
    if 0 in grad.shape or x1.numel == 0:
        return hlo.zeros_like(x1)
    x1, x2, _ = _batched(x1, x2)
    difference = hlo.unsqueeze(x1, -2) - hlo.unsqueeze(x2, -3)
    slope = _slope(difference, hlo.unsqueeze(cdist, -1), p)
    return hlo.sum_(slope * hlo.unsqueeze(grad, -1), -2)


def _pairs(n: int) -> tuple[Value, Value]:
    """Row and column of every pair above the diagonal, in torch's order."""
    row, column = np.triu_indices(n, 1)
    return hlo.table(row, torch.int64), hlo.table(column, torch.int64)


@lower("aten::_pdist_forward", attributes=["p"])
def pdist(self: Value, p: float) -> Value:
    n = self.shape[0]
    count = n * (n - 1) // 2
    if n <= 1 or self.shape[1] == 0:
        return hlo.full((max(count, 0),), 0, self.dtype)
    row, column = _pairs(n)
    return _norm(hlo.take_rows(self, row) - hlo.take_rows(self, column), p)


@lower("aten::_pdist_backward", attributes=["p"])
def pdist_backward(grad: Value, self: Value, p: float, pdist: Value) -> Value:
    """Pairs become a symmetric matrix, so that each row's gradient is a plain sum."""
    n = self.shape[0]
    if n <= 1 or self.numel == 0:
        return hlo.zeros_like(self)
    row, column = _pairs(n)
    at = hlo.concatenate([hlo.unsqueeze(row, 1), hlo.unsqueeze(column, 1)], 1)
    matrices = []
    for x in (grad, pdist):
        empty = hlo.full((n, n), 0, x.dtype)
        upper = hlo.scatter(empty, at, x, None, update_window_dims=[], inserted=[0, 1], scatter_map=[0, 1], unique=True)
        matrices.append(upper + hlo.permute(upper, [1, 0]))
    g, distance = matrices
    difference = hlo.unsqueeze(self, 1) - hlo.unsqueeze(self, 0)
    return hlo.sum_(_slope(difference, hlo.unsqueeze(distance, 2), p) * hlo.unsqueeze(g, 2), 1)
