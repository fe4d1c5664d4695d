"""Embedding tables: rows by index, and their gradients as row scatters."""

from __future__ import annotations

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.bounds import checked
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.ops.scatter import scatter_flat, scatter_rows
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Scalar, Value


@lower("aten::embedding")
def embedding(
    weight: Value, indices: Value, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Value:
    i = checked(indices, weight.shape[0], "IndexError", "embedding(): index out of range in self")
    if not i.numel or not weight.numel:
        return hlo.full((*i.shape, *weight.shape[1:]), 0, weight.dtype)
    return hlo.take_rows(weight, i)


def frequencies(indices: Value, size: int) -> Value:
    """How often each of 0 .. size - 1 occurs in a 1-D index, int64."""
    return scatter_flat(hlo.full((size,), 0, torch.int64), indices, hlo.full(indices.shape, 1, torch.int64), hlo.add)


@lower("aten::embedding_dense_backward")
def embedding_dense_backward(
    grad_output: Value, indices: Value, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Value:
    width, dtype = grad_output.shape[indices.ndim :], compute_dtype(grad_output.dtype)
    weight = hlo.full((num_weights, *width), 0, dtype)
    if not grad_output.numel or not weight.numel:
        return hlo.convert(weight, grad_output.dtype)
    i = hlo.flatten(hlo.convert(indices, torch.int64))
    rows = hlo.convert(hlo.reshape(grad_output, (i.numel, *width)), dtype)
    if scale_grad_by_freq:
        counts = hlo.take_rows(frequencies(i, num_weights), i)
        rows = hlo.divide(rows, hlo.reshape(hlo.convert(counts, dtype), (i.numel, *(1 for _ in width))))
    if padding_idx >= 0:
        i = hlo.select(hlo.eq(i, padding_idx), -1, i)  # out of range: dropped
    return hlo.convert(scatter_rows(weight, 0, i, rows, hlo.add), grad_output.dtype)


def row_norms(rows: Value, norm_type: Scalar) -> Value:
    """p-norm of each row of a matrix, for a p known at run time only."""
    p = hlo.convert(hlo.as_value(norm_type), rows.dtype)
    size = hlo.abs_(rows)
    powers = hlo.power(hlo.sum_(hlo.power(size, p), 1), 1 / p)
    square = hlo.sqrt(hlo.sum_(size * size, 1))
    largest = hlo.reduce_max(size, 1)
    total = hlo.select(hlo.eq(p, 2), square, powers)
    total = hlo.select(hlo.eq(p, 1), hlo.sum_(size, 1), total)
    total = hlo.select(hlo.eq(p, 0), hlo.sum_(hlo.convert(hlo.ne(size, 0), rows.dtype), 1), total)
    return hlo.select(hlo.eq(p, float("inf")), largest, total)


@lower("aten::embedding_renorm")
def embedding_renorm(self: Value, indices: Value, max_norm: Scalar, norm_type: Scalar) -> Value:
    """Rows in use are scaled down to max_norm; a repeated index writes the same row again."""
    if not indices.numel or not self.numel:
        return self
    i = hlo.flatten(checked(indices, self.shape[0], "IndexError", "embedding_renorm_(): index out of range in self"))
    rows = hlo.convert(hlo.take_rows(self, i), compute_dtype(self.dtype))
    limit = hlo.convert(hlo.as_value(max_norm), rows.dtype)
    norms = row_norms(rows, norm_type)
    scale = hlo.select(hlo.gt(norms, limit), hlo.divide(limit, norms + 1e-7), hlo.full_like(norms, 1))
    scaled = hlo.convert(rows * hlo.reshape(scale, (i.numel, 1)), self.dtype)
    return scatter_rows(self, 0, i, scaled, None)
