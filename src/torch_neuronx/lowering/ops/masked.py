"""Elementwise choice by a mask."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.module import require
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Scalar, Value


@lower("aten::masked_fill.Scalar", "aten::masked_fill.Tensor", pointwise=True)
def masked_fill(self: Value, mask: Value, value: Scalar) -> Value:
    return hlo.select(hlo.convert(mask, torch.bool), hlo.convert(hlo.as_value(value), self.dtype), self.strong())


@lower("aten::masked_scatter")
def masked_scatter(self: Value, mask: Value, source: Value) -> Value:
    """The k-th true position takes source[k]: a gather by running count, no scatter."""
    shape = hlo.broadcast_shapes(self.shape, mask.shape)
    x = hlo.broadcast_to(self, shape)
    if not x.numel:
        return x
    chosen = hlo.broadcast_to(hlo.convert(mask, torch.bool), shape)
    if not source.numel:
        require(hlo.not_(hlo.any_(chosen)), "RuntimeError", _TOO_FEW)
        return x
    (counts,) = hlo.cumulative([hlo.convert(hlo.flatten(chosen), torch.int64)], [0], 0, lambda a, b: [a + b])
    total = hlo.reshape(hlo.slice_dim(counts, 0, x.numel - 1, x.numel), ())
    require(hlo.le(total, source.numel), "RuntimeError", _TOO_FEW)
    taken = hlo.take_rows(hlo.flatten(source), hlo.maximum(counts - 1, 0))
    return hlo.select(chosen, hlo.reshape(taken, shape), x)


_TOO_FEW = "masked_scatter: expected self and source to have enough elements: fewer in source than ones in mask"


@lower("aten::masked_scatter_backward")
def masked_scatter_backward(grad_output: Value, mask: Value, sizes: Sequence[int]) -> Value:
    """The selected gradients in order, zeros behind."""
    chosen = hlo.flatten(hlo.broadcast_to(hlo.convert(mask, torch.bool), grad_output.shape))
    out = hlo.full(tuple(sizes), 0, grad_output.dtype)
    if not out.numel or not chosen.numel:
        return out
    positions, count = hlo.compact(chosen, out.numel)
    taken = hlo.take_rows(hlo.flatten(grad_output), positions)
    return hlo.reshape(hlo.select(hlo.lt(hlo.iota((out.numel,), 0), count), taken, 0), sizes)
